//! Linked structures of the running kernel: the kprobe blacklist and ftrace's records of fentry sites.

use std::ops::Range;

use super::cache::PageCache;
use crate::bytes::u64_at;
use crate::{Btf, Memory, Site, Symbols};

/// The lower bound of kernel addresses, with five levels of page tables too (Documentation/arch/x86/x86_64/mm.rst).
const KERNEL_SPACE: u64 = 0xff00_0000_0000_0000;

/// More links than any kernel has: damaged lists end there.
const MOST: usize = 1_000_000;

fn offset(btf: &Btf, structure: &str, path: &str) -> Result<u64, String> {
    btf.offset(structure, path)
        .ok_or_else(|| format!("BTF has no {structure}.{path}"))
}

/// Addresses of the structs on a `list_head` list whose head is at `head` and whose links are at `link` in each struct.
pub(super) fn walk(memory: &mut PageCache<'_>, head: u64, link: u64) -> Result<Vec<u64>, String> {
    let mut found = Vec::new();
    let mut at = memory.u64(head).map_err(|e| e.to_string())?;
    while at != head {
        if found.len() >= MOST || at < KERNEL_SPACE {
            return Err(format!(
                "the list at {head:#x} is damaged or changed while it was read: its link {} is {at:#x}",
                found.len()
            ));
        }
        found.push(at.wrapping_sub(link));
        at = memory.u64(at).map_err(|e| e.to_string())?;
    }
    Ok(found)
}

/// The ranges on the kernel's kprobe blacklist (`struct kprobe_blacklist_entry`, include/linux/kprobes.h), modules' included.
pub(crate) fn kprobe_blacklist(
    symbols: &Symbols,
    memory: &dyn Memory,
    btf: &Btf,
) -> Result<Vec<Range<u64>>, String> {
    let head = symbols
        .addr_of("kprobe_blacklist")
        .ok_or("no symbol kprobe_blacklist")?;
    let entry = "kprobe_blacklist_entry";
    let (link, start, end) = (
        offset(btf, entry, "list")?,
        offset(btf, entry, "start_addr")?,
        offset(btf, entry, "end_addr")?,
    );
    let mut pages = PageCache::new(memory);
    let mut ranges = Vec::new();
    for at in walk(&mut pages, head, link)? {
        let mut field = |o| pages.u64(at.wrapping_add(o)).map_err(|e| e.to_string());
        ranges.push(field(start)?..field(end)?);
    }
    Ok(ranges)
}

/// All fentry sites that ftrace manages (`struct ftrace_page`, kernel/trace/ftrace.c; `struct dyn_ftrace`,
/// include/linux/ftrace.h), modules' included: the kernel's own truth.
pub(crate) fn fentry_sites(
    symbols: &Symbols,
    memory: &dyn Memory,
    btf: &Btf,
) -> Result<Vec<Site>, String> {
    let start = symbols
        .addr_of("ftrace_pages_start")
        .ok_or("no symbol ftrace_pages_start")?;
    let (next, records, index) = (
        offset(btf, "ftrace_page", "next")?,
        offset(btf, "ftrace_page", "records")?,
        offset(btf, "ftrace_page", "index")?,
    );
    let ip = offset(btf, "dyn_ftrace", "ip")? as usize;
    let stride = btf
        .struct_size("dyn_ftrace")
        .filter(|&s| s >= 8)
        .ok_or("BTF has no dyn_ftrace")? as usize;
    let mut pages = PageCache::new(memory);
    let error = |e: crate::Error| e.to_string();
    let mut sites = Vec::new();
    let mut page = pages.u64(start).map_err(error)?;
    let mut count = 0;
    while page != 0 {
        let used = pages.u32(page.wrapping_add(index)).map_err(error)? as usize;
        count += 1;
        if count > MOST || used > MOST || sites.len() > 10 * MOST {
            return Err("ftrace's records are damaged or changed while they were read".into());
        }
        let at = pages.u64(page.wrapping_add(records)).map_err(error)?;
        if used > 0 {
            let bytes = memory.read(at, used * stride).map_err(error)?;
            sites.extend(
                (0..used)
                    .filter_map(|i| u64_at(&bytes, i * stride + ip))
                    .map(|addr| Site { addr }),
            );
        }
        page = pages.u64(page.wrapping_add(next)).map_err(error)?;
    }
    // The tail of the last page of records may be unused.
    sites.retain(|s| s.addr != 0);
    Ok(sites)
}
