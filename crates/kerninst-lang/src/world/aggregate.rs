//! Aggregations in user space: what `count()`, `hist()` and so on do to a cell there, and how two cells of one key are added up.

use crate::hir::MapValue;
use crate::layout::{HIST_BUCKETS, lhist_buckets};
use crate::value::{Cell, Value};

/// A cell that nothing was counted in yet. Of `min` and `max` there is none: their first value is what they hold ([`update`] of `None`).
pub fn empty(map: &MapValue) -> Cell {
    match map {
        MapValue::Plain(ty) => Cell::Plain(Value::zero(ty)),
        MapValue::Count | MapValue::Sum { .. } | MapValue::Min { .. } | MapValue::Max { .. } => {
            Cell::Number { value: 0 }
        }
        MapValue::Avg { .. } => Cell::Average { count: 0, sum: 0 },
        MapValue::Stats { .. } => Cell::Stats { count: 0, sum: 0 },
        MapValue::Hist => Cell::Hist(vec![0; HIST_BUCKETS as usize]),
        MapValue::LHist { min, max, step } => {
            Cell::LHist(vec![0; lhist_buckets(*min, *max, *step) as usize])
        }
    }
}

/// One `count()`, `sum(value)` … on what is there (`None`: nothing). A plain map is left alone. Sums are of 64 bits, as in the kernel.
pub fn update(map: &MapValue, cell: Option<Cell>, value: &Value) -> Cell {
    let negative = value.number().is_some_and(|n| n < 0);
    let value = value.as_word().unwrap_or(0);
    let one = match map {
        MapValue::Plain(_) => return cell.unwrap_or_else(|| empty(map)),
        MapValue::Count => Cell::Number { value: 1 },
        MapValue::Sum { signed } | MapValue::Min { signed } | MapValue::Max { signed } => {
            let value = number(value, *signed);
            Cell::Number { value }
        }
        MapValue::Avg { signed } => Cell::Average {
            count: 1,
            sum: number(value, *signed),
        },
        MapValue::Stats { signed } => Cell::Stats {
            count: 1,
            sum: number(value, *signed),
        },
        MapValue::Hist => in_bucket(empty(map), hist_bucket(value, negative)),
        MapValue::LHist { min, max, step } => {
            let value = if negative {
                i128::from(value as i64)
            } else {
                i128::from(value)
            };
            in_bucket(empty(map), lhist_bucket(value, *min, *max, *step))
        }
    };
    match cell {
        None => one,
        Some(cell) => merge(map, cell, one),
    }
}

/// Two cells of one key as one. Of plain maps the first.
pub fn merge(map: &MapValue, a: Cell, b: Cell) -> Cell {
    match (a, b) {
        (Cell::Number { value: a }, Cell::Number { value: b }) => Cell::Number {
            value: match map {
                MapValue::Min { .. } => a.min(b),
                MapValue::Max { .. } => a.max(b),
                MapValue::Sum { signed } => number(a.wrapping_add(b) as u64, *signed),
                _ => number(a.wrapping_add(b) as u64, false),
            },
        },
        (Cell::Average { count, sum }, Cell::Average { count: c, sum: s }) => Cell::Average {
            count: count.wrapping_add(c),
            sum: total(map, sum, s),
        },
        (Cell::Stats { count, sum }, Cell::Stats { count: c, sum: s }) => Cell::Stats {
            count: count.wrapping_add(c),
            sum: total(map, sum, s),
        },
        (Cell::Hist(a), Cell::Hist(b)) => Cell::Hist(added(a, &b)),
        (Cell::LHist(a), Cell::LHist(b)) => Cell::LHist(added(a, &b)),
        (a, _) => a,
    }
}

fn total(map: &MapValue, a: i128, b: i128) -> i128 {
    let signed = matches!(
        map,
        MapValue::Avg { signed: true } | MapValue::Stats { signed: true }
    );
    number(a.wrapping_add(b) as u64, signed)
}

