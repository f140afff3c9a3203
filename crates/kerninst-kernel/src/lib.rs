//! The kernel as it is: symbols, text, BTF and site tables, read and never written.
//!
//! One [`Kernel`] value is a picture of either the running kernel ([`Kernel::live`]) or of a
//! file ([`Kernel::from_file`]: a bzImage such as `/boot/vmlinuz-*`, a `vmlinux`, a module). The
//! rest of kerninst sees no difference, so everything up to a finished patch module can be run
//! and tested on any machine, without root.
//!
//! Live text is the truth, never the file: alternatives, static keys, static calls, return
//! thunks and ENDBR sealing change text at boot and later.

mod btf;
mod bytes;
mod error;
mod exports;
mod fentry;
mod file;
mod glob;
mod kallsyms;
mod kernel;
mod live;
mod memory;
mod modules;
mod off_limits;
mod pointers;
mod symbol_name;
mod symbols;
mod table;
mod tables;
mod text;

pub use btf::{
    Btf, BtfError, Function as BtfFunction, Integer as BtfInteger, Kind as BtfKind, Member, Param,
};
pub use error::Error;
pub use glob::glob_match;
pub use kernel::{Kernel, KernelBuilder};
pub use live::read_memory;
pub use memory::Memory;
pub use modules::{Module, ModuleState, Section};
pub use off_limits::{OffLimit, OffLimitRange, OffLimits};
pub use symbol_name::{Derived, base_name, derived};
pub use symbols::{Symbol, SymbolKind, Symbols, SymbolsBuilder};
pub use table::{Entry, Table};
pub use tables::{
    Alternative, Alternatives, BugEntry, BugTable, CallSites, EndbrSeals, ExEntry, ExTable, Fentry,
    JumpLabel, JumpLabels, Missing, Orc, OrcEntry, Paravirt, ParavirtSite, Retpolines, Returns,
    Site, SmpLocks, StaticCall, StaticCalls, Tables,
};
pub use text::Text;
