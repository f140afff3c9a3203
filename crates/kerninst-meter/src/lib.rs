//! A TCG plugin for QEMU that counts guest instructions exactly: by region, by address range, per event, and for every
//! kernel instruction that was executed.
//!
//! ```text
//! qemu-system-x86_64 … -plugin libkerninst_meter.so,out=FILE
//! ```
//!
//! **Markers.** The guest steers it by marker instructions ([`marker`]): a long NOP with a 16-bit payload, one instruction,
//! no trap, in user or kernel code, harmless where there is no plugin. Until the first `arm` marker the plugin adds nothing
//! to the guest's code but the search for markers, so that a boot costs nothing.
//!
//! **What is counted.** Each instruction is counted as it starts to execute (one that faults and is retried counts twice:
//! it started twice). Kernel and user are told apart by address. Iterations of `rep` string instructions are counted apart,
//! since QEMU executes each as an instruction of its own. A region counts what all CPUs executed between its `begin` and
//! its `end`, without the markers themselves.
//!
//! **The histogram** has one row for each kernel address *and* machine code there: an instruction that was overwritten (by
//! a splice, by the kernel's own patching) and what replaced it have separate counts. So the number of executions of a
//! splice is known for exactly the time that it was in place.
//!
//! **Exact when.** Counters are shared by the virtual CPUs and updated without locked instructions: exact with one CPU, or
//! with `-accel tcg,thread=single`, which the lab always uses for several.
//!
//! **Output**: JSON lines, see [`report`]; histograms in files of their own, `FILE.hist.ID`.
//!
//! Plugin API version 1 of QEMU 6 to 8, no dependency, all `unsafe` in `ffi.rs`.

#![forbid(unsafe_op_in_unsafe_fn)]
#![warn(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    // Without `ffi.rs` nothing calls what only it uses.
    allow(clippy::unwrap_used, clippy::indexing_slicing, dead_code)
)]

mod counter;
// Calls functions that only QEMU has: unit tests are linked without it.
#[cfg(not(test))]
mod ffi;
pub mod marker;
pub mod report;
mod samples;
mod state;