fn added(mut a: Vec<u64>, b: &[u64]) -> Vec<u64> {
    for (a, b) in a.iter_mut().zip(b) {
        *a = a.wrapping_add(*b);
    }
    a
}

fn number(word: u64, signed: bool) -> i128 {
    if signed {
        i128::from(word as i64)
    } else {
        i128::from(word)
    }
}

fn in_bucket(mut cell: Cell, i: usize) -> Cell {
    if let Cell::Hist(counts) | Cell::LHist(counts) = &mut cell
        && let Some(n) = counts.get_mut(i)
    {
        *n = n.wrapping_add(1);
    }
    cell
}

/// Bucket of `hist`: 0 of negative values, 1 of 0, then by the highest bit.
fn hist_bucket(value: u64, negative: bool) -> usize {
    match value {
        _ if negative => 0,
        0 => 1,
        v => v.ilog2() as usize + 2,
    }
}

/// Bucket of `lhist`.
fn lhist_bucket(value: i128, min: i64, max: i64, step: i64) -> usize {
    let last = lhist_buckets(min, max, step) as usize - 1;
    if value < i128::from(min) {
        0
    } else if value >= i128::from(max) {
        last
    } else {
        let from_min = value - i128::from(min);
        let step = i128::from(step.max(1));
        usize::try_from(from_min / step + 1)
            .unwrap_or(last)
            .min(last)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(map: &MapValue, values: &[i64]) -> Option<Cell> {
        values
            .iter()
            .fold(None, |cell, &v| Some(update(map, cell, &Value::int(v))))
    }

    /// Would catch: a bucket that is off by one at either of its ends.
    #[test]
    fn buckets() {
        let of = |v: i64| hist_bucket(v as u64, v < 0);
        let got = [i64::MIN, -1, 0, 1, 2, 3, 4, 7, 8, i64::MAX].map(of);
        assert_eq!(got, [0, 0, 1, 2, 3, 3, 4, 4, 5, 64]);
        assert_eq!(hist_bucket(u64::MAX, false), 65);
        let of = |v| lhist_bucket(v, -5, 5, 4);
        assert_eq!(
            [-6, -5, -2, -1, 2, 3, 4, 5, 99].map(of),
            [0, 1, 1, 2, 2, 3, 3, 4, 4]
        );
        assert_eq!(of(u64::MAX.into()), 4);
        let of = |v: i64| lhist_bucket(v.into(), i64::MIN, i64::MAX, 1 << 62);
        assert_eq!([i64::MIN, 0, i64::MAX - 1, i64::MAX].map(of), [1, 3, 4, 5]);
    }

    proptest! {
        /// Would catch: an order of updates and merges that matters, a sign lost.
        #[test]
        fn parts_add_up_to_the_whole(a in proptest::collection::vec(any::<i64>(), 1..20), b in proptest::collection::vec(-9i64..9, 1..20)) {
            let together: Vec<i64> = a.iter().chain(&b).copied().collect();
            for map in [
                MapValue::Count, MapValue::Sum { signed: true }, MapValue::Sum { signed: false },
                MapValue::Min { signed: true }, MapValue::Max { signed: false }, MapValue::Avg { signed: true },
                MapValue::Stats { signed: false }, MapValue::Hist, MapValue::LHist { min: -4, max: 5, step: 2 },
            ] {
                let merged = merge(&map, all(&map, &a).unwrap(), all(&map, &b).unwrap());
                prop_assert_eq!(Some(merged), all(&map, &together));
            }
            let wrapping = together.iter().fold(0i64, |s, v| s.wrapping_add(*v));
            let signed = MapValue::Sum { signed: true };
            prop_assert_eq!(all(&signed, &together), Some(Cell::Number { value: wrapping.into() }));
            let least = MapValue::Min { signed: true };
            prop_assert_eq!(all(&least, &together), Some(Cell::Number { value: (*together.iter().min().unwrap()).into() }));
        }
    }
}
