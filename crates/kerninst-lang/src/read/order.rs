//! The order in which the entries of a map are shown: as bpftrace does, by value where that is a number, the largest last; of
//! equal ones, and of what is no number, by key.

use std::cmp::Ordering;

use crate::value::{Cell, Entry, Value};

/// Puts entries in order.
pub(super) fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| {
        rank(&a.cell)
            .cmp(&rank(&b.cell))
            .then_with(|| keys(&a.key, &b.key))
    });
}

/// What entries are sorted by first.
fn rank(cell: &Cell) -> i128 {
    match cell {
        Cell::Plain(value) => number(value).unwrap_or(0),
        Cell::Number { value } => *value,
        Cell::Average { count, sum } | Cell::Stats { count, sum } => {
            sum.checked_div(i128::from(*count)).unwrap_or(0)
        }
        Cell::Hist(buckets) | Cell::LHist(buckets) => buckets.iter().map(|n| i128::from(*n)).sum(),
    }
}

fn number(value: &Value) -> Option<i128> {
    match *value {
        Value::Int {
            value,
            signed: true,
            ..
        } => Some(i128::from(value as i64)),
        Value::Int { value, .. } | Value::Pointer(value) | Value::Symbol(value) => {
            Some(i128::from(value))
        }
        _ => None,
    }
}

fn keys(a: &[Value], b: &[Value]) -> Ordering {
    let parts = a.iter().zip(b).map(|(a, b)| match (number(a), number(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.cmp(b),
    });
    parts
        .fold(Ordering::Equal, Ordering::then)
        .then(a.len().cmp(&b.len()))
}
