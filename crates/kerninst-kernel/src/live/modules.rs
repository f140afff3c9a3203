//! Modules of the running kernel: `/proc/modules`, and `struct module` in kernel memory, whose layout BTF tells.

use std::ops::Range;

use super::cache::PageCache;
use super::lists::walk;
use crate::bytes::{cstr_at, u32_at, u64_at};
use crate::tables::collect::{ALL, Collector, Facts, Kind};
use crate::tables::decode::Part;
use crate::{Btf, Memory, Module, ModuleState, SymbolsBuilder};

/// Parses `/proc/modules`: `name size refs users state address [taints]`. Lines that do not fit are left out.
pub(crate) fn parse_proc(text: &str) -> Vec<Module> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Module> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let size = words.next()?.parse().ok()?;
    let refs = words.next()?.parse().ok();
    let users = words.next()?;
    let state = match words.next()? {
        "Loading" => ModuleState::Coming,
        "Unloading" => ModuleState::Going,
        _ => ModuleState::Live,
    };
    let base = u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok()?;
    let used_by = users
        .split(',')
        .filter(|u| !u.is_empty() && !u.starts_with(['-', '[']))
        .map(Into::into);
    let mut module = Module::new(name, base..base);
    module.text.clear();
    (module.size, module.refs, module.state) = (size, refs, state);
    module.used_by = used_by.collect();
    Some(module)
}

/// Offsets in `struct module` that differ from kernel to kernel.
struct Layout<'b> {
    btf: &'b Btf,
    size: usize,
    list: u64,
    name: usize,
}

impl<'b> Layout<'b> {
    fn new(btf: &'b Btf) -> Option<Self> {
        Some(Self {
            btf,
            size: usize::try_from(btf.struct_size("module")?)
                .ok()
                .filter(|s| *s <= 1 << 16)?,
            list: btf.offset("module", "list")?,
            name: usize::try_from(btf.offset("module", "name")?).ok()?,
        })
    }
    fn at(&self, path: &str) -> Option<usize> {
        self.btf.offset("module", path)?.try_into().ok()
    }
    fn u64(&self, bytes: &[u8], path: &str) -> Option<u64> {
        u64_at(bytes, self.at(path)?)
    }
    fn u32(&self, bytes: &[u8], path: &str) -> Option<u64> {
        u32_at(bytes, self.at(path)?).map(u64::from)
    }
    /// Text: `mem[MOD_TEXT]`, `mem[MOD_INIT_TEXT]` since 6.4; before that the first `text_size` bytes of
    /// `core_layout` and `init_layout`.
    fn text(&self, bytes: &[u8], init: bool) -> Option<Range<u64>> {
        let (base, size) = if self.at("mem").is_some() {
            let kind = if init { "MOD_INIT_TEXT" } else { "MOD_TEXT" };
            let i = self.btf.enum_value("mod_mem_type", kind)?;
            (
                self.u64(bytes, &format!("mem[{i}].base"))?,
                self.u32(bytes, &format!("mem[{i}].size"))?,
            )
        } else {
            let area = if init { "init_layout" } else { "core_layout" };
            (
                self.u64(bytes, &format!("{area}.base"))?,
                self.u32(bytes, &format!("{area}.text_size"))?,
            )
        };
        (base != 0 && size != 0).then_some(base..base.checked_add(size)?)
    }
}

/// The modules' `struct module`s, as bytes.
pub(crate) struct Structs<'b> {
    layout: Layout<'b>,
    found: Vec<(u64, Vec<u8>)>,
}

impl<'b> Structs<'b> {
    /// Walks the kernel's list of modules, at symbol `modules`.
    pub(crate) fn read(
        list: Option<u64>,
        memory: &dyn Memory,
        btf: &'b Btf,
    ) -> Result<Self, String> {
        let head = list.ok_or("no symbol modules")?;
        let layout = Layout::new(btf).ok_or("BTF has no struct module")?;
        let mut found = Vec::new();
        for at in walk(&mut PageCache::new(memory), head, layout.list)? {
            found.push((at, memory.read(at, layout.size).map_err(|e| e.to_string())?));
        }
        Ok(Self { layout, found })
    }

