//! Points that are reached by several ways, each of which gets a splice of its own ([`Tactic::Edges`]).

use std::collections::BTreeSet;

use kerninst_analysis::{EdgeKind, InsnKind};

use crate::choose::{Chosen, Hosted};
use crate::facts::Facts;
use crate::place::{Place, Side};
use crate::planner::{Pass, Places, Planner};
use crate::{Boards, Spot, Tactic};

/// More ways than this into one block cost more patches than a trap is worth.
const WAYS: usize = 12;

impl Pass {
    /// Of a pass for one point: how it is reached.
    pub(crate) fn tactic(&self) -> Tactic {
        match self.chosen.first() {
            Some(c) if c.points.iter().any(|p| p.one_of) => Tactic::Edges,
            Some(c) => c.reached,
            None => Tactic::Int3,
        }
    }

    fn traps(&self) -> impl Iterator<Item = &Chosen> {
        self.chosen.iter().filter(|c| c.tactic == Tactic::Int3)
    }

    fn give_back(&self, boards: &mut Boards) {
        self.chosen.iter().for_each(|c| c.give_back(boards));
    }

    /// Spots of which a way is refused or was left to a trap.
    fn failed(&self) -> BTreeSet<Spot> {
        let trapped = self.traps().flat_map(|c| &c.points);
        let trapped = trapped.filter(|p| p.one_of).map(|p| p.at);
        trapped.chain(self.refused.iter().map(|r| r.0)).collect()
    }
}

impl Planner<'_, '_> {
    /// [`Planner::pass`], and again with the points that got an `int3` moved onto the ways that lead to them, where all
    /// of these can be spliced without one.
    pub(crate) fn pass_or_split(&self, facts: &Facts, places: Places, boards: &mut Boards) -> Pass {
        let plain = self.pass(facts, &places, boards);
        if !self.options().tactics.has(Tactic::Edges) {
            return plain;
        }
        let mut split: Vec<(Place, Vec<Place>)> = plain
            .traps()
            .filter(|c| c.place.side == Side::Before)
            .filter_map(|c| Some((c.place, self.ways(facts, c.place.index)?)))
            .collect();
        if split.is_empty() {
            return plain;
        }
        plain.give_back(boards);
        while !split.is_empty() {
            let pass = self.pass(facts, &moved(&places, &split), boards);
            let failed = pass.failed();
            let before = split.len();
            let fine = |place: &Place| {
                let mut hosted = places.get(place).into_iter().flatten();
                hosted.all(|h| !failed.contains(&h.at))
            };
            split.retain(|(place, _)| fine(place));
            let all_fine = split.len() == before;
            if all_fine
                && pass.refused.len() <= plain.refused.len()
                && pass.traps().count() < plain.traps().count()
            {
                return pass;
            }
            pass.give_back(boards);
            // Nothing to leave out, but it did not help, or did harm elsewhere.
            if all_fine {
                break;
            }
        }
        // The same boards give the same choices.
        self.pass(facts, &places, boards)
    }

    /// All places by which control comes to `index`; `None` if it may also come in a way that no splice can tell.
    fn ways(&self, facts: &Facts, index: usize) -> Option<Vec<Place>> {
        let insn = facts.insn(index)?;
        let block = facts.function.blocks.get(insn.block as usize)?;
        if block.first as usize != index || block.root || facts.after_dead_end(insn) {
            return None;
        }
        let mut ways = BTreeSet::new();
        for edge in facts.ways_into(insn.block) {
            let from = facts.function.blocks.get(edge.from as usize)?;
            let last = (from.first as usize).checked_add(from.count as usize)?;
            let last = last.checked_sub(1)?;
            let branch = facts.insn(last)?;
            let here = branch.target == Some(insn.addr);
            let calls = self.options().tactics.has(Tactic::AfterCall);
            let side = match (edge.kind, branch.kind) {
                (
                    EdgeKind::FallThrough,
                    InsnKind::Plain | InsnKind::Nop | InsnKind::Jcc | InsnKind::Loop,
                ) => Side::After,
                (EdgeKind::CallReturn, InsnKind::Call) if calls && facts.call_comes_back(last) => {
                    Side::After
                }
                (EdgeKind::TrapResume, InsnKind::Trap) => Side::After,
                (EdgeKind::Taken, InsnKind::Jcc | InsnKind::Loop) if here => Side::Taken,
                (EdgeKind::Jump, InsnKind::Jmp) if here => Side::Before,
                _ => return None,
            };
            let entry = self.kernel().tables().extable.at(branch.addr);
            // A fixup that goes on after the instruction is another way, which the patch cannot tell from this one.
            let faults_on = entry.is_some_and(|e| e.fixup == branch.end());
            if faults_on || self.index_of(facts, branch.addr).is_err() {
                return None;
            }
            ways.insert(Place { index: last, side });
        }
        (!ways.is_empty() && ways.len() <= WAYS).then(|| ways.into_iter().collect())
    }
}

/// `places`, with what is wanted at those of `split` moved onto the ways to them.
fn moved(places: &Places, split: &[(Place, Vec<Place>)]) -> Places {
    let mut moved = places.clone();
    for (place, ways) in split {
        let Some(hosted) = moved.remove(place) else {
            continue;
        };
        for way in ways {
            let here = hosted.iter().map(|h| Hosted {
                place: *way,
                one_of: true,
                ..h.clone()
            });
            moved.entry(*way).or_default().extend(here);
        }
    }
    moved
}
