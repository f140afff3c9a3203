//! How a verb ends other than well, and the exit code for each.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Exit code: all is well.
pub const OK: u8 = 0;
/// Exit code: nothing matched.
pub const NOTHING: u8 = 1;
/// Exit code: an error.
pub const ERROR: u8 = 2;
/// Exit code: data is incomplete, and `--strict` was given.
pub const INCOMPLETE: u8 = 3;
/// Exit code: interrupted twice (128 + SIGINT, as shells have it).
pub const INTERRUPTED: u8 = 130;

/// Why a verb did not do all that was asked. `Display` is one plain sentence, without the prefix `kerninst: `.
#[derive(Debug, thiserror::Error)]
pub enum Fail {
    /// No function, symbol or point matched what was asked.
    #[error("{0}")]
    Nothing(String),
    /// A wrong request, or something that does not work here.
    #[error("{0}")]
    Error(String),
    /// Some data is missing and `--strict` was given.
    #[error("{0}")]
    Incomplete(String),
    /// The user pressed Ctrl-C a second time: no more output is wanted.
    #[error("interrupted")]
    Interrupted,
    /// All went well, but the command that we ran did not: its status is passed on.
    #[error("the command ended with {0}")]
    Command(ExitStatus),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl Fail {
    /// An error with this message.
    pub fn error(message: impl Into<String>) -> Fail {
        Fail::Error(message.into())
    }

    /// The reader of our output has gone (`kerninst list | head`): as Unix has it, no error at all.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Fail::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Is there nothing to say about it?
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.is_broken_pipe() || matches!(self, Fail::Interrupted)
    }

    /// The exit code.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            _ if self.is_broken_pipe() => OK,
            Fail::Nothing(_) => NOTHING,
            Fail::Error(_) | Fail::Output(_) => ERROR,
            Fail::Incomplete(_) => INCOMPLETE,
            Fail::Interrupted => INTERRUPTED,
            // As shells have it. A status that is none is no success either.
            Fail::Command(status) => status
                .code()
                .or(status.signal().map(|n| 128 + n))
                .and_then(|n| u8::try_from(n).ok())
                .unwrap_or(ERROR),
        }
    }
}

impl From<kerninst_kernel::Error> for Fail {
    fn from(e: kerninst_kernel::Error) -> Fail {
        Fail::Error(e.to_string())
    }
}

impl From<serde_json::Error> for Fail {
    fn from(e: serde_json::Error) -> Fail {
        Fail::Output(e.into())
    }
}
