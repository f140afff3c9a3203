//! ELF files for x86-64: sections, symbols, relocations; every access checked.

use crate::bytes::{cstr_at, u16_at, u32_at, u64_at};

/// What is wrong with an ELF file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ElfError {
    #[error("not a 64-bit little-endian x86-64 ELF file")]
    Machine,
    #[error("the ELF file is truncated: {0} lies outside it")]
    Truncated(String),
}

pub(super) const SHT_SYMTAB: u32 = 2;
const SHT_RELA: u32 = 4;
const SHT_NOBITS: u32 = 8;
const SHF_WRITE: u64 = 1;
pub(super) const SHF_ALLOC: u64 = 2;
pub(super) const SHF_EXECINSTR: u64 = 4;
const ET_REL: u16 = 1;
const EM_X86_64: u16 = 62;

#[derive(Debug, Clone)]
pub(super) struct Section {
    pub name: String,
    pub kind: u32,
    pub flags: u64,
    pub addr: u64,
    pub offset: usize,
    pub size: u64,
    pub align: u64,
    link: u32,
    /// For relocations: the section they apply to.
    info: u32,
}

impl Section {
    pub(super) fn allocated(&self) -> bool {
        self.flags & SHF_ALLOC != 0
    }
    pub(super) fn executable(&self) -> bool {
        self.flags & SHF_EXECINSTR != 0
    }
    pub(super) fn writable(&self) -> bool {
        self.flags & SHF_WRITE != 0
    }
    pub(super) fn no_bits(&self) -> bool {
        self.kind == SHT_NOBITS
    }
}

/// A symbol table entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sym<'e> {
    pub name: &'e str,
    pub value: u64,
    pub size: u64,
    pub section: u16,
    pub bind: u8,
    pub kind: u8,
}

/// A relocation with addend.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rela {
    pub offset: u64,
    pub kind: u32,
    pub symbol: u32,
    pub addend: i64,
}

pub(super) struct Elf {
    pub bytes: Vec<u8>,
    pub sections: Vec<Section>,
    kind: u16,
}

impl Elf {
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Self, ElfError> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") || u16_at(&bytes, 0x12) != Some(EM_X86_64) {
            return Err(ElfError::Machine);
        }
        let truncated = |what: &str| ElfError::Truncated(what.into());
        let header = || truncated("its header");
        let kind = u16_at(&bytes, 0x10).ok_or_else(header)?;
        let start = u64_at(&bytes, 0x28).ok_or_else(header)?;
        let size = usize::from(u16_at(&bytes, 0x3a).ok_or_else(header)?);
        let count = usize::from(u16_at(&bytes, 0x3c).ok_or_else(header)?);
        let names = usize::from(u16_at(&bytes, 0x3e).ok_or_else(header)?);
        let start = usize::try_from(start).map_err(|_| truncated("the section table"))?;
        let mut sections = Vec::with_capacity(count);
        let mut name_offsets = Vec::with_capacity(count);
        for i in 0..count {
            let at = start
                .checked_add(i * size)
                .filter(|_| size >= 64)
                .ok_or_else(|| truncated("the section table"))?;
            let table = bytes
                .get(at..)
                .and_then(|b| b.get(..64))
                .ok_or_else(|| truncated("the section table"))?;
            let word = |o| u32_at(table, o).unwrap_or(0);
            let long = |o| u64_at(table, o).unwrap_or(0);
            name_offsets.push(word(0) as usize);
            let section = Section {
                name: String::new(),
                kind: word(4),
                flags: long(8),
                addr: long(16),
                offset: usize::try_from(long(24)).unwrap_or(usize::MAX),
                size: long(32),
                link: word(40),
                info: word(44),
                align: long(48),
            };
            sections.push(section);
        }
        let strings = sections.get(names).map_or(usize::MAX, |s| s.offset);
        for (section, offset) in sections.iter_mut().zip(name_offsets) {
            let name = strings
                .checked_add(offset)
                .and_then(|at| cstr_at(&bytes, at));
            section.name = name.unwrap_or("").to_string();
        }
        let elf = Self {
            bytes,
            sections,
            kind,
        };
        for s in elf.sections.iter().filter(|s| !s.no_bits() && s.kind != 0) {
            elf.data(s)
                .ok_or_else(|| ElfError::Truncated(format!("section {}", s.name)))?;
        }
        Ok(elf)
    }

    /// An object file: a module.
    pub(super) fn is_relocatable(&self) -> bool {
        self.kind == ET_REL
    }

    /// A section's bytes in the file; `None` for one without, or outside the file.
    pub(super) fn data(&self, section: &Section) -> Option<&[u8]> {
        if section.no_bits() {
            return None;
        }
        let len = usize::try_from(section.size).ok()?;
        self.bytes
            .get(section.offset..section.offset.checked_add(len)?)
    }

    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.name == name)
    }

    /// Bytes of the section of this name.
    pub(super) fn named(&self, name: &str) -> Option<&[u8]> {
        self.data(self.section(name)?)
    }

    /// Entries of the symbol table, entry 0 included; none if the file has no table.
    pub(super) fn symbols(&self) -> Vec<Sym<'_>> {
        let Some(table) = self.sections.iter().find(|s| s.kind == SHT_SYMTAB) else {
            return Vec::new();
        };
        let strings = self
            .sections
            .get(table.link as usize)
            .and_then(|s| self.data(s))
            .unwrap_or(&[]);
        let (entries, _) = self.data(table).unwrap_or(&[]).as_chunks::<24>();
        let parse = |e: &[u8; 24]| Sym {
            name: u32_at(e, 0)
                .and_then(|n| cstr_at(strings, n as usize))
                .unwrap_or(""),
            bind: e[4] >> 4,
            kind: e[4] & 15,
            section: u16::from_le_bytes([e[6], e[7]]),
            value: u64_at(e, 8).unwrap_or(0),
            size: u64_at(e, 16).unwrap_or(0),
        };
        entries.iter().map(parse).collect()
    }

    /// For each section that has some: its index and its relocations.
    pub(super) fn relocations(
        &self,
    ) -> impl Iterator<Item = (usize, impl Iterator<Item = Rela> + '_)> {
        self.sections
            .iter()
            .filter(|s| s.kind == SHT_RELA)
            .map(|s| {
                let (entries, _) = self.data(s).unwrap_or(&[]).as_chunks::<24>();
                let parse = |e: &[u8; 24]| Rela {
                    offset: u64_at(e, 0).unwrap_or(0),
                    kind: u32_at(e, 8).unwrap_or(0),
                    symbol: u32_at(e, 12).unwrap_or(0),
                    addend: u64_at(e, 16).unwrap_or(0) as i64,
                };
                (s.info as usize, entries.iter().map(parse))
            })
    }
}

/// The kallsyms letter of a symbol in this section (as nm prints it, but capital only for global binding).
pub(super) fn letter(sym: &Sym<'_>, section: Option<&Section>) -> u8 {
    const WEAK: u8 = 2;
    const OBJECT: u8 = 1;
    let letter = match section {
        _ if sym.bind == WEAK => return if sym.kind == OBJECT { b'V' } else { b'W' },
        None if sym.section == 0 => b'u',
        None => b'a',
        Some(s) if s.executable() => b't',
        Some(s) if s.no_bits() => b'b',
        Some(s) if s.writable() => b'd',
        Some(s) if s.allocated() => b'r',
        Some(_) => b'n',
    };
    if sym.bind == 0 {
        letter
    } else {
        letter.to_ascii_uppercase()
    }
}
