//! Functions, control flow, live registers and flags, and the call graph of kernel text.
//!
//! Pure: bytes and tables in (a [`kerninst_kernel::Kernel`]), values out. No I/O, no clock, and no
//! panic on any input. Functions are analysed on demand and cached.

mod alternatives;
mod analysis;
mod build;
mod callee;
mod calls;
mod cross;
mod decode;
mod describe;
mod flow;
mod function;
mod graph;
mod hash;
mod incoming;
mod index;
mod jumps;
mod live;
mod liveness;
mod masks;
mod names;
mod near;
mod node;
mod operand;
mod padding;
mod reach;
mod shared;
mod sites;

pub use analysis::{Analysis, Totals};
pub use calls::{Call, CallGraph};
pub use function::{
    Block, CallSite, Edge, EdgeKind, EdgeTarget, Exit, ExitKind, Function, FunctionId, Incomplete,
    Insn, InsnKind, Shape, Sites,
};
pub use graph::{Dominators, Loop};
pub use live::{Live, REG_NAMES};
pub use operand::Operand;
