//! What a module must know of the kernel it is made for: `vermagic`, checksums of exported symbols.

use crate::bytes::{cstr_at, i32_at, u32_at};
use crate::{Memory, Symbols};

/// The string at symbol `vermagic` (include/linux/vermagic.h), which `finit_module` compares.
pub(crate) fn vermagic(symbols: &Symbols, memory: &dyn Memory) -> Option<String> {
    let bytes = memory.read(symbols.addr_of("vermagic")?, 256).ok()?;
    cstr_at(&bytes, 0).filter(|s| !s.is_empty()).map(Into::into)
}

/// One list of exports: `struct kernel_symbol { int value_offset, name_offset, namespace_offset; }`
/// (include/linux/export-internal.h, `CONFIG_HAVE_ARCH_PREL32_RELOCATIONS`), sorted by name, and as many u32 checksums.
const LISTS: [[&str; 3]; 2] = [
    ["__start___ksymtab", "__stop___ksymtab", "__start___kcrctab"],
    [
        "__start___ksymtab_gpl",
        "__stop___ksymtab_gpl",
        "__start___kcrctab_gpl",
    ],
];
const ENTRY: u64 = 12;

/// The checksum of the exported symbol `name`; `None` if it is not exported, or there are no checksums.
pub(crate) fn symbol_crc(symbols: &Symbols, memory: &dyn Memory, name: &str) -> Option<u32> {
    LISTS.iter().find_map(|[start, stop, crcs]| {
        let (start, stop) = (symbols.addr_of(start)?, symbols.addr_of(stop)?);
        let crcs = symbols.addr_of(crcs)?;
        let count = stop.checked_sub(start).filter(|len| *len < 1 << 26)? / ENTRY;
        let table = memory.read(start, (count * ENTRY) as usize).ok()?;
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            let field = middle * ENTRY + 4;
            let at = start
                .wrapping_add(field)
                .wrapping_add(i64::from(i32_at(&table, field as usize)?) as u64);
            match export_name(memory, at)?.as_str().cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let crc = memory.read(crcs.checked_add(middle * 4)?, 4).ok()?;
                    return u32_at(&crc, 0);
                }
            }
        }
        None
    })
}

fn export_name(memory: &dyn Memory, at: u64) -> Option<String> {
    // Names are at most KSYM_NAME_LEN long; the last ones may be close to the end of readable memory.
    let bytes = [512, 64, 16]
        .iter()
        .find_map(|&len| memory.read(at, len).ok())?;
    cstr_at(&bytes, 0).map(Into::into)
}

#[cfg(test)]
mod tests {
    use crate::Kernel;

    #[test]
    fn crc_by_name() {
        let names = ["alpha", "beta", "module_layout"];
        let (table, strings, crcs) = (0x1000u64, 0x2000u64, 0x3000u64);
        let mut ksymtab = Vec::new();
        for i in 0..names.len() as u64 {
            let name_at = strings + i * 32;
            let field = table + i * 12 + 4;
            ksymtab.extend(0i32.to_le_bytes());
            ksymtab.extend((name_at.wrapping_sub(field) as i32).to_le_bytes());
            ksymtab.extend(0i32.to_le_bytes());
        }
        let mut text = Vec::new();
        for name in names {
            text.extend(name.bytes());
            text.resize(text.len().next_multiple_of(32), 0);
        }
        text.resize(600 + 96, 0);
        let kernel = Kernel::builder()
            .symbol("__start___ksymtab", table, 'R')
            .symbol("__stop___ksymtab", table + 36, 'R')
            .symbol("__start___kcrctab", crcs, 'R')
            .symbol("vermagic", 0x4000, 'r')
            .data(table, &ksymtab)
            .data(strings, &text)
            .data(crcs, &[1, 0, 0, 0, 2, 0, 0, 0, 0xef, 0xbe, 0xad, 0xde])
            .data(0x4000, &[b"6.1 SMP \0".to_vec(), vec![0; 300]].concat())
            .build();
        assert_eq!(kernel.symbol_crc("module_layout"), Some(0xdead_beef));
        assert_eq!(kernel.symbol_crc("alpha"), Some(1));
        assert_eq!(kernel.symbol_crc("gamma"), None);
        assert_eq!(kernel.vermagic().as_deref(), Some("6.1 SMP "));
        assert_eq!(Kernel::builder().build().symbol_crc("x"), None);
    }
}
