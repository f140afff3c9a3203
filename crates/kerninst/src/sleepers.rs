//! Who sleeps in which function: tasks that are still in original code when versions are armed finish there, uncounted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Stacks of all tasks that sleep, at one moment each (/proc/PID/task/TID/stack: root only).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sleepers {
    /// By name of a function: the tasks that have a frame in it.
    by_function: BTreeMap<String, BTreeSet<u32>>,
    /// Functions that a kernel thread runs: most are loops that are never left.
    loops: BTreeSet<String>,
}

/// Tasks that were in original code when versions were armed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OldBodies {
    /// How many were in which function; those in most first.
    pub began: Vec<(String, usize)>,
    /// How many of them have not left it since.
    pub still: Vec<(String, usize)>,
}

impl Sleepers {
    /// Looks around on the running machine. Tasks whose stack cannot be read, or that run, are not seen.
    pub fn now() -> Sleepers {
        Sleepers::in_proc(Path::new("/proc"))
    }

    fn in_proc(proc: &Path) -> Sleepers {
        let mut all = Sleepers::default();
        let number = |e: &std::fs::DirEntry| e.file_name().to_str()?.parse::<u32>().ok();
        let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
        for process in entries(proc).filter(|e| number(e).is_some()) {
            for task in entries(&process.path().join("task")) {
                let Some(id) = number(&task) else { continue };
                if let Ok(stack) = std::fs::read_to_string(task.path().join("stack")) {
                    all.add(id, &stack);
                }
            }
        }
        all
    }

    /// One task's stack, innermost frame first: lines of `[<0>] name+0x1c/0x40 [module]` (fs/proc/base.c,
    /// `proc_pid_stack`).
    fn add(&mut self, task: u32, stack: &str) {
        let name = |line: &str| {
            let (_, place) = line.split_once("] ")?;
            let (name, _) = place.split_once("+0x")?;
            Some(name.to_string())
        };
        let frames: Vec<String> = stack.lines().filter_map(name).collect();
        // kernel/kthread.c: `kthread` calls the thread's function.
        if let Some(n) = frames.iter().position(|f| f == "kthread")
            && let Some(function) = n.checked_sub(1).and_then(|n| frames.get(n))
        {
            self.loops.insert(function.clone());
        }
        for frame in frames {
            self.by_function.entry(frame).or_default().insert(task);
        }
    }

    /// Does a kernel thread run this function, so that it may never be called again?
    pub(crate) fn is_loop(&self, name: &str) -> bool {
        self.loops.contains(name)
    }

    /// Only those in functions of these names.
    pub(crate) fn within<'n>(&self, names: impl Iterator<Item = &'n str>) -> Sleepers {
        let of = |name: &str| {
            let tasks = self.by_function.get(name)?;
            Some((name.to_string(), tasks.clone()))
        };
        Sleepers {
            by_function: names.filter_map(of).collect(),
            loops: BTreeSet::new(),
        }
    }

    /// What became of them, by what is there now.
    pub(crate) fn since(&self, now: &Sleepers) -> OldBodies {
        let still = |(name, tasks): (&String, &BTreeSet<u32>)| {
            let now = now.by_function.get(name)?;
            let left = tasks.intersection(now).count();
            (left > 0).then(|| (name.clone(), left))
        };
        let all = self.by_function.iter();
        let mut began: Vec<(String, usize)> =
            all.clone().map(|(n, t)| (n.clone(), t.len())).collect();
        let mut still: Vec<(String, usize)> = all.filter_map(still).collect();
        for list in [&mut began, &mut still] {
            list.sort_by_key(|(_, tasks)| std::cmp::Reverse(*tasks));
        }
        OldBodies { began, still }
    }
}

#[cfg(test)]
mod tests {
    use super::{OldBodies, Sleepers};

    const SLEEP: &str = "[<0>] do_nanosleep+0x6a/0x140\n[<0>] hrtimer_nanosleep+0x8e/0x120\n";
    const THREAD: &str = "[<0>] worker_thread+0x1a2/0x300\n[<0>] kthread+0xd2/0x100\n[<0>] ret_from_fork+0x34/0x50\n";

    /// Would catch a task that is counted in the wrong function, and a kernel thread's loop that is not known as one.
    #[test]
    fn stacks_are_read() {
        let mut then = Sleepers::default();
        then.add(7, SLEEP);
        then.add(8, SLEEP);
        then.add(9, THREAD);
        then.add(
            10,
            "[<0>] 0xffffffff81000000\nnonsense\n[<0>] +0x1/0x2 [m]\n",
        );
        assert!(then.is_loop("worker_thread") && !then.is_loop("do_nanosleep"));
        let mut now = Sleepers::default();
        now.add(8, SLEEP);
        now.add(
            9,
            "[<0>] worker_thread.kerninst+0x1a2/0x300 [kerninst_p1_0]\n[<0>] kthread+0xd2/0x100\n",
        );
        now.add(11, SLEEP);
        let names = ["do_nanosleep", "worker_thread", "vfs_read"];
        let old = then.within(names.into_iter()).since(&now);
        let rows = |rows: &[(&str, usize)]| -> Vec<(String, usize)> {
            rows.iter().map(|(n, t)| (n.to_string(), *t)).collect()
        };
        assert_eq!(
            old,
            OldBodies {
                began: rows(&[("do_nanosleep", 2), ("worker_thread", 1)]),
                still: rows(&[("do_nanosleep", 1)]),
            }
        );
    }
}
