//! Paths of the edges: straight down through ranks, curved in the gaps between them. So no line crosses a box.

use super::chains::Layered;
use super::place::Coordinates;
use super::{Edge, Layout, Node, Piece, Placed, Route};

pub(super) fn route(graph: &Layered, nodes: &[Node], edges: &[Edge], at: &Coordinates) -> Layout {
    let row = |cell: usize| {
        let rank = graph.rank.get(cell).copied().unwrap_or(0);
        at.rows.get(rank).copied().unwrap_or((0.0, 0.0))
    };
    let middle = |cell: usize| at.x.get(cell).copied().unwrap_or(0.0);
    let placed = nodes.iter().enumerate().map(|(n, node)| Placed {
        x: middle(n) - node.width / 2.0,
        y: row(n).0,
        rank: graph.rank.get(n).copied().unwrap_or(0),
    });
    let placed: Vec<Placed> = placed.collect();
    let ports = Ports::new(graph, nodes, edges, at);
    let mut routes = Vec::with_capacity(edges.len());
    for (n, edge) in edges.iter().enumerate() {
        let (Some(source), Some(box_)) = (placed.get(edge.from), nodes.get(edge.from)) else {
            routes.push(Route::default());
            continue;
        };
        if placed.get(edge.to).is_none() {
            routes.push(Route::default());
            continue;
        }
        let back = graph.back.get(n) == Some(&true);
        let start = (ports.out(n), source.y + box_.height);
        let mut path = Path::new(start);
        // Down to the bottom of the rank, where the gap begins.
        path.line(start.0, row(edge.from).1);
        let chain = graph.chains.get(n).map_or(&[][..], Vec::as_slice);
        for (step, &dummy) in chain.iter().enumerate() {
            let (top, bottom) = row(dummy);
            if back && step == 0 {
                path.turn((middle(dummy), bottom), depth(at, graph, dummy, true));
                path.line(middle(dummy), top);
            } else if back {
                path.curve((middle(dummy), bottom));
                path.line(middle(dummy), top);
            } else {
                path.curve((middle(dummy), top));
                path.line(middle(dummy), bottom);
            }
        }
        let last = chain.last().copied().unwrap_or(edge.from);
        let end = (ports.entry(edge.to, back, last), row(edge.to).0);
        if back {
            path.turn(end, -depth(at, graph, last, false));
        } else {
            path.curve(end);
        }
        routes.push(Route {
            back,
            start,
            label: (start.0, row(edge.from).1),
            pieces: path.pieces,
        });
    }
    Layout {
        width: at.width,
        height: at.height,
        nodes: placed,
        edges: routes,
    }
}

/// How far a U-turn may go into the gap below (or above) the rank of `cell`.
fn depth(at: &Coordinates, graph: &Layered, cell: usize, below: bool) -> f64 {
    let rank = graph.rank.get(cell).copied().unwrap_or(0);
    let bottom = |r: usize| at.rows.get(r).map(|r| r.1);
    let top = |r: usize| at.rows.get(r).map(|r| r.0);
    let gap = if below {
        Some(top(rank + 1).unwrap_or(at.height) - bottom(rank).unwrap_or(0.0))
    } else {
        let above = rank.checked_sub(1).and_then(bottom).unwrap_or(0.0);
        top(rank).map(|t| t - above)
    };
    // A cubic with both controls this deep reaches three quarters of it.
    gap.unwrap_or(0.0) * 0.75
}

/// A path under construction.
struct Path {
    at: (f64, f64),
    /// Where the last straight piece began.
    before: (f64, f64),
    pieces: Vec<Piece>,
}

impl Path {
    fn new(start: (f64, f64)) -> Path {
        Path {
            at: start,
            before: start,
            pieces: Vec::new(),
        }
    }

    fn line(&mut self, x: f64, y: f64) {
        let before = match self.pieces.as_slice() {
            [.., Piece::Line(..)] => self.before,
            _ => self.at,
        };
        if (x, y) == self.at {
            return;
        }
        // A line that goes on straight is one line: an edge past a thousand ranks is not a thousand pieces.
        let straight =
            (self.at.0 - before.0) * (y - before.1) - (x - before.0) * (self.at.1 - before.1);
        match self.pieces.last_mut() {
            Some(Piece::Line(a, b)) if straight.abs() < 1e-6 => (*a, *b) = (x, y),
            _ => {
                self.before = self.at;
                self.pieces.push(Piece::Line(x, y));
            }
        }
        self.at = (x, y);
    }

