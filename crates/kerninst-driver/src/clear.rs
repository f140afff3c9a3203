//! The proof that no task is in a range of code.
//!
//! After the last way into the code is gone, each task is looked at until it is seen once, off CPU, without an
//! address of the code on its stack (a preempted task's registers are on its stack too): from that instant it
//! cannot be in there. Tasks made later start outside. Interrupts, softirqs and NMIs that were in there have
//! ended on a CPU once this thread has run on that CPU. A task that is always running when looked at is caught by
//! looking from its own CPU.

use crate::abi::task;
use crate::device::{Device, DeviceError};
use crate::sys;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A task that may still be in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Thread id; -1 - n: the idle task of CPU n.
    pub tid: i32,
    /// Its name, where it can be read.
    pub comm: String,
    /// The address on its stack; `None`: it never was off CPU when looked at.
    pub word: Option<u64>,
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum NotClear {
    /// Tasks are in there, or could not be seen off CPU in time.
    #[error("{} in code that is to be freed: {}", tasks(.0.len()), names(.0))]
    Blocked(Vec<Blocker>),
    /// This process may not run on all CPUs, so interrupts there cannot be excluded.
    #[error(
        "cannot run on CPU {cpu} to see that it has left the code ({source}): move this shell out of its cpuset"
    )]
    Cpu {
        /// Number of the CPU.
        cpu: usize,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

fn tasks(n: usize) -> String {
    if n == 1 {
        "a task may still be".into()
    } else {
        format!("{n} tasks may still be")
    }
}

fn names(blockers: &[Blocker]) -> String {
    let mut names: Vec<String> = blockers
        .iter()
        .take(5)
        .map(|b| format!("{} ({})", b.comm, b.tid))
        .collect();
    if blockers.len() > names.len() {
        names.push("...".into());
    }
    names.join(", ")
}

/// Gives the thread its CPUs back when dropped.
struct Affinity(libc::cpu_set_t);
impl Drop for Affinity {
    fn drop(&mut self) {
        sys::restore_affinity(&self.0);
    }
}

impl Device {
    /// Proves that no task and no CPU is in `ranges` of code to which no way leads any more, waiting up to `patience`.
    ///
    /// # Errors
    /// [`NotClear::Blocked`] with the tasks when patience ends: the code must stay.
    pub fn prove_clear(&self, ranges: &[(u64, u64)], patience: Duration) -> Result<(), NotClear> {
        self.prove_clear_while(ranges, patience, || Ok(()))
    }

    /// As [`Device::prove_clear`]; `help` runs before every look: it may get tasks out that would stay.
    ///
    /// # Errors
    /// As for [`Device::prove_clear`], and those of `help`.
    pub fn prove_clear_while(
        &self,
        ranges: &[(u64, u64)],
        patience: Duration,
        mut help: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), NotClear> {
        if ranges.iter().all(|r| r.0 >= r.1) {
            return Ok(());
        }
        let until = Instant::now() + patience;
        // Before the first look: a CPU that goes offline later runs nothing, one that comes online starts outside.
        let cpus = online_cpus();
        let affinity = sys::affinity()
            .map(Affinity)
            .map_err(|source| NotClear::Cpu { cpu: 0, source })?;
        let settle = tasks_may_be_preempted();
        let mut unproven: Option<HashMap<(i32, u64), Option<u64>>> = None;
        let mut pause = Duration::from_micros(500);
        loop {
            for &cpu in &cpus {
                if let Err(source) = sys::run_on(cpu) {
                    if !online_cpus().contains(&cpu) {
                        continue;
                    }
                    return Err(NotClear::Cpu { cpu, source });
                }
                if unproven.as_ref().is_none_or(|u| !u.is_empty()) {
                    help()?;
                    look(self, ranges, settle, &mut unproven)?;
                }
            }
            let Some(left) = unproven.as_ref().filter(|u| !u.is_empty()) else {
                drop(affinity);
                return Ok(());
            };
            if Instant::now() >= until {
                let mut blockers: Vec<Blocker> = left
                    .iter()
                    .map(|(&(tid, _), &word)| Blocker {
                        tid,
                        comm: comm(tid),
                        word,
                    })
                    .collect();
                blockers.sort_by_key(|b| b.tid);
                return Err(NotClear::Blocked(blockers));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// One look. The first gives the tasks to prove; later ones cross off who is seen clear or is gone.
fn look(
    device: &Device,
    ranges: &[(u64, u64)],
    settle: bool,
    unproven: &mut Option<HashMap<(i32, u64), Option<u64>>>,
) -> Result<(), DeviceError> {
    let seen = device.scan(ranges, settle && unproven.is_none())?;
    let open = seen.iter().filter(|t| t.seen != task::CLEAR);
    let now: HashMap<(i32, u64), Option<u64>> = open
        .map(|t| ((t.tid, t.started), (t.seen == task::HIT).then_some(t.word)))
        .collect();
    match unproven {
        None => *unproven = Some(now),
        Some(before) => before.retain(|key, word| {
            now.get(key).is_some_and(|latest| {
                *word = *latest;
                true
            })
        }),
    }
    Ok(())
}

/// Can a task be preempted at any kernel instruction here? Then one that exits may be, after its id is gone and no look
/// finds it. Unless the kernel says no, it can.
fn tasks_may_be_preempted() -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    if read("/proc/version").contains("PREEMPT_RT") {
        return true;
    }
    // kernel/sched/debug.c: the mode in force is in parentheses.
    let mode = read("/sys/kernel/debug/sched/preempt");
    !(mode.contains("(none)") || mode.contains("(voluntary)"))
}

fn comm(tid: i32) -> String {
    if tid < 0 {
        return format!("idle task of CPU {}", -1 - i64::from(tid));
    }
    let name = std::fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
    if name.is_empty() {
        "?".into()
    } else {
        name.trim().into()
    }
}

/// CPUs that are online, from sysfs (`0-3,5`); CPU 0 if that cannot be read.
fn online_cpus() -> Vec<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = parse_cpu_list(&text);
    if cpus.is_empty() { vec![0] } else { cpus }
}

fn parse_cpu_list(text: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            cpus.extend(first..=last.min(first.saturating_add(65_536)));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::parse_cpu_list;

    /// Would catch a CPU that is never visited, and so a patch freed under an interrupt there.
    #[test]
    fn cpu_lists_are_read_whole() {
        let check =
            |text: &str, expected: &[usize]| assert_eq!(parse_cpu_list(text), expected, "{text:?}");
        check("0\n", &[0]);
        check("0-3\n", &[0, 1, 2, 3]);
        check("0,2-3,8\n", &[0, 2, 3, 8]);
        check("", &[]);
        check("x,4\n", &[4]);
    }
}
