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
}

fn scan_text(index: &Index<'_>, starts: &Bits, text: &Text, found: &mut Vec<Reference>) {
    let bytes = &text.bytes;
    let own = text.range();
    let mut region = own.start..own.start;
    let mut number = None;
    for p in 0..bytes.len() {
        let source = own.start.wrapping_add(p as u64);
        if source >= region.end {
            number = match number {
                None => index.region_at(source),
                Some(n) => Some(n + 1),
            };
            region = number
                .and_then(|n| index.region(n))
                .unwrap_or(source..own.end);
            if region.start > source {
                // Bytes before the first symbol.
                region = source..region.start;
                number = None;
            }
        }
        let Some(field) = bytes.get(p..p + 4) else {
            break;
        };
        let mut add = |target: u64, how: How| {
            if !region.contains(&target) && starts.is_interior(target) {
                found.push(Reference {
                    target,
                    source,
                    how,
                });
            }
        };
        let word = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
        let relative = |skip: usize| -> Option<u64> {
            let d = bytes.get(p + skip..p + skip + 4)?;
            let d = i32::from_le_bytes([d[0], d[1], d[2], d[3]]);
            Some(
                source
                    .wrapping_add(skip as u64 + 4)
                    .wrapping_add(d as i64 as u64),
            )
        };
        match field {
            [0xe9, ..] => relative(1).into_iter().for_each(|t| add(t, How::Jump)),
            [0xe8, ..] => relative(1).into_iter().for_each(|t| add(t, How::Call)),
            [0x0f, 0x80..=0x8f, ..] => relative(2).into_iter().for_each(|t| add(t, How::Jump)),
            [0x8d, modrm, ..] if modrm & 0xc7 == 5 => {
                relative(2).into_iter().for_each(|t| add(t, How::Lea));
            }
            _ => {}
        }
        // An absolute address: wanted for code without an fentry site only.
        let absolute = word as i32 as i64 as u64;
        if own.contains(&absolute) && absolute & 0x8000_0000 != 0 {
            let wanted = index
                .region_at(absolute)
                .and_then(|n| index.get(n))
                .is_some_and(|s| !s.class.intersects(Class::FENTRY | Class::PADDING));
            if wanted {
                add(absolute, How::Absolute);
            }
        }
    }
}
