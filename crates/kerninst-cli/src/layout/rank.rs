//! Which edges close cycles, and on which rank each box goes.

use super::Edge;

/// Ranks of the boxes, and which edges are back edges.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ranks {
    pub rank: Vec<usize>,
    pub back: Vec<bool>,
    /// Boxes in an order in which every edge that is no back edge leads forward.
    pub order: Vec<usize>,
}

/// Rank = longest path from an entry, back edges left out. A box that nothing leads to (but box 0) goes just above
/// what it leads to.
pub(super) fn ranks(count: usize, edges: &[Edge]) -> Ranks {
    let mut out: Vec<Vec<(usize, usize)>> = vec![Vec::new(); count];
    for (n, e) in edges.iter().enumerate() {
        if let (Some(list), true) = (out.get_mut(e.from), e.to < count) {
            list.push((n, e.to));
        }
    }
    let (order, back) = search(&out, edges.len());
    let mut rank = vec![0usize; count];
    let mut entered = vec![false; count];
    for &node in &order {
        let Some(from) = rank.get(node).copied() else {
            continue;
        };
        for &(edge, to) in out.get(node).map_or(&[][..], Vec::as_slice) {
            if back.get(edge) == Some(&false)
                && let (Some(r), Some(e)) = (rank.get_mut(to), entered.get_mut(to))
            {
                *r = (*r).max(from + 1);
                *e = true;
            }
        }
    }
    // Pull boxes without predecessors down to what they lead to.
    for &node in order.iter().rev() {
        if node == 0 || entered.get(node) == Some(&true) {
            continue;
        }
        let successors = out.get(node).map_or(&[][..], Vec::as_slice);
        let below = successors
            .iter()
            .filter(|(edge, _)| back.get(*edge) == Some(&false))
            .filter_map(|(_, to)| rank.get(*to))
            .min();
        if let (Some(below), Some(r)) = (below.copied(), rank.get_mut(node)) {
            *r = below.saturating_sub(1);
        }
    }
    Ranks { rank, back, order }
}

/// Depth first search without recursion: reverse postorder, and the edges that lead to a box on the current path.
fn search(out: &[Vec<(usize, usize)>], edge_count: usize) -> (Vec<usize>, Vec<bool>) {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut state = vec![State::New; out.len()];
    let mut back = vec![false; edge_count];
    let mut postorder = Vec::with_capacity(out.len());
    for root in 0..out.len() {
        if state.get(root) != Some(&State::New) {
            continue;
        }
        if let Some(s) = state.get_mut(root) {
            *s = State::Open;
        }
        let mut stack = vec![(root, 0usize)];
        while let Some((node, next)) = stack.last_mut() {
            let node = *node;
            let successor = out.get(node).and_then(|list| list.get(*next)).copied();
            *next += 1;
            match successor {
                Some((edge, to)) => match state.get(to).copied() {
                    Some(State::New) => {
                        if let Some(s) = state.get_mut(to) {
                            *s = State::Open;
                        }
                        stack.push((to, 0));
                    }
                    Some(State::Open) => {
                        if let Some(b) = back.get_mut(edge) {
                            *b = true;
                        }
                    }
                    Some(State::Done) | None => {}
                },
                None => {
                    if let Some(s) = state.get_mut(node) {
                        *s = State::Done;
                    }
                    postorder.push(node);
                    stack.pop();
                }
            }
        }
    }
    postorder.reverse();
    (postorder, back)
}
