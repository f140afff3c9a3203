//! Finding what is off limits: section bounds, name lists, the kprobe blacklist, init text.

use std::ops::Range;

use super::{OffLimit, OffLimitRange, OffLimits};
use crate::{Symbol, Symbols};

/// Sections of text that are bounded by symbols (include/asm-generic/vmlinux.lds.h, arch/x86/kernel/vmlinux.lds.S).
/// `.irqentry.text` and `.softirqentry.text` are not among them: they are ordinary C.
const SECTIONS: [(&str, &str, OffLimit); 7] = [
    ("__entry_text_start", "__entry_text_end", OffLimit::Entry),
    (
        "__noinstr_text_start",
        "__noinstr_text_end",
        OffLimit::Noinstr,
    ),
    // Idle code runs without RCU; a section of its own before 6.5, part of noinstr text since.
    (
        "__cpuidle_text_start",
        "__cpuidle_text_end",
        OffLimit::Noinstr,
    ),
    (
        "__kprobes_text_start",
        "__kprobes_text_end",
        OffLimit::KprobesText,
    ),
    (
        "__static_call_text_start",
        "__static_call_text_end",
        OffLimit::StaticCallTrampoline,
    ),
    (
        "__indirect_thunk_start",
        "__indirect_thunk_end",
        OffLimit::Thunk,
    ),
    ("_sinittext", "_einittext", OffLimit::Init),
];

/// Mitigation code by name (arch/x86/lib/retpoline.S, arch/x86/entry/entry.S): retpolines and return thunks, some of which are
/// entered in the middle of an instruction, and barriers that run between kernel and user state.
const THUNK_PREFIXES: [&str; 9] = [
    "__x86_indirect_",
    "__x86_return_",
    "srso_",
    "retbleed_",
    "its_return_thunk",
    "call_depth_return_thunk",
    "zen_untrain_ret",
    "entry_untrain_ret",
    "clear_bhb_loop",
];
const THUNK_NAMES: [&str; 5] = [
    "entry_ibpb",
    "write_ibpb",
    "warn_thunk_thunk",
    "__warn_thunk",
    "return_thunk",
];

/// The text poking and breakpoint path. Two reasons: a breakpoint of ours in what runs before our die notifier is asked
/// would recurse without end (`exc_int3` → `do_int3` → `notify_die` → the notifier chain and the other notifiers on it,
/// under RCU's read lock); and code that is itself rewriting text must not be rewritten under its own feet
/// (`text_poke*`, `smp_text_poke*` since 6.16, the IPI that makes other CPUs see it).
const POKING_PREFIXES: [&str; 5] = [
    "text_poke",
    "__text_poke",
    "smp_text_poke",
    "poke_int3",
    "try_get_desc",
];
const POKING_NAMES: [&str; 22] = [
    "exc_int3",
    "do_int3",
    "do_int3_user",
    "notify_die",
    "atomic_notifier_call_chain",
    "notifier_call_chain",
    "kprobe_int3_handler",
    "kprobe_exceptions_notify",
    "get_kprobe",
    "arch_uprobe_exception_notify",
    "uprobe_pre_sstep_notifier",
    "uprobe_post_sstep_notifier",
    "kgdb_notify",
    "__kgdb_notify",
    "kgdb_ll_trap",
    "hw_breakpoint_exceptions_notify",
    "__rcu_read_lock",
    "__rcu_read_unlock",
    "do_sync_core",
    "sync_core_before_usermode",
    "put_desc",
    "patch_cmp",
];

/// Collects ranges.
#[derive(Default)]
pub(crate) struct Collector {
    ranges: Vec<OffLimitRange>,
    missing: Vec<String>,
}

impl Collector {
    pub(crate) fn add(&mut self, range: Range<u64>, why: OffLimit) {
        self.ranges.push(OffLimitRange { range, why });
    }

    pub(crate) fn missing(&mut self, what: impl Into<String>) {
        self.missing.push(what.into());
    }

    /// Everything that symbols tell.
    pub(crate) fn add_symbols(&mut self, symbols: &Symbols) {
        for (start, end, why) in SECTIONS {
            if let (Some(start), Some(end)) = (symbols.addr_of(start), symbols.addr_of(end)) {
                self.add(start..end, why);
            }
        }
        let starts = Starts::new();
        for s in symbols
            .text_named(|name| starts.may_match(name.strip_prefix(b"__pfx_").unwrap_or(name)))
        {
            if let Some(why) = by_name(&s) {
                self.add(s.addr..s.end(), why);
            }
        }
    }

    /// Functions on the kprobe blacklist, by their addresses (`NOKPROBE_SYMBOL`, section `_kprobe_blacklist`).
    pub(crate) fn add_functions(&mut self, symbols: &Symbols, addrs: impl Iterator<Item = u64>) {
        for addr in addrs {
            if let Some((s, 0)) = symbols.containing(addr) {
                self.add(addr..s.end(), OffLimit::Blacklist);
            }
        }
    }

    /// The `.cold` parts of functions that are off limits run in the same contexts.
    pub(crate) fn add_cold_parts(&mut self, symbols: &Symbols) {
        let known = OffLimits::new(self.ranges.clone());
        for s in symbols.text_named(|name| name.ends_with(b".cold")) {
            let parent = s.name.strip_suffix(".cold").unwrap_or(s.name);
            let parents = symbols
                .named(parent)
                .into_iter()
                .filter(|p| p.module == s.module);
            let why = parents
                .filter_map(|p| known.at(p.addr))
                .find(|w| *w != OffLimit::Init);
            if let Some(why) = why {
                self.add(s.addr..s.end(), why);
            }
        }
    }

    pub(crate) fn build(self) -> OffLimits {
        let mut new = OffLimits::new(self.ranges);
        new.missing = self.missing;
        new
    }
}

/// The first two letters of all names looked for: they rule out most of 100,000 symbols cheaply.
struct Starts(Vec<bool>);

impl Starts {
    fn new() -> Self {
        let mut starts = vec![false; 1 << 16];
        let patterns = THUNK_PREFIXES
            .iter()
            .chain(&THUNK_NAMES)
            .chain(&POKING_PREFIXES)
            .chain(&POKING_NAMES);
        for pattern in patterns.chain(&[TRAMPOLINE]) {
            if let Some(start) = Self::index(pattern.as_bytes()).and_then(|i| starts.get_mut(i)) {
                *start = true;
            }
        }
        Self(starts)
    }
    fn index(name: &[u8]) -> Option<usize> {
        name.first_chunk::<2>()
            .map(|two| usize::from(u16::from_le_bytes(*two)))
    }
    fn may_match(&self, name: &[u8]) -> bool {
        Self::index(name).and_then(|i| self.0.get(i)) == Some(&true)
    }
}

/// Static call trampolines (`STATIC_CALL_TRAMP_PREFIX`, include/linux/static_call_types.h).
const TRAMPOLINE: &str = "__SCT__";

fn by_name(s: &Symbol<'_>) -> Option<OffLimit> {
    if s.name.starts_with(TRAMPOLINE) {
        return Some(OffLimit::StaticCallTrampoline);
    }
    if s.module.is_some() {
        return None;
    }
    let base = s.base_name();
    if THUNK_PREFIXES.iter().any(|p| base.starts_with(p)) || THUNK_NAMES.contains(&base) {
        return Some(OffLimit::Thunk);
    }
    if POKING_PREFIXES.iter().any(|p| base.starts_with(p)) || POKING_NAMES.contains(&base) {
        return Some(OffLimit::Poking);
    }
    None
}
