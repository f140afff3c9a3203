//! What can go wrong while reading a kernel, and whose fault it is.

use std::path::PathBuf;

/// Why a kernel could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused an operation on a file.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Addresses are hidden from this user: `kernel.kptr_restrict`, or no root.
    #[error(
        "the kernel hides its addresses: /proc/kallsyms shows only zeroes; run as root (and with kernel.kptr_restrict below 2)"
    )]
    AddressesHidden,
    /// Something that a running kernel should offer is not there.
    #[error("this kernel cannot be read: {0}")]
    Unsupported(String),
    /// The file is not a kernel or module that this crate knows.
    #[error("{}: not a kernel image, vmlinux or module: {reason}", path.display())]
    NotAKernel {
        /// The file.
        path: PathBuf,
        /// What was looked for and not found.
        reason: String,
    },
    /// The file or memory is of a known kind, but damaged.
    #[error("{what} is damaged: {reason}")]
    Corrupt {
        /// Which file or table.
        what: String,
        /// What was found.
        reason: String,
    },
    /// No memory is mapped (or stored) there.
    #[error("no kernel memory at {addr:#x}..+{len:#x}")]
    Unmapped {
        /// First address asked for.
        addr: u64,
        /// Bytes asked for.
        len: usize,
    },
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Error::Io {
            path: path.into(),
            source,
        }
    }
    pub(crate) fn corrupt(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Corrupt {
            what: what.into(),
            reason: reason.into(),
        }
    }
}
