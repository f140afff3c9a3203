//! How often edges are expected to be taken.

use kerninst_analysis::{EdgeKind, EdgeTarget, ExitKind, Function, InsnKind};

use crate::{Flow, Node, Role};

/// A weight for every edge of a flow graph: counters go where it is low. It decides what profiling costs, never what it
/// counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Weights(Vec<u64>);

/// Weight of an edge that is taken once for each call.
const ONCE: f64 = 1e6;
/// Chance of a way that leads only to code that is not expected to run.
const UNLIKELY: f64 = 1e-4;
/// Chance of a fault.
const FAULT: f64 = 1e-6;
/// Rounds of the propagation: enough that a loop within loops shows.
const ROUNDS: usize = 24;

impl Weights {
    /// The same for all edges.
    pub fn uniform(flow: &Flow) -> Weights {
        Weights(vec![1; flow.edges().len()])
    }

    /// What was measured: counts by edge of the flow; unknown ones weigh nothing.
    pub fn measured(flow: &Flow, edges: &[Option<u64>]) -> Weights {
        let weight = |n: usize| edges.get(n).copied().flatten().unwrap_or(0);
        Weights((0..flow.edges().len()).map(weight).collect())
    }

    /// A guess from the code alone, after Wu and Larus: chances of the ways out of each block (loops go on; the next
    /// instruction is more likely than the branch; cold parts, BUG, WARN, faults and the side of a static key that is off
    /// now hardly ever run), and the frequencies that follow. `jumps_now` says whether the jump label at an address is a
    /// jump at present (None: not known).
    pub fn estimate(
        function: &Function,
        flow: &Flow,
        jumps_now: impl Fn(u64) -> Option<bool>,
    ) -> Weights {
        let chance = chances(function, jumps_now);
        let frequency = frequencies(flow, &chance);
        let weight = |(n, e): (usize, &crate::FlowEdge)| {
            let (Node::Block(from), Role::Edge(_)) = (e.from, e.role) else {
                return ONCE as u64;
            };
            let often = frequency.get(from as usize).copied().unwrap_or(0.0);
            // A float to an integer: saturates, and no number is 0.
            (often * chance.get(n).copied().unwrap_or(0.0) * ONCE) as u64
        };
        Weights(flow.edges().iter().enumerate().map(weight).collect())
    }

    /// The weight of an edge.
    pub fn of(&self, edge: usize) -> u64 {
        self.0.get(edge).copied().unwrap_or(0)
    }
}

/// For every edge of the function the chance that it is taken when its block is left.
fn chances(function: &Function, jumps_now: impl Fn(u64) -> Option<bool>) -> Vec<f64> {
    let unlikely = unlikely(function);
    let loops = function.loops();
    let mut innermost: Vec<Option<usize>> = vec![None; function.blocks.len()];
    // Outer loops come before those inside.
    for (n, l) in loops.iter().enumerate() {
        for b in &l.blocks {
            if let Some(slot) = innermost.get_mut(*b as usize) {
                *slot = Some(n);
            }
        }
    }
    let mut chances = vec![0.0; function.edges.len()];
    for (n, block) in function.blocks.iter().enumerate() {
        let edges = function.block_edges(block);
        let last = function.block_insns(block).last();
        let jumps = last
            .filter(|i| i.kind == InsnKind::JumpLabel)
            .and_then(|i| jumps_now(i.addr));
        let around = innermost.get(n).copied().flatten();
        let around = around.and_then(|l| loops.get(l));
        let mut keys = 0;
        let score = |e: &kerninst_analysis::Edge| {
            let mut score = match e.kind {
                EdgeKind::Fixup => FAULT,
                EdgeKind::Taken => 0.7,
                EdgeKind::StaticKeyOn | EdgeKind::StaticKeyOff => {
                    // The way on comes first.
                    keys += 1;
                    let now = jumps.map(|jumps| jumps == (keys > 1));
                    match (now, e.kind) {
                        (Some(true), _) => 1.0,
                        (Some(false), _) => UNLIKELY,
                        (None, EdgeKind::StaticKeyOff) => 1.0,
                        (None, _) => 0.1,
                    }
                }
                _ => 1.0,
            };
            let to = match e.to {
                EdgeTarget::Block(b) => Some(b),
                EdgeTarget::Exit(_) => None,
            };
            if to.is_some_and(|b| unlikely.get(b as usize) == Some(&true)) {
                score *= UNLIKELY;
            }
            if let Some(l) = around {
                // Loop branch heuristic: 88 % go on.
                match to {
                    Some(b) if b == l.header && l.latches.contains(&(n as u32)) => score *= 0.88,
                    Some(b) if l.blocks.binary_search(&b).is_ok() => {}
                    _ => score *= 0.12,
                }
            }
            score
        };
        let scores: Vec<f64> = edges.iter().map(score).collect();
        let sum: f64 = scores.iter().sum();
        for (e, score) in scores.iter().enumerate() {
            if let Some(slot) = chances.get_mut(block.edges.start as usize + e) {
                *slot = if sum > 0.0 { score / sum } else { 0.0 };
            }
        }
    }
    chances
}

