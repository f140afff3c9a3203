//! A module in a file (`.ko`): its sections at made-up addresses.

use std::ops::Range;
use std::sync::Arc;

use super::Reason;
use super::elf::{Elf, letter};
use super::relocate::{self, Placed};
use crate::kernel::{Kernel, lazy};
use crate::live::sysfs::build_id;
use crate::memory::Segments;
use crate::off_limits::collect::Collector as OffLimitCollector;
use crate::tables::collect::{ALL, Collector};
use crate::tables::decode::{Part, absolute_sites};
use crate::{Memory, Module, OffLimit, Section, Symbols, SymbolsBuilder, Text, pointers};

/// Text sections that are off limits by their name.
const LIMITS: [(&str, OffLimit); 6] = [
    (".init.text", OffLimit::Init),
    (".noinstr.text", OffLimit::Noinstr),
    (".entry.text", OffLimit::Entry),
    (".cpuidle.text", OffLimit::Noinstr),
    (".kprobes.text", OffLimit::KprobesText),
    (".static_call.text", OffLimit::StaticCallTrampoline),
];

pub(super) fn kernel(elf: Elf, file_name: &str) -> Result<Kernel, Reason> {
    let info = elf.named(".modinfo").unwrap_or(&[]);
    let name = modinfo(info, "name=").unwrap_or_else(|| {
        file_name
            .split('.')
            .next()
            .unwrap_or("module")
            .replace('-', "_")
    });
    let vermagic = modinfo(info, "vermagic=");
    let mut placed = relocate::place(&elf)?;
    let symbols = Arc::new(symbols(&elf, &placed, &name));
    let mut remarks = Vec::new();
    if placed.skipped > 0 {
        remarks.push(format!(
            "{} relocations of unknown kind, or out of reach, were left alone",
            placed.skipped
        ));
    }

    let tables = tables(&elf, &placed, &name);
    let limits = off_limits(&elf, &placed, &symbols);
    let id = elf
        .sections
        .iter()
        .filter(|s| s.name.starts_with(".note"))
        .find_map(|s| build_id(elf.data(s)?));
    let module = describe(&elf, &placed, &name, id.clone());
    let mut memory = Segments::default();
    let mut text = Vec::new();
    let mut read_only = Vec::new();
    for (i, s) in elf.sections.iter().enumerate() {
        let (Some(&addr), Some(bytes)) = (placed.addrs.get(i), placed.bytes.get_mut(i)) else {
            continue;
        };
        let bytes = std::mem::take(bytes);
        if addr == 0 || bytes.is_empty() {
            continue;
        }
        if s.executable() {
            let init = s.name == ".init.text";
            text.push(Text {
                module: Some(name.clone()),
                start: addr,
                bytes: bytes.clone(),
                init,
            });
        }
        // Tables hold addresses too, but say which.
        if s.name.starts_with(".rodata") || s.name.starts_with(".data.rel.ro") {
            read_only.push((addr, bytes.clone()));
        }
        memory.add(addr, bytes);
    }
    let code_pointers = pointers::scan(&read_only, &pointers::ranges(&text), &symbols);
    let memory: Arc<dyn Memory> = Arc::new(memory);
    Ok(Kernel {
        live: false,
        release: vermagic
            .as_deref()
            .and_then(|v| v.split(' ').next())
            .map(Into::into),
        build_id: id,
        symbols,
        text: Arc::new(lazy(move || text)),
        memory,
        modules: Arc::new(vec![module]),
        // A module's BTF extends the kernel's, and says nothing without it.
        btf: Arc::new(lazy(|| None)),
        tables: lazy(move || tables),
        off_limits: lazy(move || limits),
        code_pointers: lazy(move || code_pointers),
        remarks,
        vermagic,
    })
}

/// A value in `.modinfo`: NUL-ended `key=value` strings.
fn modinfo(info: &[u8], key: &str) -> Option<String> {
    let entry = info
        .split(|&b| b == 0)
        .find_map(|e| e.strip_prefix(key.as_bytes()))?;
    std::str::from_utf8(entry).ok().map(Into::into)
}

