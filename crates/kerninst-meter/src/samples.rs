//! Series of per-event counts.

/// What a series of values comes to. All are of the values themselves, no interpolation; `mean` is rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) min: u64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) max: u64,
    pub(crate) mean: u64,
}

/// The summary of a series; `None` for an empty one. Sorts it.
pub(crate) fn summary(values: &mut [u64]) -> Option<Summary> {
    values.sort_unstable();
    let count = values.len();
    let at = |index: usize| values.get(index.min(count.saturating_sub(1))).copied();
    let sum: u128 = values.iter().map(|&v| u128::from(v)).sum();
    Some(Summary {
        min: at(0)?,
        p50: at(count / 2)?,
        p90: at(count.saturating_mul(9) / 10)?,
        max: at(count - 1)?,
        mean: u64::try_from(sum / count as u128).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_of_ten_and_of_none() {
        assert_eq!(summary(&mut []), None);
        assert_eq!(
            summary(&mut [7]),
            Some(Summary {
                min: 7,
                p50: 7,
                p90: 7,
                max: 7,
                mean: 7
            })
        );
        let mut ten: Vec<u64> = (1..=10).rev().collect();
        assert_eq!(
            summary(&mut ten),
            Some(Summary {
                min: 1,
                p50: 6,
                p90: 10,
                max: 10,
                mean: 5
            })
        );
    }
}
