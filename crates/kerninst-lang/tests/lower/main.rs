//! Lowered programs under the interpreter, on a machine of several CPUs where anything may come between any two steps, and what
//! the readers find in memory afterwards, or meanwhile.

mod aggregates;
mod events;
mod golden;
mod hir;
#[path = "../checker/kernel.rs"]
mod kernel;
mod plain;
mod scripts;
mod sim;
mod strange;
mod user;
mod valid;
mod values;
