//! What the compiled kernel side must be, and that it fits real kernels.

use crate::complete::{OBJECT, complete};
use crate::needs;
use iced_x86::{CpuidFeature, Decoder, DecoderOptions, EncodingKind, Mnemonic, Register};
use kerninst_kernel::Kernel;
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, SectionKind, elf,
};
use std::io::Write as _;

const CALLOUTS: [&str; 7] = [
    "ki_time",
    "ki_boot_time",
    "ki_str",
    "ki_mem",
    "ki_kstack",
    "ki_ustack",
    "ki_bpf",
];

fn object() -> object::File<'static> {
    object::File::parse(OBJECT).expect("an object")
}

fn decode(bytes: &[u8]) -> impl Iterator<Item = iced_x86::Instruction> {
    Decoder::new(64, bytes, DecoderOptions::NONE).into_iter()
}

/// Would catch an instruction that changes user space's vector or x87 registers, which are live in the kernel.
#[test]
fn no_vector_instruction() {
    let mut seen = 0;
    for section in object()
        .sections()
        .filter(|s| s.kind() == SectionKind::Text)
    {
        for i in decode(section.data().expect("bytes")) {
            let plain = i.encoding() == EncodingKind::Legacy
                && (0..i.op_count()).all(|n| {
                    let r = i.op_register(n);
                    !(r.is_vector_register() || r.is_mm() || r.is_st())
                })
                && !i.cpuid_features().contains(&CpuidFeature::FPU);
            assert!(
                plain && !i.is_invalid(),
                "{}: {:?}",
                section.name().unwrap_or(""),
                i.mnemonic()
            );
            seen += 1;
        }
    }
    assert!(seen > 1000, "{seen} instructions");
}

/// Would catch a call that the compiler makes by way of a global offset table (its own `memset`, for one): the kernel's loader
/// refuses such an object.
#[test]
fn only_relocations_that_the_loader_knows() {
    for section in object().sections() {
        for (offset, r) in section.relocations() {
            let RelocationFlags::Elf { r_type } = r.flags() else {
                panic!("not ELF");
            };
            let known = [
                elf::R_X86_64_64,
                elf::R_X86_64_32,
                elf::R_X86_64_32S,
                elf::R_X86_64_PC32,
                elf::R_X86_64_PLT32,
                elf::R_X86_64_PC64,
            ];
            assert!(
                known.contains(&r_type),
                "{}+{offset:#x}: {r_type:?}",
                section.name().unwrap_or("")
            );
        }
    }
}

/// Would catch code that can panic, or anything else that `core` would have to be linked for.
#[test]
fn nothing_of_core_is_called() {
    for symbol in object().symbols().filter(|s| s.is_undefined()) {
        let name = symbol.name().unwrap_or_default();
        assert!(
            !name.starts_with("_ZN") && !name.starts_with("_R") && name != "rust_begin_unwind",
            "{name}"
        );
    }
}

/// Would catch a callout whose locals take more of somebody's kernel stack than its contract says.
#[test]
fn callouts_take_little_stack() {
    let object = object();
    for name in CALLOUTS {
        let symbol = object
            .symbols()
            .find(|s| s.name() == Ok(name))
            .expect("a symbol");
        let section = symbol.section_index().expect("a section");
        let section = object.section_by_index(section).expect("a section");
        let all = section.data().expect("bytes");
        let at = symbol.address() as usize;
        let mut stack = 8;
        for i in decode(&all[at..at + symbol.size() as usize]) {
            match i.mnemonic() {
                Mnemonic::Push | Mnemonic::Pushfq => stack += 8,
                Mnemonic::Sub if i.op0_register() == Register::RSP => stack += i.immediate(1),
                _ => {}
            }
        }
        assert!(stack <= 300, "{name}: {stack} bytes");
    }
}

/// Would catch a driver that a kernel without one of the callouts' functions cannot have.
#[test]
fn callouts_are_optional() {
    let without = Kernel::builder()
        .symbol("_stext", 0xffff_ffff_8100_0000, 'T')
        .build();
    for (function, has) in [
        ("ktime_get_mono_fast_ns", "KI_HAS_TIME"),
        ("ktime_get_boot_fast_ns", "KI_HAS_BOOT_TIME"),
        ("copy_from_user_nmi", "KI_HAS_USER_COPY"),
        ("stack_trace_save_regs", "KI_HAS_KERNEL_STACK"),
        ("stack_trace_save_user", "KI_HAS_USER_STACK"),
    ] {
        assert_eq!(needs::value(&without, function), Ok(0xffff_ffff_8100_0000));
        assert_eq!(needs::value(&without, has), Ok(2));
        let with = Kernel::builder()
            .symbol(function, 0xffff_ffff_8100_0040, 'T')
            .build();
        assert_eq!(needs::value(&with, function), Ok(0xffff_ffff_8100_0040));
        assert_eq!(needs::value(&with, has), Ok(1));
    }
}

/// Would catch a symbol or a member that one of the lab's kernels has under another name.
#[test]
fn it_fits_real_kernels() {
    let Some(dir) = std::env::var_os("KERNINST_TEST_KERNELS") else {
        // Past the test harness, which would hide it.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: KERNINST_TEST_KERNELS names no directory with vmlinuz files; nothing was tested"
        );
        return;
    };
    let mut tested = 0;
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        if !entry.file_name().to_string_lossy().starts_with("vmlinuz") {
            continue;
        }
        let kernel = Kernel::from_file(&entry.path()).expect("a kernel");
        match complete(&kernel) {
            Ok(_) => tested += 1,
            Err(e) => panic!("{}: {e}", entry.path().display()),
        }
        for has in [
            "KI_HAS_TIME",
            "KI_HAS_BOOT_TIME",
            "KI_HAS_USER_COPY",
            "KI_HAS_KERNEL_STACK",
            "KI_HAS_USER_STACK",
            "KI_HAS_BPF",
            "KI_HAS_THUNK",
        ] {
            assert_eq!(needs::value(&kernel, has), Ok(1), "{has}");
        }
    }
    assert!(tested > 0, "KERNINST_TEST_KERNELS has no vmlinuz");
}
