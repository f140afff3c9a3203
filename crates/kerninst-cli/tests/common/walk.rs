//! What counters would say after calls that went given ways: in place of an engine.

use std::collections::HashMap;

use kerninst_analysis::Analysis;
use kerninst_cli::blocks::{Report, Run, Target};
use kerninst_patch::Spot;
use kerninst_profile::{Flow, Node};

/// Calls of `alpha`, each by the blocks that it passes. A way that ends in `.` is still inside there.
pub const ALPHA_WALKS: &[(u64, &str)] = &[
    (900, "0 1 2 1 2 1 2 3 4"), // three rounds of the loop
    (90, "0 4"),
    (7, "0 1 4"),         // the load faults
    (2, "0 1 2 3 5 6 4"), // the static key is on: WARN
    (1, "0 1 2 1 ."),
];

/// What counters would say.
pub fn walk(flow: &Flow, walks: &[(u64, &str)]) -> (HashMap<Spot, u64>, Vec<(u32, u64)>) {
    let (mut counts, mut inside) = (HashMap::new(), Vec::new());
    for (times, way) in walks {
        let mut at = Node::Entry;
        let mut take = |from: Node, to: Node| {
            let edges = flow.edges().iter();
            let mut fits = edges.filter(|e| (e.from, e.to) == (from, to));
            let edge = fits
                .next()
                .unwrap_or_else(|| panic!("no edge {from} -> {to}"));
            *counts.entry(edge.spot.expect("countable")).or_insert(0) += times;
        };
        for step in way.split(' ') {
            if step == "." {
                let Node::Block(block) = at else {
                    panic!("outside")
                };
                inside.push((block, *times));
                at = Node::Exit;
                break;
            }
            let to = Node::Block(step.parse().expect("a block"));
            take(at, to);
            at = to;
        }
        if at != Node::Exit {
            take(at, Node::Exit);
        }
    }
    (counts, inside)
}

/// Reports of these targets: `alpha` went the ways of `walks`, every other function was called three times, straight through.
pub fn counted(
    analysis: &Analysis,
    targets: Vec<Target>,
    walks: &[(u64, &str)],
) -> (Vec<Report>, Run) {
    let report = |target: Target| {
        let (counts, inside) = match target.function.name.as_str() {
            "alpha" => walk(&target.flow, walks),
            _ => walk(&target.flow, &[(3, "0")]),
        };
        let of = |spot| counts.get(&spot).copied().unwrap_or(0);
        target.report(analysis, of, &inside).expect("counts fit")
    };
    let run = Run {
        seconds: 2.5,
        complete: true,
        ..Run::default()
    };
    (targets.into_iter().map(report).collect(), run)
}
