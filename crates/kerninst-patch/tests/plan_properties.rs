//! What holds for every plan: random code, random tables, random points.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use common::random::{case, item, len};
use common::{Case, F, PATCH, requests};
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use kerninst_analysis::{Analysis, InsnKind, Sites};
use kerninst_patch::{Boards, Options, Planner, Tactic, Tactics};
use proptest::prelude::*;

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn plans_keep_the_rules(
        items in prop::collection::vec(item(), 1..30),
        before in 0usize..17,
        after in 0usize..17,
        live in any::<bool>(),
        tactics in prop_oneof![3 => Just(0x7fu8), 1 => any::<u8>()],
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

        // Every point exactly once.
        let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
        for s in &plan.splices {
            for p in &s.points {
                *seen.entry(p.addr).or_default() += 1;
            }
        }
        for r in &plan.refused {
            *seen.entry(r.addr).or_default() += 1;
            prop_assert!(r.nearest != Some(r.addr));
        }
        let asked: BTreeSet<u64> = offsets.iter().map(|o| F + o).collect();
        prop_assert_eq!(seen.keys().copied().collect::<BTreeSet<_>>(), asked);
        prop_assert!(seen.values().all(|n| *n == 1), "a point in two places: {:x?}", seen);
        if plan.splices.is_empty() {
            return Ok(());
        }
        let f = f.expect("a function with splices");
        prop_assert!(f.is_complete());

        let mut owned: Vec<Range<u64>> = vec![];
        for s in &plan.splices {
            owned.push(s.range());
            owned.extend(s.board.iter().map(|b| b.addr..b.addr + 5));
        }
        for (n, a) in owned.iter().enumerate() {
            prop_assert!(owned.iter().skip(n + 1).all(|b| !overlap(a, b)), "overlap {:x?}", owned);
            prop_assert!(boards.conflict(a).is_some(), "not claimed");
        }

        for s in &plan.splices {
            prop_assert!(tactics & Tactics::from(s.tactic).bits() != 0 || s.tactic == Tactic::InPlace);
            // What is overwritten is what is there, whole instructions from a boundary (int3: the first byte).
            prop_assert_eq!(kernel.bytes(s.site, s.old.len()), Some(&s.old[..]));
            let pieces: usize = s.boundaries.iter().map(|b| usize::from(*b)).sum();
            prop_assert_eq!(pieces, s.old.len());
            let head = f.insn_at(s.site);
            prop_assert!(head.is_some(), "site not on a boundary");
            let range = s.range();
            let inside: Vec<_> = f.insns.iter().filter(|i| overlap(&(i.addr..i.end()), &range)).collect();
            for i in &inside {
                prop_assert!(!i.sites.intersects(Sites::MANAGED), "a managed site is overwritten");
                prop_assert!(s.tactic == Tactic::Int3 || i.end() <= range.end, "half an instruction is overwritten");
                if i.addr != s.site {
                    prop_assert_eq!(s.tactic, Tactic::Run);
                    prop_assert!(!i.joins && !i.after_call && !i.after_trap, "may be reached inside a run");
                    prop_assert!(!i.sites.intersects(Sites::EXTABLE), "may be resumed inside a run");
                    let call = matches!(i.kind, InsnKind::Call | InsnKind::IndirectCall);
                    prop_assert!(!call || i.end() == range.end, "a call inside a run");
                }
            }
            // Bytes beyond the instructions are padding.
            let last = inside.last().map_or(s.site, |i| i.end());
            for at in last..range.end {
                prop_assert!(f.insn_containing(at).is_none());
                prop_assert!(matches!(kernel.bytes(at, 1), Some([0xcc | 0x90])));
            }
            // What is armed decodes at every old boundary that can still be reached, and leads to the patch.
            let b = s.site_bytes(PATCH).expect("in reach");
            prop_assert_eq!(b.jump.len() + b.tail.len(), s.old.len());
            match s.tactic {
                Tactic::Int3 => prop_assert_eq!(&b.jump, &[0xcc]),
                Tactic::Springboard => {
                    let jump = Decoder::with_ip(64, &b.jump, s.site, DecoderOptions::NONE).decode();
                    let (at, board) = b.board.unwrap();
                    prop_assert_eq!(jump.near_branch_target(), at);
                    let long = Decoder::with_ip(64, &board, at, DecoderOptions::NONE).decode();
                    prop_assert_eq!(long.near_branch_target(), PATCH);
                    let old = s.board.as_ref().unwrap();
                    prop_assert_eq!(kernel.bytes(at, 5), Some(&old.old[..]));
                    prop_assert!(old.old.iter().all(|b| matches!(b, 0x90 | 0xcc)));
                }
                _ => {
                    let jump = Decoder::with_ip(64, &b.jump, s.site, DecoderOptions::NONE).decode();
                    prop_assert_eq!(jump.near_branch_target(), PATCH);
                }
            }
            let poke = b.jump.len() as u8;
            let emulate = b.emulate(poke).unwrap();
            let emulated = Decoder::with_ip(64, &emulate, s.site + u64::from(poke) - 5, DecoderOptions::NONE).decode();
            prop_assert_eq!(emulated.near_branch_target(), PATCH);

            // Between the site and each point control has one way only.
            let first = f.index_at(s.site).unwrap();
            for p in &s.points {
                let at = f.index_at(p.addr).unwrap();
                for i in &f.insns[first + 1..=at] {
                    prop_assert!(!i.joins && !i.after_call && !i.after_trap, "a second way to a point");
                }
                for i in &f.insns[first..at] {
                    prop_assert!(!i.sites.intersects(Sites::MANAGED), "a managed site is run in a patch");
                    prop_assert!(matches!(i.kind, InsnKind::Plain | InsnKind::Nop | InsnKind::Jcc | InsnKind::Loop));
                }
            }
            // No point that this patch passes is served elsewhere: it would be missed.
            let passed = first..first + s.displaced as usize;
            for other in plan.splices.iter().filter(|o| o.site != s.site) {
                for p in &other.points {
                    // A hoist onto this site counts before it comes here, which is right.
                    let before = p.addr == s.site && other.site < s.site;
                    let at = f.index_at(p.addr).unwrap();
                    prop_assert!(before || !passed.contains(&at), "a point is passed by");
                }
                prop_assert!(!passed.contains(&f.index_at(other.site).unwrap()));
            }
            // The patch decodes to its end, never returns into itself, and its tables name instructions.
            let code = s.patch.linked_at(PATCH).expect("in reach");
            let mut starts = BTreeSet::new();
            let mut end = PATCH;
            let mut flow = FlowControl::Next;
            for i in Decoder::with_ip(64, &code, PATCH, DecoderOptions::NONE).iter() {
                prop_assert!(!i.is_invalid());
                starts.insert((i.ip() - PATCH) as u32);
                end = i.next_ip();
                flow = i.flow_control();
                prop_assert!(!i.is_call_near() && !i.is_call_near_indirect(), "a real call in a patch");
            }
            prop_assert_eq!(end - PATCH, code.len() as u64);
            prop_assert!(
                matches!(flow, FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return)
                    || flow == FlowControl::Exception,
                "runs off its end: {:?}", flow
            );
            for o in &s.patch.orc {
                prop_assert!(starts.contains(&o.offset) || o.offset as usize == code.len(), "unwind data off a boundary");
            }
            for e in &s.patch.extable {
                prop_assert!(starts.contains(&e.offset));
            }
            for b in &s.patch.bugs {
                prop_assert_eq!(&code[b.offset as usize..][..2], &[0x0f, 0x0b]);
            }
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
    }
    for t in Tactic::ALL {
        assert!(
            tactics.get(&t).copied().unwrap_or(0) > 5,
            "{t} is not exercised: {tactics:?}"
        );
    }
}
