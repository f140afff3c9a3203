//! Who else has changed, or will change, kernel text: kprobes, ftrace, livepatch.

use crate::sleepers::Sleepers;
use kerninst_analysis::Function;
use kerninst_kernel::Kernel;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Somebody else's claim on a place of kernel text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A kprobe, as debugfs describes it.
    Kprobe {
        /// Optimised to a jump of 5 bytes?
        optimized: bool,
        /// Attached through ftrace, at the fentry site?
        ftrace: bool,
    },
    /// A livepatch of that name.
    Livepatch(String),
}

/// A place that is taken, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// What was to be instrumented.
    pub place: String,
    /// Who has it.
    pub owner: Owner,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        match &self.owner {
            Owner::Kprobe { .. } => write!(
                f,
                "{place}: a kprobe is there (perf, bpftrace, SystemTap or /sys/kernel/tracing/kprobe_events): \
                 remove it, or choose a point at least 16 bytes away"
            ),
            Owner::Livepatch(name) => write!(
                f,
                "{place}: livepatch {name} has replaced this function, so its old body does not run: \
                 instrument the replacement (module {name}) instead"
            ),
        }
    }
}

/// A function that a livepatch has replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Livepatched {
    /// Module, or `vmlinux`.
    object: String,
    /// Name.
    function: String,
    /// Which of that name in its module, from 1 on.
    position: usize,
    /// The livepatch.
    patch: String,
    /// Address of its entry, if it could be found: several names may have it.
    addr: Option<u64>,
}

/// What is known of other users of kernel text, and of who runs it.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// kprobes that change text, by address (those through ftrace do not touch more than the fentry site).
    kprobes: BTreeMap<u64, Owner>,
    /// Livepatched functions.
    livepatched: Vec<Livepatched>,
    /// False: debugfs is not mounted, so kprobes are unknown until arming (the driver asks the kernel itself).
    pub kprobes_known: bool,
    /// Who sleeps where.
    sleepers: Sleepers,
}

impl Owners {
    /// Looks around on the running machine.
    pub fn live() -> Owners {
        let list = std::fs::read_to_string("/sys/kernel/debug/kprobes/list");
        Owners {
            kprobes: list.as_deref().map(parse_kprobes).unwrap_or_default(),
            livepatched: located(livepatched(Path::new("/sys/kernel/livepatch")), || {
                std::fs::read_to_string("/proc/kallsyms").unwrap_or_default()
            }),
            kprobes_known: list.is_ok(),
            sleepers: Sleepers::now(),
        }
    }

    /// Those of a kernel: nobody, where it is a file.
    pub fn of(kernel: &Kernel) -> Owners {
        if kernel.is_live() {
            Owners::live()
        } else {
            Owners::default()
        }
    }

    /// Does a kernel thread run this function, which it may never leave?
    pub fn is_loop(&self, function: &Function) -> bool {
        self.sleepers.is_loop(&function.name)
    }

    /// The kprobe whose bytes (16 before, 5 after: an optimised one copies that much) touch `addr`.
    pub fn kprobe_near(&self, addr: u64) -> Option<(u64, &Owner)> {
        let near = self
            .kprobes
            .range(addr.saturating_sub(4)..=addr.saturating_add(15))
            .next()?;
        (!matches!(near.1, Owner::Kprobe { ftrace: true, .. })).then_some((*near.0, near.1))
    }

    /// The livepatch that has replaced a function.
    pub fn livepatch_of(&self, function: &Function) -> Option<Owner> {
        let module = function.module.as_deref().unwrap_or("vmlinux");
        let is_it = |l: &&Livepatched| match l.addr {
            Some(addr) => addr == function.entry(),
            None => l.object == module && l.function == function.name,
        };
        let found = self.livepatched.iter().find(is_it)?;
        Some(Owner::Livepatch(found.patch.clone()))
    }

    /// All kprobes.
    pub fn kprobes(&self) -> impl Iterator<Item = (u64, &Owner)> {
        self.kprobes.iter().map(|(a, o)| (*a, o))
    }

    /// All livepatched functions with their patch.
    pub fn livepatches(&self) -> impl Iterator<Item = (&str, &str)> {
        self.livepatched
            .iter()
            .map(|l| (l.function.as_str(), l.patch.as_str()))
    }
}

