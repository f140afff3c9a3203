//! Random control flow graphs and random walks through them: what is solved is what was walked.

use kerninst_analysis::EdgeKind;
use kerninst_patch::Spot;
use kerninst_profile::{Flow, FlowEdge, Marks, Node, Placement, Role, Weights, solve};
use proptest::prelude::*;

/// A flow graph and walks through it.
#[derive(Clone, Debug)]
struct Case {
    flow: Flow,
    /// For each walk, the choices at the blocks it comes to; it stops inside when they run out.
    walks: Vec<Vec<u8>>,
    weights: Vec<u64>,
}

/// For each block where its edges lead; a number beyond the blocks: out.
fn graph() -> impl Strategy<Value = (usize, Vec<Vec<usize>>)> {
    (1usize..14).prop_flat_map(|blocks| {
        let target = 0..blocks + blocks.div_ceil(3);
        let edges = prop::collection::vec(target, 0..4);
        (Just(blocks), prop::collection::vec(edges, blocks))
    })
}

prop_compose! {
    fn case()(graph in graph(), walks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..12),
              weights in prop::collection::vec(any::<Option<u32>>(), 80)) -> Case {
        let (blocks, targets) = graph;
        let mut edges = Vec::new();
        for (from, list) in targets.iter().enumerate() {
            for to in list {
                let to = if *to < blocks { Node::Block(*to as u32) } else { Node::Exit };
                edges.push(FlowEdge {
                    from: Node::Block(from as u32),
                    to,
                    role: Role::Edge(EdgeKind::Taken),
                    spot: Some(Spot::Taken(edges.len() as u64)),
                });
            }
        }
        let weights = weights.into_iter().map(|w| u64::from(w.unwrap_or(0))).collect();
        Case { flow: Flow::from_edges(blocks, edges), walks, weights }
    }
}

/// What really happened.
#[derive(Default, Debug)]
struct Truth {
    blocks: Vec<u64>,
    edges: Vec<u64>,
    inside: Vec<u64>,
}

impl Truth {
    fn of(case: &Case) -> Truth {
        let flow = &case.flow;
        let mut truth = Truth {
            blocks: vec![0; flow.blocks()],
            edges: vec![0; flow.edges().len()],
            inside: vec![0; flow.blocks()],
        };
        let enter = flow.enter().expect("there is an entry");
        for choices in &case.walks {
            truth.edges[enter] += 1;
            let mut at = 0usize;
            let mut choices = choices.iter();
            loop {
                truth.blocks[at] += 1;
                let edges = flow.edges().iter().enumerate();
                let out: Vec<(usize, &FlowEdge)> = edges
                    .filter(|(_, e)| e.from == Node::Block(at as u32))
                    .collect();
                let Some(choice) = choices.next().filter(|_| !out.is_empty()) else {
                    truth.inside[at] += 1;
                    break;
                };
                let (n, edge) = out[usize::from(*choice) % out.len()];
                truth.edges[n] += 1;
                match edge.to {
                    Node::Block(to) => at = to as usize,
                    _ => break,
                }
            }
        }
        // What is inside will come round too.
        if let Some(around) = truth.edges.last_mut() {
            *around = case.walks.len() as u64;
        }
        truth
    }

    fn counts(&self, placement: &Placement) -> Vec<u64> {
        let counters = placement.counters().iter();
        counters.map(|c| self.edges[c.edge as usize]).collect()
    }

    fn in_flight(&self) -> Vec<(u32, u64)> {
        let inside = self.inside.iter().enumerate();
        inside
            .filter(|(_, n)| **n > 0)
            .map(|(b, n)| (b as u32, *n))
            .collect()
    }
}

fn weights(case: &Case) -> Weights {
    let measured: Vec<Option<u64>> = case.weights.iter().map(|w| Some(*w)).collect();
    Weights::measured(&case.flow, &measured)
}

