//! Live registers and flags before every instruction: backward data flow over one function.
//!
//! Two passes. The first is optimistic (calls read nothing and preserve all but their result): it shows which
//! registers the code really reads after a call without having set them, that is, where the compiler or
//! an assembly author knew that the callee preserves more than the ABI promises (`-fipa-ra`, hypercalls).
//! The second is the real one; such registers are carried through the call as live.

use crate::callee::CALLEE_LEVELS;
use crate::function::{InsnKind, Sites};
use crate::masks::{ALL, ARGS, AT_RETURN, CLOBBERED, RAX, RDX, RSP, SAVED};
use crate::names::Class;
use crate::node::{Bits, Flow, Leave, Node};
use crate::shared::Shared;

/// Rounds after which everything is taken for live: never reached by a monotone problem of this size.
const ROUNDS: usize = 10_000;

pub(crate) const NONE: u32 = u32::MAX;

/// What the data flow assumes at the function's edges.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub at_return: u32,
    /// At exits of which nothing is known, and calls with a convention of their own.
    pub unknown: u32,
    /// Levels of callees to look into.
    pub levels: u8,
    /// The first pass: calls read nothing.
    pub optimistic: bool,
}

/// Successors of each node.
pub(crate) struct Graph {
    /// Index of the target node inside the function.
    pub target: Vec<u32>,
    /// Further successors (fixups, alternatives): node, successor; `NONE`: outside. Sorted.
    pub more: Vec<(u32, u32)>,
}

/// Live sets, one for each node of `flow`.
pub(crate) fn solve(shared: &Shared<'_>, flow: &Flow) -> Vec<u32> {
    let graph = Graph::new(flow);
    let at_return = if flow.abi { AT_RETURN } else { ALL };
    let first = Terms {
        at_return: AT_RETURN,
        unknown: 0,
        levels: 0,
        optimistic: true,
    };
    // Only calls are judged by it.
    let is_call = |n: &Node| matches!(n.kind, InsnKind::Call | InsnKind::IndirectCall);
    let evidence = match flow.nodes.iter().any(is_call) {
        true => sweep(shared, flow, &graph, first, &[]),
        false => Vec::new(),
    };
    let terms = Terms {
        at_return,
        unknown: ALL,
        levels: CALLEE_LEVELS,
        optimistic: false,
    };
    sweep(shared, flow, &graph, terms, &evidence)
}

impl Graph {
    pub(crate) fn new(flow: &Flow) -> Self {
        let index = |addr: u64| flow.index_of(addr).map_or(NONE, |n| n as u32);
        let target = flow
            .nodes
            .iter()
            .map(|n| {
                if n.bits.contains(Bits::INSIDE) {
                    index(n.target)
                } else {
                    NONE
                }
            })
            .collect();
        let edges = flow.fixups.iter().chain(flow.extra.iter());
        let mut more: Vec<(u32, u32)> = edges.map(|&(a, b)| (index(a), index(b))).collect();
        more.sort_unstable();
        Self { target, more }
    }
}

/// How one node changes the set: `live before = uses | (live after & !kills)`.
#[derive(Clone, Copy)]
pub(crate) struct Effect {
    pub uses: u32,
    pub kills: u32,
    /// Joined with what is live after (exits, other successors outside).
    out: u32,
}

/// One node in the data flow.
struct Step {
    uses: u32,
    /// What it does not overwrite.
    keeps: u32,
    out: u32,
    /// All bits if control goes on to the next node.
    falls: u32,
    /// Index of the node it branches to; one after the last: none.
    target: u32,
}

pub(crate) fn sweep(
    shared: &Shared<'_>,
    flow: &Flow,
    graph: &Graph,
    terms: Terms,
    evidence: &[u32],
) -> Vec<u32> {
    let nodes = &flow.nodes;
    let after = |n: usize| evidence.get(n + 1).copied().unwrap_or(0);
    let count = nodes.len();
    // Whether something flows back, so that one pass from the end is not enough.
    let mut back = graph.more.iter().any(|&(from, to)| to <= from);
    let steps: Vec<Step> = nodes
        .iter()
        .enumerate()
        .map(|(n, node)| {
            let Effect { uses, kills, out } = effect(shared, flow, node, terms, after(n));
            let mut step = Step {
                uses,
                keeps: !kills,
                out,
                falls: 0,
                target: count as u32,
            };
            if node.bits.contains(Bits::FALLS) {
                match nodes.get(n + 1) {
                    Some(next) if next.addr == node.end() => step.falls = u32::MAX,
                    // What follows is not decoded: the function is incomplete, or it falls out of its region.
                    _ => step.out |= terms.unknown,
                }
            }
            match graph.target.get(n) {
                Some(&t) if t != NONE => {
                    step.target = t;
                    back |= t as usize <= n;
                }
                _ if node.bits.contains(Bits::INSIDE) => step.out |= terms.unknown,
                _ => {}
            }
            step
        })
        .collect();
    // One more at the end: nothing is live where no branch leads.
    let mut live = vec![0u32; count + 1];
    for _ in 0..ROUNDS {
        let mut changed = false;
        let mut below = 0u32;
        let mut more = graph.more.len();
        for (n, step) in steps.iter().enumerate().rev() {
            let branch = live.get(step.target as usize).copied().unwrap_or(ALL);
            let mut out = step.out | below & step.falls | branch;
            while let Some(&(from, to)) = more.checked_sub(1).and_then(|m| graph.more.get(m)) {
                if (from as usize) < n {
                    break;
                }
                more -= 1;
                if from as usize == n {
                    let inside = live.get(to as usize).filter(|_| (to as usize) < count);
                    out |= inside.copied().unwrap_or(terms.unknown);
                }
            }
            let before = step.uses | out & step.keeps;
            if let Some(slot) = live.get_mut(n) {
                changed |= *slot != before;
                *slot = before;
            }
            below = before;
        }
        if !changed || !back {
            live.truncate(count);
            for set in &mut live {
                *set |= RSP;
            }
            return live;
        }
    }
    vec![ALL; nodes.len()]
}

