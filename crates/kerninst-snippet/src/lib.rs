//! What is inserted, and its machine code; pure.
//!
//! A [`Snippet`] says what a user wants done before an instruction. [`compile`] turns the snippets of one
//! point into machine code for what is free there ([`Free`]: dead registers and flags, from the analysis).
//! The code is position independent, changes nothing that is live, and takes no lock. Only programs call something: functions
//! that were made for it ([`ir::Op::Call`]).
//!
//! Exactness: a counter is changed by ONE instruction that both reads and writes this CPU's slot
//! (`incq %gs:slot`). An interrupt, an NMI, preemption or migration falls before or after it, never in the
//! middle, so no count can be lost and no `lock` prefix is needed.

mod alloc;
mod asm;
mod compile;
mod encode;
pub mod eval;
mod free;
mod insns;
pub mod ir;
mod ir_text;
mod operands;
mod optimise;
mod program;
mod ranges;
mod saved;
mod select;
mod validate;

use std::sync::Arc;

pub use compile::{CallSite, Code, FaultSite, Features, HitSite, StackStep, compile};
pub use free::{Flags, Free, Reg};
pub use optimise::optimise;

/// What to do before an instruction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Snippet {
    /// Add one to a 64-bit per-CPU counter.
    Count {
        /// The value of the per-CPU pointer as the kernel's allocator returned it (`alloc_percpu`): this CPU's
        /// counter is the quadword at `gs:percpu`. Dynamic per-CPU pointers may lie anywhere in the 64-bit space.
        percpu: u64,
    },
    /// Set a byte to 1: one instruction that needs no register and no flags.
    Hit {
        /// Number of the byte, from 0, in memory within reach of the code (see [`HitSite`]).
        flag: u32,
    },
    /// Run a program. It must be valid ([`ir::validate`]): of what is not, nothing is inserted.
    Program(Arc<ir::Program>),
}

impl Snippet {
    /// Registers of the interrupted code that it reads, as bits by hardware number: see [`Free::without`].
    pub fn reads(&self) -> u16 {
        match self {
            Snippet::Program(p) => p.reads(),
            _ => 0,
        }
    }

    /// Registers of the interrupted code that it gives another value.
    fn sets(&self) -> u16 {
        match self {
            Snippet::Program(p) => p.sets(),
            _ => 0,
        }
    }

    /// Whether it may go on elsewhere than at the point ([`ir::Op::Leave`]). Then nothing is free for any snippet of the function:
    /// what the analysis calls dead may be live there.
    pub fn leaves(&self) -> bool {
        match self {
            Snippet::Program(p) => p.leaves(),
            _ => false,
        }
    }
}
