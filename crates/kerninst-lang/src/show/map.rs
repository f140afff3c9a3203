//! Maps as text.

use super::order::{average, ordered};
use super::text::{key_part, value_text};
use super::{Names, buckets};
use crate::hir::{Map, MapValue, Type};
use crate::value::{Cell, Entry};

/// Characters of the longest bar of a histogram.
const BAR: u128 = 52;

/// What `print(@x, top, div)` and the end of a session show of a map. A map that holds nothing gives no text; but of a number without key, 0.
pub fn map_text(map: &Map, entries: &[Entry], top: u32, div: u64, names: &dyn Names) -> Vec<u8> {
    let mut out = Vec::new();
    for entry in ordered(entries, top) {
        label(map, entry, names, &mut out);
        cell(map, &entry.cell, div.max(1), names, &mut out);
    }
    if out.is_empty() && is_number(map) {
        out.extend_from_slice(format!("{}: 0\n", map.name).as_bytes());
    }
    if !out.is_empty() && ends_in_blank_line(map) {
        out.push(b'\n');
    }
    out
}

/// It is one number that is 0 as long as nothing happens: worth a line, as it answers what was asked.
pub(super) fn is_number(map: &Map) -> bool {
    map.key.is_empty() && matches!(map.value, MapValue::Count | MapValue::Sum { .. })
}

/// `@name[key, key]: `.
fn label(map: &Map, entry: &Entry, names: &dyn Names, out: &mut Vec<u8>) {
    out.extend_from_slice(map.name.as_bytes());
    for (i, part) in entry.key.iter().enumerate() {
        out.extend_from_slice(if i == 0 { b"[" } else { b", " });
        out.extend_from_slice(&key_part(part, names));
    }
    if !entry.key.is_empty() {
        out.push(b']');
    }
    out.push(b':');
}

fn cell(map: &Map, cell: &Cell, div: u64, names: &dyn Names, out: &mut Vec<u8>) {
    let by = i128::from(div);
    let text = match cell {
        Cell::Plain(value) => match value.number() {
            Some(n) => format!(" {}\n", n / by),
            None => {
                out.push(b' ');
                out.extend_from_slice(&value_text(value, names));
                // Stacks end in a newline of their own.
                return if !is_stack(map) {
                    out.push(b'\n');
                };
            }
        },
        &Cell::Number { value } => format!(" {}\n", value / by),
        &Cell::Average { count, sum } => format!(" {}\n", average(count, sum) / by),
        &Cell::Stats { count, sum } => format!(
            " count {count}, average {}, total {}\n",
            average(count, sum) / by,
            sum / by
        ),
        Cell::Hist(counts) | Cell::LHist(counts) => {
            out.push(b'\n');
            histogram(map, counts, div, out);
            return;
        }
    };
    out.extend_from_slice(text.as_bytes());
}

fn histogram(map: &Map, counts: &[u64], div: u64, out: &mut Vec<u8>) {
    let shown = buckets::shown(&map.value, counts, div);
    let most = u128::from(shown.iter().map(|b| b.count).max().unwrap_or(0)).max(1);
    for bucket in shown {
        let len = u128::from(bucket.count) * BAR / most;
        let bar = "@".repeat(usize::try_from(len).unwrap_or(0));
        let line = format!("{:<15} {:>8} |{bar:<52}|\n", bucket.label(), bucket.count,);
        out.extend_from_slice(line.as_bytes());
    }
    // Between the histograms of a map's keys, and after the last.
    out.push(b'\n');
}

fn is_stack(map: &Map) -> bool {
    let MapValue::Plain(ty) = &map.value else {
        return false;
    };
    matches!(ty, Type::KernelStack | Type::UserStack)
}

/// bpftrace sets these off from what follows.
fn ends_in_blank_line(map: &Map) -> bool {
    is_stack(map) || matches!(map.value, MapValue::Avg { .. } | MapValue::Stats { .. })
}

#[cfg(test)]
mod tests;
