//! Boxes and dummies on their ranks: a line that passes a rank has a place there like a box.

use std::collections::BTreeMap;

use super::rank::Ranks;
use super::{Edge, Node, Spacing};

/// A box or a place where lines pass, on one rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub width: f64,
    /// Index of the box; none for a dummy.
    pub node: Option<usize>,
    /// A dummy of a back edge: the box on the same rank that it should stand beside.
    pub beside: Option<usize>,
}

/// The graph with dummies.
#[derive(Debug)]
pub(super) struct Layered {
    /// Boxes first, by index; then dummies.
    pub cells: Vec<Cell>,
    /// Rank of each cell.
    pub rank: Vec<usize>,
    /// Cells of each rank, from left to right.
    pub rows: Vec<Vec<usize>>,
    /// Neighbours above and below each cell, with weights.
    pub above: Vec<Vec<(usize, f64)>>,
    pub below: Vec<Vec<(usize, f64)>>,
    /// For each edge the dummies it passes, from its start to its end.
    pub chains: Vec<Vec<usize>>,
    pub back: Vec<bool>,
}

/// Lines that pass ranks want to be straight more than anything.
const STRAIGHT: f64 = 6.0;

impl Layered {
    pub fn new(nodes: &[Node], edges: &[Edge], ranks: &Ranks, spacing: Spacing) -> Layered {
        let boxes = nodes.iter().enumerate();
        let cells = boxes.map(|(n, node)| Cell {
            width: node.width,
            node: Some(n),
            beside: None,
        });
        let cells: Vec<Cell> = cells.collect();
        let mut graph = Layered {
            cells,
            rank: ranks.rank.clone(),
            rows: Vec::new(),
            above: Vec::new(),
            below: Vec::new(),
            chains: Vec::with_capacity(edges.len()),
            back: ranks.back.clone(),
        };
        let mut lanes = Lanes::default();
        for (n, edge) in edges.iter().enumerate() {
            let chain = graph.chain(n, edge, &mut lanes, spacing);
            graph.chains.push(chain);
        }
        graph.rows = rows(&graph, ranks);
        graph.above = vec![Vec::new(); graph.cells.len()];
        graph.below = vec![Vec::new(); graph.cells.len()];
        for ((from, to), weight) in lanes.links {
            if let Some(list) = graph.below.get_mut(from) {
                list.push((to, weight));
            }
            if let Some(list) = graph.above.get_mut(to) {
                list.push((from, weight));
            }
        }
        graph
    }

    /// Makes (or finds) the dummies of one edge, from its start to its end, and links them.
    fn chain(&mut self, n: usize, edge: &Edge, lanes: &mut Lanes, spacing: Spacing) -> Vec<usize> {
        let (Some(&from), Some(&to)) = (self.rank.get(edge.from), self.rank.get(edge.to)) else {
            return Vec::new();
        };
        let back = self.back.get(n) == Some(&true);
        // Forward: the ranks between. Back: down below the source, then up beside it and all up to the target.
        let length = if back {
            (from + 1).saturating_sub(to)
        } else {
            to.saturating_sub(from + 1)
        };
        let lane = lanes.cells.entry((edge.to, back)).or_default();
        while lane.len() < length {
            let rank = if back {
                to + lane.len()
            } else {
                to.saturating_sub(1 + lane.len())
            };
            let beside = match rank {
                _ if !back => None,
                r if r == to => Some(edge.to),
                r if r == from => Some(edge.from),
                _ => None,
            };
            let width = spacing.lane;
            self.cells.push(Cell {
                width,
                node: None,
                beside,
            });
            self.rank.push(rank);
            let new = self.cells.len() - 1;
            if let Some(&last) = lane.last() {
                let (upper, lower) = if back { (last, new) } else { (new, last) };
                lanes.links.insert((upper, lower), STRAIGHT);
            }
            lane.push(new);
        }
        let mut chain = lane.get(..length).unwrap_or(&[]).to_vec();
        chain.reverse();
        if !back {
            let first = chain.first().copied().unwrap_or(edge.to);
            *lanes.links.entry((edge.from, first)).or_insert(0.0) += edge.weight;
            if let Some(&last) = chain.last() {
                *lanes.links.entry((last, edge.to)).or_insert(0.0) += edge.weight;
            }
        }
        chain
    }

    pub fn is_dummy(&self, cell: usize) -> bool {
        self.cells.get(cell).is_some_and(|c| c.node.is_none())
    }
}

/// What is shared while chains are made.
#[derive(Default)]
struct Lanes {
    /// For each box, forward and back, the dummies of all edges that lead there, from the box outwards.
    cells: BTreeMap<(usize, bool), Vec<usize>>,
    /// Links between cells of neighbouring ranks, the upper one first, with their weights.
    links: BTreeMap<(usize, usize), f64>,
}

/// First order: boxes as depth first search met them, dummies beside what they come from.
fn rows(graph: &Layered, ranks: &Ranks) -> Vec<Vec<usize>> {
    let height = graph.rank.iter().max().map_or(0, |m| m + 1);
    let mut position = vec![usize::MAX; graph.cells.len()];
    for (at, &node) in ranks.order.iter().enumerate() {
        if let Some(p) = position.get_mut(node) {
            *p = at;
        }
    }
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); height];
    for (cell, &rank) in graph.rank.iter().enumerate() {
        if let Some(row) = rows.get_mut(rank) {
            row.push(cell);
        }
    }
    for row in &mut rows {
        row.sort_by_key(|c| (position.get(*c).copied(), *c));
    }
    rows
}
