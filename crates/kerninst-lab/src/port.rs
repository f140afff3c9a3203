//! A serial port of the guest, seen from here: bytes in and out, in order.

use crate::error::{At, Doing, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Which of the four ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortName {
    /// Kernel messages.
    Console = 0,
    /// The command's standard output, or the interactive shell.
    Out = 1,
    /// The command's standard error.
    Err = 2,
    /// The lab's own words with the guest's `/init`.
    Control = 3,
}

/// All ports in the order of their numbers.
pub(crate) const PORTS: [PortName; 4] = [
    PortName::Console,
    PortName::Out,
    PortName::Err,
    PortName::Control,
];

enum Channel {
    Waiting(UnixListener),
    Socket(UnixStream),
    File(File),
    Closed,
}

pub(crate) struct Port {
    channel: Channel,
    outgoing: VecDeque<u8>,
}

impl Port {
    /// A port that QEMU will connect to.
    pub(crate) fn socket(path: &Path) -> Result<Port> {
        let listener = UnixListener::bind(path).at("listen at", path)?;
        listener.set_nonblocking(true).at("listen at", path)?;
        Ok(Port::new(Channel::Waiting(listener)))
    }

    /// A port that QEMU writes to a file.
    pub(crate) fn file(path: &Path) -> Result<Port> {
        File::create(path).at("create", path)?;
        Ok(Port::new(Channel::File(File::open(path).at("open", path)?)))
    }

    fn new(channel: Channel) -> Port {
        Port {
            channel,
            outgoing: VecDeque::new(),
        }
    }

    /// What to wait for, and whether for room to write too. `None`: nothing will come, or it must be asked again
    /// ([`Port::is_polled`]).
    pub(crate) fn interest(&self) -> Option<(BorrowedFd<'_>, bool)> {
        match &self.channel {
            Channel::Waiting(listener) => Some((listener.as_fd(), false)),
            Channel::Socket(stream) => Some((stream.as_fd(), !self.outgoing.is_empty())),
            Channel::File(_) | Channel::Closed => None,
        }
    }

    /// Whether it must be read at intervals, since it cannot be waited for.
    pub(crate) fn is_polled(&self) -> bool {
        matches!(self.channel, Channel::File(_))
    }

    /// Queues bytes for the guest.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.outgoing.extend(bytes);
    }

    /// Moves what can be moved without waiting: queued bytes out, new bytes into `into`.
    pub(crate) fn service(&mut self, into: &mut Vec<u8>) -> Result<()> {
        if let Channel::Waiting(listener) = &self.channel {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream
                        .set_nonblocking(true)
                        .doing("set up a guest's port")?;
                    self.channel = Channel::Socket(stream);
                }
                Err(e) if quiet(&e) => return Ok(()),
                Err(e) => return Err(e).doing("accept a guest's port"),
            }
        }
        match &mut self.channel {
            Channel::Socket(stream) => {
                while !self.outgoing.is_empty() {
                    match stream.write(self.outgoing.make_contiguous()) {
                        Ok(0) => break,
                        Ok(n) => drop(self.outgoing.drain(..n)),
                        Err(e) if quiet(&e) => break,
                        // The guest is gone; what it said before is still to be read.
                        Err(_) => self.outgoing.clear(),
                    }
                }
                if read_all(stream, into) {
                    self.channel = Channel::Closed;
                }
            }
            // The end of a file is no end: QEMU may write more.
            Channel::File(file) => drop(read_all(file, into)),
            Channel::Waiting(_) | Channel::Closed => {}
        }
        Ok(())
    }
}

fn quiet(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Reads until nothing is left for now; true if the stream ended.
fn read_all(from: &mut impl Read, into: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return true,
            Ok(n) => into.extend_from_slice(buffer.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => return true,
        }
    }
}

/// The four ports' paths in a directory.
pub(crate) fn paths(dir: &Path) -> [PathBuf; 4] {
    PORTS.map(|p| dir.join(format!("p{}", p as usize)))
}
