//! Text that must never be instrumented.

pub(crate) mod collect;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// Why an address is off limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OffLimit {
    /// Init text: freed after boot or module load.
    Init,
    /// Entry code: runs with the user's registers, stack or page tables (`.entry.text`).
    Entry,
    /// `noinstr` text: runs where RCU, lockdep or the exception state forbid instrumentation.
    Noinstr,
    /// `.kprobes.text`: the kernel's own do-not-probe section.
    KprobesText,
    /// Static call trampolines: rewritten by the kernel.
    StaticCallTrampoline,
    /// Retpolines and return thunks: mitigation code, some of it executed from the middle.
    Thunk,
    /// On the kernel's kprobe blacklist.
    Blacklist,
    /// The text poking and breakpoint path itself.
    Poking,
}

impl fmt::Display for OffLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OffLimit::Entry => "entry text",
            OffLimit::Noinstr => "noinstr text",
            OffLimit::KprobesText => "kprobes text",
            OffLimit::StaticCallTrampoline => "a static call trampoline",
            OffLimit::Thunk => "a retpoline or return thunk",
            OffLimit::Blacklist => "on the kernel's kprobe blacklist",
            OffLimit::Init => "init text",
            OffLimit::Poking => "part of the kernel's text poking or breakpoint path",
        })
    }
}

/// A range that is off limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffLimitRange {
    /// The addresses.
    pub range: Range<u64>,
    /// Why.
    pub why: OffLimit,
}

/// All text that is off limits.
#[derive(Clone, Debug, Default)]
pub struct OffLimits {
    /// Sorted and disjoint.
    ranges: Vec<OffLimitRange>,
    missing: Vec<String>,
}

impl OffLimits {
    /// From ranges in any order, which may overlap: where they do, the reason first in [`OffLimit`]'s order stands.
    #[must_use]
    pub fn new(mut ranges: Vec<OffLimitRange>) -> Self {
        ranges.retain(|r| r.range.start < r.range.end);
        // At each boundary, in address order, a range opens or closes.
        let mut edges: Vec<(u64, bool, OffLimit)> = Vec::with_capacity(ranges.len() * 2);
        for r in ranges {
            edges.push((r.range.start, true, r.why));
            edges.push((r.range.end, false, r.why));
        }
        edges.sort_unstable();
        let mut open: BTreeMap<OffLimit, u32> = BTreeMap::new();
        let mut out: Vec<OffLimitRange> = Vec::new();
        let mut from = 0;
        for (at, opens, why) in edges {
            if let Some((&why, _)) = open.first_key_value().filter(|_| from < at) {
                match out.last_mut() {
                    Some(last) if last.range.end == from && last.why == why => last.range.end = at,
                    _ => out.push(OffLimitRange {
                        range: from..at,
                        why,
                    }),
                }
            }
            from = at;
            let count = open.entry(why).or_insert(0);
            *count = if opens {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
            if *count == 0 {
                open.remove(&why);
            }
        }
        Self {
            ranges: out,
            missing: Vec::new(),
        }
    }
    /// Why `addr` is off limits; `None` if it is not.
    #[must_use]
    #[inline]
    pub fn at(&self, addr: u64) -> Option<OffLimit> {
        self.touching(addr..addr.saturating_add(1))
    }
    /// Why some byte of `range` is off limits; `None` if none is. The first such byte's reason.
    #[must_use]
    #[inline]
    pub fn touching(&self, range: Range<u64>) -> Option<OffLimit> {
        let first = self.ranges.partition_point(|r| r.range.end <= range.start);
        self.ranges
            .get(first)
            .filter(|r| r.range.start < range.end)
            .map(|r| r.why)
    }
    /// Sources that could not be read, in sentences: then some ranges may be missing.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }
    /// All ranges, sorted and disjoint.
    #[must_use]
    pub fn ranges(&self) -> &[OffLimitRange] {
        &self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_flattened() {
        let r = |range, why| OffLimitRange { range, why };
        let all = OffLimits::new(vec![
            r(10..20, OffLimit::Blacklist),
            r(12..15, OffLimit::Entry),
            r(20..25, OffLimit::Blacklist),
            r(30..30, OffLimit::Init),
            r(40..50, OffLimit::Poking),
            r(45..48, OffLimit::Poking),
        ]);
        let got: Vec<_> = all
            .ranges()
            .iter()
            .map(|r| format!("{:?} {:?}", r.range, r.why))
            .collect();
        assert_eq!(
            got,
            [
                "10..12 Blacklist",
                "12..15 Entry",
                "15..25 Blacklist",
                "40..50 Poking"
            ]
        );
        assert_eq!(all.at(9), None);
        assert_eq!(all.at(14), Some(OffLimit::Entry));
        assert_eq!(all.at(24), Some(OffLimit::Blacklist));
        assert_eq!(all.at(25), None);
        assert_eq!(all.touching(25..41), Some(OffLimit::Poking));
        assert_eq!(all.touching(25..40), None);
    }
}
