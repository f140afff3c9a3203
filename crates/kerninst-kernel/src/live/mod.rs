//! The running kernel.

mod cache;
mod kcore;
pub(crate) mod lists;
mod modules;
pub(crate) mod sysfs;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::kernel::{Kernel, Lazy, lazy};
use crate::off_limits::collect::Collector as OffLimitCollector;
use crate::tables::collect::{Collector, between};
use crate::{
    Btf, Error, Memory, Module, OffLimit, OffLimits, Site, Symbols, SymbolsBuilder, Table, Tables,
    Text, fentry, kallsyms, pointers,
};
use kcore::Kcore;

/// Kernel memory as it is now, without a picture of the whole kernel.
///
/// # Errors
/// As for [`Kernel::read`], and where `/proc/kcore` cannot be opened.
pub fn read_memory(addr: u64, len: usize) -> Result<Vec<u8>, Error> {
    Kcore::open()?.read(addr, len)
}

use modules::Structs;

/// Everything that later reads need.
#[derive(Clone)]
struct Shared {
    symbols: Arc<Symbols>,
    memory: Arc<dyn Memory>,
    modules: Arc<Vec<Module>>,
    btf: Arc<Lazy<Option<Btf>>>,
    text: Arc<Lazy<Vec<Text>>>,
}

pub(crate) fn kernel() -> Result<Kernel, Error> {
    let kcore = Kcore::open()?;
    let mut remarks = Vec::new();
    let btf: Arc<Lazy<Option<Btf>>> = Arc::new(lazy(|| {
        Btf::parse(std::fs::read("/sys/kernel/btf/vmlinux").ok()?).ok()
    }));
    let (symbols, modules) = match from_memory(&kcore, &btf) {
        Ok(found) => found,
        Err(reason) => {
            remarks.push(format!(
                "symbols come from /proc/kallsyms, which is slower: {reason}"
            ));
            from_proc(&kcore, &btf, &mut remarks)?
        }
    };
    let core = core_text(&symbols)?;
    // The most common failure should not wait for the first use of the text.
    kcore.read(core.start, 16)?;
    let text = text_reader(core, &modules);
    let memory: Arc<dyn Memory> = Arc::new(kcore);
    let reader = Arc::clone(&memory);
    let text: Arc<Lazy<Vec<Text>>> = Arc::new(lazy(move || text(&*reader)));
    let shared = Shared {
        symbols: Arc::new(symbols),
        memory,
        modules: Arc::new(modules),
        btf,
        text,
    };
    let (for_tables, for_limits, for_pointers) = (shared.clone(), shared.clone(), shared.clone());
    Ok(Kernel {
        live: true,
        release: read_string("/proc/sys/kernel/osrelease"),
        build_id: std::fs::read("/sys/kernel/notes")
            .ok()
            .and_then(|n| sysfs::build_id(&n)),
        symbols: shared.symbols,
        text: shared.text,
        memory: shared.memory,
        modules: shared.modules,
        btf: shared.btf,
        tables: lazy(move || tables(&for_tables)),
        off_limits: lazy(move || off_limits(&for_limits)),
        code_pointers: lazy(move || code_pointers(&for_pointers)),
        remarks,
        vermagic: None,
    })
}

fn read_string(path: &str) -> Option<String> {
    std::fs::read_to_string(path)
        .ok()
        .map(|s| s.trim().to_string())
}

fn core_text(symbols: &Symbols) -> Result<Range<u64>, Error> {
    match (symbols.addr_of("_stext"), symbols.addr_of("_etext")) {
        (Some(start), Some(end)) if start < end && end - start < 1 << 30 => Ok(start..end),
        _ => Err(Error::Unsupported(
            "the kernel's symbols have no _stext and _etext".into(),
        )),
    }
}

fn proc_modules() -> Vec<Module> {
    // The file is not there when the kernel has no loadable modules.
    modules::parse_proc(&std::fs::read_to_string("/proc/modules").unwrap_or_default())
}

