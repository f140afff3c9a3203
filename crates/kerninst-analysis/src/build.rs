//! Makes the public [`Function`] from a worked-out flow and its live sets.

use std::ops::Range;

use crate::function::{
    Block, Edge, EdgeKind, EdgeTarget, ExitKind, Function, Insn, InsnKind, Sites,
};
use crate::live::Live;
use crate::node::{Bits, Flow, Leave, Node};
use crate::shared::Shared;

/// Nodes that end a block whatever follows: control may go elsewhere from there.
fn ends_block(node: &Node) -> bool {
    !node.bits.contains(Bits::FALLS)
        || node.bits.contains(Bits::INSIDE)
        || node.leave != Leave::Not
        || node.sites.contains(Sites::EXTABLE)
        || node.kind == InsnKind::Trap
}

pub(crate) fn function(
    shared: &Shared<'_>,
    start: u64,
    flow: Flow,
    live: &[u32],
) -> Option<Function> {
    let start = shared.index.at(start)?;
    let (mut insns, blocks) = insns_and_blocks(&flow, live);
    let mut function = Function {
        name: start.symbol.name.to_string(),
        id: start.symbol.id(),
        module: start.symbol.module.map(str::to_string),
        ranges: ranges(shared, &flow),
        blocks,
        edges: Vec::new(),
        fentry: flow.fentry,
        abi: flow.abi,
        incomplete: Vec::new(),
        insns: Vec::new(),
    };
    for (n, block) in function.blocks.iter().enumerate() {
        let range = block.first as usize..(block.first + block.count) as usize;
        for insn in insns.get_mut(range).unwrap_or(&mut []) {
            insn.block = n as u32;
        }
    }
    function.insns = insns;
    edges(&flow, &mut function);
    function.incomplete = flow.incomplete;
    Some(function)
}

fn insns_and_blocks(flow: &Flow, live: &[u32]) -> (Vec<Insn>, Vec<Block>) {
    let mut insns = Vec::with_capacity(flow.nodes.len());
    let mut blocks: Vec<Block> = Vec::new();
    let mut previous: Option<&Node> = None;
    for (n, node) in flow.nodes.iter().enumerate() {
        let adjacent = previous.filter(|p| p.end() == node.addr);
        let leader = node.bits.contains(Bits::JOIN) || adjacent.is_none_or(ends_block);
        let root = node.bits.contains(Bits::ROOT);
        match blocks.last_mut() {
            Some(block) if !leader => {
                block.end = node.end();
                block.count += 1;
            }
            _ => blocks.push(Block {
                start: node.addr,
                end: node.end(),
                first: n as u32,
                count: 1,
                edges: 0..0,
                root,
            }),
        }
        insns.push(Insn {
            addr: node.addr,
            len: node.len,
            kind: node.kind,
            shape: node.shape,
            target: (node.target != 0).then_some(node.target),
            sites: node.sites,
            joins: node.bits.contains(Bits::JOIN),
            after_call: adjacent.is_some_and(is_call),
            after_trap: adjacent.is_some_and(|p| p.kind == InsnKind::Trap),
            live: Live(live.get(n).copied().unwrap_or(Live::ALL.0)),
            block: 0,
        });
        previous = Some(node);
    }
    (insns, blocks)
}

/// A thread may hold the address behind it as a return address. ftrace calls from the fentry site,
/// and BPF programs that sleep are called from there too.
fn is_call(node: &Node) -> bool {
    matches!(node.kind, InsnKind::Call | InsnKind::IndirectCall)
        || node.sites.intersects(Sites::FENTRY | Sites::STATIC_CALL)
}

/// Runs of instructions with nothing but fill in their gaps: the one with the entry first.
fn ranges(shared: &Shared<'_>, flow: &Flow) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    // The main part is a run of its own even where a cold part lies next to it.
    let within = |addr: u64| flow.region.contains(&addr);
    for node in &flow.nodes {
        match runs.last_mut() {
            Some(run)
                if within(run.start) == within(node.addr)
                    && (node.addr <= run.end || only_fill(shared, run.end..node.addr)) =>
            {
                run.end = run.end.max(node.end());
            }
            _ => runs.push(node.addr..node.end()),
        }
    }
    match runs.iter().position(|r| r.contains(&flow.region.start)) {
        Some(main) => runs.get_mut(..=main).unwrap_or(&mut []).rotate_right(1),
        // There is no valid instruction at the entry.
        None => runs.insert(0, flow.region.start..flow.region.start),
    }
    runs
}

