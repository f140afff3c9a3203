//! The kernel's site tables: which text addresses the kernel itself refers to or rewrites.

pub(crate) mod collect;
pub(crate) mod decode;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::ops::Range;

use crate::table::{Entry, Table};

/// All site tables, of the core kernel and of all modules.
#[derive(Default)]
pub struct Tables {
    /// Instructions that may fault, and where they go on (`__ex_table`).
    pub extable: ExTable,
    /// `ud2` sites of BUG and WARN (`__bug_table`).
    pub bugs: BugTable,
    /// Static key branches (`__jump_table`): rewritten whenever a key flips.
    pub jump_labels: JumpLabels,
    /// Static call sites (`.static_call_sites`): rewritten when the call is updated.
    pub static_calls: StaticCalls,
    /// Unwind data (`.orc_unwind`, `.orc_unwind_ip`).
    pub orc: Orc,
    /// fentry sites: the 5 bytes at function starts that ftrace owns (`__mcount_loc`).
    pub fentry: Fentry,
    /// Indirect branches that boot code rewrites (`.retpoline_sites`; files only).
    pub retpolines: Retpolines,
    /// Returns that boot code rewrites (`.return_sites`; files only).
    pub returns: Returns,
    /// Alternatives (`.altinstructions`; files only).
    pub alternatives: Alternatives,
    /// Paravirt call sites (`.parainstructions`, up to 6.7; files only).
    pub paravirt: Paravirt,
    /// ENDBR instructions that boot code seals (`.ibt_endbr_seal`; files only).
    pub endbr_seals: EndbrSeals,
    /// LOCK prefixes that are patched on uniprocessors (`.smp_locks`; files only).
    pub smp_locks: SmpLocks,
    /// Calls that call depth tracking patches (`.call_sites`; files only).
    pub call_sites: CallSites,
    /// Tables that are not there, and why.
    pub missing: Vec<Missing>,
}

/// A table that could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Which table (its section name).
    pub table: &'static str,
    /// The module concerned; `None` for the core kernel.
    pub module: Option<String>,
    /// Why.
    pub reason: String,
}

/// Exception table.
pub type ExTable = Table<ExEntry>;
/// Bug table.
pub type BugTable = Table<BugEntry>;
/// Jump label table.
pub type JumpLabels = Table<JumpLabel>;
/// Static call sites.
pub type StaticCalls = Table<StaticCall>;
/// fentry sites.
pub type Fentry = Table<Site>;
/// Retpoline sites.
pub type Retpolines = Table<Site>;
/// Return sites.
pub type Returns = Table<Site>;
/// Alternatives.
pub type Alternatives = Table<Alternative>;
/// Paravirt sites.
pub type Paravirt = Table<ParavirtSite>;
/// ENDBR instructions to seal.
pub type EndbrSeals = Table<Site>;
/// LOCK prefixes.
pub type SmpLocks = Table<Site>;
/// Call sites of call depth tracking.
pub type CallSites = Table<Site>;

/// An instruction that may fault (arch/x86/include/asm/extable.h).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExEntry {
    /// The instruction.
    pub insn: u64,
    /// Where execution goes on after a fault.
    pub fixup: u64,
    /// Type and flags, as in the kernel (arch/x86/include/asm/extable_fixup_types.h).
    pub data: u32,
}
impl Entry for ExEntry {
    #[inline]
    fn addr(&self) -> u64 {
        self.insn
    }
    #[inline]
    fn target(&self) -> Option<u64> {
        Some(self.fixup)
    }
    fn line(&self) -> String {
        format!(
            "{:016x} fixup {:016x} data {:#x}",
            self.insn, self.fixup, self.data
        )
    }
}

/// A BUG or WARN site (arch/x86/include/asm/bug.h, include/asm-generic/bug.h).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BugEntry {
    /// The `ud2`.
    pub addr: u64,
    /// Address of the source file's name; 0 for none.
    pub file: u64,
    /// Source line.
    pub line: u16,
    /// `BUGFLAG_*`: bit 0 set for a warning, after which execution goes on.
    pub flags: u16,
}
impl Entry for BugEntry {
    #[inline]
    fn addr(&self) -> u64 {
        self.addr
    }
    #[inline]
    fn span(&self) -> u64 {
        2
    }
    fn line(&self) -> String {
        format!(
            "{:016x} file {:016x} line {} flags {:#x}",
            self.addr, self.file, self.line, self.flags
        )
    }
}
impl BugEntry {
    /// A warning: execution goes on after the `ud2`.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        self.flags & 1 != 0
    }
}

/// A branch on a static key (include/linux/jump_label.h).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JumpLabel {
    /// The nop or jmp (2 or 5 bytes).
    pub code: u64,
    /// Where it goes when it is a jmp.
    pub target: u64,
    /// The `static_key`, raw: bit 0 branch sense, bit 1 init section.
    pub key: u64,
}
impl Entry for JumpLabel {
    #[inline]
    fn addr(&self) -> u64 {
        self.code
    }
    #[inline]
    fn target(&self) -> Option<u64> {
        Some(self.target)
    }
    fn line(&self) -> String {
        format!(
            "{:016x} target {:016x} key {:016x}",
            self.code, self.target, self.key
        )
    }
}