/// Connected components, by flooding: another way than the placement's own.
fn components(flow: &Flow) -> usize {
    let mut label: Vec<Node> = (0..flow.blocks()).map(|b| Node::Block(b as u32)).collect();
    label.extend([Node::Entry, Node::Exit]);
    let nodes = label.clone();
    let position = |n: Node| nodes.iter().position(|m| *m == n).expect("a node");
    loop {
        let mut changed = false;
        for e in flow.edges() {
            let (a, b) = (position(e.from), position(e.to));
            let low = label[a].min(label[b]);
            changed |= label[a] != low || label[b] != low;
            (label[a], label[b]) = (low, low);
        }
        if !changed {
            break;
        }
    }
    label.sort();
    label.dedup();
    label.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Would catch any count that is not exactly what happened.
    #[test]
    fn what_was_walked_is_what_is_solved(case in case()) {
        let truth = Truth::of(&case);
        let weights = weights(&case);
        for placement in [Placement::new(&case.flow, &weights), Placement::everywhere(&case.flow, &weights, |_| true)] {
            let profile = solve(&case.flow, &placement, &truth.counts(&placement), &truth.in_flight()).expect("they fit");
            let some = |list: &[u64]| list.iter().map(|n| Some(*n)).collect::<Vec<_>>();
            prop_assert_eq!(&profile.blocks, &some(&truth.blocks));
            prop_assert_eq!(&profile.edges, &some(&truth.edges));
            prop_assert_eq!(&profile.violations, &vec![]);
            prop_assert_eq!(profile.entered, Some(case.walks.len() as u64));
            let inside: u64 = truth.inside.iter().sum();
            prop_assert_eq!(profile.in_flight, inside);
            prop_assert_eq!(&profile.inside, &truth.inside);
            prop_assert_eq!(profile.left, Some(case.walks.len() as u64 - inside));
        }
    }

    /// Would catch a counter more than needed: all edges less a spanning forest, and the one that checks.
    #[test]
    fn there_are_no_more_counters_than_needed(case in case()) {
        let placement = Placement::new(&case.flow, &weights(&case));
        let nodes = case.flow.blocks() + 2;
        let tree = nodes - components(&case.flow);
        prop_assert_eq!(placement.counters().len(), case.flow.edges().len() - tree + 1);
        prop_assert_eq!(placement.counters().iter().filter(|c| c.redundant).count(), 1);
        prop_assert!(placement.missing().is_empty());
    }

    /// Would catch counters on edges that are taken more often than others that would do (cycle property: an edge off
    /// the tree weighs no more than any edge of the tree on its cycle, but for those that must be there).
    #[test]
    fn counters_are_on_the_lightest_edges(case in case()) {
        let weights = weights(&case);
        let placement = Placement::new(&case.flow, &weights);
        let cost = |p: &Placement| -> u64 { p.counters().iter().map(|c| weights.of(c.edge as usize)).sum() };
        let best = cost(&placement);
        // Exchange each counted edge with each on the tree: it must not be a placement, or not a better one.
        let out = |n: usize| case.flow.edges()[n].to == Node::Exit;
        for counter in placement.counters().iter().filter(|c| !c.redundant && !out(c.edge as usize)) {
            for (n, edge) in case.flow.edges().iter().enumerate() {
                if !placement.on_tree(n) || edge.role != Role::Edge(EdgeKind::Taken) || out(n) || weights.of(n) >= weights.of(counter.edge as usize) {
                    continue;
                }
                // A lighter edge on the tree: counting it instead must leave something unknown.
                let spot = edge.spot;
                let allowed: Vec<Spot> = placement.counters().iter().filter(|c| c.edge != counter.edge)
                    .map(|c| c.spot).chain(spot).collect();
                let other = Placement::without(&case.flow, &weights, |s| allowed.contains(&s));
                prop_assert!(!other.missing().is_empty(), "{} instead of {} costs less than {best}", n, counter.edge);
            }
        }
    }

    /// Would catch visits that vanish without a word, wherever they do.
    #[test]
    fn visits_that_are_not_accounted_for_are_a_violation(case in case()) {
        let truth = Truth::of(&case);
        let placement = Placement::new(&case.flow, &weights(&case));
        let profile = solve(&case.flow, &placement, &truth.counts(&placement), &[]).expect("they fit");
        let inside: u64 = truth.inside.iter().sum();
        prop_assert_eq!(profile.violations.is_empty(), inside == 0);
        prop_assert!(profile.is_exact() == (inside == 0));
    }

    /// Would catch a count that is wrong and is not noticed where every edge has a counter.
    #[test]
    fn one_wrong_counter_is_a_violation(case in case(), which in any::<prop::sample::Index>(), off in 1u64..1000) {
        let truth = Truth::of(&case);
        let placement = Placement::everywhere(&case.flow, &weights(&case), |_| true);
        let mut counts = truth.counts(&placement);
        let which = which.index(counts.len());
        counts[which] += off;
        let profile = solve(&case.flow, &placement, &counts, &truth.in_flight()).expect("they fit");
        let edge = case.flow.edges()[placement.counters()[which].edge as usize];
        // An edge from a block to itself changes nothing around it.
        prop_assert_eq!(profile.violations.is_empty(), edge.from == edge.to);
    }

    /// Would catch a guess in place of what cannot be known.
    #[test]
    fn without_some_counters_what_is_said_is_true(case in case(), refused in prop::collection::vec(any::<bool>(), 80)) {
        let truth = Truth::of(&case);
        let can = |s: Spot| matches!(s, Spot::Enter(_)) || refused.get(s.addr() as usize) != Some(&true);
        let placement = Placement::without(&case.flow, &weights(&case), can);
        prop_assert!(placement.counters().iter().all(|c| can(c.spot)));
        let profile = solve(&case.flow, &placement, &truth.counts(&placement), &truth.in_flight()).expect("they fit");
        prop_assert_eq!(&profile.violations, &vec![]);
        for (got, want) in profile.edges.iter().zip(&truth.edges) {
            prop_assert!(got.is_none_or(|n| n == *want), "{:?} {:?}", profile.edges, truth.edges);
        }
        for (got, want) in profile.blocks.iter().zip(&truth.blocks) {
            prop_assert!(got.is_none_or(|n| n == *want));
        }
        // Nothing is missing: nothing is unknown.
        if placement.missing().is_empty() {
            prop_assert!(profile.is_exact());
        }
        // Each missing counter leaves no more than its own cycle unknown: the others are bridges, so known.
        for n in placement.missing() {
            prop_assert_eq!(profile.edges[*n as usize], None);
        }
    }

    /// Would catch arithmetic that wraps, and a panic on counts that cannot be.
    #[test]
    fn any_counts_are_taken(case in case(), counts in prop::collection::vec(prop_oneof![any::<u64>(), Just(u64::MAX), Just(0)], 90),
                            inside in prop::collection::vec((0u32..20, any::<u64>()), 0..4)) {
        let placement = Placement::new(&case.flow, &weights(&case));
        let counts = &counts[..placement.counters().len().min(counts.len())];
        let bad = inside.iter().any(|(b, _)| *b as usize >= case.flow.blocks());
        let solved = solve(&case.flow, &placement, counts, &inside);
        prop_assert_eq!(solved.is_err(), bad || counts.len() != placement.counters().len());
    }

    /// Would catch a block or edge that is said to have run and did not, or the other way round; and, where no spot is refused,
    /// anything that is left unknown.
    #[test]
    fn marks_tell_what_ran(case in case(), refused in prop::collection::vec(any::<bool>(), 80)) {
        let truth = Truth::of(&case);
        let starts: Vec<u64> = (0..case.flow.blocks() as u64).map(|b| 1000 + b).collect();
        let can_not = |spot: Spot| match spot {
            Spot::Taken(n) => refused.get(n as usize) == Some(&true),
            Spot::Before(n) => refused.get(n as usize - 940) == Some(&true),
            _ => false,
        };
        let hit = |spot: Spot| match spot {
            Spot::Before(at) => truth.blocks[at as usize - 1000] > 0,
            _ => case.flow.edges().iter().zip(&truth.edges).any(|(e, n)| e.spot == Some(spot) && *n > 0),
        };
        for all in [true, false] {
            let marks = Marks::new(&case.flow, &starts, |s| all || !can_not(s));
            prop_assert!(marks.spots().all(|s| all || !can_not(s)));
            let profile = marks.profile(&case.flow, hit);
            let real: Vec<usize> = case.flow.real_edges().map(|(n, _)| n).collect();
            for n in real {
                let told = profile.edges[n];
                prop_assert!(told.is_none_or(|t| t == u64::from(truth.edges[n] > 0)), "edge {n}: {told:?}");
                prop_assert!(!all || told.is_some());
            }
            for (n, told) in profile.blocks.iter().enumerate() {
                prop_assert!(told.is_none_or(|t| t == u64::from(truth.blocks[n] > 0)), "block {n}: {told:?}");
                prop_assert!(!all || told.is_some());
            }
            prop_assert_eq!(profile.entered, Some(u64::from(!case.walks.is_empty())));
        }
    }
}