    /// From one end of a gap to the other, leaving and arriving upright.
    fn curve(&mut self, to: (f64, f64)) {
        if (self.at.0 - to.0).abs() < 0.5 {
            self.line(to.0, to.1);
            return;
        }
        let half = (to.1 - self.at.1) / 2.0;
        let controls = [(self.at.0, self.at.1 + half), (to.0, to.1 - half), to];
        self.pieces.push(Piece::Curve(controls));
        self.at = to;
    }

    /// Into a gap and back out of it on the same side; `depth` below 0: upwards.
    fn turn(&mut self, to: (f64, f64), depth: f64) {
        let controls = [(self.at.0, self.at.1 + depth), (to.0, to.1 + depth), to];
        self.pieces.push(Piece::Curve(controls));
        self.at = to;
    }
}

/// Where edges leave and enter boxes: side by side, in the order of where they go.
struct Ports {
    out: Vec<f64>,
    /// For each box: the cells that lines come from, by place, and where they enter.
    into: Vec<Vec<(usize, bool, f64)>>,
}

impl Ports {
    fn new(graph: &Layered, nodes: &[Node], edges: &[Edge], at: &Coordinates) -> Ports {
        let middle = |cell: usize| at.x.get(cell).copied().unwrap_or(0.0);
        let mut leaving: Vec<Vec<(f64, usize)>> = vec![Vec::new(); nodes.len()];
        let mut entering: Vec<Vec<(f64, usize, bool)>> = vec![Vec::new(); nodes.len()];
        for (n, edge) in edges.iter().enumerate() {
            let back = graph.back.get(n) == Some(&true);
            let chain = graph.chains.get(n).map_or(&[][..], Vec::as_slice);
            let first = chain.first().copied().unwrap_or(edge.to);
            let last = chain.last().copied().unwrap_or(edge.from);
            if let Some(list) = leaving.get_mut(edge.from) {
                list.push((middle(first), n));
            }
            if let Some(list) = entering.get_mut(edge.to)
                && !list.iter().any(|(_, cell, b)| (*cell, *b) == (last, back))
            {
                list.push((middle(last), last, back));
            }
        }
        let mut out = vec![0.0; edges.len()];
        for (node, list) in leaving.iter_mut().enumerate() {
            list.sort_by(|a, b| a.0.total_cmp(&b.0));
            let width = nodes.get(node).map_or(0.0, |n| n.width);
            for (place, (_, edge)) in list.iter().enumerate() {
                if let Some(slot) = out.get_mut(*edge) {
                    *slot = middle(node) + spread(place, list.len(), width);
                }
            }
        }
        let mut into = Vec::with_capacity(nodes.len());
        for (node, mut list) in entering.into_iter().enumerate() {
            list.sort_by(|a, b| a.0.total_cmp(&b.0));
            let width = nodes.get(node).map_or(0.0, |n| n.width);
            let count = list.len();
            let list = list
                .into_iter()
                .enumerate()
                .map(|(place, (_, cell, back))| {
                    (cell, back, middle(node) + spread(place, count, width))
                });
            into.push(list.collect());
        }
        Ports { out, into }
    }

    fn out(&self, edge: usize) -> f64 {
        self.out.get(edge).copied().unwrap_or(0.0)
    }

    /// Where the line that comes from `cell` (a dummy or a box) enters box `to`.
    fn entry(&self, to: usize, back: bool, cell: usize) -> f64 {
        let list = self.into.get(to).map_or(&[][..], Vec::as_slice);
        let found = list.iter().find(|(c, b, _)| (*c, *b) == (cell, back));
        found.map_or(0.0, |f| f.2)
    }
}

/// Offset from the middle of a box of the port number `place` of `count`.
fn spread(place: usize, count: usize, width: f64) -> f64 {
    let step = (width * 0.7 / count.max(1) as f64).min(22.0);
    (place as f64 - (count.max(1) as f64 - 1.0) / 2.0) * step
}
