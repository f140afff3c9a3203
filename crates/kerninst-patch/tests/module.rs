//! Patch modules and ELF objects: what the kernel's module loader demands, checked with the object crate's own reader.

use expect_test::{Expect, expect};
use kerninst_patch::elf::{ElfError, Names, Object, Place, RelocType, Relocation, Symbol};
use kerninst_patch::{
    BugSite, BuildError, CodePatch, ExSite, Fixup, ModuleInfo, OrcSite, PatchModule, Reloc,
    RelocKind,
};
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget};
use proptest::prelude::*;

const TARGET: u64 = 0xffff_ffff_8123_4567;

fn info() -> ModuleInfo {
    ModuleInfo {
        name: "kerninst_p1".into(),
        vermagic: "6.12.0 SMP preempt mod_unload modversions ".into(),
        struct_module_size: 0x500,
        name_offset: 0x18,
        name_len: 56,
        layout_crc: Some(0x1234_5678),
        has_orc: true,
    }
}

fn patch() -> CodePatch {
    CodePatch {
        bytes: vec![0x48, 0x8b, 0x07, 0x0f, 0x0b, 0xe9, 0, 0, 0, 0],
        relocs: vec![Reloc {
            offset: 6,
            kind: RelocKind::Pc32,
            target: TARGET,
            addend: -4,
        }],
        entry: 0,
        orc: vec![
            OrcSite {
                offset: 0,
                raw: [8, 0, 0, 0, 5, 2],
            },
            OrcSite {
                offset: 5,
                raw: [16, 0, 0, 0, 5, 2],
            },
        ],
        extable: vec![
            ExSite {
                offset: 0,
                fixup: Fixup::Address(TARGET),
                data: 3,
            },
            ExSite {
                offset: 0,
                fixup: Fixup::Inside(3),
                data: 20,
            },
        ],
        bugs: vec![BugSite {
            offset: 3,
            file: 0xffff_ffff_8230_0000,
            line: 77,
            flags: 1,
        }],
        ..CodePatch::default()
    }
}

/// Sections with contents, symbols and relocations, in words.
fn describe(file: &[u8]) -> String {
    let elf: ElfFile64 = ElfFile64::parse(file).expect("an ELF file");
    let mut out = String::new();
    for s in elf.sections() {
        let object::SectionFlags::Elf { sh_flags, .. } = s.flags() else {
            panic!("flags")
        };
        if !sh_flags.contains(object::elf::SHF_ALLOC) {
            continue;
        }
        let flag = |f, c| if sh_flags.contains(f) { c } else { "" };
        let flags = [
            flag(object::elf::SHF_WRITE, "w"),
            flag(object::elf::SHF_EXECINSTR, "x"),
        ]
        .concat();
        let data = s.data().unwrap();
        out.push_str(&format!(
            "{} {} bytes, align {} {flags}\n",
            s.name().unwrap(),
            s.size(),
            s.align()
        ));
        match s.name().unwrap() {
            ".gnu.linkonce.this_module" => {
                let name: Vec<u8> = data[0x18..0x18 + 56]
                    .iter()
                    .copied()
                    .take_while(|b| *b != 0)
                    .collect();
                out.push_str(&format!("  name {}\n", String::from_utf8(name).unwrap()));
            }
            ".modinfo" => out.push_str(&format!(
                "  {}\n",
                String::from_utf8_lossy(data).replace('\0', " | ")
            )),
            _ => {
                for line in data.chunks(16) {
                    let hex: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
                    out.push_str(&format!("  {}\n", hex.join(" ")));
                }
            }
        }
        for (at, r) in s.relocations() {
            let RelocationTarget::Symbol(symbol) = r.target() else {
                panic!("target")
            };
            let symbol = elf.symbol_by_index(symbol).unwrap();
            let name = symbol.name().unwrap();
            let object::RelocationFlags::Elf { r_type } = r.flags() else {
                panic!("flags")
            };
            let at = at as usize;
            assert!(
                data[at..at + 4].iter().all(|b| *b == 0),
                "the loader refuses a field that is not zero"
            );
            let place = match symbol.section() {
                object::SymbolSection::Absolute => {
                    format!("{:#x}", symbol.address().wrapping_add(r.addend() as u64))
                }
                _ => format!("{name}{:+#x}", r.addend()),
            };
            out.push_str(&format!("  @{at:#x} type {} {place}\n", r_type.0));
        }
    }
    for s in elf.symbols() {
        let place = match s.section() {
            object::SymbolSection::Absolute => "absolute".to_string(),
            object::SymbolSection::Undefined => "undefined".to_string(),
            object::SymbolSection::Section(n) => {
                elf.section_by_index(n).unwrap().name().unwrap().to_string()
            }
            other => format!("{other:?}"),
        };
        let name = s.name().unwrap();
        out.push_str(&format!(
            "symbol {name:?} {place} {:#x} size {} global {}\n",
            s.address(),
            s.size(),
            s.is_global()
        ));
    }
    out
}

