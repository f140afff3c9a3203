//! A running QEMU: its ports, its end, and the certainty that it ends.
//!
//! The process is killed when its [`Machine`] is dropped, and by the kernel when this process dies, however it dies.

use crate::console::{Crash, CrashKind, Watcher};
use crate::error::{At, Doing, Error, Result};
use crate::port::{PORTS, Port, PortName};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Of each port at most this many bytes are kept.
const KEEP: usize = 256 << 20;
/// After a sign of a crash the guest may go on for so long, so that the whole report reaches the console.
const AFTER_CRASH: Duration = Duration::from_secs(5);
/// After the command's end the guest must be off within this time.
const POWER_OFF: Duration = Duration::from_secs(30);
/// How often a file is read, and flags are looked at.
const TICK: Duration = Duration::from_millis(50);

/// Gets every byte from the guest as it comes.
pub type Sink<'a> = dyn FnMut(PortName, &[u8]) + 'a;

/// What the guest's `/init` said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    Ready(String),
    Exit(i32),
    Done(u64, i32),
    ModuleFailed(String),
}

pub(crate) struct Machine {
    child: Child,
    pidfd: OwnedFd,
    ports: [Port; 4],
    /// All that came, by port.
    pub(crate) logs: [Vec<u8>; 4],
    /// Whether something was thrown away because it was more than is kept.
    pub(crate) truncated: bool,
    watcher: Watcher,
    control_line: Vec<u8>,
    words: VecDeque<Word>,
    stderr: PathBuf,
    ended: Option<ExitStatus>,
    crash_seen: Option<Instant>,
    exit: Option<(i32, Instant)>,
    ready: bool,
    interrupt: Option<Arc<AtomicBool>>,
}

/// Why [`Machine::step`] says that there is nothing more to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// QEMU ended by itself.
    Exited,
    /// The deadline passed.
    TimedOut,
    /// It crashed, and has had time to say so.
    Crashed,
    /// The command ended, but the guest did not go off.
    Stuck,
}