/// `/sys/kernel/debug/kprobes/list` (kernel/kprobes.c, `report_probe`): address, `k` or `r`, symbol+offset, module,
/// then flags in brackets.
fn parse_kprobes(text: &str) -> BTreeMap<u64, Owner> {
    let mut out = BTreeMap::new();
    for line in text.lines() {
        let Some(addr) = line
            .split_whitespace()
            .next()
            .and_then(|w| u64::from_str_radix(w, 16).ok())
        else {
            continue;
        };
        // A disabled one has copied the bytes that it will run, or write back, once it is enabled.
        if line.contains("[GONE]") {
            continue;
        }
        let owner = Owner::Kprobe {
            optimized: line.contains("[OPTIMIZED]"),
            ftrace: line.contains("[FTRACE]"),
        };
        out.insert(addr, owner);
    }
    out
}

/// `/sys/kernel/livepatch/PATCH/OBJECT/FUNCTION,SYMPOS/` of enabled patches (Documentation/ABI/testing/sysfs-kernel-livepatch).
fn livepatched(root: &Path) -> Vec<Livepatched> {
    let mut out = Vec::new();
    let names = |dir: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .filter(|e| e.path().is_dir())
            .filter_map(|e| e.file_name().into_string().ok())
            .collect()
    };
    for patch in names(root) {
        let dir = root.join(&patch);
        if std::fs::read_to_string(dir.join("enabled")).is_ok_and(|s| s.trim() == "0") {
            continue;
        }
        for object in names(&dir) {
            for function in names(&dir.join(&object)) {
                if let Some((name, position)) = function.rsplit_once(',') {
                    out.push(Livepatched {
                        object: object.clone(),
                        function: name.to_string(),
                        position: position.parse().unwrap_or(1),
                        patch: patch.clone(),
                        addr: None,
                    });
                }
            }
        }
    }
    out
}

/// Fills in addresses from kallsyms, which is read only if there is anything to look for.
fn located(mut patched: Vec<Livepatched>, kallsyms: impl FnOnce() -> String) -> Vec<Livepatched> {
    if patched.is_empty() {
        return patched;
    }
    let text = kallsyms();
    for l in &mut patched {
        let named = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let addr = u64::from_str_radix(words.next()?, 16).ok()?;
            let name = words.nth(1)?;
            let module = words.next().unwrap_or("[vmlinux]");
            let module = module.trim_start_matches('[').trim_end_matches(']');
            (name == l.function && module == l.object && addr != 0).then_some(addr)
        });
        let mut all: Vec<u64> = named.collect();
        all.sort_unstable();
        l.addr = all.get(l.position.saturating_sub(1)).copied();
    }
    patched
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch a livepatched function that is not recognised by another of its names, or mistaken for its namesake.
    #[test]
    fn livepatched_functions_are_found_by_address() {
        let entry = |function: &str, position| Livepatched {
            object: "vmlinux".into(),
            function: function.into(),
            position,
            patch: "p".into(),
            addr: None,
        };
        let patched = vec![
            entry("__x64_sys_getppid", 1),
            entry("twin", 2),
            entry("gone", 1),
        ];
        let text = "ffffffff81000100 t __do_sys_getppid\nffffffff81000100 T __x64_sys_getppid\n\
            ffffffff81000300 t twin\nffffffff81000200 t twin\nffffffffc0000000 t gone\t[other]\n";
        let found: Vec<_> = located(patched, || text.into())
            .iter()
            .map(|l| l.addr)
            .collect();
        assert_eq!(
            found,
            [
                Some(0xffff_ffff_8100_0100),
                Some(0xffff_ffff_8100_0300),
                None
            ]
        );
    }

    /// Would catch a kprobe that is overlooked, or an ftrace-based one that needlessly refuses a point.
    #[test]
    fn kprobes_list_is_read() {
        let owners = Owners {
            kprobes: parse_kprobes(
                "ffffffff81000010  k  vfs_read+0x10    [OPTIMIZED]\n\
                 ffffffff81000100  k  vfs_write+0x0    [FTRACE]\n\
                 ffffffff81000200  r  do_exit+0x5  ext4  [GONE]\nrubbish\n",
            ),
            ..Owners::default()
        };
        let near = |a: u64| owners.kprobe_near(a).map(|(at, _)| at);
        assert_eq!(near(0xffff_ffff_8100_0010), Some(0xffff_ffff_8100_0010));
        assert_eq!(near(0xffff_ffff_8100_0014), Some(0xffff_ffff_8100_0010));
        assert_eq!(near(0xffff_ffff_8100_0015), None);
        assert_eq!(near(0xffff_ffff_8100_0001), Some(0xffff_ffff_8100_0010));
        assert_eq!(near(0xffff_ffff_8100_0100), None);
        assert_eq!(near(0xffff_ffff_8100_0200), None);
    }
}
