//! Random functions are run as they are and again with all splices armed, by a model of control flow: each counter
//! must be the number of times that its instruction began.

mod common;

use common::model::compare;
use common::random::{case, item};
use common::{F, requests};
use kerninst_analysis::Analysis;
use kerninst_patch::{Boards, Options, Planner, Tactics};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000, failure_persistence: None, max_global_rejects: 1_000_000, ..ProptestConfig::default()
    })]
    #[test]
    fn counters_are_the_number_of_times_that_the_instruction_began(
        items in prop::collection::vec(item(), 1..30),
        before in 0usize..17,
        after in 0usize..17,
        tactics in prop_oneof![2 => Just(0x7fu8), 2 => any::<u8>().prop_map(|t| t | 0x40)],
        merge in any::<bool>(),
        distance in 0usize..10,
        chosen in prop::collection::vec(any::<bool>(), 64),
        decisions in prop::collection::vec(any::<bool>(), 0..200),
    ) {
        let case = case(&items, before, after, true);
        let kernel = case.kernel();
        let analysis = Analysis::new(&kernel);
        let f = analysis.function_at(F);
        prop_assume!(f.as_ref().is_some_and(|f| f.is_complete()));
        let f = f.unwrap();
        let options = Options { tactics: Tactics::from_bits_truncate(tactics), merge, distance, ..Options::default() };
        let offsets: Vec<u64> = f.insns.iter().map(|i| i.addr - F).collect();
        let offsets: Vec<u64> = offsets.iter().zip(chosen).filter(|(_, c)| *c).map(|(o, _)| *o).collect();
        let plan = Planner::new(&analysis, options).plan(&requests(&offsets), &mut Boards::new());

        let addrs: Vec<u64> = offsets.iter().map(|o| F + o).collect();
        if let Err(why) = compare(&kernel, &f, &addrs, &plan, &decisions) {
            return Err(TestCaseError::fail(format!("{why}: {plan:#?}")));
        }
    }
}
