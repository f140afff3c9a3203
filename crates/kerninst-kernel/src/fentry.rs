//! fentry sites from the code itself, where neither ftrace's records nor `__mcount_loc` can be had.

use crate::{Site, Symbol, Symbols, Text};

const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// What boot code makes of an ENDBR that no pointer leads to (`gen_endbr_poison`, arch/x86/include/asm/ibt.h).
const SEALED: [u8; 4] = [0x66, 0x0f, 0x1f, 0x00];

/// The 5-byte nop, or a call to a tracer, at the start of each function or behind its ENDBR.
pub(crate) fn scan(symbols: &Symbols, text: &[Text]) -> Vec<Site> {
    let tracers: Vec<u64> = [
        "__fentry__",
        "ftrace_caller",
        "ftrace_regs_caller",
        "ftrace_stub",
    ]
    .iter()
    .filter_map(|name| symbols.addr_of(name))
    .collect();
    let mut sites: Vec<Site> = Vec::new();
    for t in text {
        for s in symbols.in_range(t.range()).filter(Symbol::is_text) {
            let site = match t.get(s.addr, 4) {
                Some(b) if b == ENDBR64 || b == SEALED => s.addr + 4,
                _ => s.addr,
            };
            let Some(&[op, a, b, c, d]) = t.get(site, 5).and_then(|b| b.first_chunk::<5>()) else {
                continue;
            };
            let target = site
                .wrapping_add(5)
                .wrapping_add(i64::from(i32::from_le_bytes([a, b, c, d])) as u64);
            // ftrace's own trampolines are in no text range.
            let traced = op == 0xe8
                && (tracers.contains(&target) || !text.iter().any(|t| t.range().contains(&target)));
            let known = sites.last().is_some_and(|last| last.addr == site);
            if ([op, a, b, c, d] == NOP5 || traced) && !known {
                sites.push(Site { addr: site });
            }
        }
    }
    sites
}

#[cfg(test)]
mod tests {
    use crate::Kernel;

    #[test]
    fn nop_endbr_and_armed() {
        let mut code = vec![0xcc; 0x60];
        code[0x00..0x05].copy_from_slice(&super::NOP5);
        code[0x10..0x14].copy_from_slice(&super::ENDBR64);
        code[0x14..0x19].copy_from_slice(&super::NOP5);
        code[0x20..0x24].copy_from_slice(&super::SEALED);
        // call out of text: a trampoline; call into text: an ordinary call; call ftrace_caller
        code[0x24..0x29].copy_from_slice(&[0xe8, 0, 0, 0x10, 0]);
        code[0x30..0x35].copy_from_slice(&[0xe8, 0, 0, 0, 0]);
        code[0x40..0x45].copy_from_slice(&[0xe8, 0x0b, 0, 0, 0]);
        let k = Kernel::builder()
            .text(0x1000, &code)
            .symbol("a", 0x1000, 't')
            .symbol("a_alias", 0x1000, 'T')
            .symbol("b", 0x1010, 't')
            .symbol("c", 0x1020, 't')
            .symbol("d", 0x1030, 't')
            .symbol("e", 0x1040, 't')
            .symbol("ftrace_caller", 0x1050, 'T')
            .symbol("last", 0x105f, 't')
            .build();
        let got: Vec<u64> = super::scan(k.symbols(), k.text())
            .iter()
            .map(|s| s.addr)
            .collect();
        assert_eq!(got, [0x1000, 0x1014, 0x1024, 0x1040]);
    }
}
