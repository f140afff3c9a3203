//! What is inserted, and its machine code; pure.
//!
//! A [`Snippet`] says what a user wants done before an instruction. [`compile`] turns the snippets of one
//! point into machine code for what is free there ([`Free`]: dead registers and flags, from the analysis).
//! The code is position independent, changes nothing that is live, calls nothing and takes no lock.
//!
//! Exactness: a counter is changed by ONE instruction that both reads and writes this CPU's slot
//! (`incq %gs:slot`). An interrupt, an NMI, preemption or migration falls before or after it, never in the
//! middle, so no count can be lost and no `lock` prefix is needed.

mod compile;
mod encode;
mod free;

pub use compile::{Code, Features, StackStep, compile};
pub use free::{Flags, Free, Reg};

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
}
