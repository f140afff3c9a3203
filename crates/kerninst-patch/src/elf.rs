//! Relocatable ELF objects, as the kernel's module loader wants them: made from nothing, or read, changed and written.
//!
//! The loader (kernel/module/main.c, arch/x86/kernel/module.c) takes symbols with section index `SHN_ABS` as they
//! are, which is how code refers to any kernel address, exported or not; it knows the relocation types 64, 32, 32S,
//! PC32, PLT32 and PC64 only; and the place of a relocation must hold zero.

use object::elf;
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use object::write::{self, SectionId as Wid, SymbolId as Yid};
use object::{Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

/// A relocation type that the loader knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RelocType {
    /// `R_X86_64_64`: S + A.
    Abs64,
    /// `R_X86_64_32`: S + A, zero-extended.
    Abs32,
    /// `R_X86_64_32S`: S + A, sign-extended.
    Abs32S,
    /// `R_X86_64_PC32`: S + A - P, 32 bits.
    Pc32,
    /// `R_X86_64_PLT32`: as PC32 in the kernel.
    Plt32,
    /// `R_X86_64_PC64`: S + A - P, 64 bits.
    Pc64,
}

impl RelocType {
    fn number(self) -> elf::RelocationType {
        match self {
            RelocType::Abs64 => elf::R_X86_64_64,
            RelocType::Abs32 => elf::R_X86_64_32,
            RelocType::Abs32S => elf::R_X86_64_32S,
            RelocType::Pc32 => elf::R_X86_64_PC32,
            RelocType::Plt32 => elf::R_X86_64_PLT32,
            RelocType::Pc64 => elf::R_X86_64_PC64,
        }
    }

    fn from_number(n: elf::RelocationType) -> Option<RelocType> {
        Some(match n {
            elf::R_X86_64_64 => RelocType::Abs64,
            elf::R_X86_64_32 => RelocType::Abs32,
            elf::R_X86_64_32S => RelocType::Abs32S,
            elf::R_X86_64_PC32 => RelocType::Pc32,
            elf::R_X86_64_PLT32 => RelocType::Plt32,
            elf::R_X86_64_PC64 => RelocType::Pc64,
            _ => return None,
        })
    }

    /// Bytes of the field.
    pub fn size(self) -> usize {
        if matches!(self, RelocType::Abs64 | RelocType::Pc64) {
            8
        } else {
            4
        }
    }
}

/// Index of a section in its [`Object`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SectionId(usize);

/// Index of a symbol in its [`Object`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SymbolId(usize);

/// A section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Name.
    pub name: String,
    /// `SHF_WRITE` is set.
    pub write: bool,
    /// `SHF_EXECINSTR` is set.
    pub exec: bool,
    /// Alignment, a power of two.
    pub align: u64,
    /// Contents; for a zero-filled section ([`Section::zeroed`]) empty.
    pub data: Vec<u8>,
    /// Bytes of a `SHT_NOBITS` section; 0 for all others.
    pub zeroed: u64,
    /// Relocations.
    pub relocs: Vec<Relocation>,
}

/// A relocation of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// Offset of the field in the section.
    pub offset: u64,
    /// Type.
    pub kind: RelocType,
    /// S.
    pub symbol: SymbolId,
    /// A.
    pub addend: i64,
}

/// Where a symbol is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Offset in a section.
    Section(SectionId, u64),
    /// An absolute value, used as it is.
    Absolute(u64),
    /// Not here: the loader looks for an exported symbol of this name.
    Undefined,
}

/// What a symbol names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Code.
    Function,
    /// Data.
    Object,
    /// The start of a section.
    Section,
    /// Anything.
    Nothing,
}

/// A symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Name; empty for a section symbol.
    pub name: String,
    /// Where.
    pub place: Place,
    /// Bytes.
    pub size: u64,
    /// What.
    pub names: Names,
    /// `STB_GLOBAL`.
    pub global: bool,
}

