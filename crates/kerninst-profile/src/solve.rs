//! All counts from those that were counted.

use serde::{Deserialize, Serialize};

use crate::{Flow, Node, Placement, Role};

/// Exact counts of one function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// Visits of each block, by its index; those in flight are among them. None: not known, because counters are missing
    /// or do not add up.
    pub blocks: Vec<Option<u64>>,
    /// Times that each edge of [`Flow::edges`] was taken. None as for blocks.
    pub edges: Vec<Option<u64>>,
    /// Visits of the function that began.
    pub entered: Option<u64>,
    /// Visits that ended.
    pub left: Option<u64>,
    /// Visits that were inside when the counters were read.
    pub in_flight: u64,
    /// The same by block.
    pub inside: Vec<u64>,
    /// What does not add up. Empty: every check that the counters allow was passed.
    pub violations: Vec<Violation>,
}

impl Profile {
    /// Is every count known, and was every check passed?
    pub fn is_exact(&self) -> bool {
        let known = self.blocks.iter().chain(&self.edges).all(Option::is_some);
        known && self.violations.is_empty()
    }
}

/// Counts that do not add up: what entered a block did not leave it, or the other way round. Either counters were not
/// read at one moment and visits were under way that are not accounted for, or control went a way that the analysis does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "violation", rename_all = "kebab-case")]
pub enum Violation {
    /// The other counters give a count below 0, or above what a counter holds, for an edge without a counter.
    #[error("the counters around edge {from} -> {to} give {derived} for it")]
    Impossible {
        /// Index of the edge in the flow.
        edge: u32,
        /// Where it comes from.
        from: Place,
        /// Where it leads.
        to: Place,
        /// What they give.
        derived: i64,
    },
    /// A counter and the others disagree about an edge.
    #[error(
        "edge {from} -> {to} was counted {counted} times, the counters around it give {derived}"
    )]
    Differs {
        /// Index of the edge in the flow.
        edge: u32,
        /// Where it comes from.
        from: Place,
        /// Where it leads.
        to: Place,
        /// What its counter says.
        counted: u64,
        /// What the others give.
        derived: i64,
    },
    /// All edges of a block were counted, and those into it are not those out of it.
    #[error("{block} was entered {entered} times and left {left} times, with {in_flight} inside")]
    Unbalanced {
        /// The block.
        block: Place,
        /// Times that the edges into it were taken.
        entered: u64,
        /// Times that the edges out of it were taken.
        left: u64,
        /// Visits inside when the counters were read.
        in_flight: u64,
    },
}

/// A node, as reports name it: `b3`, `entry`, `exit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(pub Node);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Place {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Place, D::Error> {
        let text = String::deserialize(d)?;
        Ok(Place(match text.as_str() {
            "entry" => Node::Entry,
            "exit" => Node::Exit,
            block => {
                let number = block.strip_prefix('b').and_then(|n| n.parse().ok());
                Node::Block(number.ok_or_else(|| serde::de::Error::custom("no block"))?)
            }
        }))
    }
}

/// Counts that are not those of a placement: the caller's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WrongCounts {
    /// Not one count for each counter.
    #[error("{given} counts for {counters} counters")]
    Number {
        /// How many there should be.
        counters: usize,
        /// How many there are.
        given: usize,
    },
    /// The placement is of another flow.
    #[error("the placement is of a function with {placed} edges, not {edges}")]
    OtherFlow {
        /// Edges of the flow.
        edges: usize,
        /// Edges of the placement's.
        placed: usize,
    },
    /// Visits in a block that there is not.
    #[error("there is no block {block} for visits in flight")]
    NoBlock {
        /// Its number.
        block: u32,
    },
}

