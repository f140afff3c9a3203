//! The one splice that leads to a version.

use kerninst_analysis::{InsnKind, Sites};

use super::NoVersion;
use crate::choose::Chosen;
use crate::facts::Facts;
use crate::{Boards, Planner, Tactic};

/// How far behind the entry the jump may stand.
const PREFIX: usize = 12;

/// Instructions from the entry on that the splice may overwrite: `endbr64`, the fentry site, the prefix, and a jump's length
/// of the shortest instructions.
pub(super) const REACH: usize = PREFIX + 8;

/// Where calls of the function are led into its version.
pub(super) struct WayIn {
    /// The site.
    pub chosen: Chosen,
    /// Index of the first instruction after `endbr64` and the fentry site.
    pub first: usize,
    /// Index of the instruction at the site: control comes from the entry to it in a straight line, by instructions
    /// that run in place.
    pub at: usize,
}

impl Planner<'_, '_> {
    /// The cheapest site: first those that need no quiescence, as near to the entry as possible; then several
    /// instructions at the entry itself; at last an `int3` there.
    pub(super) fn entry_site(
        &self,
        facts: &Facts,
        boards: &mut Boards,
    ) -> Result<WayIn, NoVersion> {
        let first = first(facts).ok_or(NoVersion::NoEntry)?;
        let mut prefix = vec![first];
        for at in first + 1..first + PREFIX {
            let before = facts.insn(at - 1);
            let stays = before.is_some_and(|i| {
                matches!(i.kind, InsnKind::Plain | InsnKind::Nop)
                    && !i.sites.intersects(Sites::MANAGED | Sites::EXTABLE)
            });
            if !stays || !facts.only_falls_into(at) {
                break;
            }
            prefix.push(at);
        }
        let allowed = self.options().tactics;
        let simple = [Tactic::InPlace, Tactic::InPlacePadded, Tactic::Springboard];
        let tries = prefix
            .iter()
            .flat_map(|at| simple.iter().map(move |t| (*at, *t)))
            .chain([(first, Tactic::Run)])
            .chain([(first, Tactic::Int3)]);
        for (at, tactic) in tries.filter(|(_, t)| allowed.has(*t)) {
            let found = match tactic {
                Tactic::InPlace => self.in_place(facts, at, boards),
                Tactic::InPlacePadded => self.padded(facts, at, boards),
                Tactic::Springboard => self.springboard(facts, at, boards),
                Tactic::Run => self.run(facts, at, boards),
                _ => self.int3(facts, at, boards),
            };
            let Some(chosen) = found else { continue };
            if !boards.claim(chosen.site.clone()) {
                continue;
            }
            let board = chosen.board.as_ref();
            if board.is_none_or(|b| boards.claim(b.addr..b.addr.wrapping_add(5))) {
                return Ok(WayIn { chosen, first, at });
            }
            boards.release(&chosen.site);
        }
        let taken = facts
            .insn(first)
            .and_then(|i| boards.conflict(&(i.addr..i.end())));
        Err(taken.map_or(NoVersion::NoEntry, |addr| NoVersion::Taken { addr }))
    }
}

/// Index of the first instruction that a version has.
pub(super) fn first(facts: &Facts) -> Option<usize> {
    let mut at = facts.function.index_at(facts.function.entry())?;
    while let Some(i) = facts.insn(at) {
        let front = i.sites.intersects(Sites::FENTRY)
            || i.sites.contains(Sites::ENDBR) && i.addr == facts.function.entry();
        if !front {
            return Some(at);
        }
        at += 1;
    }
    None
}
