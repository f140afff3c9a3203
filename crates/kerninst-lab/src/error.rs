//! What can go wrong in the lab itself. A guest that crashes is no error: it is an [`crate::Outcome`].

use std::path::PathBuf;

/// An error of the lab. Each message says whose fault it is and what would work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory of this machine could not be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried, a verb: "read", "create", …
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A system call that names no file failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A program that the lab needs is not installed.
    #[error("{program} is not installed: {remedy}")]
    Missing {
        /// The program's name.
        program: String,
        /// What would install it.
        remedy: &'static str,
    },
    /// A program ran and failed.
    #[error("{program} failed ({status}){}", tail(.stderr))]
    Program {
        /// The program with its arguments.
        program: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// What it said on standard error.
        stderr: String,
    },
    /// The user named a kernel that the lab does not know.
    #[error(
        "no kernel is called \"{0}\": use one of {names}, or the path of a vmlinuz (it must contain a '/')",
        names = crate::fetch::NAMES.join(", ")
    )]
    UnknownKernel(String),
    /// No package of the wanted kernel is to be had from this machine's package sources.
    #[error(
        "no package {pattern} in this machine's apt sources (tried after apt-get update: {updated}); \
         add a source that has it (for Debian 12: bookworm, bookworm-backports), or give a kernel by path: \
         --kernel PATH-TO-VMLINUZ --modules DIR"
    )]
    NoPackage {
        /// The pattern that was searched for.
        pattern: String,
        /// Whether the lists were refreshed in this run.
        updated: bool,
    },
    /// The fetched package or the given path is not a usable kernel.
    #[error("not a usable kernel: {0}")]
    BadKernel(String),
    /// A kernel module was asked for that the kernel's module directory lacks.
    #[error("kernel {release} has no module \"{module}\"{hint}")]
    NoModule {
        /// The kernel's release.
        release: String,
        /// The module asked for, or one that it depends on.
        module: String,
        /// What may be wrong.
        hint: String,
    },
    /// A file given for the guest cannot be used there.
    #[error("{0}")]
    BadFile(String),
    /// The wanted combination cannot work.
    #[error("{0}")]
    Unsupported(String),
    /// QEMU ended before the guest's kernel said anything.
    #[error("QEMU did not start the guest ({status}){}", tail(.stderr))]
    Qemu {
        /// QEMU's exit status.
        status: std::process::ExitStatus,
        /// QEMU's own messages.
        stderr: String,
    },
    /// The run was interrupted (Ctrl-C, SIGTERM) before the guest was done.
    #[error("interrupted; the guest was ended")]
    Interrupted,
    /// The guest ended (or was ended) while the caller still wanted to use it.
    #[error("the guest is gone: {0}")]
    GuestGone(String),
}

fn tail(stderr: &str) -> String {
    let text = stderr.trim();
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}

/// Shorthand for results of the lab.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds "what" and "which file" to an I/O error.
pub(crate) trait At<T> {
    fn at(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(|e| Error::Io {
            what,
            path: path.into(),
            source: e.into(),
        })
    }
}

/// Adds "what" to an error of a system call that names no file.
pub(crate) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: &'static str) -> Result<T> {
        self.map_err(|e| Error::System {
            what,
            source: e.into(),
        })
    }
}