/// All counts of a function from those of its counters.
///
/// `counts` are those of [`Placement::counters`], in that order. `in_flight` are visits that had entered a block, and not
/// left it, when the counters were read: `(block, how many)`; a block may be named several times.
///
/// # Errors
/// [`WrongCounts`]: the arguments do not belong together.
pub fn solve(
    flow: &Flow,
    placement: &Placement,
    counts: &[u64],
    in_flight: &[(u32, u64)],
) -> Result<Profile, WrongCounts> {
    let edges = flow.edges();
    if counts.len() != placement.counters.len() {
        let (counters, given) = (placement.counters.len(), counts.len());
        return Err(WrongCounts::Number { counters, given });
    }
    if placement.tree.len() != edges.len() {
        let (edges, placed) = (edges.len(), placement.tree.len());
        return Err(WrongCounts::OtherFlow { edges, placed });
    }
    let mut inside = vec![0u64; flow.blocks()];
    for &(block, n) in in_flight {
        let slot = inside
            .get_mut(block as usize)
            .ok_or(WrongCounts::NoBlock { block })?;
        *slot = slot.saturating_add(n);
    }
    let mut counted: Vec<Option<u64>> = vec![None; edges.len()];
    for (counter, count) in placement.counters.iter().zip(counts) {
        if let Some(slot) = counted.get_mut(counter.edge as usize) {
            *slot = Some(*count);
        }
    }
    let derived = derive(flow, placement, &counted, &inside);
    let mut profile = Profile {
        in_flight: inside.iter().fold(0, |sum, n| sum.saturating_add(*n)),
        ..Profile::default()
    };
    for (n, edge) in edges.iter().enumerate() {
        let measured = counted.get(n).copied().flatten();
        let derived = derived.get(n).copied().flatten();
        let value = match (measured, derived) {
            (Some(counted), Some(derived)) if i128::from(counted) != derived => {
                profile.violations.push(Violation::Differs {
                    edge: n as u32,
                    from: Place(edge.from),
                    to: Place(edge.to),
                    counted,
                    derived: short(derived),
                });
                Some(counted)
            }
            (Some(counted), _) => Some(counted),
            (None, Some(derived)) => {
                let value = u64::try_from(derived).ok();
                if value.is_none() {
                    profile.violations.push(Violation::Impossible {
                        edge: n as u32,
                        from: Place(edge.from),
                        to: Place(edge.to),
                        derived: short(derived),
                    });
                }
                value
            }
            (None, None) => None,
        };
        profile.edges.push(value);
    }
    blocks(flow, &counted, &inside, &mut profile);
    profile.inside = inside;
    let sum = |at: Node, out: bool| {
        let mut total = Some(0u64);
        for (n, e) in flow.real_edges() {
            if (out && e.from == at) || (!out && e.to == at) {
                let count = profile.edges.get(n).copied().flatten();
                total = total.zip(count).and_then(|(a, b)| a.checked_add(b));
            }
        }
        total
    };
    (profile.entered, profile.left) = (sum(Node::Entry, true), sum(Node::Exit, false));
    Ok(profile)
}

