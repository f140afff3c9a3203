//! Coordinates: each cell near its neighbours, no two too close.

use super::chains::Layered;
use super::{Node, Spacing};

/// Where cells and ranks lie.
#[derive(Debug)]
pub(super) struct Coordinates {
    /// Middle of each cell.
    pub x: Vec<f64>,
    /// Top and bottom of each rank.
    pub rows: Vec<(f64, f64)>,
    pub width: f64,
    pub height: f64,
}

const WORK: usize = 4_000_000;
const MOST_SWEEPS: usize = 40;
/// Gaps between ranks grow with the way that lines have to go sideways, up to this many times the least gap.
const MOST_GAP: f64 = 3.0;

pub(super) fn place(graph: &Layered, nodes: &[Node], spacing: Spacing) -> Coordinates {
    let mut x = start(graph, spacing);
    let sweeps = (WORK / graph.cells.len().max(1)).clamp(4, MOST_SWEEPS);
    for sweep in 0..sweeps {
        let count = graph.rows.len();
        for step in 0..count {
            let down = sweep % 2 == 0;
            let row = if down { step } else { count - 1 - step };
            // The last rounds look both ways, so that neither end is favoured.
            let both = sweep + 6 >= sweeps;
            relax(graph, row, down || both, !down || both, &mut x, spacing);
        }
    }
    straighten(graph, &mut x, spacing);
    let half = |cell: usize| graph.cells.get(cell).map_or(0.0, |c| c.width / 2.0);
    let left = (0..x.len()).filter_map(|c| Some(x.get(c)? - half(c)));
    let left = left.fold(f64::INFINITY, f64::min);
    let shift = if left.is_finite() {
        spacing.margin - left
    } else {
        0.0
    };
    for at in &mut x {
        *at += shift;
    }
    let right = (0..x.len()).filter_map(|c| Some(x.get(c)? + half(c)));
    let width = right.fold(0.0, f64::max) + spacing.margin;

    let mut rows = Vec::with_capacity(graph.rows.len());
    // Back edges enter the first rank from above it.
    let mut y = spacing.margin + spacing.rank;
    for (n, row) in graph.rows.iter().enumerate() {
        let tall = row.iter().filter_map(|c| graph.cells.get(*c)?.node);
        let tall = tall.filter_map(|n| nodes.get(n)).map(|n| n.height);
        let bottom = y + tall.fold(0.0, f64::max);
        rows.push((y, bottom));
        y = bottom + gap(graph, n, &x, spacing);
    }
    let bottom = rows.last().map_or(0.0, |r| r.1);
    Coordinates {
        x,
        width,
        height: bottom + spacing.rank + spacing.margin,
        rows,
    }
}

/// Distance that two neighbours of a row keep between their middles.
fn apart(graph: &Layered, left: usize, right: usize, spacing: Spacing) -> f64 {
    let (Some(a), Some(b)) = (graph.cells.get(left), graph.cells.get(right)) else {
        return 0.0;
    };
    let between = match (a.node, b.node) {
        (Some(_), Some(_)) => spacing.node,
        _ => spacing.lane / 2.0,
    };
    f64::midpoint(a.width, b.width) + between
}

fn start(graph: &Layered, spacing: Spacing) -> Vec<f64> {
    let mut x = vec![0.0; graph.cells.len()];
    for row in &graph.rows {
        let mut at = 0.0;
        let mut last = None;
        for &cell in row {
            if let Some(l) = last {
                at += apart(graph, l, cell, spacing);
            }
            last = Some(cell);
            if let Some(slot) = x.get_mut(cell) {
                *slot = at;
            }
        }
        for cell in row {
            if let Some(slot) = x.get_mut(*cell) {
                *slot -= at / 2.0;
            }
        }
    }
    x
}

/// Moves the cells of one row as near as the distances allow to where their neighbours want them: the least sum of
/// weighted squares, found exactly by pooling neighbours that press against each other.
fn relax(graph: &Layered, row: usize, up: bool, down: bool, x: &mut [f64], spacing: Spacing) {
    struct Pool {
        weight: f64,
        /// Weighted mean of (wanted place - offset).
        at: f64,
        cells: usize,
    }
    let Some(cells) = graph.rows.get(row) else {
        return;
    };
    let mut offsets = Vec::with_capacity(cells.len());
    let mut pools: Vec<Pool> = Vec::with_capacity(cells.len());
    let mut offset = 0.0;
    let mut last = None;
    for &cell in cells {
        if let Some(l) = last {
            offset += apart(graph, l, cell, spacing);
        }
        last = Some(cell);
        offsets.push(offset);
        let (want, weight) = wanted(graph, cell, up, down, x, spacing);
        let mut pool = Pool {
            weight,
            at: want - offset,
            cells: 1,
        };
        while let Some(before) = pools.pop_if(|p| p.at > pool.at) {
            let weight = before.weight + pool.weight;
            pool = Pool {
                weight,
                at: (before.at * before.weight + pool.at * pool.weight) / weight,
                cells: before.cells + pool.cells,
            };
        }
        pools.push(pool);
    }
    let places = pools
        .iter()
        .flat_map(|p| std::iter::repeat_n(p.at, p.cells));
    for ((cell, offset), at) in cells.iter().zip(&offsets).zip(places) {
        if let Some(slot) = x.get_mut(*cell) {
            *slot = at + offset;
        }
    }
}