fn only_fill(shared: &Shared<'_>, gap: Range<u64>) -> bool {
    let size = gap.end.saturating_sub(gap.start);
    size == 0 || size <= 64 && shared.is_fill(&gap)
}

fn edges(flow: &Flow, function: &mut Function) {
    let mut edges: Vec<Edge> = Vec::with_capacity(function.blocks.len() * 2);
    let block_at = |addr: u64| {
        let found = function
            .blocks
            .binary_search_by_key(&addr, |b| b.start)
            .ok();
        found.map_or(EdgeTarget::Exit(ExitKind::Unknown), |n| {
            EdgeTarget::Block(n as u32)
        })
    };
    let mut spans = Vec::with_capacity(function.blocks.len());
    for (n, block) in function.blocks.iter().enumerate() {
        let from = n as u32;
        let first = edges.len() as u32;
        let last = (block.first + block.count).saturating_sub(1) as usize;
        let Some(node) = flow.nodes.get(last) else {
            continue;
        };
        if node.bits.contains(Bits::FALLS) {
            let to = if node.bits.contains(Bits::FALLS_OUT) {
                EdgeTarget::Exit(ExitKind::TailCall(node.end()))
            } else {
                block_at(node.end())
            };
            edges.push(Edge {
                from,
                to,
                kind: falling(node),
            });
        }
        if node.bits.contains(Bits::INSIDE) {
            edges.push(Edge {
                from,
                to: block_at(node.target),
                kind: taken(node),
            });
        } else if let Some(exit) = node.exit() {
            let kind = match node.kind {
                InsnKind::Jcc | InsnKind::Loop | InsnKind::JumpLabel => taken(node),
                _ => EdgeKind::Exit,
            };
            edges.push(Edge {
                from,
                to: EdgeTarget::Exit(exit),
                kind,
            });
        }
        let fixups = list(&flow.fixups, node.addr).iter();
        for &(_, target) in fixups {
            let to = match block_at(target) {
                EdgeTarget::Exit(_) => EdgeTarget::Exit(ExitKind::JumpInto(target)),
                block => block,
            };
            edges.push(Edge {
                from,
                to,
                kind: EdgeKind::Fixup,
            });
        }
        for &(_, target) in list(&flow.extra, node.addr) {
            edges.push(Edge {
                from,
                to: block_at(target),
                kind: EdgeKind::Taken,
            });
        }
        spans.push(first..edges.len() as u32);
    }
    for (block, span) in function.blocks.iter_mut().zip(spans) {
        block.edges = span;
    }
    function.edges = edges;
}

fn list(pairs: &[(u64, u64)], addr: u64) -> &[(u64, u64)] {
    let from = pairs.partition_point(|p| p.0 < addr);
    let to = pairs.partition_point(|p| p.0 <= addr);
    pairs.get(from..to).unwrap_or(&[])
}

fn falling(node: &Node) -> EdgeKind {
    match node.kind {
        InsnKind::JumpLabel if node.bits.contains(Bits::KEY_INVERTED) => EdgeKind::StaticKeyOn,
        InsnKind::JumpLabel => EdgeKind::StaticKeyOff,
        InsnKind::Call | InsnKind::IndirectCall => EdgeKind::CallReturn,
        InsnKind::Trap => EdgeKind::TrapResume,
        _ => EdgeKind::FallThrough,
    }
}

fn taken(node: &Node) -> EdgeKind {
    match node.kind {
        InsnKind::JumpLabel if node.bits.contains(Bits::KEY_INVERTED) => EdgeKind::StaticKeyOff,
        InsnKind::JumpLabel => EdgeKind::StaticKeyOn,
        InsnKind::Jmp => EdgeKind::Jump,
        _ => EdgeKind::Taken,
    }
}
