//! Clauses that run in user space: `BEGIN`, `END`, `interval:`.
//!
//! Their arithmetic is that of the generated code, to the bit: what a probe computes does not change when it moves into `END`.

mod aggregate;
mod allowed;
mod arith;
mod run;
#[cfg(test)]
mod tests;

pub use aggregate::{empty, merge, update};
pub use allowed::allowed;
pub use run::{Ended, RunError, run};

use crate::hir::Builtin;
use crate::layout::What;
use crate::value::{Cell, Value};

/// Most statements and rounds of loops that one run of a clause may take.
pub const MAX_STEPS: u32 = 10_000_000;

/// What clauses act on.
pub trait World {
    /// Why something could not be done.
    type Error: std::error::Error;

    /// One of `pid`, `tid`, `cpu`, `comm`, `nsecs`, `elapsed`: of kerninst itself. (No others are asked for: see [`allowed`].)
    fn builtin(&mut self, which: Builtin) -> Value;

    /// What a map holds; `None`: no entry.
    fn get(&mut self, map: u32, key: &[Value]) -> Option<Cell>;

    /// `@x[k] = e`, of a plain map.
    fn set(&mut self, map: u32, key: Vec<Value>, value: Value) -> Result<(), Self::Error>;

    /// `@x[k] = count()` and so on, with its argument (none of `count`), of a map that is not plain. Only probes write the kernel's cells: what
    /// comes from here is kept beside them and added when they are read ([`update`], [`merge`]).
    fn update(&mut self, map: u32, key: Vec<Value>, value: Value) -> Result<(), Self::Error>;

    /// `delete(@x[k])`.
    fn delete(&mut self, map: u32, key: &[Value]) -> Result<(), Self::Error>;

    /// Does what an event of a probe would ask for.
    fn act(&mut self, what: &What, values: Vec<Value>) -> Result<(), Self::Error>;
}
