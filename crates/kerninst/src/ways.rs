//! Which spots stand for edges between blocks, and for calls.

use crate::point::{Callee, Point, PointKind};
use kerninst_analysis::{Analysis, EdgeTarget, Function, Operand};
use kerninst_kernel::glob_match;
use kerninst_patch::{Spot, edge_spots};

/// The points of all edges from one block to another; how many more there are, on which nothing can run alone.
pub(crate) fn edge(function: &Function, from: u32, to: u32, probe: usize) -> (Vec<Point>, usize) {
    let Some(block) = function.blocks.get(from as usize) else {
        return (Vec::new(), 0);
    };
    let edges = function.block_edges(block).iter();
    let wanted = edges
        .zip(edge_spots(function, block))
        .filter(|(e, _)| e.to == EdgeTarget::Block(to));
    let (mut points, mut without) = (Vec::new(), 0);
    for (_, spot) in wanted {
        match spot {
            Some(at) => points.push(point(function, at, PointKind::Edge(from, to), probe)),
            None => without += 1,
        }
    }
    (points, without)
}

/// The blocks that `from` leads to.
pub(crate) fn successors(function: &Function, from: u32) -> Vec<u32> {
    let block = function.blocks.get(from as usize);
    let edges = block.map_or(&[][..], |b| function.block_edges(b));
    let mut to: Vec<u32> = edges
        .iter()
        .filter_map(|e| match e.to {
            EdgeTarget::Block(n) => Some(n),
            EdgeTarget::Exit(_) => None,
        })
        .collect();
    to.sort_unstable();
    to.dedup();
    to
}

/// The points of all calls of functions that `callee` names, and of calls through pointers if it is `*`; how many calls through
/// pointers were left out since their callee has to be a certain one, or is not understood.
pub(crate) fn calls(
    analysis: &Analysis<'_>,
    function: &Function,
    callee: &str,
    probe: usize,
) -> (Vec<Point>, usize) {
    let kernel = analysis.kernel();
    let named = |addr: u64| {
        let symbols = kernel.symbols().at(addr);
        symbols.iter().any(|s| {
            glob_match(callee, s.name) || s.id() == callee || glob_match(callee, s.base_name())
        })
    };
    let (mut points, mut left_out) = (Vec::new(), 0);
    for call in function.calls() {
        let Some(insn) = function.insns.get(call.insn as usize) else {
            continue;
        };
        let whom = match call.target {
            Some(target) if callee == "*" || named(target) => Callee::Direct(target),
            Some(_) => continue,
            None => match Operand::of(kernel, insn) {
                Some(operand) if callee == "*" => Callee::Indirect(operand),
                _ => {
                    left_out += 1;
                    continue;
                }
            },
        };
        let branches = function.blocks.get(insn.block as usize);
        let edges = branches.map_or(0, |b| function.block_edges(b).len());
        let conditional = call.tail && edges > 1;
        let at = match conditional {
            // Only where the jump is taken.
            true => Spot::Taken(insn.addr),
            false => Spot::Before(insn.addr),
        };
        points.push(point(function, at, PointKind::Call(whom), probe));
    }
    (points, left_out)
}

fn point(function: &Function, at: Spot, kind: PointKind, probe: usize) -> Point {
    Point {
        probe,
        function: function.id.clone(),
        entry: function.entry(),
        at,
        addr: at.addr(),
        kind,
        candidates: Vec::new(),
    }
}
