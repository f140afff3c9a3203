//! What one profile covers and another does not.

use std::collections::BTreeSet;

use crate::file::{FileError, FunctionProfile, ProfileFile};

/// A function that two profiles cover differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change<'p> {
    /// Its counts in the first; none: it was not counted.
    pub old: Option<&'p FunctionProfile>,
    /// Its counts in the second.
    pub new: Option<&'p FunctionProfile>,
    /// Blocks that ran only in the second.
    pub gained: Vec<usize>,
    /// Blocks that ran only in the first.
    pub lost: Vec<usize>,
    /// Edges that were taken only in the second.
    pub gained_edges: usize,
    /// Edges that were taken only in the first.
    pub lost_edges: usize,
}

impl Change<'_> {
    /// Id of the function.
    pub fn function(&self) -> &str {
        let either = self.new.or(self.old);
        either.map_or("", |f| f.function.as_str())
    }

    /// Nothing ran in the first, something in the second.
    pub fn is_new(&self) -> bool {
        !self.old.is_some_and(ran) && self.new.is_some_and(ran)
    }

    /// Something ran in the first, nothing in the second.
    pub fn is_gone(&self) -> bool {
        self.old.is_some_and(ran) && !self.new.is_some_and(ran)
    }

    fn is_empty(&self) -> bool {
        let blocks = self.gained.is_empty() && self.lost.is_empty();
        blocks && self.gained_edges == 0 && self.lost_edges == 0
    }
}

fn ran(function: &FunctionProfile) -> bool {
    function.blocks.iter().any(hit)
}

fn hit(count: &Option<u64>) -> bool {
    count.is_some_and(|n| n > 0)
}

/// The differences of two profiles of one kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Diff<'p> {
    /// Functions with other coverage, by id.
    pub changes: Vec<Change<'p>>,
    /// Functions that only the first has counted.
    pub only_old: usize,
    /// Functions that only the second has counted.
    pub only_new: usize,
}

impl<'p> Diff<'p> {
    /// Compares. What is not known counts as not run.
    ///
    /// # Errors
    /// [`FileError`]: not the same kernel, not the same code.
    pub fn new(old: &'p ProfileFile, new: &'p ProfileFile) -> Result<Diff<'p>, FileError> {
        old.same_kernel(new)?;
        let mut diff = Diff::default();
        let ids: BTreeSet<&String> = old.functions.keys().chain(new.functions.keys()).collect();
        for id in ids {
            let (a, b) = (old.functions.get(id), new.functions.get(id));
            match (a, b) {
                (Some(a), Some(b)) => a.same_code(b)?,
                (Some(_), None) => diff.only_old += 1,
                _ => diff.only_new += 1,
            }
            let (gained, lost) = compare(a.map(|f| &f.blocks[..]), b.map(|f| &f.blocks[..]));
            let own = |f: &'p FunctionProfile| f.own_edges();
            let (gained_edges, lost_edges) = compare(a.map(own), b.map(own));
            let change = Change {
                old: a,
                new: b,
                gained,
                lost,
                gained_edges: gained_edges.len(),
                lost_edges: lost_edges.len(),
            };
            if !change.is_empty() {
                diff.changes.push(change);
            }
        }
        Ok(diff)
    }
}

/// What only the second has, and what only the first has.
fn compare(old: Option<&[Option<u64>]>, new: Option<&[Option<u64>]>) -> (Vec<usize>, Vec<usize>) {
    let (old, new) = (old.unwrap_or(&[]), new.unwrap_or(&[]));
    let has = |side: &[Option<u64>], n: usize| side.get(n).is_some_and(hit);
    let all = 0..old.len().max(new.len());
    let gained = all.clone().filter(|n| has(new, *n) && !has(old, *n));
    let lost = all.filter(|n| has(old, *n) && !has(new, *n));
    (gained.collect(), lost.collect())
}
