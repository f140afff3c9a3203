//! Who else has changed, or will change, kernel text: kprobes, ftrace, livepatch.

use kerninst_analysis::Function;
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

/// What is known of other users of kernel text.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// kprobes that change text, by address (those through ftrace do not touch more than the fentry site).
    kprobes: BTreeMap<u64, Owner>,
    /// Livepatched functions: (module or `vmlinux`, function) to patch.
    livepatched: Vec<(String, String, String)>,
    /// False: debugfs is not mounted, so kprobes are unknown until arming (the driver asks the kernel itself).
    pub kprobes_known: bool,
}

impl Owners {
    /// Looks around on the running machine.
    pub fn live() -> Owners {
        let list = std::fs::read_to_string("/sys/kernel/debug/kprobes/list");
        Owners {
            kprobes: list.as_deref().map(parse_kprobes).unwrap_or_default(),
            livepatched: livepatched(Path::new("/sys/kernel/livepatch")),
            kprobes_known: list.is_ok(),
        }
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
        let found = self
            .livepatched
            .iter()
            .find(|(m, f, _)| m == module && *f == function.name)?;
        Some(Owner::Livepatch(found.2.clone()))
    }

    /// All kprobes.
    pub fn kprobes(&self) -> impl Iterator<Item = (u64, &Owner)> {
        self.kprobes.iter().map(|(a, o)| (*a, o))
    }

    /// All livepatched functions with their patch.
    pub fn livepatches(&self) -> impl Iterator<Item = (&str, &str)> {
        self.livepatched
            .iter()
            .map(|(_, f, p)| (f.as_str(), p.as_str()))
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
fn livepatched(root: &Path) -> Vec<(String, String, String)> {
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
                if let Some((name, _)) = function.rsplit_once(',') {
                    out.push((object.clone(), name.to_string(), patch.clone()));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

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
