//! From spots to places in straight-line code: which spots are the same as "before" some instruction, and which need the
//! instruction itself in the patch.

use kerninst_analysis::{Edge, EdgeKind, EdgeTarget, Insn, InsnKind, Live, Sites};

use crate::facts::Facts;
use crate::planner::Planner;
use crate::{Boards, Refusal, Spot};

/// On which side of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Side {
    /// Before it, however it is reached.
    Before,
    /// On its taken branch, in a patch that runs a copy of it.
    Taken,
    /// After it when control goes on to the next one, in a patch that runs a copy of it.
    After,
}

/// Where a patch runs a snippet. The order is that of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// Index of the instruction.
    pub index: usize,
    /// Which side of it.
    pub side: Side,
}

impl Place {
    pub fn before(index: usize) -> Place {
        Place {
            index,
            side: Side::Before,
        }
    }

    /// Index after the last instruction that a patch with a snippet at this place must run.
    pub fn end(self) -> usize {
        match self.side {
            Side::Before => self.index,
            Side::Taken | Side::After => self.index.saturating_add(1),
        }
    }
}

impl Planner<'_, '_> {
    /// The place that stands for `spot` in a splice.
    pub(crate) fn place(&self, facts: &Facts, spot: Spot) -> Result<Place, Refusal> {
        let before = |addr: u64| self.index_of(facts, addr).map(Place::before);
        match spot {
            Spot::Before(addr) => before(addr),
            Spot::Enter(addr) => match first(facts, addr)? {
                Some(first) => before(first),
                None => Err(Refusal::NeedsVersion(spot)),
            },
            Spot::Taken(addr) => {
                let index = self.index_of(facts, addr)?;
                let insn = facts.insn(index).ok_or(Refusal::NoFunction { addr })?;
                let branches = matches!(
                    insn.kind,
                    InsnKind::Jcc | InsnKind::Loop | InsnKind::JumpLabel
                );
                match insn.kind {
                    InsnKind::Jmp | InsnKind::TailCall => return Ok(Place::before(index)),
                    _ if !branches => return Err(Refusal::NoSuchEdge(spot)),
                    _ => {}
                }
                // Only reached by this branch: no need to touch the branch, and nothing runs where it is not taken.
                if let Some(target) = insn.target
                    && facts.sole_way_to(target)
                {
                    return before(target);
                }
                match insn.kind {
                    InsnKind::JumpLabel => Err(Refusal::NeedsVersion(spot)),
                    _ => Ok(Place {
                        index,
                        side: Side::Taken,
                    }),
                }
            }
            Spot::After(addr) => self.after(facts, addr),
            Spot::Fixup(addr) => {
                self.index_of(facts, addr)?;
                let entry = self.kernel().tables().extable.at(addr);
                let entry = entry.ok_or(Refusal::NoSuchEdge(spot))?;
                if facts.sole_way_to(entry.fixup) {
                    before(entry.fixup)
                } else {
                    Err(Refusal::NeedsVersion(spot))
                }
            }
        }
    }

    fn after(&self, facts: &Facts, addr: u64) -> Result<Place, Refusal> {
        let spot = Spot::After(addr);
        let index = self.index_of(facts, addr)?;
        let insn = facts.insn(index).ok_or(Refusal::NoFunction { addr })?;
        let next = insn.end();
        if insn.kind.is_terminal() {
            return Err(Refusal::NoSuchEdge(spot));
        }
        if facts.sole_way_to(next) {
            return self.index_of(facts, next).map(Place::before);
        }
        let straight = matches!(
            insn.kind,
            InsnKind::Plain | InsnKind::Nop | InsnKind::Jcc | InsnKind::Loop
        );
        let resumed = insn.kind == InsnKind::Trap && facts.function.insn_at(next).is_some();
        let returns = matches!(insn.kind, InsnKind::Call | InsnKind::IndirectCall)
            && facts.function.insn_at(next).is_some();
        // A fixup that goes on after the instruction goes on in the patch, where the snippet would run too.
        let entry = self.kernel().tables().extable.at(addr);
        let faults_on = entry.is_some_and(|e| e.fixup == next);
        match insn.kind {
            _ if facts.call_comes_back(index) || (straight || resumed) && !faults_on => Ok(Place {
                index,
                side: Side::After,
            }),
            InsnKind::JumpLabel => Err(Refusal::NeedsVersion(spot)),
            _ if returns || straight || resumed => Err(Refusal::NeedsVersion(spot)),
            _ => Err(Refusal::NoSuchEdge(spot)),
        }
    }
}