/// Blocks that are not expected to run: in a cold part, with a trap, or leading only to such blocks, traps and calls that
/// do not return.
fn unlikely(function: &Function) -> Vec<bool> {
    let main = function.ranges.first();
    let cold = |b: &kerninst_analysis::Block| {
        let outside = !main.is_some_and(|m| m.contains(&b.start));
        let trap = function
            .block_insns(b)
            .iter()
            .any(|i| i.kind == InsnKind::Trap);
        (outside || trap) && b.start != function.entry()
    };
    let mut unlikely: Vec<bool> = function.blocks.iter().map(cold).collect();
    // Ways through a chain backwards in the order of addresses need a round for each turn; few have more.
    for _ in 0..8 {
        let mut changed = false;
        for (n, block) in function.blocks.iter().enumerate().rev() {
            let edges = function.block_edges(block);
            let leads = !edges.is_empty()
                && edges.iter().all(|e| match e.to {
                    EdgeTarget::Block(b) => unlikely.get(b as usize) == Some(&true),
                    EdgeTarget::Exit(kind) => matches!(kind, ExitKind::Trap | ExitKind::NoReturn),
                });
            if let Some(slot) = unlikely.get_mut(n)
                && leads
                && !*slot
                && block.start != function.entry()
            {
                *slot = true;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    unlikely
}

/// Executions of each block for one call. Not solved exactly: a few rounds in order of address, which is mostly the
/// order of control flow, show where loops are.
fn frequencies(flow: &Flow, chance: &[f64]) -> Vec<f64> {
    let count = flow.blocks();
    // The edges into each block, one block after the other: first how many, then where they begin, at last where they end.
    let edges = flow.edges().iter().zip(chance);
    let inner = edges.filter_map(|(e, c)| match (e.from, e.to) {
        (Node::Block(from), Node::Block(to)) => Some((to as usize, (from as usize, *c))),
        _ => None,
    });
    let mut ends = vec![0usize; count];
    for (to, _) in inner.clone() {
        if let Some(n) = ends.get_mut(to) {
            *n += 1;
        }
    }
    let mut all = 0;
    for n in &mut ends {
        all += std::mem::replace(n, all);
    }
    let mut into = vec![(0, 0.0); all];
    for (to, edge) in inner {
        if let Some(end) = ends.get_mut(to) {
            if let Some(slot) = into.get_mut(*end) {
                *slot = edge;
            }
            *end += 1;
        }
    }
    let mut start = vec![0.0; count];
    for e in flow.edges() {
        let Node::Block(to) = e.to else { continue };
        match e.from {
            Node::Block(_) => {}
            _ => {
                if let Some(slot) = start.get_mut(to as usize) {
                    *slot += if e.role == Role::Enter { 1.0 } else { 1e-3 };
                }
            }
        }
    }
    let mut often = vec![0.0f64; count];
    for _ in 0..ROUNDS {
        let mut largest = 0.0f64;
        let mut begin = 0;
        for (n, (end, first)) in ends.iter().zip(&start).enumerate() {
            let list = into.get(begin..*end).unwrap_or(&[]);
            begin = *end;
            let term = |&(from, c): &(usize, f64)| often.get(from).copied().unwrap_or(0.0) * c;
            let sum = (first + list.iter().map(term).sum::<f64>()).min(1e9);
            if let Some(slot) = often.get_mut(n) {
                largest = largest.max((sum - *slot).abs() / sum.max(1e-9));
                *slot = sum;
            }
        }
        if largest < 0.01 {
            break;
        }
    }
    often
}
