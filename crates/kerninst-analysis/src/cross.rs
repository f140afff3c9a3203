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
    pub(crate) fn scan(index: &Index<'_>) -> Self {
        let mut found = Vec::new();
        let starts = Bits::new(index);
        for text in index.texts() {
            scan_text(index, &starts, text, &mut found);
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
struct Bits {
    texts: Vec<(Range<u64>, Vec<u64>)>,
}

impl Bits {
    fn new(index: &Index<'_>) -> Self {
        let mut texts: Vec<(Range<u64>, Vec<u64>)> = index
            .texts()
            .iter()
            .map(|t| (t.range(), vec![0; t.bytes.len() / 64 + 1]))
            .collect();
        let mut at = 0;
        for start in (0..index.len()).filter_map(|n| index.get(n)) {
            while texts
                .get(at)
                .is_some_and(|(range, _)| range.end <= start.addr)
            {
                at += 1;
            }
            if let Some((range, bits)) = texts.get_mut(at)
                && let Some(offset) = start.addr.checked_sub(range.start)
                && let Some(word) = bits.get_mut(offset as usize / 64)
            {
                *word |= 1 << (offset % 64);
            }
        }
        Self { texts }
    }

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

fn scan_text(index: &Index<'_>, starts: &Bits, text: &Text, found: &mut Vec<Reference>) {
    let own = text.range();
    let add = |found: &mut Vec<Reference>, p: usize, target: u64, how: How| {
        let source = own.start.wrapping_add(p as u64);
        if starts.is_interior(target) && !starts.same_region(source, target) {
            found.push(Reference {
                target,
                source,
                how,
            });
        }
    };
    let size = own.end.wrapping_sub(own.start);
    for (p, window) in text.bytes.windows(6).enumerate() {
        let &[a, b, c, d, e, f] = window else {
            continue;
        };
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
                let next = own.start.wrapping_add(p as u64 + skip + 4);
                add(found, p, next.wrapping_add(displacement), how);
            }
        }
        // A sign-extended address: wanted for code without an fentry site only.
        let absolute = i64::from(i32::from_le_bytes([a, b, c, d])) as u64;
        if absolute.wrapping_sub(own.start) < size && is_untraced(index, absolute) {
            add(found, p, absolute, How::Absolute);
        }
    }
    // The last jump of a text ends at its last byte.
    if let [.., a, b, c, d, e] = *text.bytes.as_slice()
        && matches!(a, 0xe8 | 0xe9)
    {
        let displacement = i64::from(i32::from_le_bytes([b, c, d, e])) as u64;
        let how = if a == 0xe9 { How::Jump } else { How::Call };
        add(
            found,
            text.bytes.len() - 5,
            own.end.wrapping_add(displacement),
            how,
        );
    }
}

fn is_untraced(index: &Index<'_>, addr: u64) -> bool {
    let start = index.region_at(addr).and_then(|n| index.get(n));
    start.is_some_and(|s| !s.class.intersects(Class::FENTRY | Class::PADDING))
}
