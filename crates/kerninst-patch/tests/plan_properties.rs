//! What holds for every plan: random code, random tables, random points.

mod common;

use std::collections::BTreeMap;

use common::random::{case, item, len};
use common::rules::check;
use common::{Case, F, PATCH, requests};
use kerninst_analysis::Analysis;
use kerninst_patch::{Boards, Options, Planner, Spot, Tactic, Tactics};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn plans_keep_the_rules(
        items in prop::collection::vec(item(), 1..30),
        before in 0usize..17,
        after in 0usize..17,
        live in any::<bool>(),
        tactics in prop_oneof![3 => Just(0x77fu16), 1 => any::<u16>()],
        merge in any::<bool>(),
        distance in 0usize..10,
        points in prop::collection::vec(0u64..140, 0..40),
        every in any::<bool>(),
    ) {
        let case = case(&items, before, after, live);
        let kernel = case.kernel();
        let analysis = Analysis::new(&kernel);
        let options = Options { tactics: Tactics::from_bits_truncate(tactics), merge, distance, ..Options::default() };
        let planner = Planner::new(&analysis, options);
        let f = analysis.function_at(F);
        let mut offsets = points;
        if every && let Some(f) = &f {
            offsets = f.insns.iter().map(|i| i.addr - F).collect();
        }
        // `g`, which follows, is another function.
        let end = 5 + items.iter().map(len).sum::<usize>() as u64;
        offsets.retain(|o| *o < end);
        let mut boards = Boards::new();
        let plan = planner.plan(&requests(&offsets), &mut boards);

        let Some(f) = f else {
            prop_assert!(plan.splices.is_empty());
            return Ok(());
        };
        let asked: Vec<Spot> = offsets.iter().map(|o| Spot::Before(F + o)).collect();
        if let Err(why) = check(&analysis, &f, &asked, options.tactics, &plan, &boards) {
            return Err(TestCaseError::fail(format!("{why}: {plan:#?}")));
        }
    }

    #[test]
    fn any_bytes_as_a_function_do_not_panic(
        code in prop::collection::vec(any::<u8>(), 1..80),
        points in prop::collection::vec(0u64..90, 1..20),
        labels in prop::collection::vec((0u64..80, 0u64..80), 0..3),
    ) {
        let hex: String = code.iter().map(|b| format!("{b:02x}")).collect();
        let mut case = Case::new(&hex);
        for (a, b) in labels {
            case = case.jump_label(a, b).extable(b, a).bug(a).static_call(b);
        }
        let kernel = case.kernel();
        let analysis = Analysis::new(&kernel);
        let planner = Planner::new(&analysis, Options::default());
        let mut boards = Boards::new();
        let plan = planner.plan(&requests(&points), &mut boards);
        for s in &plan.splices {
            let _ = s.site_bytes(PATCH);
        }
        if let Some(f) = analysis.function_at(F) {
            prop_assert_eq!(planner.survey(&f, &boards).len(), f.insns.len());
        }
    }
}

/// The generator must make code of which most is planned: a property of nothing holds always.
#[test]
fn most_random_code_is_planned() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut tactics: BTreeMap<Tactic, u32> = BTreeMap::new();
    for _ in 0..400 {
        let items = prop::collection::vec(item(), 1..30)
            .new_tree(&mut runner)
            .unwrap()
            .current();
        let c = case(&items, 16, 16, true);
        let kernel = c.kernel();
        let analysis = Analysis::new(&kernel);
        let Some(f) = analysis.function_at(F) else {
            continue;
        };
        let offsets: Vec<u64> = f.insns.iter().map(|i| i.addr - F).collect();
        let planner = Planner::new(&analysis, Options::default());
        let plan = planner.plan(&requests(&offsets), &mut Boards::new());
        for p in plan.splices.iter().flat_map(|s| &s.points) {
            *tactics.entry(p.tactic).or_default() += 1;
        }
        // Some are only needed where a point is alone.
        for t in planner.survey(&f, &Boards::new()).into_iter().flatten() {
            *tactics.entry(t).or_default() += 1;
        }
    }
    for t in Tactic::ALL {
        assert!(
            tactics.get(&t).copied().unwrap_or(0) > 5,
            "{t} is not exercised: {tactics:?}"
        );
    }
}
