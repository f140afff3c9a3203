//! What a function that may not follow the ABI (assembly, C without tracing) does to its caller's registers.
//!
//! Functions with an fentry site are not looked into on purpose: their argument registers are read by
//! ftrace, BPF and kprobes, and a live patch may replace the function by one that reads more.

use crate::function::InsnKind;
use crate::liveness::{Effect, Graph, NONE, Terms, effect, sweep};
use crate::masks::{ALL, CLOBBERED, RSP};
use crate::names::Class;
use crate::node::{Bits, Flow, Leave, Node};
use crate::shared::Shared;

/// Levels of callees without an fentry site that are looked into.
pub(crate) const CALLEE_LEVELS: u8 = 3;
/// Callees with a longer region are not looked into (bytes).
const CALLEE_SIZE: u64 = 4096;
const ROUNDS: usize = 1000;

/// Effect of a call on the caller's registers and flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Callee {
    /// May be read.
    pub reads: u32,
    /// Is overwritten on every way to a return, and never read before: the caller's value is gone.
    pub destroys: u32,
}

impl Callee {
    const UNKNOWN: Callee = Callee {
        reads: ALL,
        destroys: 0,
    };
}

impl Shared<'_> {
    /// The effect of calling `addr`, as far as `levels` levels of callees tell.
    pub(crate) fn callee(&self, addr: u64, levels: u8) -> Callee {
        if levels == 0 || self.index.at(addr).is_none() {
            return Callee::UNKNOWN;
        }
        let region = self.index.region(addr);
        if region.is_none_or(|r| r.end.saturating_sub(r.start) > CALLEE_SIZE) {
            return Callee::UNKNOWN;
        }
        self.callees.get((addr, levels), || {
            let flow = crate::flow::with_scratch(|scratch| self.flow(addr, false, scratch));
            flow.and_then(|f| self.effect_of(&f, addr, levels - 1))
                .unwrap_or(Callee::UNKNOWN)
        })
    }

    fn effect_of(&self, flow: &Flow, addr: u64, levels: u8) -> Option<Callee> {
        if !flow.incomplete.is_empty() {
            return None;
        }
        let entry = flow.index_of(addr)?;
        let graph = Graph::new(flow);
        // What is live at its return is the caller's matter, who keeps what is live behind the call
        // and not destroyed live before it.
        let terms = Terms {
            at_return: RSP,
            unknown: ALL,
            levels,
            optimistic: false,
        };
        let reads = *sweep(self, flow, &graph, terms, &[]).get(entry)?;
        let destroys = self
            .surely_written(flow, &graph, terms)
            .get(entry)
            .copied()?;
        // A register that is read first may be saved and restored.
        Some(Callee {
            reads,
            destroys: destroys & !reads,
        })
    }

    /// For each node: what is written on every way from there to a return.
    fn surely_written(&self, flow: &Flow, graph: &Graph, terms: Terms) -> Vec<u32> {
        let nodes = &flow.nodes;
        let writes: Vec<u32> = nodes.iter().map(|n| self.writes(flow, n, terms)).collect();
        let mut sets = vec![ALL; nodes.len()];
        for _ in 0..ROUNDS {
            let mut changed = false;
            for n in (0..nodes.len()).rev() {
                let Some(node) = nodes.get(n) else { continue };
                let mut after = ALL;
                if node.bits.contains(Bits::FALLS) {
                    let next = nodes.get(n + 1).filter(|x| x.addr == node.end());
                    after &= next.and_then(|_| sets.get(n + 1).copied()).unwrap_or(0);
                }
                match graph.target.get(n) {
                    Some(&t) if t != NONE => after &= sets.get(t as usize).copied().unwrap_or(0),
                    _ if node.bits.contains(Bits::INSIDE) => after = 0,
                    _ => {}
                }
                let from = graph.more.partition_point(|m| (m.0 as usize) < n);
                let more = graph.more.get(from..).unwrap_or(&[]);
                for &(_, to) in more.iter().take_while(|m| m.0 as usize == n) {
                    after &= sets.get(to as usize).copied().unwrap_or(0);
                }
                after &= match node.leave {
                    Leave::Not | Leave::NoReturn | Leave::Trap => ALL,
                    Leave::Tail if self.is_traced(node.target) => CLOBBERED,
                    Leave::Tail => self.callee(node.target, terms.levels).destroys,
                    _ => 0,
                };
                let set = after | writes.get(n).copied().unwrap_or(0);
                if let Some(slot) = sets.get_mut(n)
                    && *slot != set
                {
                    *slot = set;
                    changed = true;
                }
            }
            if !changed {
                return sets;
            }
        }
        vec![0; nodes.len()]
    }

    fn is_traced(&self, addr: u64) -> bool {
        self.index
            .at(addr)
            .is_some_and(|s| s.class.contains(Class::FENTRY))
    }

    fn writes(&self, flow: &Flow, node: &Node, terms: Terms) -> u32 {
        match node.kind {
            // Fixups skip the write of the instruction.
            _ if flow.fixups.iter().any(|f| f.0 == node.addr) => 0,
            InsnKind::Call | InsnKind::IndirectCall => {
                let Effect { kills, .. } = effect(self, flow, node, terms, 0);
                kills
            }
            // The decoder leaves out of `kills` what is read too; a read-modify-write writes for sure only
            // if it is not conditional, which is not known here.
            _ => node.kills,
        }
    }
}
