//! Why a point cannot be instrumented.

use std::fmt;

use kerninst_analysis::Incomplete;
use kerninst_kernel::OffLimit;

use crate::{NoSpot, Odd, Spot, Unrelocatable};

/// A site that the kernel itself rewrites while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ManagedSite {
    /// A static key's nop or jump.
    JumpLabel,
    /// A static call.
    StaticCall,
    /// An alternative or paravirt site of an image that has not booted: its code is not yet final.
    Alternative,
}

impl fmt::Display for ManagedSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ManagedSite::JumpLabel => {
                "a static key branch, which the kernel rewrites whenever the key changes"
            }
            ManagedSite::StaticCall => {
                "a static call site, which the kernel rewrites whenever the call is updated"
            }
            ManagedSite::Alternative => {
                "an alternative that is only decided at boot (this is a file, not a live kernel)"
            }
        })
    }
}

/// The reason why a point cannot be instrumented. `Display` gives a sentence without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No known function has this address.
    #[error("no kernel function is at {addr:#x}")]
    NoFunction {
        /// The address.
        addr: u64,
    },
    /// The address lies inside an instruction.
    #[error(
        "{addr:#x} lies inside the instruction at {inside:#x}; the next one starts at {next:#x}"
    )]
    NotAnInstruction {
        /// The address.
        addr: u64,
        /// Start of the instruction that covers it.
        inside: u64,
        /// Start of the instruction before that one, if any.
        prev: Option<u64>,
        /// The byte after the covering instruction.
        next: u64,
    },
    /// Control never reaches the address: padding, or dead code.
    #[error("control never reaches {addr:#x} (padding or dead code)")]
    Unreached {
        /// The address.
        addr: u64,
    },
    /// Text that must not be touched.
    #[error("{0}: must not be instrumented")]
    OffLimits(OffLimit),
    /// The function's fentry site, which ftrace owns.
    #[error(
        "this is the function's fentry site, which ftrace owns; use the next instruction, at {next:#x}"
    )]
    Fentry {
        /// The next instruction.
        next: u64,
    },
    /// A site that the kernel rewrites, and no earlier instruction can carry the splice.
    #[error("this is {0}, and no instruction before it in a straight line can carry the splice")]
    ManagedSite(ManagedSite),
    /// The function's control flow is not fully known.
    #[error("the function's control flow is not fully known: {0}")]
    Incomplete(Incomplete),
    /// The instruction cannot run at another address, and no earlier instruction can carry the splice.
    #[error(
        "the instruction cannot be moved ({0}), and no instruction before it in a straight line can carry the splice"
    )]
    Unrelocatable(Unrelocatable),
    /// Inserted code must not run here.
    #[error("no code may run here: {0}")]
    Unsafe(Odd),
    /// Bytes at the site belong to another splice that is armed or planned.
    #[error("the bytes at {addr:#x} belong to another splice")]
    Taken {
        /// First byte concerned.
        addr: u64,
    },
    /// The instruction has no such edge: it does not branch, or never goes on, or never faults.
    #[error("there is no such edge: {0}")]
    NoSuchEdge(Spot),
    /// A splice cannot tell this edge from other ways to the same place.
    #[error(
        "a splice cannot count this edge ({0}): only an instrumented version of the function can"
    )]
    NeedsVersion(Spot),
    /// No code can run at this spot of a version.
    #[error(transparent)]
    Spot(NoSpot),
    /// None of the tactics that the caller allows works.
    #[error("none of the allowed tactics works here")]
    NoTactic,
}

/// A point that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What was asked for.
    pub at: Spot,
    /// Why not.
    pub why: Refusal,
    /// The nearest instruction of the same function that can be instrumented, if there is one.
    pub nearest: Option<u64>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Spot::Before(addr) => write!(f, "{addr:#x}: {}", self.why)?,
            // These name it themselves.
            _ if matches!(self.why, Refusal::NoSuchEdge(_) | Refusal::NeedsVersion(_)) => {
                write!(f, "{}", self.why)?;
            }
            at => write!(f, "{at}: {}", self.why)?,
        }
        if let Some(n) = self.nearest {
            write!(f, "; the nearest instruction that works is at {n:#x}")?;
        }
        Ok(())
    }
}
