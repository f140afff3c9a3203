//! An interactive shell in a guest, on this terminal.

use crate::error::{Doing, Result};
use crate::initramfs::Task;
use crate::lab::Lab;
use crate::outcome::Outcome;
use crate::port::PortName;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::Write;

/// Ctrl-], as in telnet: ends the guest.
const ESCAPE: u8 = 0x1d;

/// The terminal's settings, put back when dropped.
struct Raw {
    saved: Termios,
}

impl Raw {
    fn enter() -> Result<Option<Raw>> {
        let stdin = rustix::stdio::stdin();
        if !isatty(stdin) {
            return Ok(None);
        }
        let saved = tcgetattr(stdin).doing("read the terminal's settings")?;
        let mut raw = saved.clone();
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Now, &raw).doing("set the terminal")?;
        Ok(Some(Raw { saved }))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.saved);
    }
}

impl Lab {
    /// Boots and connects this process's terminal to a shell in the guest, until the shell ends, Ctrl-] is typed, or the
    /// timeout passes. Input that is no terminal is passed on, then Ctrl-D.
    pub fn shell(&self) -> Result<Outcome> {
        let stdin = rustix::stdio::stdin();
        let terminal = isatty(stdin);
        let size = tcgetwinsize(rustix::stdio::stdout())
            .ok()
            .filter(|s| s.ws_row > 0 && s.ws_col > 0)
            .map(|s| (s.ws_row, s.ws_col));
        let mut started = self.start(&Task::Shell(size))?;
        let deadline = started.since + self.time();
        let raw = Raw::enter()?;
        let mut open = true;
        let mut sink = |port: PortName, bytes: &[u8]| {
            if port == PortName::Out {
                let mut out = std::io::stdout();
                let _ = out.write_all(bytes).and_then(|()| out.flush());
            }
        };
        let end = loop {
            // Nothing is read before the shell is there to read it: the port's settings change until then.
            let listen = open && started.machine.is_ready();
            let also: Option<&dyn std::os::fd::AsFd> = if listen { Some(&stdin) } else { None };
            if let Some(end) = started.machine.step(deadline, also, &mut sink)? {
                break end;
            }
            if listen && readable(stdin) {
                let mut buffer = [0; 4096];
                let count = rustix::io::read(stdin, &mut buffer).unwrap_or(0);
                let bytes = buffer.get(..count).unwrap_or_default();
                if terminal && bytes.contains(&ESCAPE) {
                    started.machine.kill();
                    continue;
                }
                started.machine.send(PortName::Out, bytes);
                if count == 0 {
                    open = false;
                    started.machine.send(PortName::Out, &[0x04]);
                }
            }
        };
        drop(raw);
        started.outcome(end)
    }
}

fn readable(fd: std::os::fd::BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
}
