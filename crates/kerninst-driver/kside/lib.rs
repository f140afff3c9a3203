// SPDX-License-Identifier: GPL-2.0
//! The kernel side of kerninst: `/dev/kerninst`. It writes kernel text when told so, keeps what it overwrote,
//! and puts everything back when the file is closed, however its owner ended.
//!
//! It parses nothing and decides nothing: user space plans, this module executes, checks and undoes. No code
//! of it runs in a probe's path but the `int3` redirection (`trap.rs`), which takes no lock and calls nothing.
//!
//! Compiled by `build.rs` with stable rustc for the kernel's code model; no function of `core` that is not
//! inlined may be used (there is nothing to link against), hence raw pointers in place of slices: an index check
//! would call the panic machinery.

#![no_std]
#![allow(clippy::missing_safety_doc)] // every function here is called by the kernel or by this crate only

#[path = "../src/abi.rs"]
mod abi;
mod batch;
mod counters;
mod device;
mod kernel;
mod module;
mod poke;
mod scan;
mod trap;

/// Never reached: nothing in this crate can panic, which a test of the object's symbols proves.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
