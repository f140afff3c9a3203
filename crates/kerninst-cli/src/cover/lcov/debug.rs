//! Line tables of a vmlinux or a module's debug file.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use addr2line::Context;
use gimli::{Dwarf, EndianArcSlice, LittleEndian, SectionId};
use kerninst_profile::file::FunctionProfile;
use object::read::ReadCache;
use object::{
    Object, ObjectKind, ObjectSection, ObjectSymbol, RelocationKind, RelocationTarget, SectionKind,
};

use super::Place;
use crate::json::hex;

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum DebugError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// No ELF file, or a damaged one.
    #[error("not an ELF file that can be read: {0}")]
    Elf(#[from] object::Error),
    /// It does not say what it belongs to.
    #[error("it has no build id, so nothing tells which kernel it is of")]
    NoBuildId,
    /// No DWARF.
    #[error(
        "it has no debug information: the vmlinux (or .ko) of the distribution's -dbg package is wanted"
    )]
    NoLines,
    /// Damaged DWARF.
    #[error("its debug information is damaged: {0}")]
    Dwarf(#[from] gimli::Error),
}

type Bytes = EndianArcSlice<LittleEndian>;

/// An open file.
pub struct Debug {
    /// Its GNU build id, hexadecimal.
    pub build_id: String,
    context: Context<Bytes>,
    /// Addresses of what parts of functions are told from: `_text`, or sections.
    bases: HashMap<String, u64>,
}

impl Debug {
    /// Opens a file.
    ///
    /// # Errors
    /// [`DebugError`].
    pub fn open(path: &Path) -> Result<Debug, DebugError> {
        let cache = ReadCache::new(File::open(path)?);
        let file = object::File::parse(&cache)?;
        let build_id = file.build_id()?.ok_or(DebugError::NoBuildId)?;
        let build_id = hex(build_id);
        let bases = bases(&file);
        let load = |id: SectionId| -> Result<Bytes, DebugError> {
            let bytes = section(&file, id.name(), &bases)?;
            Ok(Bytes::new(Arc::from(bytes), LittleEndian))
        };
        let dwarf = Dwarf::load(load)?;
        if gimli::Section::reader(&dwarf.debug_line).bytes().is_empty() {
            return Err(DebugError::NoLines);
        }
        Ok(Debug {
            build_id,
            context: Context::from_dwarf(dwarf)?,
            bases,
        })
    }

    /// Where this function lies in the file; none: its first part is not there.
    pub fn locate<'a>(&'a self, function: &'a FunctionProfile) -> Option<Place<'a>> {
        let bases: Vec<Option<u64>> = function
            .parts
            .iter()
            .map(|p| self.bases.get(&p.base).copied())
            .collect();
        bases.first().copied().flatten()?;
        Some(Box::new(move |from| {
            let parts = function.parts.iter().zip(&bases);
            let mut found =
                parts.filter_map(|(part, base)| (*base)?.checked_add(part.offset(from)?));
            found.next()
        }))
    }

    /// The lines of the instructions in a range; a line may come several times. Damaged parts of the line table have none.
    pub fn lines(&self, start: u64, end: u64) -> impl Iterator<Item = (&str, u32)> {
        let found = self.context.find_location_range(start, end).ok();
        let rows = found.into_iter().flatten();
        rows.filter_map(|(_, _, at)| Some((at.file?, at.line.filter(|l| *l > 0)?)))
    }

    /// The line of the instruction at `addr`.
    pub fn line(&self, addr: u64) -> Option<(&str, u32)> {
        self.lines(addr, addr.checked_add(1)?).next()
    }
}

/// Addresses that parts of functions are told from. In a module's file all sections start at 0: here each has a place of its own.
fn bases<'d>(file: &impl Object<'d>) -> HashMap<String, u64> {
    if file.kind() != ObjectKind::Relocatable {
        let wanted = |name: &str| matches!(name, "_text" | "_stext");
        let symbols = file.symbols();
        let found = symbols.filter_map(|s| {
            let name = s.name().ok().filter(|n| wanted(n))?;
            Some((name.to_string(), s.address()))
        });
        return found.collect();
    }
    let mut bases = HashMap::new();
    // Not 0: that stands for code which the linker threw away.
    let mut next = 0x1000u64;
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let Ok(name) = section.name() else { continue };
        bases.insert(name.to_string(), next);
        let end = next.saturating_add(section.size());
        next = end.checked_next_multiple_of(0x1000).unwrap_or(end);
    }
    bases
}

/// The bytes of a section, unpacked, with its relocations done; none if it is not there.
fn section<'d>(
    file: &impl Object<'d>,
    name: &str,
    bases: &HashMap<String, u64>,
) -> Result<Vec<u8>, DebugError> {
    let Some(section) = file.section_by_name(name) else {
        return Ok(Vec::new());
    };
    let mut bytes = section.uncompressed_data()?.into_owned();
    if file.kind() != ObjectKind::Relocatable {
        return Ok(bytes);
    }
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            continue;
        };
        if relocation.kind() != RelocationKind::Absolute {
            continue;
        }
        let symbol = file.symbol_by_index(symbol)?;
        let of = symbol.section_index();
        let of = of.and_then(|n| file.section_by_index(n).ok());
        let base = of.and_then(|s| bases.get(s.name().ok()?).copied());
        let value = base
            .unwrap_or(0)
            .wrapping_add(symbol.address())
            .wrapping_add_signed(relocation.addend());
        let size = usize::from(relocation.size() / 8);
        let place = usize::try_from(offset).ok().and_then(|start| {
            let end = start.checked_add(size)?;
            bytes.get_mut(start..end)
        });
        if let (Some(place), Some(value)) = (place, value.to_le_bytes().get(..size)) {
            place.copy_from_slice(value);
        }
    }
    Ok(bytes)
}