impl Machine {
    pub(crate) fn start(
        program: &Path,
        args: &[String],
        ports: [Port; 4],
        dir: &Path,
        interrupt: Option<Arc<AtomicBool>>,
    ) -> Result<Machine> {
        let stderr = dir.join("stderr");
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&stderr).at("create", &stderr)?)
            // Ctrl-C at the terminal is for us, who then end it.
            .process_group(0);
        let parent = rustix::process::getpid();
        // SAFETY: the closure runs in the child between fork and exec; it makes two system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                // If we died before that call, no signal will come.
                if rustix::process::getppid() != Some(parent) {
                    return Err(std::io::Error::from(rustix::io::Errno::CANCELED));
                }
                Ok(())
            });
        }
        let mut child = command.spawn().at("run", program)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pidfd = pid
            .ok_or(rustix::io::Errno::INVAL)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let pidfd = match pidfd {
            Ok(fd) => fd,
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(e).doing("watch QEMU");
            }
        };
        Ok(Machine {
            child,
            pidfd,
            ports,
            logs: Default::default(),
            truncated: false,
            watcher: Watcher::default(),
            control_line: Vec::new(),
            words: VecDeque::new(),
            stderr,
            ended: None,
            crash_seen: None,
            exit: None,
            ready: false,
            interrupt,
        })
    }

    /// Queues bytes for a port of the guest.
    pub(crate) fn send(&mut self, port: PortName, bytes: &[u8]) {
        if let Some(port) = self.ports.get_mut(port as usize) {
            port.send(bytes);
        }
    }

    /// The next word of the guest's `/init` that was not taken yet.
    pub(crate) fn word(&mut self) -> Option<Word> {
        self.words.pop_front()
    }

    /// The command's exit status, once the guest has said it.
    pub(crate) fn exit(&self) -> Option<i32> {
        self.exit.map(|(status, _)| status)
    }

    /// Whether the guest's user space came up.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready
    }

    /// The first crash seen, if any.
    pub(crate) fn crash(&self) -> Option<&Crash> {
        self.watcher.crash.as_ref()
    }

    /// Kernel warnings seen.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.watcher.warnings
    }

    /// Waits a moment for something to come from the guest, or from `also` (the user's keyboard), and takes it in.
    /// Returns why it is over, if it is.
    pub(crate) fn step(
        &mut self,
        deadline: Instant,
        also: Option<&dyn std::os::fd::AsFd>,
        sink: &mut Sink<'_>,
    ) -> Result<Option<End>> {
        if self.ended.is_none() {
            self.wait(deadline, also)?;
        }
        if self
            .interrupt
            .as_ref()
            .is_some_and(|i| i.load(Ordering::Relaxed))
        {
            self.kill();
            return Err(Error::Interrupted);
        }
        // Ask for its end before reading: what it wrote before its end is then all there to be read.
        if self.ended.is_none() {
            self.ended = self.child.try_wait().doing("wait for QEMU")?;
        }
        self.take(sink)?;
        if let Some(status) = self.ended {
            self.watcher.finish();
            self.check_start(status)?;
            return Ok(Some(End::Exited));
        }
        let now = Instant::now();
        if self.watcher.crash.is_some() {
            let seen = *self.crash_seen.get_or_insert(now);
            if now >= seen + AFTER_CRASH {
                self.kill();
                self.take(sink)?;
                return Ok(Some(End::Crashed));
            }
        }
        if self.exit.is_some_and(|(_, at)| now >= at + POWER_OFF) {
            self.kill();
            return Ok(Some(End::Stuck));
        }
        if now >= deadline {
            self.kill();
            return Ok(Some(End::TimedOut));
        }
        Ok(None)
    }

    fn wait(&self, deadline: Instant, also: Option<&dyn std::os::fd::AsFd>) -> Result<()> {
        let mut fds = vec![PollFd::new(&self.pidfd, PollFlags::IN)];
        for (fd, write) in self.ports.iter().filter_map(Port::interest) {
            let flags = if write {
                PollFlags::IN | PollFlags::OUT
            } else {
                PollFlags::IN
            };
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        if let Some(also) = also {
            fds.push(PollFd::from_borrowed_fd(also.as_fd(), PollFlags::IN));
        }
        // Files must be read at short intervals; else this is only how soon an interrupt is noticed.
        let tick = if self.ports.iter().any(Port::is_polled) {
            TICK
        } else {
            TICK * 4
        };
        let left = deadline.saturating_duration_since(Instant::now()).min(tick);
        let timeout = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e).doing("wait for the guest"),
        }
    }

    fn take(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        let mut fresh = Vec::new();
        // The control port last, but read first into view: its "done" follows the output it is about, so by the time it
        // can be read, that output can be too.
        let mut control = Vec::new();
        if let Some(port) = self.ports.get_mut(PortName::Control as usize) {
            port.service(&mut control)?;
        }
        for name in PORTS {
            if name == PortName::Control {
                continue;
            }
            fresh.clear();
            if let Some(port) = self.ports.get_mut(name as usize) {
                port.service(&mut fresh)?;
            }
            self.keep(name, &fresh, sink);
        }
        self.keep(PortName::Control, &control, sink);
        Ok(())
    }

    fn keep(&mut self, name: PortName, bytes: &[u8], sink: &mut Sink<'_>) {
        if bytes.is_empty() {
            return;
        }
        sink(name, bytes);
        if let Some(log) = self.logs.get_mut(name as usize) {
            let room = KEEP.saturating_sub(log.len());
            log.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
            self.truncated |= bytes.len() > room;
        }
        match name {
            PortName::Console => self.watcher.feed(bytes),
            PortName::Control => self.control(bytes),
            PortName::Out | PortName::Err => {}
        }
    }

    fn control(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte != b'\n' {
                self.control_line.push(byte);
                continue;
            }
            let line = std::mem::take(&mut self.control_line);
            let Some(word) = parse(&String::from_utf8_lossy(&line)) else {
                continue;
            };
            match &word {
                Word::Ready(_) => self.ready = true,
                Word::Exit(status) => self.exit = Some((*status, Instant::now())),
                Word::Done(..) | Word::ModuleFailed(_) => {}
            }
            self.words.push_back(word);
        }
    }

    /// QEMU's own failure to start is the lab's error, not the guest's.
    fn check_start(&self, status: ExitStatus) -> Result<()> {
        let spoke = self.logs.iter().any(|log| !log.is_empty());
        if spoke || status.success() {
            return Ok(());
        }
        Err(Error::Qemu {
            status,
            stderr: std::fs::read_to_string(&self.stderr).unwrap_or_default(),
        })
    }

    /// Ends it now. Asked to end by itself first, so that a plugin can write its files.
    pub(crate) fn kill(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::TERM);
        let patience = Instant::now() + Duration::from_secs(3);
        while Instant::now() < patience {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.ended = Some(status);
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        self.ended = self.child.wait().ok();
    }

    /// The crash that the way it ended amounts to, if the console told of none.
    pub(crate) fn verdict(&self, end: End) -> Option<Crash> {
        if let Some(crash) = self.crash() {
            return Some(crash.clone());
        }
        match (end, self.exit) {
            (End::Stuck, Some((status, _))) => Some(Crash {
                kind: CrashKind::NoPowerOff,
                line: format!(
                    "the command ended with status {status}, {} s ago",
                    POWER_OFF.as_secs()
                ),
            }),
            (End::Exited, None) => Some(Crash {
                kind: CrashKind::Gone,
                line: if self.ready {
                    "it ended before the command did".to_string()
                } else {
                    "it ended before its first process was up".to_string()
                },
            }),
            _ => None,
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn parse(line: &str) -> Option<Word> {
    let (word, rest) = line.trim_end().split_once(' ')?;
    match word {
        "ready" => Some(Word::Ready(rest.to_string())),
        "exit" => Some(Word::Exit(rest.parse().ok()?)),
        "done" => {
            let (number, status) = rest.split_once(' ')?;
            Some(Word::Done(number.parse().ok()?, status.parse().ok()?))
        }
        "modfail" => Some(Word::ModuleFailed(rest.to_string())),
        _ => None,
    }
}
