//! Names that are near a wrong one.

/// Most suggestions.
const MOST: usize = 5;

/// The names nearest to `wrong` by edit distance (insertions, deletions, changes, swaps of neighbours), nearest first;
/// none that differ in more than a third of their letters.
pub fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let limit = (wrong.len() / 3).clamp(1, 4);
    let mut near: Vec<(usize, &str)> = Vec::new();
    let mut rows = Rows::default();
    for name in names {
        if name.len().abs_diff(wrong.len()) <= limit
            && let Some(d) = rows.distance(wrong.as_bytes(), name.as_bytes(), limit)
        {
            near.push((d, name));
        }
    }
    near.sort_unstable();
    near.dedup();
    near.truncate(MOST);
    near.into_iter().map(|(_, name)| name).collect()
}

/// The three rows of the distance table that are needed at a time, kept for the next name.
#[derive(Default)]
struct Rows {
    before: Vec<usize>,
    last: Vec<usize>,
    now: Vec<usize>,
}

impl Rows {
    /// Optimal string alignment distance, or none if it is above `limit`.
    fn distance(&mut self, a: &[u8], b: &[u8], limit: usize) -> Option<usize> {
        self.before.clear();
        self.last.clear();
        self.last.extend(0..=b.len());
        let mut previous = None;
        for (i, &x) in a.iter().enumerate() {
            self.now.clear();
            self.now.push(i + 1);
            for (j, &y) in b.iter().enumerate() {
                let change = self.last.get(j)? + usize::from(x != y);
                let mut best = change
                    .min(self.last.get(j + 1)? + 1)
                    .min(self.now.get(j)? + 1);
                let left = j.checked_sub(1).and_then(|l| b.get(l)).copied();
                if let (Some(p), Some(l), Some(k)) = (previous, left, j.checked_sub(1))
                    && (p, l) == (y, x)
                    && let Some(swapped) = self.before.get(k)
                {
                    best = best.min(swapped + 1);
                }
                self.now.push(best);
            }
            if self.now.iter().all(|d| *d > limit) {
                return None;
            }
            previous = Some(x);
            std::mem::swap(&mut self.before, &mut self.last);
            std::mem::swap(&mut self.last, &mut self.now);
        }
        self.last.last().copied().filter(|d| *d <= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, want) in [
            ("", "", Some(0)),
            ("vfs_read", "vfs_read", Some(0)),
            ("vfsread", "vfs_read", Some(1)),
            ("vfs_raed", "vfs_read", Some(1)),
            ("vfs_reads", "vfs_read", Some(1)),
            ("vfs_write", "vfs_read", None),
            ("abc", "xyz", Some(3)),
        ] {
            assert_eq!(
                Rows::default().distance(a.as_bytes(), b.as_bytes(), 3),
                want,
                "{a} {b}"
            );
        }
    }

    #[test]
    fn the_nearest_come_first() {
        let names = ["vfs_readv", "vfs_read", "ksys_read", "zzz", "vfs_write"];
        assert_eq!(
            nearest("vfsread", names.into_iter()),
            ["vfs_read", "vfs_readv"]
        );
        assert_eq!(nearest("q", names.into_iter()), Vec::<&str>::new());
    }
}
