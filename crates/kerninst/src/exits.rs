//! Which instructions stand for a function's entry, its exits and its blocks.

use crate::point::{Point, PointKind};
use kerninst_analysis::{Block, EdgeKind, EdgeTarget, ExitKind, Function, Insn, InsnKind, Sites};
use kerninst_patch::Spot;

/// The point that is executed once a call: the first instruction after the fentry site (or after `endbr64`, where
/// there is none). Where a loop leads back to that instruction it also counts the rounds: then the point is the way in, which a
/// version of the function can count.
pub(crate) fn entry(function: &Function, probe: usize) -> Option<Point> {
    let first = function.index_at(function.entry())?;
    let insns = function.insns.get(first..)?;
    let skip = insns
        .iter()
        .take_while(|i| i.sites.intersects(Sites::FENTRY | Sites::ENDBR))
        .count();
    let start = insns.get(skip)?;
    let again = skip > 0 && start.joins && is_jumped_to(function, start.addr);
    let looped = again || (skip == 0 && is_jumped_to(function, start.addr));
    let (at, candidates) = match looped {
        true => (Spot::Enter(function.entry()), Vec::new()),
        false => (Spot::Before(start.addr), equals(insns.get(skip..)?)),
    };
    Some(Point {
        probe,
        function: function.id.clone(),
        entry: function.entry(),
        at,
        addr: start.addr,
        kind: PointKind::Entry,
        candidates,
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

/// Every way out: returns, tail calls, calls that do not come back. Of a conditional tail call only the taken branch is
/// one (and of an instruction that may also fall out of the function, only its end).
pub(crate) fn exits(function: &Function, probe: usize) -> Vec<Point> {
    let mut points = Vec::new();
    for edge in &function.edges {
        // A trap is a bug being reported; after a WARN execution goes on.
        let kind = match edge.to {
            EdgeTarget::Exit(ExitKind::Trap) | EdgeTarget::Block(_) => continue,
            EdgeTarget::Exit(kind) => kind,
        };
        let Some(block) = function.blocks.get(edge.from as usize) else {
            continue;
        };
        let Some(insn) = function.block_insns(block).last() else {
            continue;
        };
        let only = function.block_edges(block).len() == 1;
        let at = match edge.kind {
            _ if only => Spot::Before(insn.addr),
            EdgeKind::Exit => Spot::Before(insn.addr),
            EdgeKind::Fixup => Spot::Fixup(insn.addr),
            EdgeKind::FallThrough | EdgeKind::CallReturn | EdgeKind::TrapResume => {
                Spot::After(insn.addr)
            }
            // Of a static key's two sides the one that its target is.
            EdgeKind::StaticKeyOn | EdgeKind::StaticKeyOff
                if kind == ExitKind::TailCall(insn.end()) =>
            {
                Spot::After(insn.addr)
            }
            EdgeKind::Taken | EdgeKind::Jump | EdgeKind::StaticKeyOn | EdgeKind::StaticKeyOff => {
                Spot::Taken(insn.addr)
            }
        };
        points.push(Point {
            probe,
            function: function.id.clone(),
            entry: function.entry(),
            at,
            addr: insn.addr,
            kind: PointKind::Exit(kind),
            candidates: Vec::new(),
        });
    }
    points.dedup_by_key(|p| p.at);
    points
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
        at: Spot::Before(addr),
        addr,
        kind: PointKind::Block(number as u32),
        candidates,
    })
}

#[cfg(test)]
mod tests {
    use super::exits;
    use crate::Owners;
    use crate::plan::{Means, plan};
    use kerninst_analysis::Analysis;
    use kerninst_kernel::{Kernel, Site, Table, Tables};

    /// Would catch a conditional tail call that is left out, or counted where its jump is not taken.
    #[test]
    fn a_conditional_tail_call_is_an_exit_where_it_is_taken() {
        let f = 0xffff_ffff_8100_0000;
        let mut text = vec![0x0f, 0x1f, 0x44, 0, 0]; // f: the fentry site
        text.extend([0x48, 0x85, 0xff]); // 05 test %rdi, %rdi
        text.extend([0x0f, 0x84, 3, 0, 0, 0]); // 08 je g
        text.extend([0x31, 0xc0, 0xc3]); // 0e xor %eax, %eax; ret
        text.extend([0x0f, 0x1f, 0x44, 0, 0, 0x31, 0xc0, 0xc3]); // 11: g
        let fentry = vec![Site { addr: f }, Site { addr: f + 0x11 }];
        let tables = Tables {
            fentry: Table::new(fentry),
            ..Tables::default()
        };
        let kernel = Kernel::builder()
            .text(f, &text)
            .symbol("f", f, 't')
            .symbol("g", f + 0x11, 't')
            .tables(tables)
            .live()
            .build();
        let analysis = Analysis::new(&kernel);
        let function = analysis.function_at(f).expect("f");
        let points = exits(&function, 0);
        let shown: Vec<String> = points
            .iter()
            .map(|p| format!("{} {:?}", p.at, p.kind))
            .collect();
        let expected = [
            format!("taken branch of {:#x} Exit(TailCall({}))", f + 8, f + 0x11),
            format!("before {:#x} Exit(Return)", f + 0x10),
        ];
        assert_eq!(shown, expected);
        let planned = plan(&analysis, &points, &Owners::default(), Means::Splices);
        assert_eq!(planned.points.len(), 2, "{:?}", planned.refused);
    }
}
