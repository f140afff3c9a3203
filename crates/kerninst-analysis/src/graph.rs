//! Dominators and natural loops of one function.

use crate::function::{Edge, EdgeTarget, Function};

/// The dominator tree of a function's blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dominators {
    /// Immediate dominator of every block; none for blocks that nothing but the (virtual) root dominates.
    pub idom: Vec<Option<u32>>,
    /// Distance from the virtual root, by which `dominates` need not walk past the answer.
    depth: Vec<u32>,
}

impl Dominators {
    /// Does every way from an entry to block `b` pass block `a`? A block dominates itself.
    pub fn dominates(&self, a: u32, b: u32) -> bool {
        let depth = |n: u32| self.depth.get(n as usize).copied();
        let (Some(want), Some(mut at)) = (depth(a), depth(b)) else {
            return false;
        };
        let mut block = b;
        while at > want {
            match self.idom.get(block as usize).copied().flatten() {
                Some(up) => block = up,
                None => return false,
            }
            at -= 1;
        }
        block == a
    }
}

/// A natural loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// The block that every round passes and that dominates the loop.
    pub header: u32,
    /// The blocks that jump back to the header, sorted.
    pub latches: Vec<u32>,
    /// All blocks of the loop, header included, sorted.
    pub blocks: Vec<u32>,
    /// Index (in the list of loops) of the innermost loop around this one.
    pub parent: Option<u32>,
    /// 1 for an outermost loop.
    pub depth: u32,
}

/// No block: the virtual root in front of all entries.
const ROOT: usize = usize::MAX;

/// For each block some others.
struct Lists {
    /// Where each block's end, and the next one's begin.
    ends: Vec<u32>,
    others: Vec<u32>,
}

impl Lists {
    /// From pairs of a block (below `count`) and another one, which keep their order.
    fn new(count: usize, pairs: impl Iterator<Item = (usize, usize)> + Clone) -> Self {
        // First how many each has, then where its list begins, and filled up, where it ends.
        let mut ends = vec![0u32; count];
        for (block, _) in pairs.clone() {
            if let Some(n) = ends.get_mut(block) {
                *n += 1;
            }
        }
        let mut all = 0;
        for n in &mut ends {
            all += std::mem::replace(n, all);
        }
        let mut others = vec![0; all as usize];
        for (block, other) in pairs {
            let Some(end) = ends.get_mut(block) else {
                continue;
            };
            if let Some(slot) = others.get_mut(*end as usize) {
                *slot = other as u32;
            }
            *end += 1;
        }
        Self { ends, others }
    }

    fn of(&self, block: usize) -> &[u32] {
        let start = block.checked_sub(1).map_or(Some(&0), |b| self.ends.get(b));
        let range = start.zip(self.ends.get(block));
        let list = range.and_then(|(a, b)| self.others.get(*a as usize..*b as usize));
        list.unwrap_or(&[])
    }
}

struct Blocks {
    successors: Lists,
    predecessors: Lists,
    /// Position in reverse post order.
    position: Vec<usize>,
    order: Vec<usize>,
    roots: Vec<bool>,
}

impl Blocks {
    fn new(function: &Function) -> Self {
        let count = function.blocks.len();
        let pairs = function.edges.iter().filter_map(|edge| match edge.to {
            EdgeTarget::Block(to) => Some((edge.from as usize, to as usize)),
            EdgeTarget::Exit(_) => None,
        });
        let pairs = pairs.filter(|&(from, to)| from < count && to < count);
        let roots = function.blocks.iter().map(|b| b.root).collect();
        let mut blocks = Self {
            successors: Lists::new(count, pairs.clone()),
            predecessors: Lists::new(count, pairs.map(|(from, to)| (to, from))),
            position: vec![ROOT; count],
            order: vec![],
            roots,
        };
        blocks.number();
        blocks
    }

    /// Depth first from all entries; the entry of the function is block 0 or wherever it lies.
    fn number(&mut self) {
        let count = self.roots.len();
        let mut seen = vec![false; count];
        let mut post = Vec::with_capacity(count);
        let starts = (0..count)
            .filter(|&n| self.roots.get(n) == Some(&true))
            .collect::<Vec<_>>();
        for start in starts {
            let mut stack = vec![(start, 0usize)];
            if !visit(&mut seen, start) {
                continue;
            }
            while let Some((block, next)) = stack.pop() {
                match self.successors.of(block).get(next) {
                    Some(&to) => {
                        let to = to as usize;
                        stack.push((block, next + 1));
                        if visit(&mut seen, to) {
                            stack.push((to, 0));
                        }
                    }
                    None => post.push(block),
                }
            }
        }
        post.reverse();
        for (n, &block) in post.iter().enumerate() {
            if let Some(position) = self.position.get_mut(block) {
                *position = n;
            }
        }
        self.order = post;
    }
}

impl Function {
    /// The dominator tree (Cooper, Harvey, Kennedy: "A simple, fast dominance algorithm").
    pub fn dominators(&self) -> Dominators {
        self.dominators_of(&Blocks::new(self))
    }

