//! Union-find, for spanning trees.

/// Sets of nodes that are connected.
pub(crate) struct Sets {
    parent: Vec<usize>,
}

impl Sets {
    pub(crate) fn new(count: usize) -> Sets {
        Sets {
            parent: (0..count).collect(),
        }
    }

    /// The node that stands for the set of `n`.
    fn find(&mut self, mut n: usize) -> usize {
        while let Some(up) = self.parent.get(n).copied() {
            if up == n {
                break;
            }
            let above = self.parent.get(up).copied().unwrap_or(up);
            if let Some(slot) = self.parent.get_mut(n) {
                *slot = above;
            }
            n = above;
        }
        n
    }

    /// Joins the sets of `a` and `b`; were they two?
    pub(crate) fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.find(a), self.find(b));
        match self.parent.get_mut(a) {
            Some(slot) if a != b => {
                *slot = b;
                true
            }
            _ => false,
        }
    }
}
