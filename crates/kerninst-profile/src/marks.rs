//! Which blocks and edges ran at all, from marks that record only that.
//!
//! Nothing follows from conservation here: that a block ran does not say that it was left. So every edge that can have a mark
//! has one, and a block has one of its own only where somebody may enter it by an edge that cannot.

use kerninst_patch::Spot;

use crate::{Flow, Node, Profile, Role};

/// What a mark is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    Edge(usize),
    Block(usize),
}

/// The marks of one function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marks {
    marks: Vec<(Spot, Of)>,
}

impl Marks {
    /// As few as tell all that can be told, at spots that `can` allows. `starts` are the addresses of the blocks.
    pub fn new(flow: &Flow, starts: &[u64], can: impl Fn(Spot) -> bool) -> Marks {
        let mut marks = Vec::new();
        let mut unseen = vec![false; flow.blocks()];
        for (n, edge) in flow.real_edges() {
            match edge.spot.filter(|s| can(*s)) {
                Some(spot) => marks.push((spot, Of::Edge(n))),
                None => {
                    if let Node::Block(to) = edge.to
                        && let Some(unseen) = unseen.get_mut(to as usize)
                    {
                        *unseen = true;
                    }
                }
            }
        }
        for (n, start) in starts.iter().enumerate() {
            let spot = Spot::Before(*start);
            if unseen.get(n) == Some(&true) && can(spot) {
                marks.push((spot, Of::Block(n)));
            }
        }
        Marks { marks }
    }

    /// Where the marks are.
    pub fn spots(&self) -> impl Iterator<Item = Spot> {
        self.marks.iter().map(|(spot, _)| *spot)
    }

    /// What ran: 1, or 0. None: the marks do not tell. `hit` says whether the mark at a spot was passed.
    pub fn profile(&self, flow: &Flow, hit: impl Fn(Spot) -> bool) -> Profile {
        let mut edges: Vec<Option<bool>> = vec![None; flow.edges().len()];
        let mut blocks: Vec<Option<bool>> = vec![None; flow.blocks()];
        for (spot, of) in &self.marks {
            let told = match of {
                Of::Edge(n) => edges.get_mut(*n),
                Of::Block(n) => blocks.get_mut(*n),
            };
            if let Some(told) = told {
                *told = Some(hit(*spot));
            }
        }
        // Who enters from elsewhere enters the original code.
        for (n, edge) in flow.real_edges() {
            if edge.role == Role::Foreign
                && let Some(e) = edges.get_mut(n)
            {
                e.get_or_insert(false);
            }
        }
        let into = |block: usize| {
            let leads = move |node: Node| node == Node::Block(block as u32);
            flow.real_edges().filter(move |(_, e)| leads(e.to))
        };
        let told = |edges: &[Option<bool>], n: usize| edges.get(n).copied().flatten();
        for (n, block) in blocks.iter_mut().enumerate() {
            let ways: Vec<Option<bool>> = into(n).map(|(e, _)| told(&edges, e)).collect();
            if ways.contains(&Some(true)) {
                *block = Some(true);
            } else if ways.iter().all(Option::is_some) {
                *block = Some(false);
            }
        }
        let ran = |node: Node| match node {
            Node::Block(n) => blocks.get(n as usize).copied().flatten(),
            Node::Entry | Node::Exit => None,
        };
        for (n, edge) in flow.real_edges() {
            if told(&edges, n).is_some() {
                continue;
            }
            let derived = if ran(edge.from) == Some(false) || ran(edge.to) == Some(false) {
                Some(false)
            } else if let Node::Block(to) = edge.to {
                // Somebody came, and by no other way.
                let mut others = into(to as usize).filter(|(e, _)| *e != n);
                let alone = others.all(|(e, _)| told(&edges, e) == Some(false));
                (alone && ran(edge.to) == Some(true)).then_some(true)
            } else {
                None
            };
            if let Some(e) = edges.get_mut(n) {
                *e = derived;
            }
        }
        let entered = flow.enter().and_then(|n| told(&edges, n));
        // The edge around stands for no code.
        for (e, edge) in edges.iter_mut().zip(flow.edges()) {
            if edge.role == Role::Around {
                *e = Some(entered.unwrap_or(false));
            }
        }
        let number = |ran: Option<bool>| ran.map(u64::from);
        Profile {
            inside: vec![0; blocks.len()],
            blocks: blocks.into_iter().map(number).collect(),
            edges: edges.into_iter().map(number).collect(),
            entered: number(entered),
            ..Profile::default()
        }
    }
}
