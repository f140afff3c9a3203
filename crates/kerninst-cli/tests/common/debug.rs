//! Files with debug information for the kernel made by hand.

use gimli::write::{
    Address, AttributeValue, DwarfUnit, EndianVec, LineProgram, LineString, RelocateWriter,
    Relocation, RelocationTarget, Sections, Writer,
};
use gimli::{Encoding, Format, LineEncoding, LittleEndian};
use object::write::{Object, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationEncoding, RelocationFlags, RelocationKind,
    SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};

/// Where the file has `_stext`: not where the kernel runs.
const STEXT: u64 = 0xffff_ffff_9000_0000;

/// Rows of `alpha`: offset from its entry, file, line.
const ALPHA: &[(u64, &str, u64)] = &[
    (0x00, "fs/demo.c", 10),
    (0x05, "fs/demo.c", 12),
    (0x07, "fs/demo.c", 13),
    (0x0c, "fs/demo.c", 14),
    (0x0f, "fs/demo.c", 13),
    (0x18, "include/jump_label.h", 30),
    (0x1d, "fs/demo.c", 17),
    (0x20, "fs/demo.c", 16),
    (0x24, "fs/demo.c", 0),
];

/// Rows of the module's `helper`.
const HELPER: &[(u64, &str, u64)] = &[(0, "mod.c", 3), (5, "mod.c", 4), (7, "mod.c", 5)];

/// A section, with the relocations that it needs.
#[derive(Clone)]
struct Section {
    data: EndianVec<LittleEndian>,
    relocations: Vec<Relocation>,
}

impl RelocateWriter for Section {
    type Writer = EndianVec<LittleEndian>;

    fn writer(&self) -> &Self::Writer {
        &self.data
    }

    fn writer_mut(&mut self) -> &mut Self::Writer {
        &mut self.data
    }

    fn relocate(&mut self, relocation: Relocation) {
        self.relocations.push(relocation);
    }
}

/// DWARF of one unit whose code starts at `start`.
fn dwarf(start: Address, rows: &[(u64, &str, u64)], size: u64) -> Sections<Section> {
    let encoding = Encoding {
        format: Format::Dwarf32,
        version: 5,
        address_size: 8,
    };
    let text = |s: &str| LineString::String(s.as_bytes().to_vec());
    let mut dwarf = DwarfUnit::new(encoding);
    let mut lines = LineProgram::new(
        encoding,
        LineEncoding::default(),
        text("/src"),
        None,
        text(rows[0].1),
        None,
    );
    let directory = lines.default_directory();
    lines.begin_sequence(Some(start));
    for (offset, file, line) in rows {
        let file = lines.add_file(text(file), directory, None);
        lines.row().address_offset = *offset;
        lines.row().file = file;
        lines.row().line = *line;
        lines.generate_row();
    }
    lines.end_sequence(size);
    dwarf.unit.line_program = lines;
    let root = dwarf.unit.root();
    let root = dwarf.unit.get_mut(root);
    root.set(gimli::DW_AT_low_pc, AttributeValue::Address(start));
    root.set(gimli::DW_AT_high_pc, AttributeValue::Udata(size));
    let section = Section {
        data: EndianVec::new(LittleEndian),
        relocations: Vec::new(),
    };
    let mut sections = Sections::new(section);
    dwarf.write(&mut sections).expect("it can be written");
    sections
}

/// A file of this build id without anything.
fn object(build_id: &[u8]) -> Object<'static> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let note = object.add_section(
        Vec::new(),
        b".note.gnu.build-id".to_vec(),
        SectionKind::Note,
    );
    let mut bytes = Vec::new();
    for word in [4, build_id.len() as u32, 3] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(b"GNU\0");
    bytes.extend(build_id);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    object.append_section_data(note, &bytes, 4);
    object
}

/// Adds DWARF; what it relocates is `target`.
fn add(object: &mut Object, dwarf: &Sections<Section>, target: Option<object::write::SymbolId>) {
    dwarf
        .for_each(|id, section| -> Result<(), gimli::write::Error> {
            if section.data.len() == 0 {
                return Ok(());
            }
            let name = id.name().as_bytes().to_vec();
            let at = object.add_section(Vec::new(), name, SectionKind::Debug);
            object.append_section_data(at, section.data.slice(), 1);
            for r in &section.relocations {
                // Sections are written once, so offsets into them are right as they are.
                let (RelocationTarget::Symbol(_), Some(symbol)) = (r.target, target) else {
                    continue;
                };
                let relocation = object::write::Relocation {
                    offset: r.offset as u64,
                    symbol,
                    addend: r.addend,
                    flags: RelocationFlags::Generic {
                        kind: RelocationKind::Absolute,
                        encoding: RelocationEncoding::Generic,
                        size: r.size * 8,
                    },
                };
                object.add_relocation(at, relocation).expect("it fits");
            }
            Ok(())
        })
        .expect("all sections");
}

fn symbol(name: &str, value: u64, section: SymbolSection) -> Symbol {
    Symbol {
        name: name.into(),
        value,
        size: 0,
        kind: SymbolKind::Text,
        scope: SymbolScope::Linkage,
        weak: false,
        section,
        flags: SymbolFlags::None,
    }
}

/// Of a linked kernel.
fn linked(mut object: Object) -> Vec<u8> {
    object.add_symbol(symbol("_stext", STEXT, SymbolSection::Absolute));
    let mut bytes = object.write().expect("it can be written");
    // e_type: ET_EXEC.
    bytes[16] = 2;
    bytes
}

/// A vmlinux with the lines of `alpha`.
pub fn vmlinux(build_id: &[u8]) -> Vec<u8> {
    let start = Address::Constant(STEXT + 0x10);
    let mut object = object(build_id);
    add(&mut object, &dwarf(start, ALPHA, 0x30), None);
    linked(object)
}

/// One without debug information.
pub fn bare(build_id: &[u8]) -> Vec<u8> {
    linked(object(build_id))
}

/// A module's file with the lines of its `helper`.
pub fn module(build_id: &[u8]) -> Vec<u8> {
    let mut object = object(build_id);
    let text = object.add_section(Vec::new(), b".text".to_vec(), SectionKind::Text);
    object.append_section_data(text, &[0x90; 8], 16);
    let code = object.add_symbol(symbol("code", 0, SymbolSection::Section(text)));
    let start = Address::Symbol {
        symbol: 0,
        addend: 0,
    };
    add(&mut object, &dwarf(start, HELPER, 8), Some(code));
    object.write().expect("it can be written")
}