/// Fast: the kallsyms tables and `struct module`s in kernel memory.
fn from_memory(
    kcore: &Kcore,
    btf: &Arc<Lazy<Option<Btf>>>,
) -> Result<(Symbols, Vec<Module>), String> {
    let image = kcore
        .image()
        .ok_or("kcore has no segment for the kernel's image")?;
    let mut builder = SymbolsBuilder::with_capacity(200_000, 5 << 20);
    decode_image(kcore, &image, &mut builder)?;
    let mut modules = proc_modules();
    if modules.is_empty() {
        return Ok((finish(builder, &modules, &image), modules));
    }
    let btf = (***btf)
        .as_ref()
        .ok_or("no usable /sys/kernel/btf/vmlinux")?;
    let structs = Structs::read(builder.find("modules"), kcore, btf)?;
    structs.complete(&mut modules);
    structs.add_symbols(kcore, &mut builder)?;
    Ok((finish(builder, &modules, &image), modules))
}

/// Where the tables are in `.rodata` is not known beforehand: on Debian's 6.1 and 6.12 they lie 17 to 21 MiB after `_text`,
/// so that is read first; failing that, all of the image.
fn decode_image(kcore: &Kcore, image: &Range<u64>, out: &mut SymbolsBuilder) -> Result<(), String> {
    const MIB: u64 = 1 << 20;
    let end = image.end.min(image.start.saturating_add(256 * MIB));
    let guess = image.start + 17 * MIB..(image.start + 21 * MIB).min(end);
    let mut reason = "the kernel's image is too small".to_string();
    for range in [guess, image.start..end] {
        if range.is_empty() {
            continue;
        }
        let bytes = kcore
            .read(range.start, (range.end - range.start) as usize)
            .map_err(|e| e.to_string())?;
        match kallsyms::find(&bytes) {
            Ok(layout) if image.contains(&layout.base()) => {
                return Ok(kallsyms::decode(&bytes, &layout, out)?);
            }
            Ok(layout) => {
                reason = format!(
                    "kallsyms is relative to {:#x}, outside the image",
                    layout.base()
                )
            }
            Err(e) => reason = e.into(),
        }
    }
    Err(reason)
}

/// Slow, and with fewer needs: the kernel's own listing.
fn from_proc(
    kcore: &Kcore,
    btf: &Arc<Lazy<Option<Btf>>>,
    remarks: &mut Vec<String>,
) -> Result<(Symbols, Vec<Module>), Error> {
    const PATH: &str = "/proc/kallsyms";
    let text = std::fs::read(PATH).map_err(|e| Error::io(Path::new(PATH), e))?;
    let mut builder = SymbolsBuilder::with_capacity(text.len() / 40, text.len() / 2);
    let parsed = kallsyms::parse_text(&text, &mut builder);
    if !parsed.addresses {
        return Err(Error::AddressesHidden);
    }
    if parsed.bad_lines > 0 {
        return Err(Error::corrupt(
            PATH,
            format!("{} lines are no symbols", parsed.bad_lines),
        ));
    }
    let core = builder.build();
    let mut modules = proc_modules();
    match (***btf)
        .as_ref()
        .ok_or("no usable /sys/kernel/btf/vmlinux".to_string())
        .and_then(|b| Structs::read(core.addr_of("modules"), kcore, b))
    {
        Ok(structs) => structs.complete(&mut modules),
        Err(reason) => {
            if !modules.is_empty() {
                remarks.push(format!("modules are left out: {reason}"));
            }
            modules.clear();
        }
    }
    let image = kcore.image().unwrap_or(0..0);
    Ok((finish(core.into_builder(), &modules, &image), modules))
}

/// Sets the areas that symbols do not reach out of.
fn finish(mut builder: SymbolsBuilder, modules: &[Module], image: &Range<u64>) -> Symbols {
    builder.limit(image.clone());
    for range in modules.iter().flat_map(|m| &m.text) {
        builder.limit(range.clone());
    }
    builder.build()
}

