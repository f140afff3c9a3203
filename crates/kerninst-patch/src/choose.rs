//! Which tactic a point gets.

use std::ops::Range;

use kerninst_analysis::{InsnKind, Sites};
use kerninst_snippet::Snippet;

use crate::facts::Facts;
use crate::place::{Place, Side};
use crate::planner::Planner;
use crate::{Board, Boards, Refusal, Spot, Tactic};

/// Bytes of a `jmp rel32`.
const JUMP: u64 = 5;

/// Snippets that a patch runs.
#[derive(Debug, Clone)]
pub(crate) struct Hosted {
    /// Where in the patch.
    pub place: Place,
    /// The spot that was asked for.
    pub at: Spot,
    pub snippets: Vec<Snippet>,
    /// It is one of several ways to the spot.
    pub one_of: bool,
}

/// A decision: where the site is, and what the patch runs.
pub(crate) struct Chosen {
    /// How the site is overwritten.
    pub tactic: Tactic,
    /// How the first point is reached: `tactic`, or a hoist.
    pub reached: Tactic,
    /// The place that it was chosen for.
    pub place: Place,
    /// Index of the instruction at the site.
    pub start: usize,
    /// Index after the last instruction that is overwritten.
    pub displaced_end: usize,
    /// Index after the last instruction that the patch runs; it goes back to that one.
    pub end: usize,
    /// The bytes that are overwritten.
    pub site: Range<u64>,
    /// Calls in it come back to the patch: they are made for real.
    pub returns: bool,
    /// The springboard.
    pub board: Option<Board>,
    /// What runs where, by place.
    pub points: Vec<Hosted>,
}

impl Chosen {
    fn new(tactic: Tactic, start: usize, end: usize, site: Range<u64>) -> Chosen {
        let (reached, displaced_end) = (tactic, end);
        Chosen {
            tactic,
            reached,
            place: Place::before(start),
            start,
            displaced_end,
            end,
            site,
            returns: false,
            board: None,
            points: Vec::new(),
        }
    }

    /// How a point at `index`, after the site, is reached.
    pub fn hoist_kind(&self, facts: &Facts, index: usize) -> Tactic {
        let branch = |i: usize| {
            facts
                .insn(i)
                .is_some_and(|x| matches!(x.kind, InsnKind::Jcc | InsnKind::Loop))
        };
        let call = |i: usize| facts.insn(i).is_some_and(|x| x.kind == InsnKind::Call);
        if self.returns && (self.start..index).any(call) {
            Tactic::AfterCall
        } else if (self.start..index).any(branch) {
            Tactic::HoistPastJcc
        } else {
            Tactic::HoistInBlock
        }
    }

    /// Undoes what [`Planner::choose`] took from `boards`.
    pub fn give_back(&self, boards: &mut Boards) {
        boards.release(&self.site);
        if let Some(b) = &self.board {
            boards.release(&(b.addr..b.addr.wrapping_add(JUMP)));
        }
    }
}

impl Planner<'_, '_> {
    /// The best tactic for `place`, alone. No instruction before `floor` may be used. What the choice
    /// overwrites is claimed in `boards`.
    pub(crate) fn choose(
        &self,
        facts: &Facts,
        place: Place,
        floor: usize,
        boards: &mut Boards,
    ) -> Result<Chosen, Refusal> {
        let index = place.index;
        // On an edge of the instruction: the patch must run the instruction itself.
        if place.side != Side::Before && !facts.movable(index, boards) {
            return Err(self.why_not(facts, index, boards));
        }
        let allowed = self.options().tactics;
        for tactic in Tactic::ALL {
            if !allowed.has(tactic) {
                continue;
            }
            let found = match tactic {
                Tactic::InPlace => self.in_place(facts, index, boards),
                Tactic::InPlacePadded => self.padded(facts, index, boards),
                Tactic::HoistInBlock | Tactic::HoistPastJcc => {
                    self.hoist(facts, index, floor, tactic, boards)
                }
                Tactic::Springboard => self.springboard(facts, index, boards),
                Tactic::Run => self.run(facts, index, boards),
                Tactic::HoistShort | Tactic::AfterCall => {
                    self.hoist_far(facts, index, floor, tactic, boards)
                }
                // Takes several splices: see `crate::edges`.
                Tactic::Edges => None,
                Tactic::Int3 => self.int3(facts, index, boards),
                Tactic::Version => None,
            };
            if let Some(mut c) = found
                && boards.claim(c.site.clone())
            {
                let board = c.board.as_ref().map(|b| b.addr..b.addr.wrapping_add(JUMP));
                if board.is_none_or(|b| boards.claim(b)) {
                    c.place = place;
                    c.end = c.end.max(place.end());
                    c.returns |= facts.comes_back(place);
                    return Ok(c);
                }
                boards.release(&c.site);
            }
        }
        Err(self.why_not(facts, index, boards))
    }