fn check(module: PatchModule, expected: Expect) {
    expected.assert_eq(&describe(&module.build().expect("builds")));
}

#[test]
fn two_patches() {
    let mut m = PatchModule::new(&info());
    assert_eq!(m.add(&patch(), "vfs_read+0x1c.kerninst"), 0);
    assert_eq!(m.add(&patch(), "schedule+0x0.kerninst"), 16);
    check(
        m,
        expect![[r#"
        .text 26 bytes, align 16 x
          48 8b 07 0f 0b e9 00 00 00 00 cc cc cc cc cc cc
          48 8b 07 0f 0b e9 00 00 00 00
          @0x6 type 2 0xffffffff81234563
          @0x16 type 2 0xffffffff81234563
        __ex_table 48 bytes, align 4 
          00 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00
          00 00 00 00 14 00 00 00 00 00 00 00 00 00 00 00
          03 00 00 00 00 00 00 00 00 00 00 00 14 00 00 00
          @0x0 type 2 +0x0
          @0x4 type 2 0xffffffff81234567
          @0xc type 2 +0x0
          @0x10 type 2 +0x3
          @0x18 type 2 +0x10
          @0x1c type 2 0xffffffff81234567
          @0x24 type 2 +0x10
          @0x28 type 2 +0x13
        __bug_table 24 bytes, align 4 w
          00 00 00 00 00 00 00 00 4d 00 01 00 00 00 00 00
          00 00 00 00 4d 00 01 00
          @0x0 type 2 +0x3
          @0x4 type 2 0xffffffff82300000
          @0xc type 2 +0x13
          @0x10 type 2 0xffffffff82300000
        .orc_unwind_ip 16 bytes, align 4 
          00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
          @0x0 type 2 +0x0
          @0x4 type 2 +0x5
          @0x8 type 2 +0x10
          @0xc type 2 +0x15
        .orc_unwind 24 bytes, align 2 
          08 00 00 00 05 02 10 00 00 00 05 02 08 00 00 00
          05 02 10 00 00 00 05 02
        .modinfo 93 bytes, align 1 
          license=GPL | name=kerninst_p1 | retpoline=Y | vermagic=6.12.0 SMP preempt mod_unload modversions  | 
        __versions 64 bytes, align 32 
          78 56 34 12 00 00 00 00 6d 6f 64 75 6c 65 5f 6c
          61 79 6f 75 74 00 00 00 00 00 00 00 00 00 00 00
          00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
          00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        .gnu.linkonce.this_module 1280 bytes, align 64 w
          name kerninst_p1
        symbol "" .text 0x0 size 0 global false
        symbol "vfs_read+0x1c.kerninst" .text 0x0 size 10 global false
        symbol "schedule+0x0.kerninst" .text 0x10 size 10 global false
        symbol "kerninst_zero" absolute 0x0 size 0 global true
        symbol "__this_module" .gnu.linkonce.this_module 0x0 size 1280 global true
    "#]],
    );
}

#[test]
fn tables_that_nothing_needs_are_left_out() {
    let mut m = PatchModule::new(&ModuleInfo {
        layout_crc: None,
        has_orc: false,
        ..info()
    });
    m.add(
        &CodePatch {
            bytes: vec![0xc3],
            ..CodePatch::default()
        },
        "f+0x0.kerninst",
    );
    check(
        m,
        expect![[r#"
        .text 1 bytes, align 16 x
          c3
        .modinfo 93 bytes, align 1 
          license=GPL | name=kerninst_p1 | retpoline=Y | vermagic=6.12.0 SMP preempt mod_unload modversions  | 
        .gnu.linkonce.this_module 1280 bytes, align 64 w
          name kerninst_p1
        symbol "f+0x0.kerninst" .text 0x0 size 1 global false
        symbol "kerninst_zero" absolute 0x0 size 0 global true
        symbol "__this_module" .gnu.linkonce.this_module 0x0 size 1280 global true
    "#]],
    );
}

#[test]
fn a_patch_without_unwind_data_does_not_inherit_any() {
    let mut m = PatchModule::new(&info());
    m.add(&patch(), "a");
    m.add(
        &CodePatch {
            bytes: vec![0xc3],
            ..CodePatch::default()
        },
        "b",
    );
    let file = m.build().unwrap();
    let elf: ElfFile64 = ElfFile64::parse(&*file).unwrap();
    let unwind = elf
        .section_by_name(".orc_unwind")
        .unwrap()
        .data()
        .unwrap()
        .to_vec();
    assert_eq!(unwind.chunks(6).next_back(), Some(&[0u8; 6][..]));
}

#[test]
fn what_cannot_be_a_module_is_refused() {
    let refuse = |i: ModuleInfo| {
        PatchModule::new(&i)
            .build()
            .expect_err("refused")
            .to_string()
    };
    expect![[r#""a b" cannot be the name of a kernel module"#]].assert_eq(&refuse(ModuleInfo {
        name: "a b".into(),
        ..info()
    }));
    expect![[r#""" cannot be the name of a kernel module"#]].assert_eq(&refuse(ModuleInfo {
        name: String::new(),
        ..info()
    }));
    expect!["struct module of 32 bytes cannot have a name at offset 24"].assert_eq(&refuse(
        ModuleInfo {
            struct_module_size: 0x20,
            ..info()
        },
    ));
    expect!["struct module of 1280 bytes cannot have a name at offset 18446744073709551615"]
        .assert_eq(&refuse(ModuleInfo {
            name_offset: u64::MAX,
            ..info()
        }));
    let long = PatchModule::new(&ModuleInfo {
        name: "x".repeat(56),
        ..info()
    })
    .build();
    assert!(matches!(long, Err(BuildError::Name(_))));
}

#[test]
fn a_field_that_is_not_zero_is_refused() {
    let mut m = PatchModule::new(&info());
    let mut p = patch();
    p.bytes[7] = 1;
    m.add(&p, "f");
    assert!(matches!(
        m.build(),
        Err(BuildError::Elf(ElfError::NotZero { .. }))
    ));
    let mut m = PatchModule::new(&info());
    let mut p = patch();
    p.relocs[0].offset = 8;
    m.add(&p, "f");
    assert!(matches!(
        m.build(),
        Err(BuildError::Elf(ElfError::Outside { .. }))
    ));
}

fn sample() -> Object {
    let mut o = Object::new();
    let text = o.section(".text", false, true, 16);
    let data = o.section(".data", true, false, 8);
    let bss = o.section(".bss", true, false, 32);
    o.get_mut(bss).unwrap().zeroed = 100;
    o.append(text, &[0xe8, 0, 0, 0, 0, 0xc3]);
    o.append(data, &[0; 16]);
    let start = o.section_symbol(text);
    let printk = o.symbol(Symbol {
        name: "_printk".into(),
        place: Place::Undefined,
        size: 0,
        names: Names::Nothing,
        global: true,
    });
    o.symbol(Symbol {
        name: "init_module".into(),
        place: Place::Section(text, 0),
        size: 6,
        names: Names::Function,
        global: true,
    });
    o.relocate(
        text,
        Relocation {
            offset: 1,
            kind: RelocType::Plt32,
            symbol: printk,
            addend: -4,
        },
    );
    o.relocate(
        data,
        Relocation {
            offset: 8,
            kind: RelocType::Abs64,
            symbol: start,
            addend: 5,
        },
    );
    o
}

#[test]
fn an_object_is_read_resolved_and_written_again() {
    let mut o = Object::read(&sample().write().unwrap()).unwrap();
    let unknown = o.resolve(|name| (name == "_printk").then_some(TARGET));
    assert!(unknown.is_empty(), "{unknown:?}");
    expect![[r#"
        .text 6 bytes, align 16 x
          e8 00 00 00 00 c3
          @0x1 type 4 0xffffffff81234563
        .data 16 bytes, align 8 w
          00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
          @0x8 type 1 +0x5
        .bss 100 bytes, align 32 w
        symbol "" .text 0x0 size 0 global false
        symbol "_printk" absolute 0xffffffff81234567 size 0 global true
        symbol "init_module" .text 0x0 size 6 global true
    "#]]
    .assert_eq(&describe(&o.write().unwrap()));
    let again = Object::read(&o.write().unwrap()).unwrap();
    assert_eq!(
        describe(&again.write().unwrap()),
        describe(&o.write().unwrap())
    );
    // What has no address stays undefined, and is told.
    let mut o = sample();
    assert_eq!(o.resolve(|_| None), ["_printk"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_damaged_object_is_an_error_or_another_object(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut file = sample().write().unwrap();
        for (at, value) in changes {
            let at = at.index(file.len());
            file[at] = value;
        }
        if cuts {
            file.truncate(cut.index(file.len()));
        }
        if let Ok(mut o) = Object::read(&file) {
            o.resolve(|_| Some(TARGET));
            let _ = o.write();
        }
    }
}
