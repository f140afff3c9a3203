//! KernInst's own way: edge counts from block counts alone.

use kerninst_analysis::{EdgeTarget, ExitKind, Function};

use crate::{Flow, Node, Role};

/// Which edges' counts follow from the counts of all blocks.
///
/// The rule of KernInst (Tamches and Miller; kerninstd, fnBlockAndEdgeCounts): a block whose count is known, and all but
/// one of the edges into it (or out of it), gives that one; repeated until nothing changes. Outside is up to three
/// nodes whose counts are not known: the entry, the normal exits, and jumps to other functions; one of them is known
/// when all its edges are. That as many visits leave as enter is not used: some functions are never left.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Derivation {
    known: Vec<bool>,
}

/// Nodes beyond the blocks.
const OUTSIDE: usize = 3;

impl Derivation {
    /// For this function, whose flow is `flow`.
    pub fn from_blocks(function: &Function, flow: &Flow) -> Derivation {
        let blocks = flow.blocks();
        let (entry, exit, jumps) = (blocks, blocks + 1, blocks + 2);
        let number = |node: Node, n: usize| match node {
            Node::Block(b) => b as usize,
            Node::Entry => entry,
            Node::Exit => match function.edges.get(n).map(|e| e.to) {
                Some(EdgeTarget::Exit(
                    ExitKind::TailCall(_) | ExitKind::IndirectTailCall | ExitKind::JumpInto(_),
                )) => jumps,
                _ => exit,
            },
        };
        let ends: Vec<Option<(usize, usize)>> = flow
            .edges()
            .iter()
            .enumerate()
            .map(|(n, e)| (e.role != Role::Around).then(|| (number(e.from, n), number(e.to, n))))
            .collect();
        let sides = Sides::new(blocks + OUTSIDE, &ends);
        let mut known = vec![false; ends.len()];
        // The count of a block is given.
        let mut count: Vec<bool> = (0..blocks + OUTSIDE).map(|n| n < blocks).collect();
        let mut work: Vec<usize> = (0..blocks + OUTSIDE).collect();
        while let Some(node) = work.pop() {
            for out in [true, false] {
                let side = sides.of(node, out);
                let mut unknown = side.iter().filter(|e| known.get(**e) == Some(&false));
                let (first, more) = (unknown.next().copied(), unknown.next().is_some());
                let Some(slot) = count.get_mut(node) else {
                    continue;
                };
                match first {
                    // A node outside has edges on one side only, or none.
                    None if !side.is_empty() => *slot = true,
                    Some(edge) if !more && *slot => {
                        if let Some(k) = known.get_mut(edge) {
                            *k = true;
                        }
                        if let Some(Some((from, to))) = ends.get(edge) {
                            work.extend([*from, *to]);
                        }
                    }
                    _ => {}
                }
            }
        }
        Derivation { known }
    }

    /// Does the count of this edge of the flow follow?
    pub fn knows(&self, edge: usize) -> bool {
        self.known.get(edge).copied().unwrap_or(false)
    }

    /// Edges whose count follows, and all edges (the way in and the exits are edges too).
    pub fn share(&self, flow: &Flow) -> (u64, u64) {
        let all = flow.real_edges();
        all.fold((0, 0), |(known, all), (n, _)| {
            (known + u64::from(self.knows(n)), all + 1)
        })
    }
}

/// For every node the edges out of it and into it.
struct Sides {
    out: Vec<Vec<usize>>,
    into: Vec<Vec<usize>>,
}

impl Sides {
    fn new(nodes: usize, ends: &[Option<(usize, usize)>]) -> Sides {
        let mut sides = Sides {
            out: vec![Vec::new(); nodes],
            into: vec![Vec::new(); nodes],
        };
        for (n, pair) in ends.iter().enumerate() {
            let Some((from, to)) = pair else { continue };
            if let Some(list) = sides.out.get_mut(*from) {
                list.push(n);
            }
            if let Some(list) = sides.into.get_mut(*to) {
                list.push(n);
            }
        }
        sides
    }

    fn of(&self, node: usize, out: bool) -> &[usize] {
        let side = if out { &self.out } else { &self.into };
        side.get(node).map_or(&[], Vec::as_slice)
    }
}
