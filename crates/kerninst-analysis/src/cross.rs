//! References from one function into the middle of another, found by a raw scan of all text.
//!
//! Compilers make them only from a function to its own cold part. Assembly makes others, so for
//! functions without an fentry site they count as ways in. The scan takes every byte for the start of an
//! instruction: it finds all references, and a few that are none, which costs a join too many.

use std::ops::Range;

use kerninst_kernel::Text;

use crate::index::Index;
use crate::names::Class;

/// What the bytes look like.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum How {
    /// `jmp rel32`, `jcc rel32`.
    Jump,
    Call,
    /// `lea disp(%rip)`.
    Lea,
    /// A sign-extended 32-bit address.
    Absolute,
}

/// One reference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Reference {
    pub target: u64,
    /// First byte of what looks like the instruction (of the field, for an absolute address).
    pub source: u64,
    pub how: How,
}

/// All references into the middle of another region, by target.
pub(crate) struct References(Vec<Reference>);

impl References {
    /// Scans all text, or only the regions without an fentry site.
    pub(crate) fn scan(index: &Index<'_>, untraced_only: bool) -> Self {
        let mut found = Vec::new();
        let mut starts = Starts::default();
        let mut scanned: Vec<Range<u64>> = Vec::new();
        for text in index.texts() {
            let mut bits = vec![0; text.bytes.len() / 64 + 1];
            let mut open: Option<u64> = None;
            index.each_start(text, |addr, traced| {
                let offset = addr.wrapping_sub(text.start) as usize;
                if let Some(word) = bits.get_mut(offset / 64) {
                    *word |= 1 << (offset % 64);
                }
                if traced {
                    scanned.extend(open.take().map(|from| from..addr));
                } else {
                    open = open.or(Some(addr));
                }
            });
            scanned.extend(open.map(|from| from..text.end()));
            starts.texts.push((text.range(), bits));
        }
        if !untraced_only {
            scanned = index.texts().iter().map(|t| t.range()).collect();
        }
        for range in scanned {
            if let Some(text) = index.text_at(range.start) {
                scan_range(index, &starts, text, range, &mut found);
            }
        }
        found.sort_unstable();
        Self(found)
    }

    /// The references to addresses in `range`, by target.
    pub(crate) fn targets_in(&self, range: Range<u64>) -> &[Reference] {
        let from = self.0.partition_point(|r| r.target < range.start);
        let to = self.0.partition_point(|r| r.target < range.end).max(from);
        self.0.get(from..to).unwrap_or(&[])
    }
}

/// One bit for each byte of text: does a region start there?
#[derive(Default)]
struct Starts {
    texts: Vec<(Range<u64>, Vec<u64>)>,
}

impl Starts {
    /// Is `addr` text, and not the start of a region?
    fn is_interior(&self, addr: u64) -> bool {
        // Core text first, which nearly all references are to.
        let Some((range, bits)) = self.texts.iter().find(|(r, _)| r.contains(&addr)) else {
            return false;
        };
        let offset = (addr - range.start) as usize;
        bits.get(offset / 64)
            .is_some_and(|w| w >> (offset % 64) & 1 == 0)
    }

    /// Do both addresses, of which the second is in a text, lie in one region? None starts between them then.
    fn same_region(&self, a: u64, b: u64) -> bool {
        let (low, high) = (a.min(b), a.max(b));
        let Some((range, bits)) = self.texts.iter().find(|(r, _)| r.contains(&b)) else {
            return false;
        };
        if !range.contains(&a) {
            return false;
        }
        // Starts in low+1..=high.
        let from = (low - range.start) as usize + 1;
        let to = (high - range.start) as usize + 1;
        let mut word = from / 64;
        while word * 64 < to {
            let mut mask = u64::MAX;
            if word == from / 64 {
                mask &= u64::MAX << (from % 64);
            }
            if word == to / 64 {
                mask &= (1 << (to % 64)) - 1;
            }
            if bits.get(word).is_some_and(|w| w & mask != 0) {
                return false;
            }
            word += 1;
        }
        true
    }
}

/// First bytes that a reference can start with.
const INTEREST: [bool; 256] = {
    let mut table = [false; 256];
    table[0xe8] = true;
    table[0xe9] = true;
    table[0x0f] = true;
    table[0x8d] = true;
    table
};

fn scan_range(
    index: &Index<'_>,
    starts: &Starts,
    text: &Text,
    range: Range<u64>,
    found: &mut Vec<Reference>,
) {
    let own = text.range();
    let mut add = |source: u64, target: u64, how: How| {
        if starts.is_interior(target)
            && !starts.same_region(source, target)
            && (how != How::Absolute || is_untraced(index, target))
        {
            found.push(Reference {
                target,
                source,
                how,
            });
        }
    };
    let size = own.end.wrapping_sub(own.start);
    let first = range.start.saturating_sub(own.start) as usize;
    let last = range.end.saturating_sub(own.start) as usize;
    let bytes = text.bytes.get(first..last).unwrap_or(&[]);
    let mut at = |source: u64, window: [u8; 6]| {
        let [a, b, c, d, e, f] = window;
        if INTEREST[usize::from(a)] {
            let (skip, field, how) = match (a, b) {
                (0xe9, _) => (1, [b, c, d, e], How::Jump),
                (0xe8, _) => (1, [b, c, d, e], How::Call),
                (0x0f, 0x80..=0x8f) => (2, [c, d, e, f], How::Jump),
                (0x8d, _) if b & 0xc7 == 5 => (2, [c, d, e, f], How::Lea),
                _ => (0, [0; 4], How::Lea),
            };
            if skip != 0 {
                let displacement = i64::from(i32::from_le_bytes(field)) as u64;
                let next = source.wrapping_add(skip + 4);
                add(source, next.wrapping_add(displacement), how);
            }
        }
        // A sign-extended address.
        let absolute = i64::from(i32::from_le_bytes([a, b, c, d])) as u64;
        if absolute.wrapping_sub(own.start) < size {
            add(source, absolute, How::Absolute);
        }
    };
    let mut source = range.start;
    for window in bytes.windows(6) {
        if let &[a, b, c, d, e, f] = window {
            at(source, [a, b, c, d, e, f]);
        }
        source = source.wrapping_add(1);
    }
    // The last bytes, as if zeros followed: a five-byte jump may be the last instruction.
    for n in (1..6).rev() {
        let Some(tail) = bytes
            .len()
            .checked_sub(n)
            .and_then(|from| bytes.get(from..))
        else {
            continue;
        };
        let mut window = [0; 6];
        for (to, from) in window.iter_mut().zip(tail) {
            *to = *from;
        }
        at(range.end.wrapping_sub(n as u64), window);
    }
}

fn is_untraced(index: &Index<'_>, addr: u64) -> bool {
    let start = index.region_at(addr).and_then(|n| index.at(n));
    start.is_some_and(|s| !s.class.intersects(Class::FENTRY | Class::PADDING))
}
