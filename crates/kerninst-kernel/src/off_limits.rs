//! Text that must never be instrumented.

use std::fmt;
use std::ops::Range;

/// Why an address is off limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OffLimit {
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
    /// Init text: freed after boot or module load.
    Init,
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
    /// Sorted by start; ranges may overlap.
    ranges: Vec<OffLimitRange>,
    /// `max_end[i]`: the greatest end of `ranges[..=i]`, so that a look-up can stop early.
    max_end: Vec<u64>,
}

impl OffLimits {
    /// From ranges in any order.
    #[must_use]
    pub fn new(mut ranges: Vec<OffLimitRange>) -> Self {
        ranges.retain(|r| r.range.start < r.range.end);
        ranges.sort_by_key(|r| (r.range.start, r.why));
        let mut max = 0;
        let max_end = ranges
            .iter()
            .map(|r| {
                max = max.max(r.range.end);
                max
            })
            .collect();
        Self { ranges, max_end }
    }
    /// Why `addr` is off limits; `None` if it is not.
    #[must_use]
    pub fn at(&self, addr: u64) -> Option<OffLimit> {
        self.touching(addr..addr.saturating_add(1))
    }
    /// Why some byte of `range` is off limits; `None` if none is. Of several reasons the one of the range that starts last.
    #[must_use]
    pub fn touching(&self, range: Range<u64>) -> Option<OffLimit> {
        let mut i = self.ranges.partition_point(|r| r.range.start < range.end);
        while let Some(j) = i.checked_sub(1) {
            if *self.max_end.get(j)? <= range.start {
                return None;
            }
            let r = self.ranges.get(j)?;
            if r.range.end > range.start {
                return Some(r.why);
            }
            i = j;
        }
        None
    }
    /// All ranges, sorted by start; they may overlap.
    #[must_use]
    pub fn ranges(&self) -> &[OffLimitRange] {
        &self.ranges
    }
}
