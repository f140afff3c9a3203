//! What users see: values, `printf`, maps and losses, as text that looks like bpftrace's and as JSON lines that have its shape.

mod buckets;
pub mod json;
mod losses;
mod map;
mod order;
mod printf;
mod stack;
mod text;

pub use losses::losses_text;
pub use map::map_text;
pub use printf::printf;
pub use text::value_text;

/// What printing needs to know of the kernel and the session.
pub trait Names {
    /// The kernel's symbol that an address is in: its name, and how many bytes after its start.
    fn symbol(&self, address: u64) -> Option<(String, u64)>;

    /// The addresses of a captured stack of the kernel, innermost first.
    fn kernel_stack(&self, id: u64) -> Option<Vec<u64>>;

    /// The addresses of a captured stack of user space, innermost first.
    fn user_stack(&self, id: u64, pid: u64) -> Option<Vec<u64>>;

    /// Text for an address of a process; `None`: the address is shown.
    fn user_symbol(&self, pid: u64, address: u64) -> Option<String>;

    /// The session's name of this number (`func`, `probe`).
    fn name(&self, index: u32) -> Option<String>;
}

/// An address of kernel code as kerninst writes points: `vfs_read+0x10`.
fn symbol_text(address: u64, names: &dyn Names) -> String {
    match names.symbol(address) {
        Some((name, 0)) => name,
        Some((name, offset)) => format!("{name}+{offset:#x}"),
        None => format!("{address:#x}"),
    }
}

#[cfg(test)]
mod any;
#[cfg(test)]
mod testing;
