//! Where snippets can be, and how often a run passes there.

use kerninst_analysis::Function;
use kerninst_patch::Spot;

use super::model;

/// Every spot that a function could have.
pub fn spots(f: &Function) -> Vec<Spot> {
    let mut out = vec![Spot::Enter(f.entry())];
    for i in &f.insns {
        out.push(Spot::Before(i.addr));
        out.push(Spot::After(i.addr));
        out.push(Spot::Taken(i.addr));
        out.push(Spot::Fixup(i.addr));
    }
    out
}

/// How often the original passes the spot; `None`: the model cannot tell its sides apart.
pub fn expected(f: &Function, spot: Spot, plain: &model::Trace) -> Option<u64> {
    let step = |to| plain.steps.get(&(spot.addr(), to)).copied().unwrap_or(0);
    let insn = f.insn_at(spot.addr());
    match spot {
        Spot::Enter(_) => Some(1),
        Spot::Before(a) => Some(plain.began.get(&a).copied().unwrap_or(0)),
        Spot::After(_) | Spot::Taken(_) | Spot::Fixup(_) => {
            let insn = insn?;
            let target = insn.target;
            let fixup = |t: u64| {
                let block = f.block_of(insn.addr)?;
                let edges = f.block_edges(block).iter();
                let to = edges.filter(|e| e.kind == kerninst_analysis::EdgeKind::Fixup);
                let to = to.filter_map(|e| match e.to {
                    kerninst_analysis::EdgeTarget::Block(b) => f.blocks.get(b as usize),
                    _ => None,
                });
                to.map(|b| b.start).find(|s| *s != t)
            };
            match spot {
                Spot::After(_) if target == Some(insn.end()) => None,
                Spot::After(_) => {
                    let same = f.block_of(insn.addr).is_some_and(|b| {
                        b.end == insn.end()
                            && f.block_edges(b).iter().any(|e| {
                                e.kind == kerninst_analysis::EdgeKind::Fixup
                                    && e.to
                                        == kerninst_analysis::EdgeTarget::Block(
                                            f.block_of(insn.end()).map_or(0, |n| {
                                                f.blocks
                                                    .iter()
                                                    .position(|x| x.start == n.start)
                                                    .unwrap_or(0)
                                                    as u32
                                            }),
                                        )
                            })
                    });
                    (!same).then(|| step(insn.end()))
                }
                Spot::Taken(_) => {
                    let t = target.filter(|t| *t != insn.end())?;
                    Some(step(t))
                }
                _ => fixup(insn.end()).map(step),
            }
        }
    }
}
