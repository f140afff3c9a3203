//! Order of a map's entries.

use std::cmp::Ordering;

use crate::value::{Cell, Entry, Value};

/// The entries that are shown: ascending by value (histograms: by the number of values, `avg` and `stats`: by the average; what is no
/// number: as if all were equal), then by key, so that the largest are the last; of these only the last `top`, if it is not 0.
pub(super) fn ordered(entries: &[Entry], top: u32) -> Vec<&Entry> {
    let mut all: Vec<&Entry> = entries.iter().collect();
    all.sort_by(|a, b| {
        let by_value = weight(&a.cell).cmp(&weight(&b.cell));
        by_value.then_with(|| keys(&a.key, &b.key))
    });
    let left_out = match top {
        0 => 0,
        top => all.len().saturating_sub(top as usize),
    };
    all.split_off(left_out)
}

fn weight(cell: &Cell) -> i128 {
    match cell {
        Cell::Plain(value) => value.number().unwrap_or(0),
        &Cell::Number { value } => value,
        &Cell::Average { count, sum } | &Cell::Stats { count, sum } => average(count, sum),
        Cell::Hist(counts) | Cell::LHist(counts) => counts.iter().map(|&c| i128::from(c)).sum(),
    }
}

/// Part by part; numbers as numbers, -1 before 0.
fn keys(a: &[Value], b: &[Value]) -> Ordering {
    let mut parts = a
        .iter()
        .zip(b)
        .map(|(a, b)| match (a.number(), b.number()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.cmp(b),
        });
    let first = parts.find(|o| o.is_ne());
    first.unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// The average, towards 0; 0 of nothing.
pub(super) fn average(count: u64, sum: i128) -> i128 {
    sum.checked_div(i128::from(count)).unwrap_or(0)
}
