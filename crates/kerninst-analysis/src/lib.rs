//! Functions, control flow, live registers and flags, and the call graph of kernel text.
//!
//! Pure: bytes and tables in (a [`kerninst_kernel::Kernel`]), values out. No I/O, no clock, and no
//! panic on any input. Functions are analysed on demand and cached.

mod analysis;
mod calls;
mod function;
mod graph;
mod live;

pub use analysis::{Analysis, Totals};
pub use calls::{Call, CallGraph};
pub use function::{
    Block, CallSite, Edge, EdgeKind, EdgeTarget, Exit, ExitKind, Function, FunctionId, Incomplete,
    Insn, InsnKind, Sites,
};
pub use graph::{Dominators, Loop};
pub use live::{Live, REG_NAMES};
