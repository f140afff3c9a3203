//! Which edges get a counter.

use kerninst_patch::Spot;

use crate::tree::Sets;
use crate::{Flow, Node, Role, Weights};

/// A counter of a placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Index of its edge in [`Flow::edges`].
    pub edge: u32,
    /// Where it counts.
    pub spot: Spot,
    /// The other counters give its count too: it is there to check them.
    pub redundant: bool,
}

/// The counters of one function: as few as possible, on the edges that are taken least.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    pub(crate) counters: Vec<Counter>,
    pub(crate) missing: Vec<u32>,
    /// For each edge of the flow: it is on the spanning tree.
    pub(crate) tree: Vec<bool>,
}

impl Placement {
    /// The counters of a maximum spanning tree: every edge off the tree, and the entry as the one that is redundant.
    ///
    /// The ways out of the function are left off the tree where possible. So they are counted, and the entry's counter
    /// checks that as many visits came out, or were inside, as went in, wherever they were lost. That costs no counter more,
    /// and at most one count a call more than the tree that is best without this.
    pub fn new(flow: &Flow, weights: &Weights) -> Placement {
        Placement::without(flow, weights, |_| true)
    }

    /// The same where counters are possible only on spots for which `can` says so. The others go on the tree, where they
    /// need none. If they close a cycle, what it cannot tell apart is [`Placement::missing`].
    pub fn without(flow: &Flow, weights: &Weights, can: impl Fn(Spot) -> bool) -> Placement {
        Placement::place(flow, weights, can, false)
    }

    /// A counter on every edge that can have one: those on the tree are redundant, so that every block's visits are checked.
    pub fn everywhere(flow: &Flow, weights: &Weights, can: impl Fn(Spot) -> bool) -> Placement {
        Placement::place(flow, weights, can, true)
    }

    fn place(
        flow: &Flow,
        weights: &Weights,
        can: impl Fn(Spot) -> bool,
        everywhere: bool,
    ) -> Placement {
        let spot = |n: usize| {
            let edge = flow.edges().get(n)?;
            edge.spot.filter(|s| can(*s))
        };
        // Kruskal's algorithm. First what cannot be counted; then the entry, which has a counter anyway; last the exits.
        let rank = |n: usize| {
            let class = match (spot(n), flow.edges().get(n)) {
                (None, _) => 3u8,
                (Some(_), Some(e)) if e.role == Role::Enter => 2,
                (Some(_), Some(e)) if e.to == Node::Exit => 0,
                (Some(_), _) => 1,
            };
            (class, weights.of(n))
        };
        let mut order: Vec<usize> = (0..flow.edges().len()).collect();
        // Stable: the same placement every time.
        order.sort_by_cached_key(|n| std::cmp::Reverse(rank(*n)));
        let mut sets = Sets::new(flow.nodes());
        let mut tree = vec![false; flow.edges().len()];
        for n in order {
            if let (Some(edge), Some(slot)) = (flow.edges().get(n), tree.get_mut(n)) {
                *slot = sets.join(flow.number(edge.from), flow.number(edge.to));
            }
        }
        let mut placement = Placement {
            counters: Vec::new(),
            missing: Vec::new(),
            tree,
        };
        for (n, edge) in flow.edges().iter().enumerate() {
            let on_tree = placement.on_tree(n);
            let checked = everywhere || edge.role == Role::Enter;
            match spot(n) {
                Some(spot) if !on_tree || checked => placement.counters.push(Counter {
                    edge: n as u32,
                    spot,
                    redundant: on_tree,
                }),
                None if !on_tree => placement.missing.push(n as u32),
                _ => {}
            }
        }
        placement
    }

    /// The counters, by edge.
    pub fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// Edges that would need a counter and cannot have one: their counts, and those of the edges on a way around with
    /// them, cannot be known.
    pub fn missing(&self) -> &[u32] {
        &self.missing
    }

    /// Is the edge's count derived from others (whether or not it is counted as well)?
    pub fn on_tree(&self, edge: usize) -> bool {
        self.tree.get(edge).copied().unwrap_or(false)
    }
}
