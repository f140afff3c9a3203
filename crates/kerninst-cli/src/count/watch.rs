//! Signals as events: Ctrl-C and its relatives, and the end of the command.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What may happen while we wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Stop, says the user (the signal's number).
    Stop(i32),
    /// A child process has ended.
    Child,
}

/// From its start on, these signals end the wait and no longer the process.
pub struct Watch {
    events: Receiver<Signal>,
    stops: Arc<AtomicU32>,
}

impl Watch {
    /// Starts to watch.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn start() -> io::Result<Watch> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCHLD])?;
        let (send, events) = channel();
        let stops = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&stops);
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for number in signals.forever() {
                    let event = if number == SIGCHLD {
                        Signal::Child
                    } else {
                        Signal::Stop(number)
                    };
                    if event != Signal::Child {
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                    if send.send(event).is_err() {
                        break;
                    }
                }
            })?;
        Ok(Watch { events, stops })
    }

    /// Waits for a signal, or (`None`) until that time.
    pub fn wait(&self, until: Option<Instant>) -> Option<Signal> {
        let Some(until) = until else {
            return self.events.recv().ok();
        };
        let left = until.saturating_duration_since(Instant::now());
        self.events.recv_timeout(left).ok()
    }

    /// A second Ctrl-C came: the user does not want to see anything any more.
    pub fn pressed_again(&self) -> bool {
        self.stops.load(Ordering::Relaxed) > 1
    }
}
