//! Who owns which byte: the padding that springboards use, and the sites themselves.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of kernel text that splices own. Share one value among all plans that are armed together, and reserve in
/// it what is armed already: no two splices ever overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Boards {
    /// Start to end; disjoint.
    taken: BTreeMap<u64, u64>,
}

impl Boards {
    /// Nothing is owned.
    pub fn new() -> Boards {
        Boards::default()
    }

    /// The first taken byte of `range`, if there is one.
    pub fn conflict(&self, range: &Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        let before = self.taken.range(..=range.start).next_back();
        if before.is_some_and(|(_, end)| *end > range.start) {
            return Some(range.start);
        }
        self.taken
            .range(range.clone())
            .next()
            .map(|(start, _)| *start)
    }

    /// Takes all bytes of `range`, or none (`false`) if one is taken already.
    pub fn claim(&mut self, range: Range<u64>) -> bool {
        if self.conflict(&range).is_some() {
            return false;
        }
        if !range.is_empty() {
            self.taken.insert(range.start, range.end);
        }
        true
    }

    /// Gives back exactly a range that was claimed.
    pub fn release(&mut self, range: &Range<u64>) {
        if self.taken.get(&range.start) == Some(&range.end) {
            self.taken.remove(&range.start);
        }
    }

    /// A copy of what is known about `range`, for look-ups that stay inside it.
    pub(crate) fn clone_near(&self, range: &Range<u64>) -> Boards {
        let from = self
            .taken
            .range(..=range.start)
            .next_back()
            .map_or(range.start, |(start, _)| *start);
        // A board that starts within the range may end a little after it.
        let to = range.end.saturating_add(16);
        Boards {
            taken: self.taken.range(from..to).map(|(s, e)| (*s, *e)).collect(),
        }
    }

    /// A copy of what is known about all of `ranges`.
    pub(crate) fn clone_in(&self, ranges: &[Range<u64>]) -> Boards {
        let mut all = Boards::new();
        for range in ranges {
            all.taken.extend(self.clone_near(range).taken);
        }
        all
    }

    /// A copy of what is known about `ranges` and all that a jump from there may reach with 8 bits: for look-ups that are not kept.
    pub(crate) fn clone_around(&self, ranges: &[Range<u64>]) -> Boards {
        const AROUND: u64 = 256;
        let wide = |r: &Range<u64>| r.start.saturating_sub(AROUND)..r.end.saturating_add(AROUND);
        let wide: Vec<Range<u64>> = ranges.iter().map(wide).collect();
        self.clone_in(&wide)
    }

    /// The first `len` free bytes in `free` (ranges of proven padding) that start within `reach`.
    pub(crate) fn find(&self, free: &[Range<u64>], reach: &Range<u64>, len: u64) -> Option<u64> {
        for r in free {
            let mut at = r.start.max(reach.start);
            while at < reach.end && at.checked_add(len).is_some_and(|end| end <= r.end) {
                let want = at..at + len;
                let Some(hit) = self.conflict(&want) else {
                    return Some(at);
                };
                // Go on after the taken range that is in the way.
                let end = self
                    .taken
                    .range(..=hit)
                    .next_back()
                    .map_or(hit, |(_, end)| *end);
                at = end.max(at + 1);
            }
        }
        None
    }
}