/// Makes the function that takes the snapshot.
fn text_reader(
    core: Range<u64>,
    modules: &[Module],
) -> impl FnOnce(&dyn Memory) -> Vec<Text> + Send + 'static {
    let mut ranges = vec![(None, core, false)];
    let mut of_modules: Vec<_> = modules
        .iter()
        .flat_map(|m| {
            m.text
                .iter()
                .enumerate()
                .map(|(i, r)| (Some(m.name.clone()), r.clone(), i > 0))
        })
        .collect();
    of_modules.sort_by_key(|(_, r, _)| r.start);
    ranges.extend(of_modules);
    move |memory| {
        let read = |(module, range, init): (Option<String>, Range<u64>, bool)| {
            // A module that is gone by now has no text.
            let bytes = memory
                .read(range.start, (range.end - range.start) as usize)
                .ok()?;
            Some(Text {
                module,
                start: range.start,
                bytes,
                init,
            })
        };
        ranges.into_iter().filter_map(read).collect()
    }
}

fn tables(shared: &Shared) -> Tables {
    let Shared {
        symbols,
        memory,
        modules,
        btf,
        ..
    } = shared;
    let btf = (***btf).as_ref();
    let mut out = Collector::default();
    out.add_core(symbols, &**memory, btf, true);
    if !modules.is_empty() {
        match btf
            .ok_or("no BTF".to_string())
            .and_then(|b| Structs::read(symbols.addr_of("modules"), &**memory, b))
        {
            Ok(structs) => structs.add_tables(&**memory, &mut out),
            Err(reason) => out.missing("(all tables of modules)", None, reason),
        }
    }
    let s = shared.clone();
    out.set_fentry(Table::lazy(move || fentry_sites(&s)));
    let mut images: Vec<_> = core_text(symbols).into_iter().collect();
    images.extend(modules.iter().flat_map(|m| m.text.iter().cloned()));
    out.build(images)
}

fn off_limits(shared: &Shared) -> OffLimits {
    let Shared {
        symbols,
        memory,
        modules,
        btf,
        ..
    } = shared;
    let mut out = OffLimitCollector::default();
    out.add_symbols(symbols);
    let blacklist = (***btf)
        .as_ref()
        .ok_or("no usable /sys/kernel/btf/vmlinux".to_string());
    match blacklist.and_then(|btf| lists::kprobe_blacklist(symbols, &**memory, btf)) {
        Ok(ranges) => ranges
            .into_iter()
            .for_each(|r| out.add(r, OffLimit::Blacklist)),
        Err(reason) => out.missing(format!("the kprobe blacklist: {reason}")),
    }
    for init in modules.iter().flat_map(|m| m.text.iter().skip(1)) {
        out.add(init.clone(), OffLimit::Init);
    }
    out.add_cold_parts(symbols);
    out.build()
}

fn code_pointers(shared: &Shared) -> Vec<u64> {
    let Shared {
        symbols,
        memory,
        modules,
        btf,
        text,
    } = shared;
    let mut data = Vec::new();
    if let Ok(part) = between(symbols, &**memory, ("__start_rodata", "__end_rodata")) {
        data.push((part.addr, part.bytes));
    }
    if let Some(btf) = (***btf).as_ref().filter(|_| !modules.is_empty())
        && let Ok(structs) = Structs::read(symbols.addr_of("modules"), &**memory, btf)
    {
        data.extend(structs.rodata(&**memory));
    }
    let mut found = pointers::scan(&data, &pointers::ranges(text), symbols);
    // Modules keep their `__mcount_loc` in read-only data.
    let mut sites = fentry_sites(shared);
    sites.sort_unstable_by_key(|s| s.addr);
    found.retain(|addr| sites.binary_search_by_key(addr, |s| s.addr).is_err());
    found
}

fn fentry_sites(shared: &Shared) -> Vec<Site> {
    let Shared {
        symbols,
        memory,
        btf,
        text,
        ..
    } = shared;
    let btf = (***btf).as_ref();
    let records = btf.and_then(|btf| lists::fentry_sites(symbols, &**memory, btf).ok());
    records.unwrap_or_else(|| fentry::scan(symbols, text))
}
