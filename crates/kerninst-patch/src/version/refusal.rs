//! Functions that cannot have a version, and spots that no code can run at.

use iced_x86::{Decoder, DecoderOptions};
use kerninst_analysis::{EdgeKind, Incomplete, InsnKind, Sites};
use kerninst_kernel::OffLimit;

use crate::facts::Facts;
use crate::odd::{Odd, odd, waits};
use crate::{Spot, Unrelocatable};

/// Why a function cannot have a version. `Display` gives a sentence without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoVersion {
    /// Some of its text must not run elsewhere or be instrumented.
    #[error("{0}: must not be instrumented")]
    OffLimits(OffLimit),
    /// Its control flow is not fully known.
    #[error("the function's control flow is not fully known: {0}")]
    Incomplete(Incomplete),
    /// Its code must stay where it is.
    #[error("no code may run here: {0}")]
    Unsafe(Odd),
    /// One of its instructions cannot run at another address.
    #[error("the instruction at {addr:#x} cannot be moved ({why})")]
    Unrelocatable {
        /// The instruction.
        addr: u64,
        /// Why not.
        why: Unrelocatable,
    },
    /// Nothing at its entry can be overwritten with a jump.
    #[error("no jump to a version fits at its entry")]
    NoEntry,
    /// The bytes at its entry belong to another splice.
    #[error("the bytes at {addr:#x}, at its entry, belong to another splice")]
    Taken {
        /// First byte concerned.
        addr: u64,
    },
    /// The order of blocks is not a permutation of the function's blocks.
    #[error("the order of blocks does not name every block exactly once")]
    Order,
    /// The initial state of a static key cannot be read.
    #[error("the static key at {key:#x} cannot be read")]
    Key {
        /// Its address.
        key: u64,
    },
    /// A short branch or a table entry of the code does not fit its field.
    #[error("the version is too large")]
    TooLarge,
}

/// Why no code can run at a spot of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NoSpot {
    /// The function has no such instruction.
    #[error("the function has no instruction there")]
    NoInstruction,
    /// The instruction has no such way out.
    #[error("control does not leave the instruction that way")]
    NoEdge,
    /// A fentry site that is not at the entry.
    #[error("this is a fentry site, which ftrace owns")]
    Fentry,
    /// Code there would split what must stay together.
    #[error("no code may run here: {0}")]
    Unsafe(Odd),
}

/// Whether the function as a whole can be emitted elsewhere.
pub(super) fn check(facts: &Facts) -> Result<(), NoVersion> {
    let f = facts.function;
    let off_limits = facts.facts.iter().find_map(|x| x.off_limits);
    if let Some(o) = off_limits.or_else(|| facts.kernel.off_limits().at(f.entry())) {
        return Err(NoVersion::OffLimits(o));
    }
    if let Some(why) = f.incomplete.first() {
        return Err(NoVersion::Incomplete(why.clone()));
    }
    if let Some(odd) = facts.no_snippet {
        return Err(NoVersion::Unsafe(odd));
    }
    for (index, (insn, i)) in f.insns.iter().zip(&facts.decoded).enumerate() {
        if insn.sites.contains(Sites::FENTRY) {
            continue;
        }
        let as_it_is = facts.goes_as_it_is(index);
        let cannot = |why| NoVersion::Unrelocatable {
            addr: insn.addr,
            why,
        };
        if matches!(insn.kind, InsnKind::Int3) {
            return Err(cannot(Odd::Interrupt.into()));
        }
        if !as_it_is {
            if i.is_invalid() {
                return Err(cannot(Unrelocatable::Invalid));
            }
            if let Some(o) = odd(i) {
                return Err(cannot(o.into()));
            }
        }
        if insn.sites.is_empty() {
            continue;
        }
        let tables = facts.kernel.tables();
        if insn.sites.contains(Sites::EXTABLE) && tables.extable.at(insn.addr).is_none() {
            return Err(cannot(Unrelocatable::Table("exception")));
        }
        if insn.sites.contains(Sites::BUG) && tables.bugs.at(insn.addr).is_none() {
            return Err(cannot(Unrelocatable::Table("bug")));
        }
        if insn.sites.contains(Sites::JUMP_LABEL) && tables.jump_labels.at(insn.addr).is_none() {
            return Err(cannot(Unrelocatable::Table("jump label")));
        }
        if insn.sites.contains(Sites::STATIC_CALL) && tables.static_calls.at(insn.addr).is_none() {
            return Err(cannot(Unrelocatable::Table("static call")));
        }
    }
    Ok(())
}

/// Whether code can run at the spot.
pub(super) fn check_spot(facts: &Facts, spot: Spot) -> Result<(), NoSpot> {
    let f = facts.function;
    if let Spot::Enter(at) = spot {
        return if at == f.entry() {
            Ok(())
        } else {
            Err(NoSpot::NoEdge)
        };
    }
    let index = f.index_at(spot.addr()).ok_or(NoSpot::NoInstruction)?;
    let (Some(insn), Some(fact)) = (facts.insn(index), facts.fact(index)) else {
        return Err(NoSpot::NoInstruction);
    };
    if insn.sites.contains(Sites::FENTRY) {
        // It runs once a call, as all before the first instruction of the version does.
        let entry = f.index_at(f.entry()).unwrap_or(usize::MAX);
        let front = super::entry::first(facts).is_some_and(|first| (entry..first).contains(&index));
        let straight = matches!(spot, Spot::Before(_) | Spot::After(_));
        return match (front, straight) {
            (true, true) => Ok(()),
            (true, false) => Err(NoSpot::NoEdge),
            (false, _) => Err(NoSpot::Fentry),
        };
    }
    let next = |i: usize| {
        facts
            .insn(i + 1)
            .filter(|n| facts.insn(i).is_some_and(|x| x.end() == n.addr))
    };
    match spot {
        Spot::Enter(_) => {}
        Spot::Before(_) => {
            if let Some(odd) = fact.no_snippet {
                return Err(NoSpot::Unsafe(odd));
            }
        }
        Spot::After(_) => {
            let after = next(index).ok_or(NoSpot::NoEdge)?;
            if insn.kind.is_terminal() {
                return Err(NoSpot::NoEdge);
            }
            let shadow = facts.fact(index + 1).and_then(|f| f.no_snippet);
            if let Some(odd) = shadow.filter(|_| waits_at(facts, after.addr)) {
                return Err(NoSpot::Unsafe(odd));
            }
        }
        Spot::Taken(_) => {
            let branches = matches!(
                insn.kind,
                InsnKind::Jcc | InsnKind::Loop | InsnKind::Jmp | InsnKind::JumpLabel
            ) || insn.kind == InsnKind::TailCall;
            if !branches || insn.target.is_none() {
                return Err(NoSpot::NoEdge);
            }
        }
        Spot::Fixup(_) => {
            let block = f.blocks.get(insn.block as usize).ok_or(NoSpot::NoEdge)?;
            let has = f.block_edges(block).iter();
            let ends = block.end == insn.end();
            if !ends || !has.clone().any(|e| e.kind == EdgeKind::Fixup) {
                return Err(NoSpot::NoEdge);
            }
        }
    }
    Ok(())
}

fn waits_at(facts: &Facts, addr: u64) -> bool {
    let Some(bytes) = facts.kernel.bytes(addr, 4).or(facts.kernel.bytes(addr, 1)) else {
        return true;
    };
    waits(&Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE).decode())
}
