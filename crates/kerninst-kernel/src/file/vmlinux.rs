//! A linked kernel: `vmlinux`, or what a bzImage holds.

use std::ops::Range;
use std::sync::Arc;

use super::Reason;
use super::elf::{Elf, Section, letter};
use crate::kernel::{Kernel, Lazy, lazy};
use crate::live::sysfs::build_id;
use crate::off_limits::collect::Collector as OffLimitCollector;
use crate::tables::collect::{Collector, between};
use crate::tables::decode::absolute_sites;
use crate::{Btf, Error, Memory, OffLimit, Symbols, SymbolsBuilder, Text, kallsyms, pointers};

/// The file as memory.
struct Image {
    elf: Elf,
    /// Address, size, file offset of the loaded sections, sorted by address.
    mapped: Vec<(u64, u64, usize)>,
}

impl Image {
    fn new(elf: Elf) -> Self {
        let loaded = elf
            .sections
            .iter()
            .filter(|s| s.allocated() && !s.no_bits() && s.size > 0);
        let mut mapped: Vec<_> = loaded.map(|s| (s.addr, s.size, s.offset)).collect();
        mapped.sort_unstable();
        Self { elf, mapped }
    }
    fn get(&self, addr: u64, len: usize) -> Option<&[u8]> {
        let at = self
            .mapped
            .partition_point(|m| m.0 <= addr)
            .checked_sub(1)?;
        let &(start, size, offset) = self.mapped.get(at)?;
        let inside = addr.checked_sub(start)?;
        if inside.checked_add(len as u64)? > size {
            return None;
        }
        let from = offset.checked_add(usize::try_from(inside).ok()?)?;
        self.elf.bytes.get(from..from.checked_add(len)?)
    }
}

impl Image {
    /// Sections that start in `range`.
    fn parts(&self, range: Range<u64>) -> Vec<(u64, Vec<u8>)> {
        let inside = self.mapped.iter().filter(|m| range.contains(&m.0));
        let bytes = |m: &(u64, u64, usize)| {
            Some((m.0, self.get(m.0, usize::try_from(m.1).ok()?)?.to_vec()))
        };
        inside.filter_map(bytes).collect()
    }
}

impl Memory for Image {
    fn read(&self, addr: u64, len: usize) -> Result<Vec<u8>, Error> {
        self.get(addr, len)
            .map(<[u8]>::to_vec)
            .ok_or(Error::Unmapped { addr, len })
    }
}

pub(super) fn kernel(elf: Elf, release: Option<String>) -> Result<Kernel, Reason> {
    let mut builder = SymbolsBuilder::new();
    add_symbols(&elf, &mut builder)?;
    let texts: Vec<(Range<u64>, bool)> = elf.sections.iter().filter_map(text_range).collect();
    for s in elf
        .sections
        .iter()
        .filter(|s| s.allocated() && s.addr > u64::from(u32::MAX))
    {
        builder.limit(s.addr..s.addr.saturating_add(s.size));
    }
    let symbols = Arc::new(builder.build());
    let core = core_text(&symbols, &texts)?;
    let notes = elf.named(".notes").and_then(build_id);
    let image = Arc::new(Image::new(elf));
    let release = release.or_else(|| banner_release(&symbols, &image));

    let (source, init_texts) = (Arc::clone(&image), texts.clone());
    let text: Arc<Lazy<Vec<Text>>> = Arc::new(lazy(move || {
        let text = |range: &Range<u64>, init| {
            let bytes = source
                .get(range.start, (range.end - range.start) as usize)?
                .to_vec();
            Some(Text {
                module: None,
                start: range.start,
                bytes,
                init,
            })
        };
        let init = init_texts
            .iter()
            .filter(|t| t.1)
            .filter_map(|(range, _)| text(range, true));
        let mut all: Vec<Text> = text(&core, false).into_iter().chain(init).collect();
        all.sort_by_key(|t| t.start);
        all
    }));
    let source = Arc::clone(&image);
    let btf: Arc<Lazy<Option<Btf>>> = Arc::new(lazy(move || {
        Btf::parse(source.elf.named(".BTF")?.to_vec()).ok()
    }));
    let (pointer_symbols, pointer_source, pointer_text) =
        (Arc::clone(&symbols), Arc::clone(&image), Arc::clone(&text));
    let (for_tables, for_limits) = (Arc::clone(&symbols), Arc::clone(&symbols));
    let (table_source, limit_source, types) =
        (Arc::clone(&image), Arc::clone(&image), Arc::clone(&btf));
    let images: Vec<Range<u64>> = match (texts.first(), texts.last()) {
        // One table describes all text of the image, init text included.
        (Some(first), Some(last)) => std::iter::once(first.0.start..last.0.end).collect(),
        _ => Vec::new(),
    };
    Ok(Kernel {
        live: false,
        release,
        build_id: notes,
        symbols,
        text,
        memory: image,
        modules: Arc::default(),
        btf,
        tables: lazy(move || {
            let mut out = Collector::default();
            out.add_core(&for_tables, &*table_source, (**types).as_ref(), false);
            out.build(images)
        }),
        code_pointers: lazy(move || {
            let bound = |name| pointer_symbols.addr_of(name);
            let (Some(start), Some(end)) = (bound("__start_rodata"), bound("__end_rodata")) else {
                return Vec::new();
            };
            let data = pointer_source.parts(start..end);
            pointers::scan(&data, &pointers::ranges(&pointer_text), &pointer_symbols)
        }),
        off_limits: lazy(move || {
            let mut out = OffLimitCollector::default();
            out.add_symbols(&for_limits);
            for (range, _) in texts.iter().filter(|t| t.1) {
                out.add(range.clone(), OffLimit::Init);
            }
            match between(
                &for_limits,
                &*limit_source,
                ("__start_kprobe_blacklist", "__stop_kprobe_blacklist"),
            ) {
                Ok(part) => {
                    out.add_functions(&for_limits, absolute_sites(&part).iter().map(|s| s.addr))
                }
                Err(reason) => out.missing(format!("the kprobe blacklist: {reason}")),
            }
            out.add_cold_parts(&for_limits);
            out.build()
        }),
        remarks: Vec::new(),
        vermagic: None,
    })
}

