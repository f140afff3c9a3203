//! A booted guest that takes commands one after the other.

use crate::error::{Error, Result};
use crate::lab::Started;
use crate::machine::{End, Word};
use crate::outcome::Outcome;
use crate::port::PortName;
use std::time::{Duration, Instant};

/// A guest that is up. Dropping it ends it.
pub struct Guest {
    started: Started,
    deadline: Instant,
    next: u64,
    release: String,
}

/// What one command in a [`Guest`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// Its exit status (128 + N for signal N).
    pub status: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// How a command in a [`Guest`] can fail to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The kernel crashed or the guest went away; what is left of it.
    #[error("{}", .0.report())]
    Crashed(Box<Outcome>),
    /// The lab itself failed.
    #[error(transparent)]
    Lab(#[from] Error),
}

impl Guest {
    pub(crate) fn boot(mut started: Started, timeout: Duration) -> Result<Guest> {
        let deadline = started.since + timeout;
        let release = loop {
            if let Some(end) = started.machine.step(deadline, None, &mut |_, _| {})? {
                let outcome = started.outcome(end)?;
                return Err(Error::GuestGone(format!(
                    "it did not boot: {}",
                    outcome.report()
                )));
            }
            match started.machine.word() {
                Some(Word::Ready(release)) => break release,
                Some(Word::ModuleFailed(path)) => {
                    return Err(Error::BadKernel(format!(
                        "the guest's kernel refused the module {path}"
                    )));
                }
                _ => {}
            }
        };
        Ok(Guest {
            started,
            deadline,
            next: 0,
            release,
        })
    }

    /// The running kernel's release.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Sets how long the guest may go on living from now.
    pub fn extend(&mut self, time: Duration) {
        self.deadline = Instant::now() + time;
    }

    /// Runs a line (or a script) of shell and waits for its end, at most until the guest's deadline. A crash of the
    /// kernel, even one that the command survives, is an error that carries the outcome.
    pub fn exec(&mut self, script: &str) -> std::result::Result<Executed, ExecError> {
        let number = self.next;
        self.next += 1;
        let machine = &mut self.started.machine;
        let from = |log: Option<&Vec<u8>>| log.map_or(0, Vec::len);
        let out = from(machine.logs.get(PortName::Out as usize));
        let err = from(machine.logs.get(PortName::Err as usize));
        machine.send(
            PortName::Control,
            format!("{number} {}\n", base64(script.as_bytes())).as_bytes(),
        );
        let end = loop {
            let end = machine.step(self.deadline, None, &mut |_, _| {})?;
            while let Some(word) = machine.word() {
                let Word::Done(n, status) = word else {
                    continue;
                };
                if n != number || machine.crash().is_some() {
                    continue;
                }
                let text = |port: PortName, from: usize| {
                    let log = machine
                        .logs
                        .get(port as usize)
                        .and_then(|log| log.get(from..));
                    String::from_utf8_lossy(log.unwrap_or_default()).into_owned()
                };
                return Ok(Executed {
                    status,
                    stdout: text(PortName::Out, out),
                    stderr: text(PortName::Err, err),
                });
            }
            if let Some(end) = end {
                break end;
            }
        };
        Err(self.post_mortem(end)?)
    }

    /// Powers the guest off and returns what became of it.
    pub fn stop(mut self) -> Result<Outcome> {
        self.started.machine.send(PortName::Control, b"stop\n");
        let end = loop {
            if let Some(end) = self
                .started
                .machine
                .step(self.deadline, None, &mut |_, _| {})?
            {
                break end;
            }
        };
        self.started.outcome(end)
    }

    fn post_mortem(&mut self, end: End) -> Result<ExecError> {
        let outcome = self.started.outcome_so_far(end)?;
        Ok(ExecError::Crashed(Box::new(outcome)))
    }
}

fn base64(data: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(data.len().div_ceil(3) * 4);
    for chunk in data.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = (word >> (18 - 6 * digit)) & 63;
            let used = digit <= chunk.len();
            let symbol = DIGITS.get(value as usize).copied().unwrap_or(b'=');
            out.push(char::from(if used { symbol } else { b'=' }));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_as_in_rfc_4648() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
