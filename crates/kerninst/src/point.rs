//! Points that probes resolve to.

use kerninst_analysis::{ExitKind, Function, Operand};
use kerninst_patch::Spot;

/// One instrumentation point, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Index of its probe in the list that was resolved.
    pub probe: usize,
    /// Id of its function: `name`, `name#2`, `module:name`.
    pub function: String,
    /// Address of the function's entry.
    pub entry: u64,
    /// Where code is inserted: before an instruction, or on an edge of it.
    pub at: Spot,
    /// Address of that instruction.
    pub addr: u64,
    /// What the count of this point means.
    pub kind: PointKind,
    /// Other instructions of the same straight line that are executed exactly as often, in order of preference:
    /// used where `addr` itself cannot be instrumented.
    pub candidates: Vec<u64>,
}

/// What a point's count means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointKind {
    /// Executions of the instruction.
    Insn,
    /// Calls of the function.
    Entry,
    /// Departures of this kind.
    Exit(ExitKind),
    /// Executions of the block of this number.
    Block(u32),
    /// Passages from one block to another.
    Edge(u32, u32),
    /// Calls.
    Call(Callee),
}

/// Whom a call calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// The function at this address (of a static call: the one that it leads to now).
    Direct(u64),
    /// Whatever the operand says when it is executed.
    Indirect(Operand),
}

impl Point {
    /// The point before the instruction at `addr` of `function`.
    pub fn insn(probe: usize, function: &Function, addr: u64) -> Point {
        Point {
            probe,
            function: function.id.clone(),
            entry: function.entry(),
            at: Spot::Before(addr),
            addr,
            kind: PointKind::Insn,
            candidates: Vec::new(),
        }
    }

    /// Takes the next of the equal instructions, where one is left.
    pub(crate) fn move_to_candidate(&mut self) {
        if !self.candidates.is_empty() {
            self.addr = self.candidates.remove(0);
            self.at = Spot::Before(self.addr);
        }
    }

    /// `vfs_read+0x1c`, the way kernel logs print an address.
    pub fn label(&self) -> String {
        label(&self.function, self.entry, self.addr)
    }
}

/// `function+0xoffset`; an address in a `.cold` part may lie before the entry.
pub(crate) fn label(function: &str, entry: u64, addr: u64) -> String {
    match addr.checked_sub(entry) {
        Some(0) => function.to_string(),
        Some(offset) => format!("{function}+{offset:#x}"),
        None => format!("{function}-{:#x}", entry - addr),
    }
}
