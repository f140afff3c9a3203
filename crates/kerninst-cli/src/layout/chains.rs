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
        let mut links: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        // One dummy for each (target, rank, back): edges to the same place share their way.
        let mut shared: BTreeMap<(usize, usize, bool), usize> = BTreeMap::new();
        for (n, edge) in edges.iter().enumerate() {
            let chain = graph.chain(n, edge, &mut shared, &mut links, spacing);
            graph.chains.push(chain);
        }
        graph.rows = rows(&graph, ranks);
        graph.above = vec![Vec::new(); graph.cells.len()];
        graph.below = vec![Vec::new(); graph.cells.len()];
        for ((from, to), weight) in links {
            if let Some(list) = graph.below.get_mut(from) {
                list.push((to, weight));
            }
            if let Some(list) = graph.above.get_mut(to) {
                list.push((from, weight));
            }
        }
        graph
    }

    /// Makes (or finds) the dummies of one edge, and links them.
    fn chain(
        &mut self,
        n: usize,
        edge: &Edge,
        shared: &mut BTreeMap<(usize, usize, bool), usize>,
        links: &mut BTreeMap<(usize, usize), f64>,
        spacing: Spacing,
    ) -> Vec<usize> {
        let (Some(&from), Some(&to)) = (self.rank.get(edge.from), self.rank.get(edge.to)) else {
            return Vec::new();
        };
        let back = self.back.get(n) == Some(&true);
        if !back {
            let mut chain = Vec::new();
            let mut last = edge.from;
            for rank in from + 1..to {
                let dummy = self.dummy(shared, (edge.to, rank, false), None, spacing);
                // The way itself counts once, however many edges share it.
                if self.is_dummy(last) {
                    links.insert((last, dummy), STRAIGHT);
                } else {
                    *links.entry((last, dummy)).or_insert(0.0) += edge.weight;
                }
                chain.push(dummy);
                last = dummy;
            }
            *links.entry((last, edge.to)).or_insert(0.0) += edge.weight;
            return chain;
        }
        // Down below the source, up beside it and everything up to the target, and down into the target.
        let mut chain = Vec::new();
        for rank in (to..=from).rev() {
            let beside = if rank == to {
                Some(edge.to)
            } else if rank == from {
                Some(edge.from)
            } else {
                None
            };
            chain.push(self.dummy(shared, (edge.to, rank, true), beside, spacing));
        }
        for pair in chain.windows(2) {
            if let [lower, upper] = pair {
                links.insert((*upper, *lower), STRAIGHT);
            }
        }
        chain
    }

    pub fn is_dummy(&self, cell: usize) -> bool {
        self.cells.get(cell).is_some_and(|c| c.node.is_none())
    }

    fn dummy(
        &mut self,
        shared: &mut BTreeMap<(usize, usize, bool), usize>,
        key: (usize, usize, bool),
        beside: Option<usize>,
        spacing: Spacing,
    ) -> usize {
        *shared.entry(key).or_insert_with(|| {
            self.cells.push(Cell {
                width: spacing.lane,
                node: None,
                beside,
            });
            self.rank.push(key.1);
            self.cells.len() - 1
        })
    }
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