pub(crate) fn effect(
    shared: &Shared<'_>,
    flow: &Flow,
    node: &Node,
    terms: Terms,
    evidence: u32,
) -> Effect {
    let mut e = Effect {
        uses: node.uses,
        kills: node.kills,
        out: 0,
    };
    match node.leave {
        Leave::Not => {}
        // Not read by the code, but by whoever unwinds the stack from there.
        Leave::NoReturn | Leave::Trap if !terms.optimistic => e.out = SAVED,
        Leave::NoReturn | Leave::Trap => {}
        Leave::Return => e.out = terms.at_return,
        Leave::Tail => e.out = tail(shared, flow, node, terms),
        Leave::IndirectTail if flow.abi || terms.optimistic => {
            e.out = if terms.optimistic {
                SAVED
            } else {
                ARGS | SAVED
            };
        }
        Leave::IndirectTail | Leave::Into | Leave::Special | Leave::Unknown => {
            e.out = terms.unknown
        }
    }
    if matches!(node.kind, InsnKind::Call | InsnKind::IndirectCall) {
        call(shared, node, terms, evidence, &mut e);
    } else if node.bits.contains(Bits::OPAQUE) {
        e.uses |= terms.unknown;
        e.kills = 0;
    }
    e
}

/// What is live at a jump to another function.
fn tail(shared: &Shared<'_>, flow: &Flow, node: &Node, terms: Terms) -> u32 {
    if terms.optimistic {
        return SAVED;
    }
    if !flow.abi || node.bits.contains(Bits::OPAQUE) {
        return ALL;
    }
    if node.sites.contains(Sites::STATIC_CALL) {
        return ARGS | SAVED;
    }
    let Some(start) = shared.index.at(node.target) else {
        return ALL;
    };
    match start.class {
        c if c.contains(Class::SPECIAL) => ALL,
        c if c.intersects(Class::FENTRY | Class::TRAMPOLINE) => ARGS | SAVED,
        // It returns to our caller, who knows the ABI; what it leaves alone of the result is ours.
        _ => shared.callee(node.target, terms.levels).reads | AT_RETURN,
    }
}

fn call(shared: &Shared<'_>, node: &Node, terms: Terms, evidence: u32, e: &mut Effect) {
    if terms.optimistic {
        e.uses = RSP;
        let keeps = Bits::OPAQUE | Bits::TRANSPARENT;
        e.kills = if node.bits.intersects(keeps) {
            0
        } else {
            RAX | RDX
        };
        return;
    }
    let start = shared.index.at(node.target);
    let class = start.map_or(Class::empty(), |s| s.class);
    // The functions on the list of those that do not return are C functions.
    let c_code = Class::FENTRY | Class::TRAMPOLINE | Class::NO_RETURN;
    let by_abi = node.kind == InsnKind::IndirectCall
        || node.sites.contains(Sites::STATIC_CALL)
        || class.intersects(c_code) && !class.contains(Class::SPECIAL);
    if node.bits.contains(Bits::OPAQUE) {
        e.uses = ALL;
        e.kills = 0;
    } else if node.bits.contains(Bits::TRANSPARENT) {
        e.uses = RSP;
        e.kills = 0;
    } else if by_abi {
        e.uses |= ARGS | RSP;
        // Evidence that the code behind the call relies on more than the ABI: believe the code.
        e.kills = CLOBBERED & !(evidence & !(RAX | RDX));
    } else {
        // Assembly, or C without tracing: it may preserve what the ABI lets it destroy, and the
        // code behind may rely on that.
        let callee = shared.callee(node.target, terms.levels);
        e.uses |= RSP | callee.reads;
        e.kills = callee.destroys & !(evidence & !(RAX | RDX));
    }
}