/// Executable sections, and whether they are init text. Replacements of alternatives are never run where they are.
fn text_range(s: &Section) -> Option<(Range<u64>, bool)> {
    let code = s.allocated() && s.executable() && !s.no_bits() && s.name != ".altinstr_replacement";
    code.then(|| (s.addr..s.addr.saturating_add(s.size), s.name != ".text"))
}

/// `_stext.._etext`, as far as the text section holds it.
fn core_text(symbols: &Symbols, texts: &[(Range<u64>, bool)]) -> Result<Range<u64>, Reason> {
    let section = texts.iter().find(|t| !t.1).map(|t| t.0.clone());
    let section = section.ok_or_else(|| Reason::NotAKernel("it has no section .text".into()))?;
    let start = symbols
        .addr_of("_stext")
        .map_or(section.start, |a| a.max(section.start));
    let end = symbols
        .addr_of("_etext")
        .map_or(section.end, |a| a.min(section.end));
    if start < end {
        Ok(start..end)
    } else {
        Err(Reason::Corrupt(
            "_stext.._etext is not in section .text".into(),
        ))
    }
}

/// From the ELF symbol table if there is one, otherwise from the kernel's own tables.
fn add_symbols(elf: &Elf, out: &mut SymbolsBuilder) -> Result<(), Reason> {
    let table = elf.symbols();
    if table.len() > 1 {
        for s in table {
            const FILE: u8 = 4;
            const SECTION: u8 = 3;
            if s.name.is_empty() || s.section == 0 || matches!(s.kind, FILE | SECTION) {
                continue;
            }
            let section = elf.sections.get(usize::from(s.section));
            let size = Some(s.size).filter(|n| *n > 0);
            out.add(s.name, s.value, size, letter(&s, section), None);
        }
        return Ok(());
    }
    let no_symbols =
        |e: &str| Reason::Corrupt(format!("it has no symbols: no ELF symbol table, and {e}"));
    let rodata = elf.named(".rodata").unwrap_or(&elf.bytes);
    let layout = kallsyms::find(rodata).map_err(no_symbols)?;
    kallsyms::decode(rodata, &layout, out).map_err(no_symbols)
}

/// The release out of `linux_banner`: "Linux version 6.12.117+deb12-amd64 (…".
fn banner_release(symbols: &Symbols, image: &Image) -> Option<String> {
    let banner = image.get(symbols.addr_of("linux_banner")?, 128)?;
    let text = std::str::from_utf8(banner.get(..memchr::memchr(b'(', banner)?)?).ok()?;
    text.strip_prefix("Linux version ")
        .map(|s| s.trim().to_string())
}