    fn name<'s>(&self, bytes: &'s [u8]) -> &'s str {
        cstr_at(bytes, self.layout.name).unwrap_or("")
    }

    /// Completes what `/proc/modules` told: text ranges, address of the struct.
    pub(crate) fn complete(&self, modules: &mut Vec<Module>) {
        for (at, bytes) in &self.found {
            let name = self.name(bytes);
            let Some(module) = modules.iter_mut().find(|m| m.name == name) else {
                continue;
            };
            module.struct_addr = Some(*at);
            module.text = [false, true]
                .iter()
                .filter_map(|&init| self.layout.text(bytes, init))
                .collect();
        }
        for module in modules.iter_mut() {
            module.set_live();
        }
        // A module that is on one list only is just coming or going: it is not there.
        modules.retain(|m| m.struct_addr.is_some());
    }

    /// The modules' read-only data: `mem[MOD_RODATA]`, `mem[MOD_RO_AFTER_INIT]` since 6.4; what follows the text in
    /// `core_layout` before that.
    pub(crate) fn rodata(&self, memory: &dyn Memory) -> Vec<(u64, Vec<u8>)> {
        let layout = &self.layout;
        let ranges = self.found.iter().flat_map(|(_, bytes)| {
            let area = |kind: &str| {
                let i = layout.btf.enum_value("mod_mem_type", kind)?;
                let base = layout.u64(bytes, &format!("mem[{i}].base"))?;
                Some((base, layout.u32(bytes, &format!("mem[{i}].size"))?))
            };
            let before = || {
                let text = layout.text(bytes, false)?;
                let end = layout.u32(bytes, "core_layout.ro_after_init_size")?;
                let len = text.start.checked_add(end)?.checked_sub(text.end)?;
                Some((text.end, len))
            };
            [area("MOD_RODATA"), area("MOD_RO_AFTER_INIT"), before()]
        });
        let wanted = ranges
            .flatten()
            .filter(|(base, size)| *base != 0 && *size != 0 && *size < 64 << 20);
        wanted
            .filter_map(|(base, size)| Some((base, memory.read(base, size as usize).ok()?)))
            .collect()
    }

    /// Adds the modules' site tables.
    pub(crate) fn add_tables(&self, memory: &dyn Memory, out: &mut Collector) {
        for (_, bytes) in &self.found {
            let name = self.name(bytes);
            for facts in &ALL {
                let Some((pointer, count)) = fields(facts.kind) else {
                    continue;
                };
                self.add_table(facts, name, bytes, (pointer, count), memory, out);
            }
            self.add_orc(name, bytes, memory, out);
        }
    }

    fn add_table(
        &self,
        facts: &Facts,
        name: &str,
        bytes: &[u8],
        fields: (&str, &str),
        memory: &dyn Memory,
        out: &mut Collector,
    ) {
        let (Some(addr), Some(count)) = (
            self.layout.u64(bytes, fields.0),
            self.layout.u32(bytes, fields.1),
        ) else {
            return out.missing(
                facts.section,
                Some(name),
                format!("BTF has no module.{}", fields.0),
            );
        };
        let stride = facts.stride.first().copied().unwrap_or(1);
        if count == 0 {
            return;
        }
        match memory.read(addr, (count * stride) as usize) {
            Ok(bytes) => out.add(facts, Some(name), addr, bytes),
            Err(e) => out.missing(facts.section, Some(name), e.to_string()),
        }
    }

    fn add_orc(&self, name: &str, bytes: &[u8], memory: &dyn Memory, out: &mut Collector) {
        let get = |path: &str| self.layout.u64(bytes, path);
        let (Some(ip), Some(raw), Some(count)) = (
            get("arch.orc_unwind_ip"),
            get("arch.orc_unwind"),
            self.layout.u32(bytes, "arch.num_orcs"),
        ) else {
            return out.missing(
                ".orc_unwind",
                Some(name),
                "BTF has no module.arch.orc_unwind",
            );
        };
        if count == 0 {
            return;
        }
        let read = |at, size: u64| memory.read(at, (count * size) as usize);
        match (read(ip, 4), read(raw, 6)) {
            (Ok(ips), Ok(raw)) => out.add_orc(
                Some(name),
                Part {
                    addr: ip,
                    bytes: ips,
                },
                raw,
            ),
            (Err(e), _) | (_, Err(e)) => out.missing(".orc_unwind", Some(name), e.to_string()),
        }
    }

    /// Adds the modules' symbols (`struct mod_kallsyms`, include/linux/module.h).
    pub(crate) fn add_symbols(
        &self,
        memory: &dyn Memory,
        out: &mut SymbolsBuilder,
    ) -> Result<(), String> {
        for (_, bytes) in &self.found {
            let name = self.name(bytes);
            self.add_module_symbols(name, bytes, memory, out)
                .map_err(|e| format!("symbols of module {name}: {e}"))?;
        }
        Ok(())
    }

    fn add_module_symbols(
        &self,
        module: &str,
        bytes: &[u8],
        memory: &dyn Memory,
        out: &mut SymbolsBuilder,
    ) -> Result<(), String> {
        const SYM: usize = 24;
        let at = self
            .layout
            .u64(bytes, "kallsyms")
            .ok_or("BTF has no module.kallsyms")?;
        let field = |path: &str| {
            self.layout
                .btf
                .offset("mod_kallsyms", path)
                .ok_or("BTF has no mod_kallsyms")
        };
        let mut pages = PageCache::new(memory);
        let mut pointer = |path| {
            pages
                .u64(at.wrapping_add(field(path)?))
                .map_err(|e| e.to_string())
        };
        let (symtab, strtab, typetab) =
            (pointer("symtab")?, pointer("strtab")?, pointer("typetab")?);
        let count = pages
            .u32(at.wrapping_add(field("num_symtab")?))
            .map_err(|e| e.to_string())? as usize;
        if count > 4_000_000 {
            return Err(format!("{count} symbols"));
        }
        let read = |at, len| memory.read(at, len).map_err(|e| e.to_string());
        let table = read(symtab, count * SYM)?;
        let letters = read(typetab, count)?;
        // The strings are one block that ends with the last symbol's name: no name is longer than KSYM_NAME_LEN.
        let last = (0..count)
            .filter_map(|i| u32_at(&table, i * SYM))
            .max()
            .unwrap_or(0) as usize;
        let mut strings = read(strtab, last)?;
        let mut tail_at = strtab.wrapping_add(last as u64);
        for _ in 0..512 {
            let byte = read(tail_at, 1)?.first().copied().unwrap_or(0);
            strings.push(byte);
            tail_at = tail_at.wrapping_add(1);
            if byte == 0 {
                break;
            }
        }
        // Symbol 0 is the empty one. SHN_UNDEF (0) symbols are imports.
        for i in 1..count {
            let entry = table.get(i * SYM..(i + 1) * SYM).unwrap_or(&[]);
            let (Some(name), Some(value), Some(size)) =
                (u32_at(entry, 0), u64_at(entry, 8), u64_at(entry, 16))
            else {
                continue;
            };
            let defined = entry.get(6..8).is_some_and(|s| s != [0, 0]);
            let name = cstr_at(&strings, name as usize).unwrap_or("");
            if defined && !name.is_empty() {
                // typetab has small letters only; the binding tells what is global.
                let global = entry.get(4).is_some_and(|info| info >> 4 == 1);
                let letter = letters.get(i).copied().unwrap_or(b'?');
                let letter = if global {
                    letter.to_ascii_uppercase()
                } else {
                    letter
                };
                out.add(
                    name,
                    value,
                    Some(size).filter(|s| *s > 0),
                    letter,
                    Some(module),
                );
            }
        }
        Ok(())
    }
}

/// The members of `struct module` that point to a table and count its entries (include/linux/module.h).
fn fields(kind: Kind) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        Kind::ExTable => ("extable", "num_exentries"),
        Kind::Bugs => ("bug_table", "num_bugs"),
        Kind::JumpLabels => ("jump_entries", "num_jump_entries"),
        Kind::StaticCalls => ("static_call_sites", "num_static_call_sites"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_modules() {
        let text = "loop 40960 2 - Live 0xffffffffc0123000\n\
                    ext4 1146880 1 a,b, Loading 0xffffffffc0200000 (OE)\n\
                    x 1 0 [permanent], Live 0xffffffffc0000000\nbroken line\n";
        let got: Vec<_> = parse_proc(text)
            .into_iter()
            .map(|m| {
                format!(
                    "{} {} {:?} {:?} {:?} {:x}",
                    m.name, m.size, m.refs, m.used_by, m.state, m.base
                )
            })
            .collect();
        assert_eq!(
            got,
            [
                "loop 40960 Some(2) [] Live ffffffffc0123000",
                "ext4 1146880 Some(1) [\"a\", \"b\"] Coming ffffffffc0200000",
                "x 1 Some(0) [] Live ffffffffc0000000",
            ]
        );
    }
}
