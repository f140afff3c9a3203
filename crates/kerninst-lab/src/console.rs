//! Reads the guest's kernel messages for signs of a crash.

/// How a guest's kernel failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CrashKind {
    /// A fault in the kernel (`Oops`, `general protection fault`, `unable to handle`).
    Oops,
    /// A failed assertion of the kernel (`kernel BUG at`), or another `BUG:` report.
    Bug,
    /// `Kernel panic`.
    Panic,
    /// The kernel itself reports that a CPU or task does not get on: soft or hard lockup, RCU stall, hung task.
    Lockup,
    /// The guest reset itself or QEMU ended without the command's end having been reported.
    Gone,
    /// The command ended but the guest did not power off.
    NoPowerOff,
}

/// A crash of the guest's kernel.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Crash {
    /// What kind; of several signs, the first.
    pub kind: CrashKind,
    /// The line of the console log that said so, or a sentence.
    pub line: String,
}

impl std::fmt::Display for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            CrashKind::Oops => "the guest's kernel oopsed",
            CrashKind::Bug => "the guest's kernel found a bug in itself",
            CrashKind::Panic => "the guest's kernel panicked",
            CrashKind::Lockup => "the guest's kernel hangs",
            CrashKind::Gone => "the guest went away",
            CrashKind::NoPowerOff => "the guest did not power off",
        };
        write!(f, "{kind}: {}", self.line)
    }
}

/// Texts that a kernel prints only when it is broken. Sources: arch/x86/mm/fault.c, arch/x86/kernel/dumpstack.c,
/// arch/x86/kernel/traps.c, kernel/panic.c, kernel/watchdog.c, kernel/rcu/tree_stall.h, kernel/hung_task.c,
/// kernel/sched/core.c, lib/bug.c, mm/slub.c (6.1 and 6.12).
const SIGNS: [(&str, CrashKind); 24] = [
    ("Kernel panic - not syncing", CrashKind::Panic),
    ("BUG: unable to handle", CrashKind::Oops),
    ("BUG: kernel NULL pointer dereference", CrashKind::Oops),
    ("BUG: soft lockup", CrashKind::Lockup),
    ("BUG: workqueue lockup", CrashKind::Lockup),
    ("hard LOCKUP", CrashKind::Lockup),
    ("detected stalls on CPUs", CrashKind::Lockup),
    ("self-detected stall on CPU", CrashKind::Lockup),
    ("detected expedited stalls", CrashKind::Lockup),
    ("rcu_preempt kthread starved", CrashKind::Lockup),
    ("rcu_sched kthread starved", CrashKind::Lockup),
    ("blocked for more than", CrashKind::Lockup),
    ("kernel BUG at", CrashKind::Bug),
    ("general protection fault", CrashKind::Oops),
    ("general protection, probably for", CrashKind::Oops),
    ("Oops:", CrashKind::Oops),
    ("Oops: ", CrashKind::Oops),
    ("int3: 0000", CrashKind::Oops),
    ("invalid opcode: 0000", CrashKind::Oops),
    ("double fault: 0000", CrashKind::Oops),
    ("stack segment: 0000", CrashKind::Oops),
    ("PANIC: double fault", CrashKind::Panic),
    ("Missing ENDBR:", CrashKind::Bug),
    ("BUG: ", CrashKind::Bug),
];

/// The crash that this line of the console reports, if it does. The kernel's "traps: prog[12] general protection fault"
/// about a *user* program is none.
pub fn crash_in(line: &str) -> Option<Crash> {
    let text = line.trim_end();
    let (_, kind) = SIGNS.iter().find(|(sign, _)| text.contains(sign))?;
    let about_user = text.contains("traps: ") && text.contains("] general protection fault");
    if about_user || text.contains("segfault at") {
        return None;
    }
    Some(Crash {
        kind: *kind,
        line: text.to_string(),
    })
}

/// Whether this line starts a kernel warning (`WARNING: CPU: 0 PID: 1 at …`): no crash, but a test may want none.
pub fn is_warning(line: &str) -> bool {
    line.contains("WARNING: CPU:") || line.contains("WARNING: stack recursion")
}

/// Splits a growing log into lines and remembers the first crash.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    /// Bytes of the line that is not complete yet.
    partial: Vec<u8>,
    pub(crate) crash: Option<Crash>,
    pub(crate) warnings: Vec<String>,
}

impl Watcher {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                self.line();
            } else {
                self.partial.push(byte);
            }
        }
    }

    /// Looks at what is left when the log ends.
    pub(crate) fn finish(&mut self) {
        self.line();
    }

    fn line(&mut self) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.partial)).into_owned();
        if self.crash.is_none() {
            self.crash = crash_in(&line);
        }
        if is_warning(&line) {
            self.warnings.push(line.trim_end().to_string());
        }
    }
}

/// The last `count` lines of a log.
pub fn tail(log: &str, count: usize) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let from = lines.len().saturating_sub(count);
    lines.get(from..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<CrashKind>) {
        assert_eq!(crash_in(line).map(|c| c.kind), expected, "{line}");
    }

    #[test]
    fn crashes_are_told_from_ordinary_messages() {
        use CrashKind::*;
        check(
            "[    4.1] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI",
            Some(Oops),
        );
        check(
            "[    4.1] BUG: kernel NULL pointer dereference, address: 0",
            Some(Oops),
        );
        check("[    4.1] int3: 0000 [#1] PREEMPT SMP", Some(Oops));
        check(
            "[   30.1] watchdog: BUG: soft lockup - CPU#1 stuck for 26s!",
            Some(Lockup),
        );
        check(
            "[   30.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            Some(Lockup),
        );
        check("[    4.1] kernel BUG at mm/slub.c:1!", Some(Bug));
        check(
            "[    4.1] BUG: scheduling while atomic: sh/1/0x2",
            Some(Bug),
        );
        check(
            "[    4.1] Kernel panic - not syncing: sysrq triggered crash",
            Some(Panic),
        );
        check(
            "[    4.1] INFO: task sh:1 blocked for more than 120 seconds.",
            Some(Lockup),
        );
        check(
            "[    4.1] traps: prog[77] general protection fault ip:4 sp:7",
            None,
        );
        check("[    4.1] prog[77]: segfault at 0 ip 0", None);
        check("[    4.1] clocksource: tsc: mask: 0xffff", None);
        check("[    4.1] WARNING: CPU: 0 PID: 1 at kernel/foo.c:1", None);
        assert!(is_warning(
            "[    4.1] WARNING: CPU: 0 PID: 1 at kernel/foo.c:1"
        ));
    }

    #[test]
    fn a_line_in_pieces_is_one_line() {
        let mut watcher = Watcher::default();
        watcher.feed(b"[ 1.0] Kernel pa");
        assert_eq!(watcher.crash, None);
        watcher.feed(b"nic - not syncing: x\r\n");
        assert_eq!(watcher.crash.map(|c| c.kind), Some(CrashKind::Panic));
    }
}
