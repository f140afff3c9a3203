//! Progress of what takes over a second: on stderr, and only if that is a terminal.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Nothing is shown before this.
const DELAY: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(100);

/// A line that tells how far a piece of work has come; gone when dropped.
pub struct Progress {
    what: &'static str,
    total: u64,
    done: AtomicU64,
    started: Instant,
    /// When it was last drawn; none: not yet.
    drawn: Mutex<Option<Instant>>,
    shown: bool,
}

impl Progress {
    /// For `total` steps of `what` ("analysing functions").
    #[must_use]
    pub fn new(what: &'static str, total: u64) -> Progress {
        Progress {
            what,
            total,
            done: AtomicU64::new(0),
            started: Instant::now(),
            drawn: Mutex::new(None),
            shown: std::io::stderr().is_terminal(),
        }
    }

    /// One step is done. From any thread.
    pub fn step(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        // Looking at the clock for each step would cost more than many a step.
        if self.shown && done.is_multiple_of(64) && self.started.elapsed() > DELAY {
            self.draw(done);
        }
    }

    fn draw(&self, done: u64) {
        // If another thread is drawing, that is good enough.
        let Ok(mut drawn) = self.drawn.try_lock() else {
            return;
        };
        if drawn.is_some_and(|t| t.elapsed() < EVERY) {
            return;
        }
        *drawn = Some(Instant::now());
        let line = line(self.what, done, self.total);
        // A terminal that takes no text is no reason to stop.
        let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
    }
}

fn line(what: &str, done: u64, total: u64) -> String {
    const WIDTH: u64 = 24;
    let total = total.max(done).max(1);
    let full = (done * WIDTH / total) as usize;
    let percent = done * 100 / total;
    let bar = "#".repeat(full) + &"-".repeat(WIDTH as usize - full);
    format!("{what} [{bar}] {percent:3}% ({done}/{total})")
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.get_mut().is_ok_and(|d| d.is_some()) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// A line that says what takes so long, where steps cannot be counted; gone when dropped.
pub struct Busy {
    /// Tells the drawing thread to end; none: there is none.
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Busy {
    /// For `what` ("arming 1000 points").
    #[must_use]
    pub fn new(what: String) -> Busy {
        if !std::io::stderr().is_terminal() {
            return Busy { thread: None };
        }
        let (end, ended) = channel();
        let started = Instant::now();
        let draw = move || {
            let mut wait = DELAY;
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = EVERY * 5;
                let seconds = started.elapsed().as_secs();
                let _ = write!(std::io::stderr(), "\r{what} ({seconds} s)\x1b[K");
            }
            if started.elapsed() > DELAY {
                let _ = write!(std::io::stderr(), "\r\x1b[K");
            }
        };
        // Without a thread there is no line, and nothing else is lost.
        let spawned = std::thread::Builder::new().spawn(draw).ok();
        Busy {
            thread: spawned.map(|t| (end, t)),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_line() {
        let line = super::line("analysing", 50, 100);
        assert_eq!(line, "analysing [############------------]  50% (50/100)");
        assert_eq!(
            super::line("x", 0, 0),
            format!("x [{}]   0% (0/1)", "-".repeat(24))
        );
    }
}
