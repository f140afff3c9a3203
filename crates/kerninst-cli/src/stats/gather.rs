//! Figures of single functions, added up.

use kerninst_analysis::{Analysis, Function, FunctionId, InsnKind};
use kerninst_profile::{Derivation, Flow, Placement, Role, Weights};
use serde::Serialize;

use super::cost::{Costs, live_on};
use crate::list;

/// Schema `kerninst.stats/1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Functions that were looked at.
    pub functions: u64,
    /// Those whose control flow is fully known: all figures below are of these.
    pub complete: u64,
    /// Those of them in which nothing may be inserted (noinstr, entry code and the like).
    pub off_limits: u64,
    /// Reachable instructions.
    pub instructions: u64,
    /// Calls, and those of them through pointers.
    pub calls: u64,
    /// Calls and tail calls through pointers.
    pub indirect: u64,
    /// Basic blocks.
    pub blocks: u64,
    /// Edges: between blocks, into functions and out of them.
    pub edges: u64,
    /// Natural loops.
    pub loops: u64,
    /// Functions with a loop.
    pub looping: u64,
    /// Loops around each other, at most.
    pub deepest: u64,
    /// Blocks of the largest function.
    pub largest_blocks: u64,
    /// That function.
    pub largest: Option<String>,
    /// Blocks that are entered from elsewhere: no edge of the function leads there.
    pub foreign: u64,
    /// Edges whose counts follow from block counts alone (KernInst's rule).
    pub derivable_edges: u64,
    /// Functions all of whose edges do.
    pub derivable_functions: u64,
    /// What exact profiles need, of the functions in which code can be inserted.
    pub counters: Counters,
    /// Instructions added by the counters of exact profiles.
    pub edge_cost: Costs,
    /// Instructions added by a counter at the start of every block.
    pub block_cost: Costs,
}

/// Numbers of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Functions that they are for.
    pub functions: u64,
    /// One for each block.
    pub blocks: u64,
    /// One for each edge.
    pub edges: u64,
    /// Those of a spanning tree, which give all block and edge counts; the one per function that checks them is included.
    pub exact: u64,
    /// Edges of which the count cannot be known.
    pub unknown: u64,
}

impl Stats {
    fn plus(mut self, other: Stats) -> Stats {
        if other.largest_blocks > self.largest_blocks {
            self.largest_blocks = other.largest_blocks;
            self.largest = other.largest;
        }
        self.deepest = self.deepest.max(other.deepest);
        self.functions += other.functions;
        self.complete += other.complete;
        self.off_limits += other.off_limits;
        self.instructions += other.instructions;
        self.calls += other.calls;
        self.indirect += other.indirect;
        self.blocks += other.blocks;
        self.edges += other.edges;
        self.loops += other.loops;
        self.looping += other.looping;
        self.foreign += other.foreign;
        self.derivable_edges += other.derivable_edges;
        self.derivable_functions += other.derivable_functions;
        let (a, b) = (&mut self.counters, other.counters);
        a.functions += b.functions;
        a.blocks += b.blocks;
        a.edges += b.edges;
        a.exact += b.exact;
        a.unknown += b.unknown;
        self.edge_cost = self.edge_cost.plus(&other.edge_cost);
        self.block_cost = self.block_cost.plus(&other.block_cost);
        self
    }
}

/// Figures of the chosen functions.
pub fn gather(analysis: &Analysis, chosen: &[&FunctionId]) -> Stats {
    let parts = list::analyse(analysis, chosen, |f| of(analysis, f));
    parts.into_iter().fold(Stats::default(), Stats::plus)
}

fn of(analysis: &Analysis, function: &Function) -> Stats {
    let mut stats = Stats {
        functions: 1,
        ..Stats::default()
    };
    if !function.is_complete() {
        return stats;
    }
    let kernel = analysis.kernel();
    let flow = Flow::new(function);
    let loops = function.loops();
    let kinds = |kind: &dyn Fn(InsnKind) -> bool| {
        function.insns.iter().filter(|i| kind(i.kind)).count() as u64
    };
    stats.complete = 1;
    stats.instructions = function.insns.len() as u64;
    stats.calls = kinds(&|k| matches!(k, InsnKind::Call | InsnKind::IndirectCall));
    stats.indirect = kinds(&|k| matches!(k, InsnKind::IndirectJmp | InsnKind::IndirectCall));
    stats.blocks = flow.blocks() as u64;
    stats.loops = loops.len() as u64;
    stats.looping = u64::from(!loops.is_empty());
    stats.deepest = loops.iter().map(|l| u64::from(l.depth)).max().unwrap_or(0);
    stats.largest_blocks = stats.blocks;
    stats.largest = Some(function.id.clone());
    let roles = flow.real_edges().map(|(_, e)| e.role);
    stats.foreign = roles.filter(|r| *r == Role::Foreign).count() as u64;
    let (derivable, edges) = Derivation::from_blocks(function, &flow).share(&flow);
    stats.edges = edges;
    stats.derivable_edges = derivable;
    stats.derivable_functions = u64::from(derivable == edges);
    if kernel.off_limits().at(function.entry()).is_some() {
        stats.off_limits = 1;
        return stats;
    }
    let jumps_now = |addr: u64| crate::blocks::jumps_now(kernel, addr);
    let weights = Weights::estimate(function, &flow, jumps_now);
    let placement = Placement::new(&flow, &weights);
    stats.counters = Counters {
        functions: 1,
        blocks: stats.blocks,
        edges: flow.real_edges().filter(|(_, e)| e.is_countable()).count() as u64,
        exact: placement.counters().len() as u64,
        unknown: placement.missing().len() as u64,
    };
    for counter in placement.counters() {
        if let Some(edge) = flow.edges().get(counter.edge as usize) {
            stats.edge_cost.add(live_on(function, &flow, edge));
        }
    }
    for block in &function.blocks {
        if let Some(insn) = function.insn_at(block.start) {
            stats.block_cost.add(insn.live);
        }
    }
    stats
}
