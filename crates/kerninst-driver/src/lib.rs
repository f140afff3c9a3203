//! The kernel side, its loading without headers, and the only writer of kernel text.
//!
//! - `kside/` is the kernel module's source (GPL-2.0), compiled by `build.rs` and embedded.
//! - [`complete`] makes it loadable into the running kernel; [`Driver::load`] does that.
//! - [`Device`] is the open `/dev/kerninst`. Ownership is armed state: dropping it (or dying) disarms.
//! - [`Device::prove_clear`] shows that no task is in a range of code, so that it can be freed or rewritten.
//!
//! Everything here needs root, and nothing here analyses code: sites come in with the bytes to expect.

pub mod abi;
mod area;
mod clear;
mod complete;
mod device;
mod load;
mod modules;
mod needs;
#[cfg(test)]
mod object_tests;
pub mod stack_table;
mod stacks;
mod sys;

pub use area::Area;
pub use clear::{Blocker, NotClear};
pub use complete::{CompleteError, DRIVER_NAME, complete, modinfo};
pub use device::{
    BatchId, CounterArea, Device, DeviceError, Migrated, PokeError, RestoreReport, Why,
};
pub use load::{Driver, LoadError};
pub use modules::{
    ModuleError, PatchText, is_loaded, load_patch_module, module_section, returns,
    unload_patch_module,
};
pub use needs::{cpu_number, current_task};
pub use stacks::{Stacks, StacksError};