/// A static call site (include/linux/static_call_types.h).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticCall {
    /// The 5-byte call or jmp (or its nop or `ret`).
    pub addr: u64,
    /// The `static_call_key`, raw: bit 0 tail call, bit 1 init section.
    pub key: u64,
    /// A tail call: a jmp.
    pub tail: bool,
}
impl Entry for StaticCall {
    #[inline]
    fn addr(&self) -> u64 {
        self.addr
    }
    #[inline]
    fn span(&self) -> u64 {
        5
    }
    fn line(&self) -> String {
        format!(
            "{:016x} key {:016x}{}",
            self.addr,
            self.key,
            if self.tail { " tail" } else { "" }
        )
    }
}

/// A bare address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The address.
    pub addr: u64,
}
impl Entry for Site {
    #[inline]
    fn addr(&self) -> u64 {
        self.addr
    }
    fn line(&self) -> String {
        format!("{:016x}", self.addr)
    }
}

/// An alternative (arch/x86/include/asm/alternative.h).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// The original instructions.
    pub addr: u64,
    /// The replacement.
    pub replacement: u64,
    /// CPU feature bit number.
    pub feature: u16,
    /// `ALT_FLAG_*`.
    pub flags: u16,
    /// Length of the original, padding included.
    pub len: u8,
    /// Length of the replacement.
    pub replacement_len: u8,
}
impl Entry for Alternative {
    #[inline]
    fn addr(&self) -> u64 {
        self.addr
    }
    #[inline]
    fn span(&self) -> u64 {
        u64::from(self.len)
    }
    fn line(&self) -> String {
        format!(
            "{:016x}+{} replacement {:016x}+{} feature {:#x} flags {:#x}",
            self.addr, self.len, self.replacement, self.replacement_len, self.feature, self.flags
        )
    }
}

/// A paravirt call site (6.1: `struct paravirt_patch_site`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParavirtSite {
    /// The original instructions.
    pub addr: u64,
    /// Operation number.
    pub kind: u8,
    /// Length of the original.
    pub len: u8,
}
impl Entry for ParavirtSite {
    #[inline]
    fn addr(&self) -> u64 {
        self.addr
    }
    #[inline]
    fn span(&self) -> u64 {
        u64::from(self.len)
    }
    fn line(&self) -> String {
        format!("{:016x}+{} type {}", self.addr, self.len, self.kind)
    }
}

/// One unwind entry (arch/x86/include/asm/orc_types.h): valid from `ip` to the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrcEntry {
    /// First address it describes.
    pub ip: u64,
    /// The kernel's own encoding (it differs between kernel versions; copy it, do not interpret it).
    pub raw: [u8; 6],
}
impl Entry for OrcEntry {
    #[inline]
    fn addr(&self) -> u64 {
        self.ip
    }
    fn line(&self) -> String {
        let mut s = format!("{:016x} ", self.ip);
        for b in self.raw {
            let _ = write!(s, "{b:02x}");
        }
        s
    }
}

/// Unwind data of all images (core kernel, each module).
#[derive(Default)]
pub struct Orc {
    table: Table<OrcEntry>,
    /// Address ranges of the images that have unwind data, sorted: an entry never describes another image.
    images: Vec<Range<u64>>,
}

impl Orc {
    /// Entries in any order, and the text ranges of the images that they belong to.
    #[must_use]
    pub fn new(table: Table<OrcEntry>, mut images: Vec<Range<u64>>) -> Self {
        images.sort_by_key(|r| r.start);
        Self { table, images }
    }
    /// All entries by address.
    #[must_use]
    pub fn entries(&self) -> &[OrcEntry] {
        self.table.entries()
    }
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }
    /// No entries?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
    /// The entry that starts exactly at `addr`.
    #[must_use]
    pub fn at(&self, addr: u64) -> Option<&OrcEntry> {
        self.table.at(addr)
    }
    /// The entries that start in `range`.
    #[must_use]
    pub fn in_range(&self, range: Range<u64>) -> &[OrcEntry] {
        self.table.in_range(range)
    }
    /// The entry that describes `addr`: the last one at or before it, in the same image.
    #[must_use]
    pub fn lookup(&self, addr: u64) -> Option<&OrcEntry> {
        self.lookup_run(addr).map(|(entry, _)| entry)
    }
    /// As [`Orc::lookup`], with all addresses that the entry describes.
    #[must_use]
    pub fn lookup_run(&self, addr: u64) -> Option<(&OrcEntry, Range<u64>)> {
        let image = self
            .images
            .partition_point(|r| r.start <= addr)
            .checked_sub(1)?;
        let image = self.images.get(image).filter(|r| r.contains(&addr))?;
        let all = self.table.entries();
        let next = all.partition_point(|e| e.ip <= addr);
        let last = next.checked_sub(1)?;
        let entry = all.get(last).filter(|e| e.ip >= image.start)?;
        let end = all.get(next).map_or(image.end, |e| e.ip.min(image.end));
        Some((entry, entry.ip..end))
    }
    /// One line for each entry.
    #[must_use]
    pub fn dump(&self) -> String {
        self.table.dump()
    }
}