/// An object that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// The file is not ELF, or cut short.
    #[error("not a readable x86-64 ELF object: {0}")]
    Read(#[from] object::read::Error),
    /// It is an ELF file of another kind.
    #[error("not a relocatable x86-64 ELF object")]
    Kind,
    /// A relocation that the kernel's loader would refuse.
    #[error("relocation type {kind} in section {section} is unknown to the kernel's module loader")]
    Reloc {
        /// The section.
        section: String,
        /// `r_type`.
        kind: u32,
    },
    /// A relocation whose field is outside of its section.
    #[error("a relocation at {offset:#x} lies outside section {section}")]
    Outside {
        /// The section.
        section: String,
        /// Offset of the field.
        offset: u64,
    },
    /// A relocation whose field does not hold zero: the loader refuses such a module.
    #[error("the field at {offset:#x} in section {section} has a relocation but is not zero")]
    NotZero {
        /// The section.
        section: String,
        /// Offset of the field.
        offset: u64,
    },
    /// An alignment that is no power of two, or larger than any page.
    #[error("section {section} has the alignment {align}, which is no power of two up to 2 MiB")]
    Align {
        /// The section.
        section: String,
        /// The alignment.
        align: u64,
    },
    /// A name or index that leads nowhere.
    #[error("the object refers to a {0} that is not in it")]
    Dangling(&'static str),
    /// The writer failed.
    #[error("cannot write the object: {0}")]
    Write(#[from] object::write::Error),
}

/// A relocatable x86-64 object in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object {
    /// Sections, in order.
    pub sections: Vec<Section>,
    /// Symbols, in any order.
    pub symbols: Vec<Symbol>,
}

impl Object {
    /// Nothing.
    pub fn new() -> Object {
        Object::default()
    }

    /// Adds a loaded (`SHF_ALLOC`) section.
    pub fn section(&mut self, name: &str, write: bool, exec: bool, align: u64) -> SectionId {
        self.sections.push(Section {
            name: name.to_string(),
            write,
            exec,
            align,
            data: Vec::new(),
            zeroed: 0,
            relocs: Vec::new(),
        });
        SectionId(self.sections.len() - 1)
    }

    /// The section of this name.
    pub fn section_named(&self, name: &str) -> Option<SectionId> {
        self.sections
            .iter()
            .position(|s| s.name == name)
            .map(SectionId)
    }

    /// A section.
    pub fn get(&self, id: SectionId) -> Option<&Section> {
        self.sections.get(id.0)
    }

    /// A section.
    pub fn get_mut(&mut self, id: SectionId) -> Option<&mut Section> {
        self.sections.get_mut(id.0)
    }

    /// Appends bytes to a section; the offset at which they start.
    pub fn append(&mut self, id: SectionId, bytes: &[u8]) -> u64 {
        let Some(s) = self.sections.get_mut(id.0) else {
            return 0;
        };
        let at = s.data.len() as u64;
        s.data.extend_from_slice(bytes);
        at
    }

    /// Adds a symbol.
    pub fn symbol(&mut self, symbol: Symbol) -> SymbolId {
        self.symbols.push(symbol);
        SymbolId(self.symbols.len() - 1)
    }

    /// The first symbol of this name.
    pub fn symbol_named(&self, name: &str) -> Option<SymbolId> {
        self.symbols
            .iter()
            .position(|s| s.name == name)
            .map(SymbolId)
    }

    /// A symbol for the start of a section.
    pub fn section_symbol(&mut self, id: SectionId) -> SymbolId {
        let place = Place::Section(id, 0);
        let found = self
            .symbols
            .iter()
            .position(|s| s.names == Names::Section && s.place == place);
        match found {
            Some(n) => SymbolId(n),
            None => self.symbol(Symbol {
                name: String::new(),
                place,
                size: 0,
                names: Names::Section,
                global: false,
            }),
        }
    }

    /// An absolute symbol.
    pub fn absolute(&mut self, name: &str, value: u64) -> SymbolId {
        let place = Place::Absolute(value);
        self.symbol(Symbol {
            name: name.to_string(),
            place,
            size: 0,
            names: Names::Nothing,
            global: true,
        })
    }

    /// Adds a relocation.
    pub fn relocate(&mut self, id: SectionId, relocation: Relocation) {
        if let Some(s) = self.sections.get_mut(id.0) {
            s.relocs.push(relocation);
        }
    }

    /// Turns every undefined symbol for which `address` has a value into an absolute one; the names of the others.
    pub fn resolve(&mut self, mut address: impl FnMut(&str) -> Option<u64>) -> Vec<String> {
        let mut unknown = Vec::new();
        for s in self
            .symbols
            .iter_mut()
            .filter(|s| s.place == Place::Undefined && !s.name.is_empty())
        {
            match address(&s.name) {
                Some(value) => s.place = Place::Absolute(value),
                None => unknown.push(s.name.clone()),
            }
        }
        unknown
    }

    /// Reads a relocatable object. Sections that are not loaded (debug information, notes for the linker) are left out.
    pub fn read(bytes: &[u8]) -> Result<Object, ElfError> {
        let header = elf::FileHeader64::<Endianness>::parse(bytes)?;
        let endian = header.endian()?;
        if endian != Endianness::Little
            || header.e_machine.get(endian) != elf::EM_X86_64
            || header.e_type.get(endian) != elf::ET_REL
        {
            return Err(ElfError::Kind);
        }
        let table = header.sections(endian, bytes)?;
        let symtab = table.symbols(endian, bytes, elf::SHT_SYMTAB)?;
        let mut object = Object::new();
        let mut numbers = std::collections::HashMap::new();
        for (index, s) in table.enumerate() {
            let flags = s.sh_flags(endian);
            if !flags.contains(elf::SHF_ALLOC) {
                continue;
            }
            let name = String::from_utf8_lossy(table.section_name(endian, s)?).into_owned();
            let zeroed = s.sh_type(endian) == elf::SHT_NOBITS;
            object.sections.push(Section {
                name,
                write: flags.contains(elf::SHF_WRITE),
                exec: flags.contains(elf::SHF_EXECINSTR),
                align: s.sh_addralign(endian).max(1),
                data: if zeroed {
                    Vec::new()
                } else {
                    s.data(endian, bytes)?.to_vec()
                },
                zeroed: if zeroed { s.sh_size(endian) } else { 0 },
                relocs: Vec::new(),
            });
            numbers.insert(index.0, SectionId(object.sections.len() - 1));
        }
        // Symbol numbers are kept while reading: entry 0 and symbols of sections left out become nameless and undefined.
        for (index, s) in symtab.enumerate() {
            let place = if s.is_undefined(endian) {
                Place::Undefined
            } else if s.is_absolute(endian) {
                Place::Absolute(s.st_value(endian))
            } else {
                match symtab
                    .symbol_section(endian, s, index)?
                    .and_then(|i| numbers.get(&i.0))
                {
                    Some(id) => Place::Section(*id, s.st_value(endian)),
                    None => Place::Undefined,
                }
            };
            let names = match s.st_type() {
                elf::STT_FUNC => Names::Function,
                elf::STT_OBJECT => Names::Object,
                elf::STT_SECTION => Names::Section,
                _ => Names::Nothing,
            };
            object.symbols.push(Symbol {
                name: String::from_utf8_lossy(symtab.symbol_name(endian, s)?).into_owned(),
                place,
                size: s.st_size(endian),
                names,
                global: s.st_bind() != elf::STB_LOCAL,
            });
        }
        for s in table.iter() {
            let Some((relas, _)) = s.rela(endian, bytes)? else {
                continue;
            };
            let Some(id) = numbers.get(&(s.sh_info(endian) as usize)).copied() else {
                continue;
            };
            for r in relas {
                let kind = r.r_type(endian, false);
                let section = object
                    .sections
                    .get_mut(id.0)
                    .ok_or(ElfError::Dangling("section"))?;
                let kind = RelocType::from_number(kind).ok_or_else(|| ElfError::Reloc {
                    section: section.name.clone(),
                    kind: kind.0,
                })?;
                let symbol = r.r_sym(endian, false) as usize;
                section.relocs.push(Relocation {
                    offset: r.r_offset(endian),
                    kind,
                    symbol: SymbolId(symbol),
                    addend: r.r_addend(endian),
                });
            }
        }
        Ok(object)
    }

    /// The bytes of the object, with all that the loader demands checked.
    pub fn write(&self) -> Result<Vec<u8>, ElfError> {
        let mut out = write::Object::new(
            object::BinaryFormat::Elf,
            object::Architecture::X86_64,
            object::Endianness::Little,
        );
        for s in &self.sections {
            if s.align > 2 << 20 || !s.align.max(1).is_power_of_two() {
                return Err(ElfError::Align {
                    section: s.name.clone(),
                    align: s.align,
                });
            }
        }
        let sections: Vec<Wid> = self
            .sections
            .iter()
            .map(|s| write_section(&mut out, s))
            .collect();
        let mut used = vec![false; self.symbols.len()];
        for r in self.sections.iter().flat_map(|s| &s.relocs) {
            *used
                .get_mut(r.symbol.0)
                .ok_or(ElfError::Dangling("symbol"))? = true;
        }
        let mut symbols: Vec<Option<Yid>> = Vec::with_capacity(self.symbols.len());
        for (s, used) in self.symbols.iter().zip(used) {
            // Nameless symbols that nothing refers to are left over from reading.
            let keep = used || !s.name.is_empty() && (s.place != Place::Undefined || s.global);
            symbols.push(if keep {
                Some(write_symbol(&mut out, &sections, s)?)
            } else {
                None
            });
        }
        for (s, id) in self.sections.iter().zip(&sections) {
            for r in &s.relocs {
                check_field(s, r)?;
                let symbol = symbols
                    .get(r.symbol.0)
                    .copied()
                    .flatten()
                    .ok_or(ElfError::Dangling("symbol"))?;
                out.add_relocation(
                    *id,
                    write::Relocation {
                        offset: r.offset,
                        symbol,
                        addend: r.addend,
                        flags: object::RelocationFlags::Elf {
                            r_type: r.kind.number(),
                        },
                    },
                )?;
            }
        }
        Ok(out.write()?)
    }
}

fn check_field(s: &Section, r: &Relocation) -> Result<(), ElfError> {
    let field = usize::try_from(r.offset).ok().and_then(|from| {
        let to = from.checked_add(r.kind.size())?;
        s.data.get(from..to)
    });
    match field {
        None => Err(ElfError::Outside {
            section: s.name.clone(),
            offset: r.offset,
        }),
        Some(f) if f.iter().any(|b| *b != 0) => Err(ElfError::NotZero {
            section: s.name.clone(),
            offset: r.offset,
        }),
        Some(_) => Ok(()),
    }
}

fn write_section(out: &mut write::Object<'_>, s: &Section) -> Wid {
    let nobits = s.zeroed > 0 && s.data.is_empty();
    let kind = match (nobits, s.exec) {
        (true, _) => SectionKind::UninitializedData,
        (_, true) => SectionKind::Text,
        _ if s.write => SectionKind::Data,
        _ => SectionKind::ReadOnlyData,
    };
    let id = out.add_section(Vec::new(), s.name.clone().into_bytes(), kind);
    let mut flags = elf::SHF_ALLOC;
    if s.write {
        flags |= elf::SHF_WRITE;
    }
    if s.exec {
        flags |= elf::SHF_EXECINSTR;
    }
    let sh_type = if nobits {
        elf::SHT_NOBITS
    } else {
        elf::SHT_PROGBITS
    };
    let section = out.section_mut(id);
    section.flags = object::SectionFlags::Elf {
        sh_type,
        sh_flags: flags,
    };
    if nobits {
        section.append_bss(s.zeroed, s.align.max(1));
    } else {
        section.set_data(s.data.clone(), s.align.max(1));
    }
    id
}

fn write_symbol(
    out: &mut write::Object<'_>,
    sections: &[Wid],
    s: &Symbol,
) -> Result<Yid, ElfError> {
    let (section, value) = match s.place {
        Place::Section(id, offset) => {
            let id = *sections.get(id.0).ok_or(ElfError::Dangling("section"))?;
            if s.names == Names::Section {
                return Ok(out.section_symbol(id));
            }
            (write::SymbolSection::Section(id), offset)
        }
        Place::Absolute(value) => (write::SymbolSection::Absolute, value),
        Place::Undefined => (write::SymbolSection::Undefined, 0),
    };
    let (kind, st_type) = match s.names {
        Names::Function => (SymbolKind::Text, elf::STT_FUNC),
        Names::Object => (SymbolKind::Data, elf::STT_OBJECT),
        Names::Section | Names::Nothing => (SymbolKind::Unknown, elf::STT_NOTYPE),
    };
    let undefined = section == write::SymbolSection::Undefined;
    let bind = if s.global || undefined {
        elf::STB_GLOBAL
    } else {
        elf::STB_LOCAL
    };
    Ok(out.add_symbol(write::Symbol {
        name: s.name.clone().into_bytes(),
        value,
        size: s.size,
        kind,
        scope: if bind == elf::STB_GLOBAL {
            SymbolScope::Linkage
        } else {
            SymbolScope::Compilation
        },
        weak: false,
        section,
        flags: SymbolFlags::Elf {
            st_info: elf::SymbolInfo::new(bind, st_type),
            st_other: elf::SymbolOther(0),
        },
    }))
}