/// Makes lines that pass several ranks straight, as far as the neighbours on each rank leave room for it.
fn straighten(graph: &Layered, x: &mut [f64], spacing: Spacing) {
    let mut beside: Vec<(Option<usize>, Option<usize>)> = vec![(None, None); x.len()];
    for row in &graph.rows {
        for pair in row.windows(2) {
            let [left, right] = *pair else { continue };
            if let Some(slot) = beside.get_mut(left) {
                slot.1 = Some(right);
            }
            if let Some(slot) = beside.get_mut(right) {
                slot.0 = Some(left);
            }
        }
    }
    let room = |cell: usize, x: &[f64]| {
        let (left, right) = beside.get(cell).copied().unwrap_or_default();
        let at = |c: usize| x.get(c).copied().unwrap_or(0.0);
        let from = left.map(|l| at(l) + apart(graph, l, cell, spacing));
        let to = right.map(|r| at(r) - apart(graph, cell, r, spacing));
        (
            from.unwrap_or(f64::NEG_INFINITY),
            to.unwrap_or(f64::INFINITY),
        )
    };
    for chain in lanes(graph) {
        let mut rest = chain.as_slice();
        while let Some(first) = rest.first() {
            // As many cells as have room at one place in common.
            let (mut from, mut to) = room(*first, x);
            let mut count = 1;
            for cell in rest.iter().skip(1) {
                let (f, t) = room(*cell, x);
                if from.max(f) > to.min(t) {
                    break;
                }
                (from, to) = (from.max(f), to.min(t));
                count += 1;
            }
            let (part, others) = rest.split_at(count);
            rest = others;
            let sum: f64 = part.iter().filter_map(|c| x.get(*c)).sum();
            // A single cell may have no room to spare at all: rounding can leave `from` a little above `to`.
            let at = (sum / count as f64).min(to).max(from.min(to));
            for cell in part {
                if let Some(slot) = x.get_mut(*cell) {
                    *slot = at;
                }
            }
        }
    }
}

/// The dummies of each line, from the top down.
fn lanes(graph: &Layered) -> Vec<Vec<usize>> {
    let next = |cell: usize| {
        let below = graph.below.get(cell)?;
        below.iter().map(|b| b.0).find(|c| graph.is_dummy(*c))
    };
    let mut lanes = Vec::new();
    for cell in 0..graph.cells.len() {
        let above = graph.above.get(cell).map_or(&[][..], Vec::as_slice);
        if graph.is_dummy(cell) && !above.iter().any(|a| graph.is_dummy(a.0)) {
            lanes.push(std::iter::successors(Some(cell), |c| next(*c)).collect());
        }
    }
    lanes
}

/// Where a cell wants to be, and how much.
fn wanted(
    graph: &Layered,
    cell: usize,
    up: bool,
    down: bool,
    x: &[f64],
    spacing: Spacing,
) -> (f64, f64) {
    let own = x.get(cell).copied().unwrap_or(0.0);
    let mut sum = 0.0;
    let mut weight = 0.0;
    let sides = [(up, &graph.above), (down, &graph.below)];
    for (_, lists) in sides.iter().filter(|(wanted, _)| *wanted) {
        for (n, w) in lists.get(cell).into_iter().flatten() {
            sum += x.get(*n).copied().unwrap_or(own) * w;
            weight += w;
        }
    }
    if let Some(b) = graph.cells.get(cell).and_then(|c| c.beside) {
        let side = apart(graph, b, cell, spacing);
        let to_the_right = x.get(b).is_none_or(|at| *at <= own);
        let at = x.get(b).copied().unwrap_or(own);
        sum += if to_the_right { at + side } else { at - side };
        weight += 1.0;
    }
    if weight > 0.0 {
        (sum / weight, weight)
    } else {
        // Nothing pulls it: it stays, and gives way.
        (own, 0.01)
    }
}

/// Height of the gap below a rank: more where lines go far sideways, so that they do not get too flat.
fn gap(graph: &Layered, row: usize, x: &[f64], spacing: Spacing) -> f64 {
    let cells = graph.rows.get(row).map_or(&[][..], Vec::as_slice);
    let mut far: f64 = 0.0;
    for cell in cells {
        for (to, _) in graph.below.get(*cell).into_iter().flatten() {
            if let (Some(a), Some(b)) = (x.get(*cell), x.get(*to)) {
                far = far.max((a - b).abs());
            }
        }
    }
    (spacing.rank + far * 0.08).min(spacing.rank * MOST_GAP)
}
