//! Buckets of histograms: what values each is for, and which of them are shown.

use crate::hir::MapValue;

/// A bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket {
    /// Least value in it; `None`: it is for all below [`Bucket::end`].
    pub start: Option<i128>,
    /// One after the largest; `None`: it is for all from `start` on.
    pub end: Option<i128>,
    /// How it is labelled.
    label: Label,
    /// Values that fell into it.
    pub count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    /// One value: `[0]`, `[1]`.
    One,
    /// `[4, 8)`, with units of 1024.
    PowerOfTwo,
    /// `[0, 10)`, with units where they divide it.
    Exact,
}

/// The buckets of an entry from the first to the last that are not empty; divided by `div`. None of a map without buckets.
pub(super) fn shown(map: &MapValue, counts: &[u64], div: u64) -> Vec<Bucket> {
    let first = counts.iter().position(|&c| c != 0).unwrap_or(counts.len());
    let after = counts.iter().rposition(|&c| c != 0).map_or(0, |i| i + 1);
    let buckets = counts.iter().enumerate();
    let shown = buckets.take(after).skip(first);
    shown
        .filter_map(|(i, &count)| {
            let bucket = match *map {
                MapValue::Hist => power_of_two(i)?,
                MapValue::LHist { min, max, step } => linear(i, min, max, step, counts.len())?,
                _ => return None,
            };
            let count = count / div.max(1);
            Some(Bucket { count, ..bucket })
        })
        .collect()
}

fn power_of_two(i: usize) -> Option<Bucket> {
    let (start, end, label) = match i {
        0 => (None, Some(0), Label::PowerOfTwo),
        1 => (Some(0), Some(1), Label::One),
        2 => (Some(1), Some(2), Label::One),
        3..=65 => (
            Some(1i128 << (i - 2)),
            Some(1i128 << (i - 1)),
            Label::PowerOfTwo,
        ),
        _ => return None,
    };
    Some(Bucket {
        start,
        end,
        label,
        count: 0,
    })
}

fn linear(i: usize, min: i64, max: i64, step: i64, buckets: usize) -> Option<Bucket> {
    let (min, max, step) = (i128::from(min), i128::from(max), i128::from(step));
    let (start, end) = if i == 0 {
        (None, Some(min))
    } else if i + 1 == buckets {
        (Some(max), None)
    } else {
        let start = min + step * (i128::try_from(i).ok()? - 1);
        // The last one is narrower if the step does not divide the range.
        (Some(start), Some((start + step).min(max)))
    };
    Some(Bucket {
        start,
        end,
        label: Label::Exact,
        count: 0,
    })
}

impl Bucket {
    /// As bpftrace labels it.
    pub fn label(&self) -> String {
        let unit = |v| match self.label {
            Label::One | Label::PowerOfTwo => power_label(v),
            Label::Exact => exact_label(v),
        };
        match (self.start, self.end) {
            (Some(start), Some(_)) if self.label == Label::One => format!("[{start}]"),
            (Some(start), Some(end)) => format!("[{}, {})", unit(start), unit(end)),
            (None, Some(end)) => format!("(..., {})", unit(end)),
            (Some(start), None) => format!("[{}, ...)", unit(start)),
            (None, None) => "(..., ...)".into(),
        }
    }
}

const UNITS: [(u32, &str); 4] = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];

/// A power of two in the largest unit that it reaches.
fn power_label(v: i128) -> String {
    let unit = UNITS.iter().find(|(bits, _)| v >> bits != 0);
    match unit {
        Some((bits, name)) => format!("{}{name}", v >> bits),
        None => v.to_string(),
    }
}

/// A number in a unit of 1024 or 1024 * 1024 if it is a multiple of one.
fn exact_label(v: i128) -> String {
    if v == 0 {
        return "0".into();
    }
    let units = UNITS.get(2..).unwrap_or_default();
    let unit = units.iter().find(|(bits, _)| v % (1 << bits) == 0);
    match unit {
        Some((bits, name)) => format!("{}{name}", v / (1 << bits)),
        None => v.to_string(),
    }
}
