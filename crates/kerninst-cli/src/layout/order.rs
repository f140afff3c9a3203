//! The order of the cells within each rank.

use super::chains::Layered;

/// Most work (cells × sweeps) spent on a picture, so that the largest function still takes a second or so.
const WORK: usize = 4_000_000;
const MOST_SWEEPS: usize = 24;

/// Sorts each rank by the barycentres of its cells' neighbours, downwards and upwards in turn, and keeps the order
/// with the fewest crossings.
pub(super) fn order(graph: &mut Layered) {
    let sweeps = (WORK / graph.cells.len().max(1)).clamp(2, MOST_SWEEPS);
    let mut best = graph.rows.clone();
    let mut fewest = crossings(graph);
    let mut since = 0;
    let mut at = vec![0.0; graph.cells.len()];
    for row in &graph.rows {
        number(row, &mut at);
    }
    for sweep in 0..sweeps {
        let down = sweep % 2 == 0;
        let count = graph.rows.len();
        for step in 0..count {
            let row = if down { step } else { count - 1 - step };
            sort_row(graph, row, down, &mut at);
        }
        let now = crossings(graph);
        if now < fewest {
            fewest = now;
            best.clone_from(&graph.rows);
            since = 0;
        } else {
            since += 1;
        }
        if fewest == 0 || since > 6 {
            break;
        }
    }
    graph.rows = best;
}

/// Notes the place of every cell of a row, counted from the row's middle, so that short rows do not pull everything
/// to the left.
fn number(row: &[usize], at: &mut [f64]) {
    let middle = row.len() as f64 / 2.0;
    for (n, cell) in row.iter().enumerate() {
        if let Some(p) = at.get_mut(*cell) {
            *p = n as f64 - middle;
        }
    }
}

fn sort_row(graph: &mut Layered, row: usize, down: bool, at: &mut [f64]) {
    let Some(cells) = graph.rows.get(row).cloned() else {
        return;
    };
    let neighbours = if down { &graph.above } else { &graph.below };
    let mean = |cell: usize| {
        let list = neighbours.get(cell)?;
        let weight: f64 = list.iter().map(|(_, w)| w).sum();
        let sum: f64 = list
            .iter()
            .map(|(n, w)| at.get(*n).copied().unwrap_or(0.0) * w)
            .sum();
        (weight > 0.0).then(|| sum / weight)
    };
    let own = |cell: usize| at.get(cell).copied().unwrap_or(0.0);
    let key = |cell: usize| {
        let beside = graph.cells.get(cell).and_then(|c| c.beside);
        match (mean(cell), beside) {
            (Some(m), None) => m,
            // The lane of a back edge: to the right of its box.
            (Some(m), Some(b)) => (m + mean(b).unwrap_or_else(|| own(b)) + 0.6) / 2.0,
            (None, Some(b)) => mean(b).unwrap_or_else(|| own(b)) + 0.6,
            (None, None) => own(cell),
        }
    };
    let mut keyed: Vec<(f64, usize)> = cells.iter().map(|&c| (key(c), c)).collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let sorted: Vec<usize> = keyed.into_iter().map(|(_, c)| c).collect();
    number(&sorted, at);
    if let Some(slot) = graph.rows.get_mut(row) {
        *slot = sorted;
    }
}

/// Number of pairs of links that cross.
pub(super) fn crossings(graph: &Layered) -> u64 {
    let mut at = vec![0usize; graph.cells.len()];
    for row in &graph.rows {
        for (n, cell) in row.iter().enumerate() {
            if let Some(p) = at.get_mut(*cell) {
                *p = n;
            }
        }
    }
    let mut total = 0u64;
    for (n, row) in graph.rows.iter().enumerate() {
        let width = graph.rows.get(n + 1).map_or(0, Vec::len);
        let mut tree = vec![0u64; width + 1];
        let mut seen = 0u64;
        for cell in row {
            let Some(below) = graph.below.get(*cell) else {
                continue;
            };
            let mut ends: Vec<usize> = below
                .iter()
                .filter_map(|(c, _)| at.get(*c).copied())
                .collect();
            ends.sort_unstable();
            // Links that started further left and end further right cross this one.
            for &end in &ends {
                total += seen - prefix(&tree, end + 1);
            }
            for &end in &ends {
                add(&mut tree, end + 1);
                seen += 1;
            }
        }
    }
    total
}

/// Fenwick tree: how many of the first `n` places were added to.
fn prefix(tree: &[u64], mut n: usize) -> u64 {
    let mut sum = 0;
    while n > 0 {
        sum += tree.get(n).copied().unwrap_or(0);
        n &= n - 1;
    }
    sum
}

fn add(tree: &mut [u64], mut n: usize) {
    while let Some(slot) = tree.get_mut(n) {
        *slot += 1;
        n += n & n.wrapping_neg();
    }
}
