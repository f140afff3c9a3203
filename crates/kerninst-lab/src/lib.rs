//! Stock distribution kernels in QEMU: fetch one, boot it, run a command in it, learn what became of it.
//!
//! ```no_run
//! use kerninst_lab::Lab;
//! let outcome = Lab::named("6.12")?.smp(2).run("uname -r")?;
//! assert!(outcome.is_success(), "{}", outcome.report());
//! # Ok::<(), kerninst_lab::Error>(())
//! ```
//!
//! **The guest.** An unmodified kernel package, KASLR on, with an initramfs that the lab makes: busybox, the files asked
//! for, the kernel modules asked for with what they depend on, and an `/init` (`init.sh`) that mounts the usual
//! file systems, brings the loopback interface up, runs the command and powers off.
//!
//! **Four serial ports** keep apart what must not be mixed: ttyS0 the kernel's messages, ttyS1 the command's output, ttyS2
//! its errors, ttyS3 the lab's own words (`ready`, `exit N`). So the exit status is never guessed from output, and a crash
//! is read only from kernel messages.
//!
//! **Everything ends.** Each guest has a deadline; QEMU is killed when its owner is dropped, and by the kernel when this
//! process dies. A crash of the guest is an [`Outcome`], not an error, and wins over the command's own status.
//!
//! **Determinism.** With [`Lab::deterministic`] the guest's time is its instruction count, its randomness comes from a
//! seed and its initramfs is byte-identical: the same run executes the same instructions.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]

mod accel;
mod cache;
pub mod cli;
mod console;
mod cpio;
mod error;
pub mod fetch;
mod guest;
mod initramfs;
mod kernel;
mod lab;
mod machine;
mod meter;
mod modules;
mod outcome;
mod port;
mod program;
mod qemu;
mod shell;

pub use accel::Accel;
pub use cache::{CACHE_VARIABLE, Cache, workspace_root};
pub use console::{Crash, CrashKind, crash_in, is_warning, tail};
pub use cpio::Archive;
pub use error::{Error, Result};
pub use guest::{ExecError, Executed, Guest};
pub use initramfs::{GuestFile, interpreter};
pub use kernel::KernelImage;
pub use lab::Lab;
pub use machine::Sink;
pub use meter::{Histogram, Meter, MeterReport, RangeCount, Region, Row, Samples, Summary};
pub use modules::{GuestModule, ModuleIndex};
pub use outcome::{EXIT_CRASH, EXIT_LAB, EXIT_TIMEOUT, Outcome};
pub use port::PortName;
pub use qemu::{Hardware, QEMU_VARIABLE};

/// Whether this process may install packages.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
