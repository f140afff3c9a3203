//! What counters add: instructions that one count executes.

use kerninst_analysis::{Function, InsnKind, Live};
use kerninst_patch::Spot;
use kerninst_profile::{Flow, FlowEdge, Node};
use kerninst_snippet::{Features, Free, Snippet, compile};
use serde::Serialize;

/// A per-CPU slot within a 32-bit displacement, and one that is not.
const SLOTS: [u64; 2] = [0x2_0000, 0x607f_5000_0000];
/// Most instructions that a counter may take, and more than it does.
pub const MOST: usize = 8;

/// How many counters cost how many instructions: `[n]` counters cost `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Costs {
    /// Slots within reach of a 32-bit displacement.
    pub near: [u64; MOST],
    /// Other slots: their address needs a register.
    pub far: [u64; MOST],
}

impl Costs {
    /// Adds a counter where this is live.
    pub fn add(&mut self, live: Live) {
        // lahf: every processor that runs Debian's amd64 kernels and is younger than 2006 has it.
        let features = Features { lahf: true };
        for (list, percpu) in [&mut self.near, &mut self.far].into_iter().zip(SLOTS) {
            let code = compile(&[Snippet::Count { percpu }], Free::from(live), features);
            let cost = (code.cost as usize).min(MOST - 1);
            if let Some(slot) = list.get_mut(cost) {
                *slot += 1;
            }
        }
    }

    /// Both together.
    pub fn plus(mut self, other: &Costs) -> Costs {
        for (a, b) in [(&mut self.near, &other.near), (&mut self.far, &other.far)] {
            for (a, b) in a.iter_mut().zip(b) {
                *a += b;
            }
        }
        self
    }
}

/// What is live where the counter of this edge runs. Not known: everything.
pub fn live_on(function: &Function, flow: &Flow, edge: &FlowEdge) -> Live {
    let before = |addr: u64| function.insn_at(addr).map_or(Live::ALL, |i| i.live);
    let start = |node: Node| match node {
        Node::Block(b) => function.blocks.get(b as usize).map(|b| before(b.start)),
        _ => None,
    };
    match edge.spot {
        Some(Spot::Before(addr)) => before(addr),
        // Behind the fentry site, where versions begin.
        Some(Spot::Enter(entry)) => {
            let behind = function
                .fentry
                .and_then(|f| function.insns.iter().find(|i| i.addr > f));
            behind.map_or_else(|| before(entry), |i| i.live)
        }
        // A branch out of the function: the callee may use what the ABI passes, and no flags.
        Some(Spot::Taken(addr)) if edge.to == Node::Exit => {
            let c = function.abi
                && function
                    .insn_at(addr)
                    .is_some_and(|i| i.kind != InsnKind::Special);
            match c {
                // All but r10 and r11.
                true => Live(Live::REGS.0 & !(1 << 10) & !(1 << 11)),
                false => Live::ALL,
            }
        }
        _ => {
            debug_assert!(flow.blocks() == function.blocks.len());
            start(edge.to).unwrap_or(Live::ALL)
        }
    }
}
