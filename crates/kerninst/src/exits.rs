//! Which instructions stand for a function's entry, its exits and its blocks.

use crate::point::{Point, PointKind};
use kerninst_analysis::{Block, ExitKind, Function, Insn, InsnKind, Sites};

/// The point that is executed once a call: the first instruction after the fentry site (or after `endbr64`, where
/// there is none). Not all functions have one: where a loop leads back to the place just after the fentry site,
/// that instruction also counts the rounds.
pub(crate) fn entry(function: &Function, probe: usize) -> Option<Point> {
    let first = function.index_at(function.entry())?;
    let insns = function.insns.get(first..)?;
    let skip = insns
        .iter()
        .take_while(|i| i.sites.intersects(Sites::FENTRY | Sites::ENDBR))
        .count();
    let start = insns.get(skip)?;
    let again = skip > 0 && start.joins && is_jumped_to(function, start.addr);
    if again || (skip == 0 && is_jumped_to(function, start.addr)) {
        return None;
    }
    Some(Point {
        probe,
        function: function.id.clone(),
        entry: function.entry(),
        addr: start.addr,
        kind: PointKind::Entry,
        candidates: equals(insns.get(skip..)?),
    })
}

/// Does a branch of the function itself lead to `addr`?
fn is_jumped_to(function: &Function, addr: u64) -> bool {
    let is_branch = |i: &Insn| matches!(i.kind, InsnKind::Jcc | InsnKind::Jmp | InsnKind::Loop);
    function
        .insns
        .iter()
        .any(|i| i.target == Some(addr) && (is_branch(i) || i.sites.contains(Sites::JUMP_LABEL)))
}

/// Instructions after the first that are executed exactly as often as it: up to and with the first that may go
/// elsewhere (a call that may not come back, a fault, a trap, a branch).
fn equals(insns: &[Insn]) -> Vec<u64> {
    let mut out = Vec::new();
    for (n, i) in insns.iter().enumerate() {
        if n > 0 {
            if i.joins || i.after_call || i.after_trap {
                break;
            }
            out.push(i.addr);
        }
        let straight = matches!(i.kind, InsnKind::Plain | InsnKind::Nop);
        if !straight
            || i.sites
                .intersects(Sites::EXTABLE | Sites::JUMP_LABEL | Sites::STATIC_CALL)
        {
            break;
        }
    }
    out
}

/// Every way out: returns, tail calls, calls that do not come back. A conditional tail call has no instruction of its
/// own (the jump is also executed when it is not taken): those are returned apart, as addresses.
pub(crate) fn exits(function: &Function, probe: usize) -> (Vec<Point>, Vec<u64>) {
    let mut points = Vec::new();
    let mut conditional = Vec::new();
    for exit in function.exits() {
        let Some(insn) = function.insns.get(exit.insn as usize) else {
            continue;
        };
        // A trap is a bug being reported; after a WARN execution goes on.
        if exit.kind == ExitKind::Trap {
            continue;
        }
        if exit.conditional {
            conditional.push(insn.addr);
            continue;
        }
        points.push(Point {
            probe,
            function: function.id.clone(),
            entry: function.entry(),
            addr: insn.addr,
            kind: PointKind::Exit(exit.kind),
            candidates: Vec::new(),
        });
    }
    points.dedup_by_key(|p| p.addr);
    (points, conditional)
}

/// The point that stands for a block.
pub(crate) fn block(
    function: &Function,
    number: usize,
    block: &Block,
    probe: usize,
) -> Option<Point> {
    let insns = function.block_insns(block);
    let first = insns.first()?;
    let mut candidates = equals(insns);
    let mut addr = first.addr;
    // The entry block starts with endbr64 and the fentry site, which nobody may displace.
    if first.addr == function.entry() {
        let skip = insns
            .iter()
            .take_while(|i| i.sites.intersects(Sites::FENTRY | Sites::ENDBR))
            .count();
        let rest = insns.get(skip..).filter(|r| !r.is_empty())?;
        addr = rest.first()?.addr;
        candidates = equals(rest);
    }
    Some(Point {
        probe,
        function: function.id.clone(),
        entry: function.entry(),
        addr,
        kind: PointKind::Block(number as u32),
        candidates,
    })
}
