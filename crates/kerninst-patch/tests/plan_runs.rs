//! Random functions are run as they are and again with all splices armed, by a model of control flow: each counter
//! must be the number of times that its place was passed.

mod common;

use common::model::compare;
use common::random::{case, item};
use common::spots::spots;
use common::{F, requests_at};
use kerninst_analysis::Analysis;
use kerninst_patch::{Boards, Options, Planner, Spot, Tactics};
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
        tactics in prop_oneof![2 => Just(0x77fu16), 2 => any::<u16>().prop_map(|t| t | 0x40)],
        merge in any::<bool>(),
        distance in 0usize..10,
        chosen in prop_oneof![Just(0.06), Just(0.5)].prop_flat_map(|d| prop::collection::vec(prop::bool::weighted(d), 160)),
        edges in any::<bool>(),
        decisions in prop::collection::vec(any::<bool>(), 0..200),
    ) {
        let case = case(&items, before, after, true);
        let kernel = case.kernel();
        let analysis = Analysis::new(&kernel);
        let f = analysis.function_at(F);
        prop_assume!(f.as_ref().is_some_and(|f| f.is_complete()));
        let f = f.unwrap();
        let options = Options { tactics: Tactics::from_bits_truncate(tactics), merge, distance, ..Options::default() };
        // Spots of all kinds, or plain points only.
        let all = spots(&f).into_iter().filter(|s| edges || matches!(s, Spot::Before(_)));
        let wanted: Vec<Spot> = all.zip(chosen).filter(|(_, c)| *c).map(|(s, _)| s).collect();
        let plan = Planner::new(&analysis, options).plan(&requests_at(&wanted), &mut Boards::new());

        if let Err(why) = compare(&kernel, &f, &wanted, &plan, &decisions) {
            return Err(TestCaseError::fail(format!("{why}: {plan:#?}")));
        }
    }
}
