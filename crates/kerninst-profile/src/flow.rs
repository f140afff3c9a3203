//! The flow graph of a function.

use kerninst_analysis::{EdgeKind, EdgeTarget, Function};
use kerninst_patch::{Spot, edge_spots};

use crate::Node;

/// What an edge of the flow graph stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Role {
    /// The edge of the function with the same index.
    Edge(EdgeKind),
    /// The function is called.
    Enter,
    /// A block is entered in a way that the function's edges do not show: its address is taken, or another function
    /// jumps there. Nothing can be inserted on such an edge; its count follows from those around it. (Who enters so
    /// enters the original code: a version of the function does not see it, and the count is 0 there.)
    Foreign,
    /// From the exit back to the entry: it makes the flow a circulation. Its count is the number of visits that have ended,
    /// or were inside when the counters were read.
    Around,
}

/// An edge of the flow graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEdge {
    /// Where it comes from.
    pub from: Node,
    /// Where it leads.
    pub to: Node,
    /// What it stands for.
    pub role: Role,
    /// Where a snippet runs exactly as often as the edge is taken. None: there is no such place.
    pub spot: Option<Spot>,
}

impl FlowEdge {
    /// Can a counter be put on it?
    pub fn is_countable(&self) -> bool {
        self.spot.is_some()
    }
}

/// The flow graph of a function: its blocks, all its edges (those that leave it too), and outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    blocks: usize,
    edges: Vec<FlowEdge>,
    /// How many of `edges` are the function's own.
    own: usize,
    complete: bool,
}

impl Flow {
    /// The flow graph of `function`. For a function whose control flow is not fully known it is a graph of what is known
    /// ([`Flow::is_complete`]): counts that are derived from others in it are not to be trusted.
    pub fn new(function: &Function) -> Flow {
        let blocks = function.blocks.len();
        let node = |n: u32| match n {
            n if (n as usize) < blocks => Node::Block(n),
            // No analysis gives such an edge; it must not lead anywhere then.
            _ => Node::Exit,
        };
        let mut edges: Vec<FlowEdge> = function
            .edges
            .iter()
            .map(|e| FlowEdge {
                from: node(e.from),
                to: match e.to {
                    EdgeTarget::Block(b) => node(b),
                    EdgeTarget::Exit(_) => Node::Exit,
                },
                role: Role::Edge(e.kind),
                spot: None,
            })
            .collect();
        for block in &function.blocks {
            let first = block.edges.start as usize;
            for (n, spot) in edge_spots(function, block).into_iter().enumerate() {
                if let Some(edge) = edges.get_mut(first.saturating_add(n)) {
                    edge.spot = spot;
                }
            }
        }
        let own = edges.len();
        let entry = function.entry();
        for (n, block) in function.blocks.iter().enumerate() {
            let (role, spot) = match block.start == entry {
                true => (Role::Enter, Some(Spot::Enter(entry))),
                false if block.root => (Role::Foreign, None),
                false => continue,
            };
            let to = Node::Block(n as u32);
            edges.push(FlowEdge {
                from: Node::Entry,
                to,
                role,
                spot,
            });
        }
        Flow::closed(blocks, edges, own, function.is_complete())
    }

    /// With the edge around, from the exit back to the entry.
    fn closed(blocks: usize, mut edges: Vec<FlowEdge>, own: usize, complete: bool) -> Flow {
        edges.push(FlowEdge {
            from: Node::Exit,
            to: Node::Entry,
            role: Role::Around,
            spot: None,
        });
        Flow {
            blocks,
            edges,
            own,
            complete,
        }
    }

    /// A graph made by hand: edges between blocks `0..blocks` and outside. Block 0 is the entry; the edges into it and
    /// around are added. For tests, and for whoever has a graph without a function.
    pub fn from_edges(blocks: usize, own: Vec<FlowEdge>) -> Flow {
        let inside = |n: Node| !matches!(n, Node::Block(b) if b as usize >= blocks);
        let mut edges = own;
        edges.retain(|e| inside(e.from) && inside(e.to));
        let own = edges.len();
        if blocks > 0 {
            edges.push(FlowEdge {
                from: Node::Entry,
                to: Node::Block(0),
                role: Role::Enter,
                spot: Some(Spot::Enter(0)),
            });
        }
        Flow::closed(blocks, edges, own, true)
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// All edges: first those of the function, in its order; then the ways in; last the one around.
    pub fn edges(&self) -> &[FlowEdge] {
        &self.edges
    }

    /// The edges that are the function's own: `edges()[n]` is `Function::edges[n]`.
    pub fn own_edges(&self) -> &[FlowEdge] {
        self.edges.get(..self.own).unwrap_or(&[])
    }

    /// All edges that stand for something that happens: all but the one around.
    pub fn real_edges(&self) -> impl Iterator<Item = (usize, &FlowEdge)> {
        let real = |e: &&FlowEdge| e.role != Role::Around;
        self.edges.iter().enumerate().filter(move |(_, e)| real(e))
    }

    /// Index of the edge by which the function is called.
    pub fn enter(&self) -> Option<usize> {
        self.edges.iter().position(|e| e.role == Role::Enter)
    }

    /// Was the function's control flow fully known?
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Number of nodes: the blocks and two for outside.
    pub(crate) fn nodes(&self) -> usize {
        self.blocks + 2
    }

    /// A number for each node, below [`Flow::nodes`]; blocks have their own.
    pub(crate) fn number(&self, node: Node) -> usize {
        match node {
            Node::Block(n) => n as usize,
            Node::Entry => self.blocks,
            Node::Exit => self.blocks + 1,
        }
    }
}