    fn dominators_of(&self, blocks: &Blocks) -> Dominators {
        let count = self.blocks.len();
        // None: not known yet. Some(ROOT): the virtual root.
        let mut idom: Vec<Option<usize>> = vec![None; count];
        let at = |list: &[usize], n: usize| list.get(n).copied().unwrap_or(ROOT);
        let mut changed = true;
        while changed {
            changed = false;
            for &block in &blocks.order {
                let mut new = (blocks.roots.get(block) == Some(&true)).then_some(ROOT);
                for &from in blocks.predecessors.of(block) {
                    let from = from as usize;
                    if idom.get(from).copied().flatten().is_none() {
                        continue;
                    }
                    new = Some(match new {
                        None => from,
                        Some(other) => meet(&idom, |n| at(&blocks.position, n), other, from),
                    });
                }
                if let Some(slot) = idom.get_mut(block)
                    && *slot != new
                {
                    *slot = new;
                    changed = true;
                }
            }
        }
        let mut depth = vec![0; count];
        for &block in &blocks.order {
            let up = idom.get(block).copied().flatten().unwrap_or(ROOT);
            let above = depth.get(up).copied().unwrap_or(0);
            if let Some(slot) = depth.get_mut(block) {
                *slot = above + 1;
            }
        }
        let idom = idom
            .into_iter()
            .map(|d| d.filter(|&d| d != ROOT).map(|d| d as u32))
            .collect();
        Dominators { idom, depth }
    }

    /// The natural loops, outer before inner where nested, by header otherwise. Cycles that are
    /// entered at several blocks (irreducible) have no header and are not listed.
    pub fn loops(&self) -> Vec<Loop> {
        // Where every edge leads on, there is none.
        let back = |e: &Edge| matches!(e.to, EdgeTarget::Block(to) if to <= e.from);
        if !self.edges.iter().any(back) {
            return Vec::new();
        }
        let blocks = Blocks::new(self);
        let dominators = self.dominators_of(&blocks);
        let mut loops: Vec<Loop> = Vec::new();
        for edge in &self.edges {
            let EdgeTarget::Block(header) = edge.to else {
                continue;
            };
            if !dominators.dominates(header, edge.from) {
                continue;
            }
            match loops.iter_mut().find(|l| l.header == header) {
                Some(found) => found.latches.push(edge.from),
                None => loops.push(Loop {
                    header,
                    latches: vec![edge.from],
                    blocks: vec![],
                    parent: None,
                    depth: 1,
                }),
            }
        }
        for found in &mut loops {
            found.latches.sort_unstable();
            found.latches.dedup();
            found.blocks = body(&blocks, found.header, &found.latches);
        }
        loops.sort_by_key(|l| (std::cmp::Reverse(l.blocks.len()), l.header));
        for n in 0..loops.len() {
            let Some(header) = loops.get(n).map(|l| l.header) else {
                continue;
            };
            // Sorted by size: the last one before that has the header is the innermost around it.
            let around = loops.get(..n).unwrap_or(&[]);
            let parent = around
                .iter()
                .rposition(|l| l.blocks.binary_search(&header).is_ok());
            let depth = parent.and_then(|p| loops.get(p)).map_or(1, |p| p.depth + 1);
            if let Some(found) = loops.get_mut(n) {
                found.parent = parent.map(|p| p as u32);
                found.depth = depth;
            }
        }
        loops
    }
}

/// Marks `n`; was it unmarked?
fn visit(seen: &mut [bool], n: usize) -> bool {
    seen.get_mut(n)
        .is_some_and(|mark| !std::mem::replace(mark, true))
}

/// The nearest common dominator.
fn meet(
    idom: &[Option<usize>],
    position: impl Fn(usize) -> usize,
    mut a: usize,
    mut b: usize,
) -> usize {
    let up = |n: usize| idom.get(n).copied().flatten().unwrap_or(ROOT);
    while a != b {
        if a == ROOT || b == ROOT {
            return ROOT;
        }
        if position(a) > position(b) {
            a = up(a);
        } else {
            b = up(b);
        }
    }
    a
}

/// All blocks that reach a latch without passing the header.
fn body(blocks: &Blocks, header: u32, latches: &[u32]) -> Vec<u32> {
    let mut body = vec![header];
    let mut seen = vec![false; blocks.roots.len()];
    if let Some(mark) = seen.get_mut(header as usize) {
        *mark = true;
    }
    let mut work: Vec<usize> = latches.iter().map(|&l| l as usize).collect();
    while let Some(block) = work.pop() {
        if !visit(&mut seen, block) {
            continue;
        }
        body.push(block as u32);
        // In an incomplete function some code may be reached in ways that are not known: it is in no loop.
        let before = blocks.predecessors.of(block).iter().map(|b| *b as usize);
        work.extend(before.filter(|b| blocks.position.get(*b).is_some_and(|p| *p != ROOT)));
    }
    body.sort_unstable();
    body
}
