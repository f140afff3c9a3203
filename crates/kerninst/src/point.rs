//! Points that probes resolve to.

use kerninst_analysis::ExitKind;

/// One instrumentation point, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Index of its probe in the list that was resolved.
    pub probe: usize,
    /// Id of its function: `name`, `name#2`, `module:name`.
    pub function: String,
    /// Address of the function's entry.
    pub entry: u64,
    /// The instruction before which code is inserted. For a block, the first candidate of `candidates`.
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
}

impl Point {
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
