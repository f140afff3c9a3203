//! A patch module for the kernel that a reference module is made for: `module REFERENCE.ko OUT.ko ADDRESS`.
//!
//! Its one patch is a return, an access that may fault and a warning, none of which anything reaches; ADDRESS (hex) is a
//! kernel text address that it refers to. Loading it in a guest shows that the kernel takes what this crate writes.

use std::process::ExitCode;

use kerninst_patch::elf::Object;
use kerninst_patch::{
    BugSite, CodePatch, ExSite, Fixup, ModuleInfo, OrcSite, PatchModule, Reloc, RelocKind,
};

/// What the reference module says about its kernel.
fn info(reference: &Object) -> Option<ModuleInfo> {
    let section = |name: &str| {
        reference
            .get(reference.section_named(name)?)
            .map(|s| s.data.as_slice())
    };
    let modinfo = section(".modinfo")?;
    let field = |key: &str| {
        let mut all = modinfo
            .split(|b| *b == 0)
            .filter_map(|s| std::str::from_utf8(s).ok());
        all.find_map(|s| s.strip_prefix(key)?.strip_prefix('=').map(str::to_string))
    };
    let module = section(".gnu.linkonce.this_module")?;
    let name = field("name")?;
    let offset = module
        .windows(name.len())
        .position(|w| w == name.as_bytes())?;
    let versions = section("__versions").unwrap_or(&[]);
    let entry = versions
        .chunks_exact(64)
        .find(|e| e.get(8..22) == Some(b"module_layout\0"));
    let layout_crc = entry.and_then(|e| Some(u32::from_le_bytes(e.get(..4)?.try_into().ok()?)));
    Some(ModuleInfo {
        name: "kerninst_p1".to_string(),
        vermagic: field("vermagic")?,
        struct_module_size: module.len() as u64,
        name_offset: offset as u64,
        name_len: 56,
        layout_crc,
        has_orc: reference.section_named(".orc_unwind").is_some(),
    })
}

fn patch(target: u64) -> CodePatch {
    let orc = OrcSite {
        offset: 0,
        raw: [8, 0, 0, 0, 5, 2],
    };
    CodePatch {
        // ret; mov (%rdi), %rax; ud2; jmp target; ret
        bytes: vec![0xc3, 0x48, 0x8b, 0x07, 0x0f, 0x0b, 0xe9, 0, 0, 0, 0, 0xc3],
        relocs: vec![Reloc {
            offset: 7,
            kind: RelocKind::Pc32,
            target,
            addend: -4,
        }],
        entry: 0,
        orc: vec![orc],
        extable: vec![
            ExSite {
                offset: 1,
                fixup: Fixup::Inside(4),
                data: 3,
            },
            ExSite {
                offset: 0,
                fixup: Fixup::Address(target),
                data: 3,
            },
        ],
        bugs: vec![BugSite {
            offset: 4,
            file: target,
            line: 7,
            flags: 1,
        }],
        ..CodePatch::default()
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [reference, out, address] = args.as_slice() else {
        eprintln!("usage: module REFERENCE.ko OUT.ko ADDRESS");
        return ExitCode::from(2);
    };
    let made = || -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let object = Object::read(&std::fs::read(reference)?)?;
        let info = info(&object).ok_or("the reference is not a kernel module")?;
        let target = u64::from_str_radix(address.trim_start_matches("0x"), 16)?;
        let mut module = PatchModule::new(&info);
        module.add(&patch(target), "first+0x1c.kerninst");
        module.add(&patch(target), "second+0x0.kerninst");
        Ok(module.build()?)
    };
    match made().and_then(|bytes| Ok(std::fs::write(out, bytes)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("module: {e}");
            ExitCode::FAILURE
        }
    }
}
