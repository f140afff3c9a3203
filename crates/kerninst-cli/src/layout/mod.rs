//! Layered layout of a directed graph with one entry (a control flow graph), for pictures; pure.
//!
//! Ranks by longest path, ignoring back edges ([`rank`]); long edges and back edges become chains of dummy nodes,
//! shared by all edges that lead to the same node ([`chains`]); order within a rank by barycentres, keeping the order
//! with the fewest crossings ([`order`]); coordinates by relaxation under minimum distances ([`place`]); smooth edges
//! that never cross a box ([`route`]).

mod chains;
mod order;
mod place;
mod rank;
mod route;
#[cfg(test)]
mod tests;

/// A box to be placed. Units are the caller's (pixels).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// Width, above 0.
    pub width: f64,
    /// Height, above 0.
    pub height: f64,
}

/// An edge between two boxes, by index. Edges that name no box are not drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// Index of the box it leaves.
    pub from: usize,
    /// Index of the box it enters.
    pub to: usize,
    /// How much it wants to be straight: 1 is ordinary.
    pub weight: f64,
}

/// Distances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spacing {
    /// Between boxes of a rank.
    pub node: f64,
    /// Between two lines that pass a rank, or a line and a box.
    pub lane: f64,
    /// Least distance between ranks.
    pub rank: f64,
    /// Around the picture.
    pub margin: f64,
}

impl Default for Spacing {
    fn default() -> Self {
        Self {
            node: 28.0,
            lane: 14.0,
            rank: 42.0,
            margin: 24.0,
        }
    }
}

/// Where a box goes: its top left corner, and its rank (0 is the top).
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Placed {
    /// Left.
    pub x: f64,
    /// Top.
    pub y: f64,
    /// Rank.
    pub rank: usize,
}

/// A piece of an edge's path, from where the piece before it ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piece {
    /// Straight to a point.
    Line(f64, f64),
    /// A cubic curve: two control points, end point.
    Curve([(f64, f64); 3]),
}

/// The path of one edge.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Route {
    /// It closes a cycle: its target is above its source, or the same box.
    pub back: bool,
    /// Start: at the bottom of the box it leaves.
    pub start: (f64, f64),
    /// The path, ending at the top of the box it enters. Empty for an edge that is not drawn.
    pub pieces: Vec<Piece>,
    /// A place for a label, near the start.
    pub label: (f64, f64),
}

/// A placed graph.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Layout {
    /// Width of the picture.
    pub width: f64,
    /// Height of the picture.
    pub height: f64,
    /// One for each box.
    pub nodes: Vec<Placed>,
    /// One for each edge.
    pub edges: Vec<Route>,
}

/// Places boxes and edges. Box 0 is the entry. Deterministic; time grows with boxes + edges × ranks they span.
#[must_use]
pub fn layout(nodes: &[Node], edges: &[Edge], spacing: Spacing) -> Layout {
    let ranks = rank::ranks(nodes.len(), edges);
    let mut graph = chains::Layered::new(nodes, edges, &ranks, spacing);
    order::order(&mut graph);
    let coordinates = place::place(&graph, nodes, spacing);
    route::route(&graph, nodes, edges, &coordinates)
}