/// The first instruction that a splice may count calls at, if control only comes there by the entry.
fn first(facts: &Facts, entry: u64) -> Result<Option<u64>, Refusal> {
    let none = Refusal::NoFunction { addr: entry };
    let function = facts.function;
    if entry != function.entry() {
        return Err(none);
    }
    let at = function.index_at(entry).ok_or(none.clone())?;
    let insns = function.insns.get(at..).unwrap_or(&[]);
    let skipped = |i: &&Insn| i.sites.intersects(Sites::FENTRY | Sites::ENDBR);
    let skip = insns.iter().take_while(skipped).count();
    let first = insns.get(skip).ok_or(none)?;
    // A block on the way is entered by falling into it only, and that of the entry in no way of the function's own.
    let mut blocks: Vec<u32> = insns.iter().take(skip + 1).map(|i| i.block).collect();
    blocks.dedup();
    let only_here = blocks.iter().enumerate().all(|(n, b)| {
        let ways = facts.ways_into(*b).map(|e| e.from);
        match n.checked_sub(1).and_then(|p| blocks.get(p)) {
            Some(previous) => ways.eq([*previous]),
            None => ways.count() == 0,
        }
    });
    Ok(only_here.then_some(first.addr))
}

impl Facts<'_> {
    /// Whether control comes to the instruction at `addr` in one way only: along one edge, or by falling through inside
    /// of a block.
    pub fn sole_way_to(&self, addr: u64) -> bool {
        let f = self.function;
        let Some(insn) = f.insn_at(addr) else {
            return false;
        };
        let Some(block) = f.blocks.get(insn.block as usize) else {
            return false;
        };
        if block.start != addr {
            return !insn.joins;
        }
        !block.root && !self.after_dead_end(insn) && self.ways_into(insn.block).count() == 1
    }

    /// Whether a trap or a call comes before it that is not known to go on: should it go on all the same, it would
    /// arrive here.
    pub fn after_dead_end(&self, insn: &Insn) -> bool {
        let by = |kinds: &[EdgeKind]| self.ways_into(insn.block).any(|e| kinds.contains(&e.kind));
        let first = self.function.blocks.get(insn.block as usize);
        first.is_some_and(|b| b.start == insn.addr)
            && (insn.after_trap && !by(&[EdgeKind::TrapResume])
                || insn.after_call && !by(&[EdgeKind::CallReturn, EdgeKind::FallThrough]))
    }

    /// The edges that lead to a block of the function.
    pub fn ways_into(&self, block: u32) -> impl Iterator<Item = &Edge> {
        let to = EdgeTarget::Block(block);
        let incoming = self.incoming.get_or_init(|| {
            let mut all: Vec<usize> = (0..self.function.edges.len()).collect();
            all.sort_by_key(|n| self.function.edges.get(*n).map(key));
            all
        });
        let edge = |n: &usize| self.function.edges.get(*n);
        let from = incoming.partition_point(|n| edge(n).is_some_and(|e| key(e) < u64::from(block)));
        incoming
            .get(from..)
            .unwrap_or(&[])
            .iter()
            .filter_map(move |n| self.function.edges.get(*n))
            .take_while(move |e| e.to == to)
    }

    /// Whether a snippet at `place` needs the call there to come back to the patch.
    pub fn comes_back(&self, place: Place) -> bool {
        let call = |i: &Insn| i.kind == InsnKind::Call;
        place.side == Side::After && self.insn(place.index).is_some_and(call)
    }

    /// Whether `index` is a call that a patch may make for real, with an address of the patch as return address: a direct
    /// call, which the kernel does not rewrite, of a C function that can be traced. Such a function returns to its caller
    /// once, and does not look at where that is; and the caller's frame is one that can be unwound.
    pub fn call_comes_back(&self, index: usize) -> bool {
        let (Some(insn), Some(fact)) = (self.insn(index), self.fact(index)) else {
            return false;
        };
        // `endbr64` may come before the fentry site.
        let traced = |t: u64| {
            let sites = &self.kernel.tables().fentry;
            !sites.in_range(t..t.saturating_add(5)).is_empty()
        };
        self.function.abi
            && insn.kind == InsnKind::Call
            && self.moved(index).is_some_and(Result::is_ok)
            && fact.managed.is_none()
            && !insn.sites.intersects(Sites::MANAGED)
            && self.function.insn_at(insn.end()).is_some()
            && insn.target.is_some_and(traced)
    }

    /// Whether `index` is only reached by the return of the call before it, and a patch may make that call.
    pub fn returns_into(&self, index: usize, boards: &Boards) -> bool {
        let Some(before) = index.checked_sub(1) else {
            return false;
        };
        let (Some(insn), Some(call)) = (self.insn(index), self.insn(before)) else {
            return false;
        };
        insn.addr == call.end()
            && !insn.joins
            && self.call_comes_back(before)
            && self.movable(before, boards)
    }

    /// What is live at a place: never less than what may be read after it.
    pub fn live(&self, place: Place) -> Live {
        let Some(insn) = self.insn(place.index) else {
            return Live::ALL;
        };
        let at = |addr: u64| self.function.insn_at(addr).map(|i| i.live);
        match place.side {
            Side::Before => insn.live,
            Side::After => at(insn.end()).unwrap_or(Live::ALL),
            // A branch changes nothing, so what is live at a target outside is live before it too.
            Side::Taken => insn.target.and_then(at).unwrap_or(insn.live),
        }
    }
}

/// Sorts edges by the block that they lead to, exits last.
fn key(edge: &Edge) -> u64 {
    match edge.to {
        EdgeTarget::Block(b) => u64::from(b),
        EdgeTarget::Exit(_) => u64::MAX,
    }
}