    fn why_not(&self, facts: &Facts, index: usize, boards: &Boards) -> Refusal {
        let (Some(insn), Some(fact)) = (facts.insn(index), facts.fact(index)) else {
            return Refusal::NoTactic;
        };
        if let Some(m) = fact.managed {
            return Refusal::ManagedSite(m);
        }
        if let Some(Err(u)) = facts.moved(index) {
            return Refusal::Unrelocatable(*u);
        }
        match boards.conflict(&(insn.addr..insn.end())) {
            Some(addr) => Refusal::Taken { addr },
            None => Refusal::NoTactic,
        }
    }

    pub(crate) fn in_place(&self, facts: &Facts, index: usize, boards: &Boards) -> Option<Chosen> {
        let insn = facts.insn(index)?;
        let fits = u64::from(insn.len) >= JUMP && facts.movable(index, boards);
        fits.then(|| Chosen::new(Tactic::InPlace, index, index + 1, insn.addr..insn.end()))
    }

    /// A terminal instruction and the padding after it, up to the five bytes of a jump.
    pub(crate) fn padded(&self, facts: &Facts, index: usize, boards: &Boards) -> Option<Chosen> {
        let insn = facts.insn(index)?;
        if u64::from(insn.len) >= JUMP || !ends_here(facts, index) || !facts.movable(index, boards)
        {
            return None;
        }
        let end = insn.addr.checked_add(JUMP)?;
        self.free(facts, insn.addr, insn.end()..end, boards)
            .then(|| Chosen::new(Tactic::InPlacePadded, index, index + 1, insn.addr..end))
    }

    /// The nearest earlier instruction that a jump fits on and from which control always arrives here.
    fn hoist(
        &self,
        facts: &Facts,
        index: usize,
        floor: usize,
        kind: Tactic,
        boards: &Boards,
    ) -> Option<Chosen> {
        let mut at = index;
        for _ in 0..self.options().distance {
            if at <= floor || !facts.linked(at, boards) {
                return None;
            }
            at -= 1;
            let insn = facts.insn(at)?;
            if kind == Tactic::HoistInBlock && matches!(insn.kind, InsnKind::Jcc | InsnKind::Loop) {
                return None;
            }
            if u64::from(insn.len) >= JUMP {
                let mut c = Chosen::new(Tactic::InPlace, at, at + 1, insn.addr..insn.end());
                c.reached = kind;
                c.end = index;
                return Some(c);
            }
        }
        None
    }

    /// An earlier instruction from which control always arrives here, whose own splice is a springboard or a run, or from
    /// which a call leads here when it returns.
    fn hoist_far(
        &self,
        facts: &Facts,
        index: usize,
        floor: usize,
        kind: Tactic,
        boards: &Boards,
    ) -> Option<Chosen> {
        let allowed = self.options().tactics;
        let (mut at, mut returns) = (index, false);
        for _ in 0..self.options().distance {
            if at <= floor {
                return None;
            }
            if !facts.linked(at, boards) {
                if kind != Tactic::AfterCall || !facts.returns_into(at, boards) {
                    return None;
                }
                returns = true;
            }
            at -= 1;
            if returns != (kind == Tactic::AfterCall) {
                continue;
            }
            let mut found = None;
            if returns && allowed.has(Tactic::InPlace) {
                found = self.in_place(facts, at, boards);
            }
            if found.is_none() && allowed.has(Tactic::Springboard) {
                found = self.springboard(facts, at, boards);
            }
            if found.is_none() && allowed.has(Tactic::Run) {
                found = self.run(facts, at, boards);
            }
            if let Some(mut c) = found {
                c.reached = kind;
                c.end = c.end.max(index);
                c.returns = returns;
                return Some(c);
            }
        }
        None
    }

