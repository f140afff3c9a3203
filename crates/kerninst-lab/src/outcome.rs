//! What became of a guest.

use crate::console::{Crash, tail};
use crate::meter::MeterReport;
use std::time::Duration;

/// Exit status of the lab when the guest was still running at its timeout.
pub const EXIT_TIMEOUT: i32 = 124;
/// Exit status of the lab for an error of the lab itself.
pub const EXIT_LAB: i32 = 125;
/// Exit status of the lab when the guest's kernel crashed.
pub const EXIT_CRASH: i32 = 126;

/// The end of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The command's exit status (128 + N for signal N, as shells say it); `None` if the guest ended before the command.
    pub status: Option<i32>,
    /// The command's standard output. Bytes that are no UTF-8 are replaced.
    pub stdout: String,
    /// The command's standard error.
    pub stderr: String,
    /// Kernel messages.
    pub console: String,
    /// The crash of the guest's kernel, if there was one. An oops counts, even if the command went on and succeeded.
    pub crash: Option<Crash>,
    /// Whether the time ran out.
    pub timed_out: bool,
    /// Kernel warnings (`WARNING: CPU: …`) seen on the console; they do not make a run fail.
    pub warnings: Vec<String>,
    /// What the meter counted, if one was asked for.
    pub meter: Option<MeterReport>,
    /// Whether some output was more than the lab keeps, so that these texts are cut.
    pub truncated: bool,
    /// Host time from start to end; never a measure of the guest.
    pub elapsed: Duration,
}

impl Outcome {
    /// The exit status that stands for the whole run: a crash, then a timeout, then the command's own.
    pub fn exit_code(&self) -> i32 {
        match (&self.crash, self.timed_out, self.status) {
            (Some(_), _, _) => EXIT_CRASH,
            (None, true, _) => EXIT_TIMEOUT,
            (None, false, Some(status)) => status,
            (None, false, None) => EXIT_CRASH,
        }
    }

    /// Whether the command succeeded and the kernel is well.
    pub fn is_success(&self) -> bool {
        self.exit_code() == 0
    }

    /// One sentence about how it ended, with the console's tail where that matters.
    pub fn report(&self) -> String {
        let log = || {
            let log = tail(&self.console, 60);
            if log.is_empty() {
                "The console is empty.".to_string()
            } else {
                format!("The console's last lines:\n{log}")
            }
        };
        match (&self.crash, self.timed_out, self.status) {
            (Some(crash), ..) => format!("{crash}\n{}", log()),
            (None, true, _) => format!(
                "the guest was ended by the timeout after {:.1} s\n{}",
                self.elapsed.as_secs_f64(),
                log()
            ),
            (None, false, Some(status)) => format!("the command ended with status {status}"),
            (None, false, None) => format!("the guest ended without a status\n{}", log()),
        }
    }
}
