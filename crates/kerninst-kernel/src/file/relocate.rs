//! Lays a module's sections out at made-up addresses and applies its relocations, so that calls and tables name
//! the right things.

use super::Reason;
use super::elf::{Elf, Rela};

/// Where a module's sections are put: the start of the module area of a kernel with KASLR support.
pub(super) const BASE: u64 = 0xffff_ffff_c000_0000;
/// Where undefined symbols are put, 16 bytes each: within reach of a call from [`BASE`], and in no image.
pub(super) const EXTERN_BASE: u64 = 0xffff_ffff_a000_0000;
const EXTERN_STEP: u64 = 16;

/// A module with addresses.
pub(super) struct Placed {
    /// Address of each section; 0 for those that are not loaded.
    pub addrs: Vec<u64>,
    /// Bytes of each loaded section, relocated; empty for those without bytes.
    pub bytes: Vec<Vec<u8>>,
    /// Address of each symbol table entry.
    pub symbols: Vec<u64>,
    /// Relocations that were left alone: of an unknown type, or out of reach.
    pub skipped: usize,
}

pub(super) fn place(elf: &Elf) -> Result<Placed, Reason> {
    let mut addrs = vec![0; elf.sections.len()];
    let mut bytes = vec![Vec::new(); elf.sections.len()];
    let mut at = BASE;
    // Text first, as the kernel's loader does.
    for executable in [true, false] {
        for (i, s) in elf.sections.iter().enumerate() {
            if !s.allocated() || s.executable() != executable || s.size == 0 {
                continue;
            }
            at = at.next_multiple_of(s.align.clamp(1, 4096).next_power_of_two());
            let end = at
                .checked_add(s.size)
                .filter(|end| *end < BASE + (512 << 20));
            let end =
                end.ok_or_else(|| Reason::Corrupt(format!("section {} is too large", s.name)))?;
            if let (Some(slot), Some(data)) = (addrs.get_mut(i), bytes.get_mut(i)) {
                *slot = at;
                *data = elf.data(s).map(<[u8]>::to_vec).unwrap_or_default();
            }
            at = end;
        }
        at = at.next_multiple_of(4096);
    }
    let symbols = symbol_addresses(elf, &addrs);
    let mut placed = Placed {
        addrs,
        bytes,
        symbols,
        skipped: 0,
    };
    for (section, relocations) in elf.relocations() {
        for r in relocations {
            placed.apply(section, &r);
        }
    }
    Ok(placed)
}

fn symbol_addresses(elf: &Elf, addrs: &[u64]) -> Vec<u64> {
    const UNDEFINED: u16 = 0;
    const ABSOLUTE: u16 = 0xfff1;
    let mut next = EXTERN_BASE;
    let address = |s: super::elf::Sym<'_>| match s.section {
        UNDEFINED if s.name.is_empty() => 0,
        UNDEFINED => {
            let at = next;
            next = next.wrapping_add(EXTERN_STEP);
            at
        }
        ABSOLUTE => s.value,
        n => addrs
            .get(usize::from(n))
            .copied()
            .unwrap_or(0)
            .wrapping_add(s.value),
    };
    elf.symbols().into_iter().map(address).collect()
}

impl Placed {
    /// As `apply_relocate_add` (arch/x86/kernel/module.c) does.
    fn apply(&mut self, section: usize, r: &Rela) {
        let base = self.addrs.get(section).copied().unwrap_or(0);
        if base == 0 {
            // Not loaded (debug information): of no interest.
            return;
        }
        let symbol = self.symbols.get(r.symbol as usize).copied().unwrap_or(0);
        let value = symbol.wrapping_add(r.addend as u64);
        let here = base.wrapping_add(r.offset);
        let relative = value.wrapping_sub(here);
        let (value, width) = match r.kind {
            1 => (value, 8),        // R_X86_64_64
            2 | 4 => (relative, 4), // R_X86_64_PC32, PLT32
            10 | 11 => (value, 4),  // R_X86_64_32, 32S
            24 => (relative, 8),    // R_X86_64_PC64
            0 => return,
            _ => {
                self.skipped += 1;
                return;
            }
        };
        let fits = width == 8
            || value as i64 == i64::from(value as i32)
            || r.kind == 10 && value >> 32 == 0;
        let place = usize::try_from(r.offset).ok().and_then(|from| {
            let bytes = self.bytes.get_mut(section)?;
            bytes.get_mut(from..from.checked_add(width)?)
        });
        match place {
            Some(place) if fits => {
                place.copy_from_slice(value.to_le_bytes().get(..width).unwrap_or(&[]))
            }
            _ => self.skipped += 1,
        }
    }
}