/// For reports; amounts beyond 63 bits are as impossible as those at the limit.
fn short(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

/// The counts of the edges on the tree, whether or not they are counted too: None where a missing counter makes them
/// unknown, and for edges off the tree.
fn derive(
    flow: &Flow,
    placement: &Placement,
    counted: &[Option<u64>],
    inside: &[u64],
) -> Vec<Option<i128>> {
    let edges = flow.edges();
    // What enters a node, less what leaves it, of what is known. Visits in flight leave their block to the exit.
    let mut balance = vec![0i128; flow.nodes()];
    let mut add = |node: usize, n: i128| {
        if let Some(slot) = balance.get_mut(node) {
            *slot = slot.saturating_add(n);
        }
    };
    for (block, n) in inside.iter().enumerate() {
        add(block, -i128::from(*n));
        add(flow.number(Node::Exit), i128::from(*n));
    }
    let mut at: Vec<Vec<usize>> = vec![Vec::new(); flow.nodes()];
    for (n, e) in edges.iter().enumerate() {
        let (from, to) = (flow.number(e.from), flow.number(e.to));
        if placement.on_tree(n) {
            for node in [from, to] {
                if let Some(list) = at.get_mut(node) {
                    list.push(n);
                }
            }
        } else if let Some(Some(count)) = counted.get(n) {
            add(from, -i128::from(*count));
            add(to, i128::from(*count));
        }
    }
    let tainted = tainted(flow, placement, &at);
    let mut left: Vec<usize> = at.iter().map(Vec::len).collect();
    let mut value: Vec<Option<i128>> = vec![None; edges.len()];
    let mut leaves: Vec<usize> = (0..left.len())
        .filter(|n| left.get(*n) == Some(&1))
        .collect();
    while let Some(leaf) = leaves.pop() {
        let list = at.get(leaf).map_or(&[][..], Vec::as_slice);
        let open = list.iter().find(|e| value.get(**e) == Some(&None));
        let Some((&n, edge)) = open.and_then(|n| Some((n, edges.get(*n)?))) else {
            continue;
        };
        let (from, to) = (flow.number(edge.from), flow.number(edge.to));
        let here = balance.get(leaf).copied().unwrap_or(0);
        let count = if to == leaf { -here } else { here };
        if let Some(slot) = value.get_mut(n) {
            *slot = Some(count);
        }
        for (node, n) in [(from, -count), (to, count)] {
            if let Some(slot) = balance.get_mut(node) {
                *slot = slot.saturating_add(n);
            }
        }
        let other = if to == leaf { from } else { to };
        for node in [leaf, other] {
            if let Some(slot) = left.get_mut(node) {
                *slot = slot.saturating_sub(1);
                if *slot == 1 {
                    leaves.push(node);
                }
            }
        }
    }
    for (value, tainted) in value.iter_mut().zip(tainted) {
        if tainted {
            *value = None;
        }
    }
    value
}

/// Edges of the tree that lie on a way around with a missing counter: what flows there cannot be known.
fn tainted(flow: &Flow, placement: &Placement, at: &[Vec<usize>]) -> Vec<bool> {
    let edges = flow.edges();
    let mut tainted = vec![false; edges.len()];
    for missing in &placement.missing {
        let Some(edge) = edges.get(*missing as usize) else {
            continue;
        };
        let (from, to) = (flow.number(edge.from), flow.number(edge.to));
        // The one way from `from` to `to` on the tree.
        let mut came: Vec<Option<(usize, usize)>> = vec![None; flow.nodes()];
        let mut work = vec![from];
        while let Some(node) = work.pop() {
            for &n in at.get(node).map_or(&[][..], Vec::as_slice) {
                let Some(e) = edges.get(n) else { continue };
                let (a, b) = (flow.number(e.from), flow.number(e.to));
                let next = if a == node { b } else { a };
                if let Some(slot) = came.get_mut(next)
                    && slot.is_none()
                    && next != from
                {
                    *slot = Some((node, n));
                    work.push(next);
                }
            }
        }
        let mut node = to;
        while node != from {
            let Some((up, n)) = came.get(node).copied().flatten() else {
                break;
            };
            if let Some(slot) = tainted.get_mut(n) {
                *slot = true;
            }
            node = up;
        }
    }
    tainted
}

/// The counts of the blocks, by the edges into them; where those are not all known, by those out of them.
fn blocks(flow: &Flow, counted: &[Option<u64>], inside: &[u64], profile: &mut Profile) {
    #[derive(Clone, Copy)]
    struct Sides {
        entered: Option<u64>,
        left: Option<u64>,
        counted: bool,
    }
    let start = Sides {
        entered: Some(0),
        left: Some(0),
        counted: true,
    };
    let mut sides = vec![start; flow.blocks()];
    for (n, edge) in flow.edges().iter().enumerate() {
        let count = profile.edges.get(n).copied().flatten();
        let has_counter = counted.get(n).copied().flatten().is_some();
        let mut add = |node: Node, out: bool| {
            let Node::Block(b) = node else { return };
            let Some(side) = sides.get_mut(b as usize) else {
                return;
            };
            let total = if out {
                &mut side.left
            } else {
                &mut side.entered
            };
            *total = total.zip(count).and_then(|(a, b)| a.checked_add(b));
            side.counted &= has_counter || edge.role == Role::Around;
        };
        add(edge.from, true);
        add(edge.to, false);
    }
    for (n, side) in sides.into_iter().enumerate() {
        let in_flight = inside.get(n).copied().unwrap_or(0);
        let gone = side.left.and_then(|l| l.checked_add(in_flight));
        if side.counted
            && let (Some(entered), Some(left)) = (side.entered, side.left)
            && Some(entered) != gone
        {
            profile.violations.push(Violation::Unbalanced {
                block: Place(Node::Block(n as u32)),
                entered,
                left,
                in_flight,
            });
        }
        profile.blocks.push(side.entered.or(gone));
    }
}