    /// A 2-byte jump (over the instruction, or a 1-byte one and padding) to a board in reach.
    pub(crate) fn springboard(
        &self,
        facts: &Facts,
        index: usize,
        boards: &Boards,
    ) -> Option<Chosen> {
        let insn = facts.insn(index)?;
        if !facts.movable(index, boards) {
            return None;
        }
        let end = insn.end().max(insn.addr.checked_add(2)?);
        if end > insn.end()
            && !(ends_here(facts, index) && self.free(facts, insn.addr, insn.end()..end, boards))
        {
            return None;
        }
        let from = insn.addr.checked_add(2)?;
        let reach = from.saturating_sub(128)..from.saturating_add(128);
        let free = facts.padding(self.analysis(), insn.addr);
        let site = insn.addr..end;
        // The site itself is not yet claimed: a board must not lie on its padding byte.
        let mut with_site = boards.clone_near(&reach);
        with_site.claim(site.clone());
        let addr = with_site.find(&free, &reach, JUMP)?;
        let old = self.kernel().bytes(addr, JUMP as usize)?.to_vec();
        let mut c = Chosen::new(Tactic::Springboard, index, index + 1, site);
        c.board = Some(Board { addr, old });
        Some(c)
    }

    /// A jump over several instructions: none but the first may be reached, returned to or resumed at.
    pub(crate) fn run(&self, facts: &Facts, index: usize, boards: &Boards) -> Option<Chosen> {
        let head = facts.insn(index)?;
        let mut end = index;
        loop {
            let insn = facts.insn(end)?;
            if !facts.movable(end, boards) {
                return None;
            }
            if end != index {
                // A task may sleep in a fault on an instruction that may fault, and then come back to it; a task in the
                // middle of a trap likewise.
                let resumed = insn.sites.intersects(Sites::EXTABLE | Sites::BUG)
                    || insn.kind == InsnKind::Trap;
                if resumed || !facts.only_falls_into(end) {
                    return None;
                }
            }
            end += 1;
            let covered = insn.end().checked_sub(head.addr)?;
            if covered >= JUMP {
                return Some(Chosen::new(Tactic::Run, index, end, head.addr..insn.end()));
            }
            if ends_here(facts, end - 1) {
                let stop = head.addr.checked_add(JUMP)?;
                return self
                    .free(facts, insn.addr, insn.end()..stop, boards)
                    .then(|| Chosen::new(Tactic::Run, index, end, head.addr..stop));
            }
        }
    }

    pub(crate) fn int3(&self, facts: &Facts, index: usize, boards: &Boards) -> Option<Chosen> {
        let insn = facts.insn(index)?;
        let site = insn.addr..insn.addr.checked_add(1)?;
        facts
            .movable(index, boards)
            .then(|| Chosen::new(Tactic::Int3, index, index + 1, site))
    }

    /// Whether all these bytes are proven padding that nobody owns.
    fn free(&self, facts: &Facts, insn: u64, range: Range<u64>, boards: &Boards) -> bool {
        let padding = facts.padding(self.analysis(), insn);
        boards.conflict(&range).is_none()
            && padding
                .iter()
                .any(|p| p.start <= range.start && range.end <= p.end)
    }
}

/// Whether control never goes on to the bytes after the instruction.
fn ends_here(facts: &Facts, index: usize) -> bool {
    let Some(insn) = facts.insn(index) else {
        return false;
    };
    if insn.kind.is_terminal() {
        return true;
    }
    // A call that does not return and a trap that is not resumed: the bytes after them are no instruction.
    let next_is_reached = facts.function.insn_containing(insn.end()).is_some();
    matches!(insn.kind, InsnKind::Call | InsnKind::Trap) && !next_is_reached
}
