//! What must hold for every picture, on random graphs; and one small picture in full.

use proptest::prelude::*;

use super::*;

fn boxes(count: usize) -> Vec<Node> {
    let size = |n: usize| Node {
        width: 60.0 + (n * 37 % 90) as f64,
        height: 20.0 + (n * 53 % 110) as f64,
    };
    (0..count).map(size).collect()
}

fn edge(from: usize, to: usize) -> Edge {
    Edge {
        from,
        to,
        weight: 1.0,
    }
}

/// Points along a route, close together.
fn samples(route: &Route) -> Vec<(f64, f64)> {
    let mut at = route.start;
    let mut out = vec![at];
    for piece in &route.pieces {
        let (a, b, end) = match *piece {
            Piece::Line(x, y) => (at, (x, y), (x, y)),
            Piece::Curve([a, b, end]) => (a, b, end),
        };
        for step in 1..=40 {
            let t = f64::from(step) / 40.0;
            let u = 1.0 - t;
            let mix = |p0: f64, p1: f64, p2: f64, p3: f64| {
                u * u * u * p0 + 3.0 * u * u * t * p1 + 3.0 * u * t * t * p2 + t * t * t * p3
            };
            out.push((mix(at.0, a.0, b.0, end.0), mix(at.1, a.1, b.1, end.1)));
        }
        at = end;
    }
    out
}

fn check(nodes: &[Node], edges: &[Edge]) -> Layout {
    let picture = layout(nodes, edges, Spacing::default());
    assert_eq!(picture.nodes.len(), nodes.len());
    assert_eq!(picture.edges.len(), edges.len());
    let rects = picture.nodes.iter().zip(nodes);
    let rects: Vec<_> = rects
        .map(|(p, n)| (p.x, p.y, p.x + n.width, p.y + n.height))
        .collect();
    for (n, a) in rects.iter().enumerate() {
        assert!(a.0 >= 0.0 && a.1 >= 0.0 && a.2 <= picture.width && a.3 <= picture.height);
        for b in rects.iter().skip(n + 1) {
            let apart = a.2 <= b.0 || b.2 <= a.0 || a.3 <= b.1 || b.3 <= a.1;
            assert!(apart, "boxes overlap: {a:?} {b:?}");
        }
    }
    for (edge, route) in edges.iter().zip(&picture.edges) {
        let (from, to) = (picture.nodes[edge.from], picture.nodes[edge.to]);
        assert_eq!(route.back, from.rank >= to.rank, "{edge:?}");
        let path = samples(route);
        let (source, target) = (rects[edge.from], rects[edge.to]);
        let last = *path.last().expect("a start at least");
        assert!(
            (route.start.1 - source.3).abs() < 1e-6,
            "starts at the bottom of its box"
        );
        assert!(
            (last.1 - target.1).abs() < 1e-6,
            "ends at the top of its box"
        );
        assert!(source.0 < route.start.0 && route.start.0 < source.2);
        assert!(target.0 < last.0 && last.0 < target.2);
        for (x, y) in path {
            assert!(x >= 0.0 && y >= 0.0 && x <= picture.width && y <= picture.height);
            for r in &rects {
                let inside = r.0 + 0.5 < x && x < r.2 - 0.5 && r.1 + 0.5 < y && y < r.3 - 0.5;
                assert!(!inside, "edge {edge:?} crosses the box {r:?} at {x},{y}");
            }
        }
    }
    picture
}

proptest! {
    #[test]
    fn no_box_overlaps_and_no_line_crosses_a_box(
        count in 1usize..40,
        pairs in prop::collection::vec((0usize..40, 0usize..40), 0..90),
    ) {
        let pairs = pairs.iter().map(|(a, b)| edge(a % count, b % count));
        check(&boxes(count), &pairs.collect::<Vec<_>>());
    }
}

#[test]
fn edges_to_nowhere_are_not_drawn() {
    let picture = layout(&boxes(1), &[edge(0, 7), edge(9, 0)], Spacing::default());
    assert!(picture.edges.iter().all(|e| e.pieces.is_empty()));
    let picture = layout(&[], &[edge(0, 0)], Spacing::default());
    assert!(picture.nodes.is_empty());
}

#[test]
fn a_diamond_in_a_loop() {
    // 0 -> 1 -> {2, 3} -> 4 -> 1, 4 -> 5
    let edges = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 1), (4, 5)];
    let picture = check(&boxes(6), &edges.map(|(a, b)| edge(a, b)));
    let ranks: Vec<_> = picture.nodes.iter().map(|n| n.rank).collect();
    assert_eq!(ranks, [0, 1, 2, 2, 3, 4]);
    let back: Vec<_> = picture.edges.iter().map(|e| e.back).collect();
    assert_eq!(back, [false, false, false, false, false, true, false]);
}

#[test]
fn a_graph_that_can_be_drawn_without_crossings_is() {
    // A binary tree, its leaves numbered so that the first order crosses.
    let edges: Vec<_> = [(0, 1), (0, 2), (1, 6), (1, 3), (2, 5), (2, 4)]
        .map(|(a, b)| edge(a, b))
        .to_vec();
    let nodes = boxes(7);
    let ranks = rank::ranks(nodes.len(), &edges);
    let mut graph = chains::Layered::new(&nodes, &edges, &ranks, Spacing::default());
    graph.rows[2] = vec![6, 5, 3, 4];
    assert_ne!(order::crossings(&graph), 0);
    order::order(&mut graph);
    assert_eq!(order::crossings(&graph), 0);
}

#[test]
fn a_huge_function_takes_no_time_to_speak_of() {
    // 4,000 blocks in a chain, each with a jump to the common exit, and some loops.
    let count = 4000;
    let mut edges: Vec<_> = (0..count - 1).map(|n| edge(n, n + 1)).collect();
    edges.extend((0..count - 2).map(|n| edge(n, count - 1)));
    edges.extend((50..count).step_by(50).map(|n| edge(n, n - 40)));
    let picture = layout(&boxes(count), &edges, Spacing::default());
    assert_eq!(picture.nodes.len(), count);
}
