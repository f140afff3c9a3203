//! Versions of random functions, run by a model of control flow beside the original: the same way through, and every
//! counter right. Would catch a wrong label, a lost edge, a fixup that leads back into the original, a snippet on the
//! wrong side of a branch.

mod common;

use std::collections::HashMap;

use common::model::{self, World};
use common::random::{case, item};
use common::spots::{expected, spots};
use common::{F, PATCH, SLOT};
use kerninst_analysis::{Analysis, Function};
use kerninst_patch::{Boards, Options, Planner, Request, Spot, Version};
use kerninst_snippet::Snippet;
use proptest::prelude::*;

/// The version in place of its function's entry.
fn arm(world: &mut World, f: &Function, v: &Version) {
    model::write(world, &v.splice, PATCH);
    let patch = &v.splice.patch;
    let resumed = patch.bugs.iter().filter(|b| b.flags & 1 == 1);
    world
        .warnings
        .extend(resumed.map(|b| PATCH + u64::from(b.offset)));
    for (offset, original) in &patch.returns {
        if f.insn_at(*original).is_some() {
            world.instructions.insert(PATCH + u64::from(*offset));
        }
    }
}

/// A counter at every spot.
fn counters(slots: &HashMap<Spot, u64>) -> Vec<Request> {
    let counter = |(at, slot): (&Spot, &u64)| Request {
        at: *at,
        snippets: vec![Snippet::Count { percpu: *slot }],
    };
    slots.iter().map(counter).collect()
}

fn compare(
    v: &Version,
    f: &Function,
    slots: &HashMap<Spot, u64>,
    mut world: World,
) -> Result<Option<usize>, String> {
    let Some(plain) = world.run(20_000) else {
        return Ok(None);
    };
    arm(&mut world, f, v);
    let Some(got) = world.run(400_000) else {
        return Err("the version needs no decisions any more, or met a breakpoint".into());
    };
    if (got.decided, got.left) != (plain.decided, plain.left) {
        return Err(format!(
            "{} decisions in the version, {} in the original",
            got.decided, plain.decided
        ));
    }
    // The original's body must not have been entered, but for what runs in place before the splice.
    let strays = got
        .began
        .keys()
        .filter(|a| f.contains(**a) && **a > v.splice.range().end.max(v.splice.site + 5))
        // A board may lie in padding between its blocks.
        .filter(|a| v.splice.board.as_ref().is_none_or(|b| b.addr != **a));
    if let Some(stray) = strays.min() {
        return Err(format!(
            "the version goes back into the original at {stray:#x}"
        ));
    }
    let mut reached = 0;
    for p in &v.splice.points {
        let Some(n) = expected(f, p.at, &plain) else {
            continue;
        };
        let slot = slots.get(&p.at).copied().unwrap_or(0);
        let counted = got.counters.get(&slot).copied().unwrap_or(0);
        if counted != n {
            return Err(format!(
                "{} is passed {n} times and was counted {counted} times",
                p.at
            ));
        }
        reached += usize::from(n > 0);
    }
    Ok(Some(reached))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn versions_count_every_edge(
        items in prop::collection::vec(item(), 1..30),
        before in 0usize..17,
        decisions in prop::collection::vec(any::<bool>(), 40),
        keys in prop::collection::vec(any::<u32>(), 64),
    ) {
        let case = case(&items, before, 16, true);
        let kernel = case.kernel();
        let analysis = Analysis::new(&kernel);
        let Some(f) = analysis.function_at(F) else { return Ok(()) };
        let planner = Planner::new(&analysis, Options::default());
        let all = spots(&f);
        let slots: HashMap<Spot, u64> = all.iter().enumerate().map(|(n, s)| (*s, SLOT + 8 * n as u64)).collect();
        let requests = counters(&slots);
        let mut order: Vec<u32> = (0..f.blocks.len() as u32).collect();
        order.sort_by_key(|b| keys.get(*b as usize % keys.len()).map(|k| (k % 7, *b)));
        let Ok((v, _)) = planner.version(&f, &requests, Some(&order), &mut Boards::new()) else { return Ok(()) };
        let world = model::world(&kernel, &f, &decisions);
        if let Err(why) = compare(&v, &f, &slots, world) {
            return Err(TestCaseError::fail(format!("{why}\n{items:?}\n{order:?}\n{:#?}", f.blocks)));
        }
    }

    #[test]
    fn any_bytes_as_a_version_do_not_panic(
        code in prop::collection::vec(any::<u8>(), 1..80),
        labels in prop::collection::vec((0u64..80, 0u64..80), 0..3),
    ) {
        let hex: String = code.iter().map(|b| format!("{b:02x}")).collect();
        let mut case = common::Case::new(&hex);
        for (a, b) in labels {
            case = case.jump_label(a, b).extable(b, a).bug(a).static_call(b);
        }
        let kernel = case.kernel();
        let analysis = Analysis::new(&kernel);
        let Some(f) = analysis.function_at(F) else { return Ok(()) };
        let requests: Vec<_> = spots(&f).into_iter().map(|at| Request { at, snippets: vec![] }).collect();
        let planner = Planner::new(&analysis, Options::default());
        if let Ok((v, _)) = planner.version(&f, &requests, None, &mut Boards::new()) {
            let _ = v.splice.site_bytes(PATCH);
        }
    }
}

/// The generator must make functions of which most get versions: a property of nothing holds always.
#[test]
fn most_random_functions_have_versions() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut made, mut reached) = (0, 0);
    for _ in 0..400 {
        let items = prop::collection::vec(item(), 1..30)
            .new_tree(&mut runner)
            .unwrap()
            .current();
        let kernel = case(&items, 16, 16, true).kernel();
        let analysis = Analysis::new(&kernel);
        let Some(f) = analysis.function_at(F) else {
            continue;
        };
        let planner = Planner::new(&analysis, Options::default());
        let slots: HashMap<Spot, u64> = spots(&f)
            .into_iter()
            .enumerate()
            .map(|(n, s)| (s, SLOT + 8 * n as u64))
            .collect();
        let requests = counters(&slots);
        if let Ok((v, _)) = planner.version(&f, &requests, None, &mut Boards::new()) {
            made += 1;
            let decisions = [true, false, false, true, true, false, false, false, true];
            let world = model::world(&kernel, &f, &decisions);
            reached += compare(&v, &f, &slots, world)
                .unwrap()
                .unwrap_or(0)
                .min(1000);
        }
    }
    assert!(
        made > 80 && reached > 500,
        "{made} versions, {reached} spots reached"
    );
}
