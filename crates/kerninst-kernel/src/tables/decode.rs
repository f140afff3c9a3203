//! The bytes of each site table, entry by entry. Self-relative fields count from their own address.

use super::{Alternative, BugEntry, ExEntry, JumpLabel, OrcEntry, ParavirtSite, Site, StaticCall};
use crate::bytes::{i32_at, u16_at, u32_at, u64_at};

/// A table's bytes and their address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub addr: u64,
    pub bytes: Vec<u8>,
}

impl Part {
    fn entries<T>(&self, stride: usize, entry: impl Fn(&Self, usize) -> Option<T>) -> Vec<T> {
        let count = self.bytes.len() / stride;
        let mut out = Vec::with_capacity(count);
        out.extend((0..count).filter_map(|i| entry(self, i * stride)));
        out
    }
    /// The address that the self-relative field at `at` names.
    fn relative(&self, at: usize) -> Option<u64> {
        let offset = i64::from(i32_at(&self.bytes, at)?);
        Some(
            self.addr
                .wrapping_add(at as u64)
                .wrapping_add(offset as u64),
        )
    }
}

/// `struct exception_table_entry { int insn, fixup, data; }` (arch/x86/include/asm/extable.h).
pub(crate) fn extable(part: &Part) -> Vec<ExEntry> {
    part.entries(12, |p, at| {
        Some(ExEntry {
            insn: p.relative(at)?,
            fixup: p.relative(at + 4)?,
            data: u32_at(&p.bytes, at + 8)?,
        })
    })
}

/// `struct bug_entry { int addr, file; u16 line, flags; }` (include/asm-generic/bug.h, with
/// `CONFIG_GENERIC_BUG_RELATIVE_POINTERS` and `CONFIG_DEBUG_BUGVERBOSE`).
pub(crate) fn bugs(part: &Part) -> Vec<BugEntry> {
    part.entries(12, |p, at| {
        let file = if i32_at(&p.bytes, at + 4)? == 0 {
            0
        } else {
            p.relative(at + 4)?
        };
        Some(BugEntry {
            addr: p.relative(at)?,
            file,
            line: u16_at(&p.bytes, at + 8)?,
            flags: u16_at(&p.bytes, at + 10)?,
        })
    })
}

/// `struct jump_entry { s32 code, target; long key; }` (include/linux/jump_label.h).
pub(crate) fn jump_labels(part: &Part) -> Vec<JumpLabel> {
    part.entries(16, |p, at| {
        let key = u64_at(&p.bytes, at + 8)?;
        Some(JumpLabel {
            code: p.relative(at)?,
            target: p.relative(at + 4)?,
            key: p.addr.wrapping_add(at as u64 + 8).wrapping_add(key),
        })
    })
}

/// `struct static_call_site { s32 addr, key; }` (include/linux/static_call_types.h).
pub(crate) fn static_calls(part: &Part) -> Vec<StaticCall> {
    part.entries(8, |p, at| {
        let key = p.relative(at + 4)?;
        Some(StaticCall {
            addr: p.relative(at)?,
            key,
            tail: key & 1 != 0,
        })
    })
}

/// A list of self-relative s32: retpoline, return, call, ENDBR and LOCK sites.
pub(crate) fn relative_sites(part: &Part) -> Vec<Site> {
    part.entries(4, |p, at| {
        Some(Site {
            addr: p.relative(at)?,
        })
    })
}

/// `__mcount_loc`: addresses. The build clears those in weak functions that were replaced (scripts/sorttable.c).
pub(crate) fn mcount_loc(part: &Part) -> Vec<Site> {
    let mut sites = absolute_sites(part);
    sites.retain(|s| s.addr != 0);
    sites
}

/// A list of addresses: `__mcount_loc`, `_kprobe_blacklist`.
pub(crate) fn absolute_sites(part: &Part) -> Vec<Site> {
    part.entries(8, |p, at| {
        Some(Site {
            addr: u64_at(&p.bytes, at)?,
        })
    })
}

/// `struct paravirt_patch_site { u8 *instr; u8 type, len; }` padded to 16 bytes (6.1, arch/x86/include/asm/paravirt_types.h).
pub(crate) fn paravirt(part: &Part) -> Vec<ParavirtSite> {
    part.entries(16, |p, at| {
        Some(ParavirtSite {
            addr: u64_at(&p.bytes, at)?,
            kind: *p.bytes.get(at + 8)?,
            len: *p.bytes.get(at + 9)?,
        })
    })
}

/// `struct alt_instr` (arch/x86/include/asm/alternative.h): `{ s32 instr, repl; u16 cpuid; u8 len, repl_len; }` up to 6.2,
/// with a further `u16 flags` after `cpuid` from 6.3 on. Which one it is shows by the lengths: a replacement is never
/// longer than the original.
pub(crate) fn alternatives(part: &Part) -> Vec<Alternative> {
    let new = alternatives_of(part, 14);
    if part.bytes.len().is_multiple_of(14) && plausible(&new) {
        return new;
    }
    alternatives_of(part, 12)
}

fn alternatives_of(part: &Part, stride: usize) -> Vec<Alternative> {
    part.entries(stride, |p, at| {
        let flags = if stride == 14 {
            u16_at(&p.bytes, at + 10)?
        } else {
            0
        };
        Some(Alternative {
            addr: p.relative(at)?,
            replacement: p.relative(at + 4)?,
            feature: u16_at(&p.bytes, at + 8)?,
            flags,
            len: *p.bytes.get(at + stride - 2)?,
            replacement_len: *p.bytes.get(at + stride - 1)?,
        })
    })
}

fn plausible(entries: &[Alternative]) -> bool {
    entries
        .iter()
        .all(|a| a.replacement_len <= a.len && a.len > 0)
}

/// `.orc_unwind_ip` (self-relative s32) and `.orc_unwind` (6 bytes each, arch/x86/include/asm/orc_types.h), side by side.
pub(crate) fn orc(ip: &Part, raw: &[u8]) -> Vec<OrcEntry> {
    let (entries, _) = raw.as_chunks::<6>();
    let (ips, _) = ip.bytes.as_chunks::<4>();
    let mut at = ip.addr;
    let mut out = Vec::with_capacity(entries.len().min(ips.len()));
    for (offset, raw) in ips.iter().zip(entries) {
        let offset = i64::from(i32::from_le_bytes(*offset));
        out.push(OrcEntry {
            ip: at.wrapping_add(offset as u64),
            raw: *raw,
        });
        at = at.wrapping_add(4);
    }
    out
}