fn symbols(elf: &Elf, placed: &Placed, name: &str) -> Symbols {
    const FILE: u8 = 4;
    const SECTION: u8 = 3;
    let mut out = SymbolsBuilder::new();
    for (s, &addr) in elf.symbols().iter().zip(&placed.symbols) {
        if s.name.is_empty() || matches!(s.kind, FILE | SECTION) {
            continue;
        }
        let section = elf
            .sections
            .get(usize::from(s.section))
            .filter(|_| s.section != 0);
        // Symbols of sections that are not loaded have no address.
        if addr == 0 && section.is_some() {
            continue;
        }
        let module = (s.section != 0).then_some(name);
        out.add(
            s.name,
            addr,
            Some(s.size).filter(|n| *n > 0),
            letter(s, section),
            module,
        );
    }
    for (s, &addr) in elf
        .sections
        .iter()
        .zip(&placed.addrs)
        .filter(|(_, addr)| **addr != 0)
    {
        out.limit(addr..addr.saturating_add(s.size));
    }
    out.build()
}

fn parts<'e>(
    elf: &'e Elf,
    placed: &'e Placed,
) -> impl Iterator<Item = (&'e str, u64, &'e Vec<u8>)> {
    let with_bytes = elf.sections.iter().zip(&placed.addrs).zip(&placed.bytes);
    with_bytes
        .filter(|((_, addr), _)| **addr != 0)
        .map(|((s, addr), bytes)| (s.name.as_str(), *addr, bytes))
}

fn tables(elf: &Elf, placed: &Placed, name: &str) -> crate::Tables {
    let mut out = Collector::default();
    let find = |section: &str| parts(elf, placed).find(|p| p.0 == section);
    for facts in &ALL {
        // A table that a module has no entries for is no section of it.
        for (_, addr, bytes) in parts(elf, placed).filter(|p| p.0 == facts.section) {
            out.add(facts, Some(name), addr, bytes.clone());
        }
    }
    match (find(".orc_unwind_ip"), find(".orc_unwind")) {
        (Some(ip), Some(raw)) => {
            out.add_orc(
                Some(name),
                Part {
                    addr: ip.1,
                    bytes: ip.2.clone(),
                },
                raw.2.clone(),
            );
        }
        _ => out.missing(".orc_unwind", Some(name), "the file has no such section"),
    }
    let text = elf
        .sections
        .iter()
        .zip(&placed.addrs)
        .filter(|(s, addr)| s.executable() && **addr != 0);
    let ranges: Vec<Range<u64>> = text
        .map(|(s, &addr)| addr..addr.saturating_add(s.size))
        .collect();
    let image = ranges
        .iter()
        .map(|r| r.start)
        .min()
        .zip(ranges.iter().map(|r| r.end).max());
    out.build(image.map(|(start, end)| start..end).into_iter().collect())
}

fn off_limits(elf: &Elf, placed: &Placed, symbols: &Symbols) -> crate::OffLimits {
    let mut out = OffLimitCollector::default();
    out.add_symbols(symbols);
    for (name, addr, bytes) in parts(elf, placed) {
        if let Some((_, why)) = LIMITS.iter().find(|l| l.0 == name) {
            out.add(addr..addr.saturating_add(bytes.len() as u64), *why);
        }
        if name == "_kprobe_blacklist" {
            let part = Part {
                addr,
                bytes: bytes.clone(),
            };
            out.add_functions(symbols, absolute_sites(&part).iter().map(|s| s.addr));
        }
    }
    out.add_cold_parts(symbols);
    out.build()
}

fn describe(elf: &Elf, placed: &Placed, name: &str, id: Option<Vec<u8>>) -> Module {
    let loaded = || {
        elf.sections
            .iter()
            .zip(&placed.addrs)
            .filter(|(_, addr)| **addr != 0)
    };
    let range = |s: &super::elf::Section, addr: u64| addr..addr.saturating_add(s.size);
    let end = loaded()
        .map(|(s, &addr)| range(s, addr).end)
        .max()
        .unwrap_or(relocate::BASE);
    let mut module = Module::new(name, relocate::BASE..end);
    let mut text: Vec<_> = loaded()
        .filter(|(s, _)| s.executable())
        .map(|(s, &a)| (s.name == ".init.text", range(s, a)))
        .collect();
    text.sort_by_key(|(init, r)| (*init, r.start));
    module.text = text.into_iter().map(|(_, r)| r).collect();
    let mut sections: Vec<Section> = loaded()
        .map(|(s, &addr)| Section {
            name: s.name.clone(),
            addr,
            size: Some(s.size),
        })
        .collect();
    sections.sort_by_key(|s| s.addr);
    module.set_sections(sections, id);
    module
}
