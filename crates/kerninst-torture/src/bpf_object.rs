//! Object files with BPF programs, as a compiler makes them, for `kerninst attach`; and a look into a map of one, as bpftool has it.
//!
//! Layouts: `struct bpf_insn` and `union bpf_attr` of include/uapi/linux/bpf.h; map definitions in a section `maps`: type, bytes of
//! a key, bytes of a value, entries, flags (each 32 bits), as loaders have had them before BTF.

use crate::Failure;
use crate::bpf::{Attr, MAP_LOOKUP_ELEM, bpf, insn, owned};
use object::write::{Object, Relocation, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};
use std::os::fd::AsRawFd;
use std::path::Path;

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_GET_NEXT_ID: i32 = 12;
const MAP_GET_FD_BY_ID: i32 = 14;
/// Words of a `struct pt_regs`, and the place of dx in it.
const REGS: i16 = 21;
const DX: i16 = 12;
/// Reads of so many bytes are the ones whose registers are kept: nobody else makes them.
const MARK: i32 = 4919;
/// Words of the map's only value: how often the program ran, and the registers.
const WORDS: usize = REGS as usize + 1;

/// One program, and where in it the map's address belongs.
struct Code {
    name: &'static str,
    insns: Vec<[u8; 8]>,
    map_at: Option<usize>,
}

/// r6 = context; r0 = the map's value, or the end.
fn value() -> (Vec<[u8; 8]>, usize) {
    let insns = vec![
        insn(0xbf, 6, 1, 0, 0),   // r6 = r1
        insn(0x62, 10, 0, -4, 0), // *(u32 *)(r10 - 4) = 0
        insn(0xbf, 2, 10, 0, 0),  // r2 = r10
        insn(0x07, 2, 0, 0, -4),  // r2 -= 4
        insn(0x18, 1, 0, 0, 0),   // r1 = map (two slots)
        insn(0, 0, 0, 0, 0),
        insn(0x85, 0, 0, 0, 1), // r0 = bpf_map_lookup_elem(r1, r2)
        insn(0x55, 0, 0, 2, 0), // if r0 != 0 goto +2
        insn(0xb7, 0, 0, 0, 0), // r0 = 0
        insn(0x95, 0, 0, 0, 0), // exit
        insn(0xb7, 1, 0, 0, 1), // r1 = 1
        insn(0xdb, 0, 1, 0, 0), // lock *(u64 *)r0 += r1
    ];
    (insns, 4)
}

fn done(insns: &mut Vec<[u8; 8]>) {
    insns.push(insn(0xb7, 0, 0, 0, 0)); // r0 = 0
    insns.push(insn(0x95, 0, 0, 0, 0)); // exit
}

/// Counts, and keeps the registers of reads of [`MARK`] bytes.
fn count() -> Code {
    let (mut insns, map) = value();
    insns.push(insn(0x79, 1, 6, DX * 8, 0)); // r1 = ctx->dx
    insns.push(insn(0x55, 1, 0, 2 * REGS, MARK)); // if r1 != MARK goto the end
    for n in 0..REGS {
        insns.push(insn(0x79, 1, 6, n * 8, 0)); // r1 = word n of the context
        insns.push(insn(0x7b, 0, 1, n * 8 + 8, 0)); // *(u64 *)(r0 + 8 * n + 8) = r1
    }
    done(&mut insns);
    Code {
        name: "count",
        insns,
        map_at: Some(map),
    }
}

/// Counts, and has a helper read memory, by way of `copy_from_kernel_nofault`.
fn helper() -> Code {
    let (mut insns, map) = value();
    insns.push(insn(0xbf, 1, 10, 0, 0)); // r1 = r10
    insns.push(insn(0x07, 1, 0, 0, -16)); // r1 -= 16
    insns.push(insn(0xb7, 2, 0, 0, 8)); // r2 = 8
    insns.push(insn(0x79, 3, 6, 19 * 8, 0)); // r3 = ctx->sp
    insns.push(insn(0x85, 0, 0, 0, 113)); // bpf_probe_read_kernel(r1, r2, r3)
    done(&mut insns);
    Code {
        name: "helper",
        insns,
        map_at: Some(map),
    }
}

/// Reads behind its context, which the verifier does not let it.
fn bad() -> Code {
    let mut insns = vec![insn(0x79, 0, 1, 4000, 0)]; // r0 = *(u64 *)(r1 + 4000)
    insns.push(insn(0x95, 0, 0, 0, 0)); // exit
    Code {
        name: "bad",
        insns,
        map_at: None,
    }
}

/// Writes one object file with all of them.
pub fn write(to: &Path) -> Result<(), Failure> {
    let text = |e: object::write::Error| e.to_string();
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let license = object.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    object.append_section_data(license, b"GPL\0", 1);
    let maps = object.add_section(Vec::new(), b"maps".to_vec(), SectionKind::Data);
    let definition: Vec<u8> = [MAP_TYPE_ARRAY, 4, 8 * WORDS as u32, 1, 0]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    object.append_section_data(maps, &definition, 4);
    let symbol = |name: &str, size: usize, kind, section| Symbol {
        name: name.as_bytes().to_vec(),
        value: 0,
        size: size as u64,
        kind,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    };
    let map = object.add_symbol(symbol("seen", definition.len(), SymbolKind::Data, maps));
    for code in [count(), helper(), bad()] {
        let name = format!("kprobe/{}", code.name).into_bytes();
        let section = object.add_section(Vec::new(), name, SectionKind::Text);
        let bytes = code.insns.concat();
        object.append_section_data(section, &bytes, 8);
        object.add_symbol(symbol(code.name, bytes.len(), SymbolKind::Text, section));
        if let Some(at) = code.map_at {
            let relocation = Relocation {
                offset: 8 * at as u64,
                symbol: map,
                addend: 0,
                flags: RelocationFlags::Elf {
                    r_type: elf::R_BPF_64_64,
                },
            };
            object.add_relocation(section, relocation).map_err(text)?;
        }
    }
    let bytes = object.write().map_err(text)?;
    std::fs::write(to.join("programs.o"), bytes).map_err(|e| e.to_string())
}

/// Prints id and value of the map with the highest id; id 0: there is none.
pub fn print_map() -> Result<(), Failure> {
    let mut id = 0;
    loop {
        let mut attr = Attr::new().u32(0, id);
        match bpf("looking for maps", MAP_GET_NEXT_ID, &mut attr) {
            Ok(_) => id = attr.read_u32(4),
            Err(_) => break,
        }
    }
    let mut words = vec![0u64; WORDS];
    if id != 0 {
        let mut attr = Attr::new().u32(0, id);
        let map = owned(bpf("opening a map", MAP_GET_FD_BY_ID, &mut attr)?);
        let key = 0u32;
        let mut attr = Attr::new()
            .u32(0, map.as_raw_fd() as u32)
            .u64(8, &raw const key as u64)
            .u64(16, words.as_mut_ptr() as u64);
        bpf("reading the map", MAP_LOOKUP_ELEM, &mut attr)?;
    }
    // Numbers of JSON are too short for addresses.
    let words: Vec<String> = words.iter().map(|w| format!("{w:#x}")).collect();
    println!(
        "{}",
        serde_json::json!({"job": "map", "id": id, "words": words})
    );
    Ok(())
}
