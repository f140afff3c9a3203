//! Where exactly a snippet runs: before an instruction, or on one edge of the control flow.

use std::fmt;

/// A place where a snippet runs. Addresses are those of instructions of the original function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spot {
    /// The function is entered by a call (or tail call) of its entry, at this address. Not by a branch of its own that
    /// leads back to its first instruction.
    Enter(u64),
    /// Before the instruction, however it is reached.
    Before(u64),
    /// After the instruction, when control goes on to the next one: a conditional branch that is not taken, the nop side
    /// of a static key, a call that returns, a `WARN` that is resumed, or plain fall-through.
    After(u64),
    /// The branch is taken: the target side of a conditional or unconditional jump or of a static key.
    Taken(u64),
    /// The instruction faults and its exception table entry sends control to the fixup.
    Fixup(u64),
}

impl Spot {
    /// The instruction that it is named by.
    pub fn addr(self) -> u64 {
        match self {
            Spot::Enter(a) | Spot::Before(a) | Spot::After(a) | Spot::Taken(a) | Spot::Fixup(a) => {
                a
            }
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Spot::Enter(_) => "entry at",
            Spot::Before(_) => "before",
            Spot::After(_) => "after",
            Spot::Taken(_) => "taken branch of",
            Spot::Fixup(_) => "fault at",
        };
        write!(f, "{word} {:#x}", self.addr())
    }
}
