//! Finding the kallsyms tables by their shape.

use memchr::memmem;

use super::{Layout, name_len, relative_base};
use crate::bytes::{i32_at, u16_at, u32_at, u64_at};

/// Fewer symbols than this is no kernel; more than this neither.
const COUNTS: std::ops::Range<usize> = 1_000..4_000_000;

/// Names that are looked at in all before the search is given up.
const MOST_NAMES: usize = 64 << 20;

fn align8(at: usize) -> usize {
    at.next_multiple_of(8)
}

/// Finds the tables in `bytes`, which start at an 8-byte aligned address.
///
/// # Errors
/// Which table was not found.
pub(crate) fn find(bytes: &[u8]) -> Result<Layout, &'static str> {
    // Digits are never merged into longer tokens at their own places: the table holds "0\01\0…9\0".
    let digits: Vec<u8> = (b'0'..=b'9').flat_map(|c| [c, 0]).collect();
    let mut failure = "no kallsyms token table";
    for digit_at in memmem::find_iter(bytes, &digits) {
        let Some((tokens, token_index)) = token_tables(bytes, digit_at) else {
            continue;
        };
        failure = "kallsyms token table found, but no names in front of it";
        for (count, names) in names_before(bytes, tokens) {
            failure = "kallsyms names found, but no offsets";
            if let Some((offsets, base)) = offsets(bytes, count, names, token_index) {
                let negative = (0..count)
                    .filter(|i| i32_at(bytes, offsets + 4 * i).is_some_and(|o| o < 0))
                    .count();
                let absolute_percpu = negative * 2 > count;
                return Ok(Layout {
                    count,
                    names,
                    tokens,
                    token_index,
                    offsets,
                    base,
                    absolute_percpu,
                });
            }
        }
    }
    Err(failure)
}

/// The token table that has the digit tokens at `digit_at`, and its index of 256 rising u16.
fn token_tables(bytes: &[u8], digit_at: usize) -> Option<(usize, usize)> {
    // The table is at most a few KB, and the index follows it, aligned.
    for at in (align8(digit_at)..digit_at + 0x4000).step_by(8) {
        let entry = |i: usize| u16_at(bytes, at + 2 * i).map(usize::from);
        if entry(0)? != 0 || entry(49)? != entry(48)? + 2 || entry(57)? != entry(48)? + 18 {
            continue;
        }
        let Some(start) = digit_at.checked_sub(entry(48)?) else {
            continue;
        };
        // Each entry starts a string: a NUL is in front of it.
        let good = (1..256).all(|i| match (entry(i - 1), entry(i)) {
            (Some(before), Some(this)) => before < this && bytes.get(start + this - 1) == Some(&0),
            _ => false,
        });
        if good && start + entry(255)? < at {
            return Some((start, at));
        }
    }
    None
}

/// Candidates for (count, names): a u32 count padded to 8 bytes, then exactly so many names, then the markers:
/// the offset of each 256th name. Searched backwards from the token table, which follows the markers (6.1, 6.12)
/// or the markers and 3 bytes for each symbol (6.2, 6.3).
fn names_before(bytes: &[u8], tokens: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    let last = tokens.min(bytes.len()) / 8;
    // Real data has a handful of candidates that fail early; made-up data must not take for ever.
    let mut budget = MOST_NAMES;
    (1..=last).rev().map(|n| n * 8).filter_map(move |names| {
        // The count and its padding, read as one number.
        let count = usize::try_from(u64_at(bytes, names - 8)?).unwrap_or(usize::MAX);
        if !COUNTS.contains(&count) || count > tokens - names {
            return None;
        }
        names_fit(bytes, names, count, tokens, &mut budget).then_some((count, names))
    })
}

fn names_fit(bytes: &[u8], names: usize, count: usize, limit: usize, budget: &mut usize) -> bool {
    let mut at = names;
    let mut markers = Vec::new();
    for i in 0..count {
        if i % 256 == 0 {
            markers.push(at - names);
        }
        let Some(left) = budget.checked_sub(1) else {
            return false;
        };
        *budget = left;
        match name_len(bytes, at) {
            // KSYM_NAME_LEN is 512.
            Some((len, skip)) if (1..=512).contains(&len) && at + skip + len <= limit => {
                at += skip + len
            }
            _ => return false,
        }
    }
    let start = align8(at);
    markers
        .iter()
        .enumerate()
        .all(|(i, &m)| u32_at(bytes, start + 4 * i).map(|v| v as usize) == Some(m))
}

/// The offsets and the relative base: after the token index (6.4 and later), or in front of the count (before).
fn offsets(bytes: &[u8], count: usize, names: usize, token_index: usize) -> Option<(usize, u64)> {
    let size = align8(4 * count);
    let after = align8(token_index + 512);
    if let Some(base) = relative_base(bytes, after + size) {
        return Some((after, base));
    }
    // offsets, relative base (8 bytes), count (8 bytes), names
    let base_at = names.checked_sub(16)?;
    let before = base_at.checked_sub(size)?;
    Some((before, relative_base(bytes, base_at)?))
}
