//! Which spots stand for the edges of a function.

use kerninst_analysis::{Block, Edge, EdgeKind, Function};

use crate::Spot;

/// The spots of the edges that leave `block`, in the order of [`Function::block_edges`]. `None`: no code can run on that edge
/// alone (an instruction that leaves the function in one of two ways, or two ways that one place stands for).
pub fn edge_spots(function: &Function, block: &Block) -> Vec<Option<Spot>> {
    let edges = function.block_edges(block);
    let Some(last) = function.block_insns(block).last() else {
        return vec![None; edges.len()];
    };
    let at = last.addr;
    let is_key = |e: &Edge| matches!(e.kind, EdgeKind::StaticKeyOn | EdgeKind::StaticKeyOff);
    // The way on to the next instruction comes first (kerninst-analysis, build.rs).
    let first_key = edges.iter().position(is_key);
    let spot = |(n, e): (usize, &Edge)| match e.kind {
        EdgeKind::FallThrough | EdgeKind::CallReturn | EdgeKind::TrapResume => {
            Some(Spot::After(at))
        }
        EdgeKind::Taken | EdgeKind::Jump => Some(Spot::Taken(at)),
        EdgeKind::StaticKeyOn | EdgeKind::StaticKeyOff if first_key == Some(n) => {
            Some(Spot::After(at))
        }
        EdgeKind::StaticKeyOn | EdgeKind::StaticKeyOff => Some(Spot::Taken(at)),
        EdgeKind::Fixup => Some(Spot::Fixup(at)),
        // Nothing of ours can run after it. Before it, an instruction that may also fault is not left yet.
        EdgeKind::Exit if edges.len() == 1 => Some(Spot::Before(at)),
        EdgeKind::Exit => None,
    };
    let mut spots: Vec<Option<Spot>> = edges.iter().enumerate().map(spot).collect();
    // Two ways that one place stands for (two table entries, say) cannot be told apart.
    if let [] | [_] = spots.as_slice() {
        return spots;
    }
    if let [a, b] = spots.as_mut_slice() {
        if a == b {
            (*a, *b) = (None, None);
        }
        return spots;
    }
    let all = spots.clone();
    for spot in &mut spots {
        if spot.is_some() && all.iter().filter(|s| *s == spot).count() > 1 {
            *spot = None;
        }
    }
    spots
}
