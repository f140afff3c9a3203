//! The load, as a process that can be paused.

use crate::Failure;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running load. Its processes are a group of their own.
pub struct Load {
    child: Child,
}

impl Load {
    /// Starts it; it inserts and removes `module` too.
    pub fn start(module: Option<&str>) -> Result<Load, Failure> {
        let mut command = Command::new("kerninst-guest");
        command.arg("load");
        if let Some(module) = module {
            command.args(["--module", module]);
        }
        // Longer than any guest lives.
        command.arg("1000000");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.process_group(0);
        let child = command
            .spawn()
            .map_err(|e| format!("kerninst-guest: {e}"))?;
        // Whoever arms is not to wait for the load.
        // SAFETY: plain numbers.
        unsafe { libc::setpriority(libc::PRIO_PGRP, child.id(), 15) };
        Ok(Load { child })
    }

    /// Stops it at the next return to user space of each task, and gives them the time to get there.
    pub fn pause(&self) {
        self.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(30));
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process group of our own child, which is not waited for before `stop`.
        unsafe { libc::kill(-(self.child.id() as i32), signal) };
    }

    /// Ends it.
    ///
    /// # Errors
    /// It had ended by itself.
    pub fn stop(mut self) -> Result<(), Failure> {
        let ended = self.child.try_wait().map_err(|e| e.to_string())?;
        self.end();
        match ended {
            Some(status) => Err(format!("the load ended by itself: {status}")),
            None => Ok(()),
        }
    }

    fn end(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.child.wait();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

/// Threads that there are now, the kernel's too (proc_loadavg_show, fs/proc/loadavg.c: "running/threads").
pub fn threads() -> u64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let field = text.split_whitespace().nth(3);
    let threads = field.and_then(|f| f.split('/').nth(1)?.parse().ok());
    threads.unwrap_or(1000)
}
