//! What holds for every plan of one function.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use kerninst_analysis::{Analysis, Function, InsnKind, Sites};
use kerninst_patch::{Boards, Plan, Spot, Tactic, Tactics};

use super::PATCH;

macro_rules! ensure {
    ($what:expr $(, $why:expr)* $(,)?) => {
        if !$what {
            return Err([stringify!($what).to_string(), $(format!(": {}", $why)),*].concat());
        }
    };
}

macro_rules! same {
    ($a:expr, $b:expr $(, $why:expr)* $(,)?) => {
        if $a != $b {
            let values = format!("{:?} is not {:?}", $a, $b);
            return Err([values, $(format!(": {}", $why)),*].concat());
        }
    };
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn is_padding(analysis: &Analysis<'_>, at: u64) -> bool {
    analysis
        .padding_near(at, 16)
        .iter()
        .any(|r| r.contains(&at))
}

/// Checks the plan for the points `asked` of `f`, made with `tactics`, that claimed its bytes in `boards`.
pub fn check(
    analysis: &Analysis<'_>,
    f: &Function,
    asked: &[Spot],
    tactics: Tactics,
    plan: &Plan,
    boards: &Boards,
) -> Result<(), String> {
    let kernel = analysis.kernel();
    // Every point exactly once, but for those that have a splice on each way to them.
    let mut seen: BTreeMap<Spot, Vec<Option<Tactic>>> = BTreeMap::new();
    for s in &plan.splices {
        for p in &s.points {
            seen.entry(p.at).or_default().push(Some(p.tactic));
        }
    }
    for r in &plan.refused {
        seen.entry(r.at).or_default().push(None);
        ensure!(r.nearest != Some(r.at.addr()));
    }
    let asked: BTreeSet<Spot> = asked.iter().copied().collect();
    same!(seen.keys().copied().collect::<BTreeSet<_>>(), asked);
    for how in seen.values() {
        let ways = how.iter().all(|t| *t == Some(Tactic::Edges));
        ensure!(how.len() == 1 || ways, "a point in two places");
    }
    if plan.splices.is_empty() {
        return Ok(());
    }
    ensure!(f.is_complete());

    let mut owned: Vec<Range<u64>> = vec![];
    for s in &plan.splices {
        owned.push(s.range());
        owned.extend(s.board.iter().map(|b| b.addr..b.addr + 5));
    }
    for (n, a) in owned.iter().enumerate() {
        ensure!(owned.iter().skip(n + 1).all(|b| !overlap(a, b)), "overlap");
        ensure!(boards.conflict(a).is_some(), "not claimed");
    }

    for s in &plan.splices {
        ensure!(tactics.has(s.tactic) || s.tactic == Tactic::InPlace);
        // What is overwritten is what is there, whole instructions from a boundary (int3: the first byte).
        same!(kernel.bytes(s.site, s.old.len()), Some(&s.old[..]));
        let pieces: usize = s.boundaries.iter().map(|b| usize::from(*b)).sum();
        same!(pieces, s.old.len());
        let head = f.insn_at(s.site);
        ensure!(head.is_some(), "site not on a boundary");
        let range = s.range();
        let inside: Vec<_> = f
            .insns
            .iter()
            .filter(|i| overlap(&(i.addr..i.end()), &range))
            .collect();
        for i in &inside {
            ensure!(
                !i.sites.intersects(Sites::MANAGED),
                "a managed site is overwritten"
            );
            ensure!(
                s.tactic == Tactic::Int3 || i.end() <= range.end,
                "half an instruction is overwritten"
            );
            if i.addr != s.site {
                same!(s.tactic, Tactic::Run);
                ensure!(
                    !i.joins && !i.after_call && !i.after_trap,
                    "may be reached inside a run"
                );
                ensure!(
                    !i.sites.intersects(Sites::EXTABLE),
                    "may be resumed inside a run"
                );
                let call = matches!(i.kind, InsnKind::Call | InsnKind::IndirectCall);
                ensure!(!call || i.end() == range.end, "a call inside a run");
            }
        }
        // Bytes beyond the instructions are padding.
        let last = inside.last().map_or(s.site, |i| i.end());
        for at in last..range.end {
            ensure!(f.insn_containing(at).is_none());
            ensure!(is_padding(analysis, at), "not padding");
        }
        // What is armed decodes at every old boundary that can still be reached, and leads to the patch.
        let b = s.site_bytes(PATCH).expect("in reach");
        same!(b.jump.len() + b.tail.len(), s.old.len());
        match s.tactic {
            Tactic::Int3 => same!(&b.jump, &[0xcc]),
            Tactic::Springboard => {
                let jump = Decoder::with_ip(64, &b.jump, s.site, DecoderOptions::NONE).decode();
                let (at, board) = b.board.unwrap();
                same!(jump.near_branch_target(), at);
                let long = Decoder::with_ip(64, &board, at, DecoderOptions::NONE).decode();
                same!(long.near_branch_target(), PATCH);
                let old = s.board.as_ref().unwrap();
                same!(kernel.bytes(at, 5), Some(&old.old[..]));
                ensure!(
                    (at..at + 5).all(|a| is_padding(analysis, a)),
                    "a board that is not on padding"
                );
            }
            _ => {
                let jump = Decoder::with_ip(64, &b.jump, s.site, DecoderOptions::NONE).decode();
                same!(jump.near_branch_target(), PATCH);
            }
        }
        let poke = b.jump.len() as u8;
        let emulate = b.emulate(poke).unwrap();
        let emulated = Decoder::with_ip(
            64,
            &emulate,
            s.site + u64::from(poke) - 5,
            DecoderOptions::NONE,
        )
        .decode();
        same!(emulated.near_branch_target(), PATCH);

        // In the patch control has one way only: nothing else leads to what it runs, but for its first instruction.
        let first = f.index_at(s.site).unwrap();
        let runs = &f.insns[first..first + s.displaced as usize];
        let traced = |t: Option<u64>| {
            t.is_some_and(|t| !kernel.tables().fentry.in_range(t..t + 5).is_empty())
        };
        for (n, i) in runs.iter().enumerate() {
            ensure!(
                !i.sites.intersects(Sites::MANAGED),
                "a managed site is run in a patch"
            );
            ensure!(
                n == 0 || !i.joins && !i.after_trap,
                "a second way into what a patch runs"
            );
            let straight = matches!(
                i.kind,
                InsnKind::Plain | InsnKind::Nop | InsnKind::Jcc | InsnKind::Loop
            );
            let comes_back = i.kind == InsnKind::Call && traced(i.target);
            ensure!(straight || comes_back || n + 1 == runs.len());
        }
        let passed = first..first + s.displaced as usize;
        for p in s.points.iter().filter(|p| p.tactic != Tactic::Edges) {
            let Spot::Before(addr) = p.at else { continue };
            let at = f.index_at(addr).unwrap();
            let next = &f.insns[at];
            ensure!(passed.contains(&at) || at == passed.end && !next.joins && !next.after_trap);
        }
        // No point that this patch passes is served elsewhere: it would be missed.
        for other in plan.splices.iter().filter(|o| o.site != s.site) {
            for p in other.points.iter().filter(|p| p.tactic != Tactic::Edges) {
                let Spot::Before(addr) = p.at else { continue };
                // A hoist onto this site counts before it comes here, which is right.
                let before = addr == s.site && other.site < s.site;
                let at = f.index_at(addr).unwrap();
                ensure!(before || !passed.contains(&at), "a point is passed by");
            }
            ensure!(!passed.contains(&f.index_at(other.site).unwrap()));
        }
        // The patch decodes to its end, never returns into itself, and its tables name instructions.
        let code = s.patch.linked_at(PATCH).expect("in reach");
        let mut starts = BTreeSet::new();
        let mut end = PATCH;
        let mut flow = FlowControl::Next;
        for i in Decoder::with_ip(64, &code, PATCH, DecoderOptions::NONE).iter() {
            ensure!(!i.is_invalid());
            starts.insert((i.ip() - PATCH) as u32);
            end = i.next_ip();
            flow = i.flow_control();
            // A call that a patch makes is one of those that it runs, of a function that comes back.
            let target = i.is_call_near().then(|| i.near_branch_target());
            let known = runs.iter().any(|r| r.target == target) && traced(target);
            ensure!(!i.is_call_near() || known, "a real call in a patch");
            ensure!(!i.is_call_near_indirect());
        }
        same!(end - PATCH, code.len() as u64);
        ensure!(
            matches!(
                flow,
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
            ) || flow == FlowControl::Exception,
            "runs off its end"
        );
        for o in &s.patch.orc {
            ensure!(
                starts.contains(&o.offset) || o.offset as usize == code.len(),
                "unwind data off a boundary"
            );
        }
        for e in &s.patch.extable {
            ensure!(starts.contains(&e.offset));
        }
        for b in &s.patch.bugs {
            same!(&code[b.offset as usize..][..2], &[0x0f, 0x0b]);
        }
    }
    Ok(())
}
