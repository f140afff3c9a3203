// SPDX-License-Identifier: GPL-2.0
//! The kernel side of kerninst: `/dev/kerninst`. It writes kernel text when told so, keeps what it overwrote,
//! and puts everything back when the file is closed, however its owner ended.
//!
//! It parses nothing and decides nothing: user space plans, this module executes, checks and undoes. Of its code only
//! this runs in a probe's path: the `int3` redirection (`trap.rs`), which takes no lock and calls nothing, and the callouts
//! (`callouts.rs`, `bpf.rs`), which call only what the kernel itself calls in NMIs, and BPF programs that its verifier let pass.
//!
//! Compiled by `build.rs` with stable rustc for the kernel's code model; no function of `core` that is not
//! inlined may be used (there is nothing to link against), hence raw pointers in place of slices: an index check
//! would call the panic machinery.

#![no_std]
#![allow(clippy::missing_safety_doc)] // every function here is called by the kernel or by this crate only

#[path = "../src/abi.rs"]
mod abi;
mod areas;
mod batch;
mod bpf;
mod callouts;
mod counters;
mod device;
mod guard;
mod kernel;
mod migrate;
mod module;
mod owned;
mod poke;
mod scan;
#[path = "../src/stack_table.rs"]
mod stack_table;
mod trap;

/// Never reached: nothing in this crate can panic, which a test of the object's symbols proves.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
