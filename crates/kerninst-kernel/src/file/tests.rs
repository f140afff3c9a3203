//! Files made here: a vmlinux without symbol table, in a bzImage; a module. Then damaged.

use std::io::Write as _;

use expect_test::expect;
use proptest::prelude::*;

use super::{Reason, parse};
use crate::{Kernel, kallsyms};

const TEXT: u64 = 0xffff_ffff_8100_0000;
const RODATA: u64 = 0xffff_ffff_8200_0000;

/// A section to write: name, type, flags, address, bytes, link, info.
type Wanted = (&'static str, u32, u64, u64, Vec<u8>, u32, u32);

/// An ELF file. Section 1 is the first of `sections`; the name table comes last.
fn elf(kind: u16, sections: &[Wanted]) -> Vec<u8> {
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(64, 0);
    let mut names = vec![0];
    let mut headers = vec![[0u8; 64]];
    let names_at = sections.len() + 1;
    let all = sections
        .iter()
        .cloned()
        .chain([(".shstrtab", 3, 0, 0, Vec::new(), 0, 0)]);
    for (i, (name, kind, flags, addr, bytes, link, info)) in all.enumerate() {
        let name_at = names.len() as u32;
        names.extend(name.bytes());
        names.push(0);
        let bytes = if i + 1 == names_at {
            names.clone()
        } else {
            bytes
        };
        out.resize(out.len().next_multiple_of(16), 0);
        let mut h = Vec::new();
        h.extend(name_at.to_le_bytes());
        h.extend(kind.to_le_bytes());
        for v in [flags, addr, out.len() as u64, bytes.len() as u64] {
            h.extend(v.to_le_bytes());
        }
        h.extend(link.to_le_bytes());
        h.extend(info.to_le_bytes());
        h.extend(16u64.to_le_bytes());
        h.extend(24u64.to_le_bytes());
        headers.push(h.try_into().unwrap());
        out.extend(bytes);
    }
    let start = out.len() as u64;
    headers.iter().for_each(|h| out.extend(h));
    for (at, value) in [
        (0x10, kind),
        (0x12, 62),
        (0x3a, 64),
        (0x3c, headers.len() as u16),
        (0x3e, names_at as u16),
    ] {
        out[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    out[0x28..0x30].copy_from_slice(&start.to_le_bytes());
    out
}

fn vmlinux() -> Vec<u8> {
    let mut symbols: Vec<(u64, u8, String)> = (0..1500)
        .map(|i| (TEXT + 0x1000 + i * 0x10, b't', format!("func_{i}")))
        .collect();
    for (name, addr, letter) in [
        ("_text", TEXT, b'T'),
        ("_stext", TEXT, b'T'),
        ("do_int3", TEXT + 0x10, b't'),
        ("__noinstr_text_start", TEXT + 0x20, b'T'),
        ("__noinstr_text_end", TEXT + 0x40, b'T'),
        ("blacklisted", TEXT + 0x50, b't'),
        ("next", TEXT + 0x60, b't'),
        ("_etext", TEXT + 0x8000, b'T'),
        ("__start___ex_table", RODATA, b'R'),
        ("__stop___ex_table", RODATA + 12, b'R'),
        ("__start_kprobe_blacklist", RODATA + 16, b'R'),
        ("__stop_kprobe_blacklist", RODATA + 24, b'R'),
        ("vermagic", RODATA + 24, b'r'),
    ] {
        symbols.push((addr, letter, name.into()));
    }
    let mut rodata = vec![
        0, 0x10, 0, 0xff, 0x10, 0x10, 0, 0xff, 3, 0, 0, 0, 0, 0, 0, 0,
    ];
    rodata.extend((TEXT + 0x50).to_le_bytes());
    rodata.extend(b"6.12.0-test SMP preempt mod_unload \0");
    rodata.resize(512, 0);
    rodata.extend(kallsyms::tests::encode(&symbols, true, false));
    let build_id = [
        4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 1, 2, 3, 4,
    ]
    .to_vec();
    elf(
        2,
        &[
            (".text", 1, 6, TEXT, vec![0x90; 0x9000], 0, 0),
            (".rodata", 1, 3, RODATA, rodata, 0, 0),
            (".notes", 7, 2, RODATA + 0x10_0000, build_id, 0, 0),
            (".init.text", 1, 6, RODATA + 0x20_0000, vec![0xcc; 64], 0, 0),
        ],
    )
}

fn bzimage(vmlinux: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(vmlinux).unwrap();
    let payload = gz.finish().unwrap();
    let mut out = vec![0; 1024];
    out[0x1f1] = 1;
    out[0x202..0x206].copy_from_slice(b"HdrS");
    out[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
    out[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    out[0x300..0x320].copy_from_slice(b"6.12.0-test (someone@somewhere) ");
    out[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
    out[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend([0; 16]);
    out.extend(payload);
    out
}

/// A module: `f` calls `g`, which is in another section, and `printk`, which is nowhere.
fn module() -> Vec<u8> {
    let mut text = vec![0xe8, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xc3];
    text.resize(16, 0xcc);
    let mut strings = vec![0];
    let mut table = vec![0u8; 24];
    for (name, info, section, value, size) in [
        ("f", 0x12u8, 1u16, 0u64, 11u64),
        ("g", 0x02, 2, 4, 1),
        ("printk", 0x10, 0, 0, 0),
    ] {
        table.extend((strings.len() as u32).to_le_bytes());
        table.extend([info, 0]);
        table.extend(section.to_le_bytes());
        table.extend(value.to_le_bytes());
        table.extend(size.to_le_bytes());
        strings.extend(name.bytes());
        strings.push(0);
    }
    let rela = |list: &[(u64, u32, u32, i64)]| -> Vec<u8> {
        let mut out = Vec::new();
        for &(offset, kind, symbol, addend) in list {
            out.extend(offset.to_le_bytes());
            out.extend(kind.to_le_bytes());
            out.extend(symbol.to_le_bytes());
            out.extend(addend.to_le_bytes());
        }
        out
    };
    let info = b"license=GPL\0name=tiny\0vermagic=6.12.0-test SMP \0".to_vec();
    elf(
        1,
        &[
            (".text", 1, 6, 0, text, 0, 0),
            (
                ".init.text",
                1,
                6,
                0,
                vec![0x90, 0x90, 0x90, 0x90, 0xc3],
                0,
                0,
            ),
            ("__mcount_loc", 1, 2, 0, vec![0; 8], 0, 0),
            ("__bug_table", 1, 3, 0, vec![0; 12], 0, 0),
            (".modinfo", 1, 2, 0, info, 0, 0),
            (".symtab", 2, 0, 0, table, 7, 0),
            (".strtab", 3, 0, 0, strings, 0, 0),
            (
                ".rela.text",
                4,
                0,
                0,
                rela(&[(1, 4, 2, -4), (6, 4, 3, -4)]),
                6,
                1,
            ),
            (".rela__mcount_loc", 4, 0, 0, rela(&[(0, 1, 1, 0)]), 6, 3),
            (
                ".rela__bug_table",
                4,
                0,
                0,
                rela(&[(0, 2, 1, 10), (4, 99, 1, 0)]),
                6,
                4,
            ),
        ],
    )
}

/// Reads everything that there is to read.
fn summary(k: &Kernel) -> String {
    let mut out = format!(
        "release {:?} build id {:?} vermagic {:?}\n",
        k.release(),
        k.build_id(),
        k.vermagic()
    );
    for t in k.text() {
        out.push_str(&format!(
            "text {:x}..{:x} {:?} init {}\n",
            t.start,
            t.end(),
            t.module,
            t.init
        ));
    }
    for s in k.symbols().iter().filter(|s| !s.name.starts_with("func_")) {
        out.push_str(&format!(
            "{:x} {} {} {:?}\n",
            s.addr,
            s.letter() as char,
            s.id(),
            s.size
        ));
    }
    let t = k.tables();
    for dump in [
        t.extable.dump(),
        t.bugs.dump(),
        t.fentry.dump(),
        t.alternatives.dump(),
        t.orc.dump(),
    ] {
        out.push_str(&dump);
    }
    for r in k.off_limits().ranges() {
        out.push_str(&format!("{:x?} {:?}\n", r.range, r.why));
    }
    k.off_limits()
        .missing()
        .iter()
        .chain(k.remarks())
        .for_each(|m| out.push_str(&format!("{m}\n")));
    for m in k.modules() {
        let sections: Vec<_> = m.sections().iter().map(|s| s.name.as_str()).collect();
        out.push_str(&format!("module {} {:x?} {sections:?}\n", m.name, m.text));
    }
    let _ = (k.btf().is_some(), k.symbol_crc("module_layout"));
    out
}

fn error(bytes: Vec<u8>) -> String {
    match parse(bytes, "x.ko") {
        Ok(_) => "no error".into(),
        Err(Reason::Corrupt(r)) => format!("corrupt: {r}"),
        Err(Reason::NotAKernel(r)) => format!("not a kernel: {r}"),
    }
}

#[test]
fn bzimage_without_symbol_table() {
    let kernel = parse(bzimage(&vmlinux()), "vmlinuz").unwrap();
    expect![[r#"
        release Some("6.12.0-test") build id Some([1, 2, 3, 4]) vermagic Some("6.12.0-test SMP preempt mod_unload ")
        text ffffffff81000000..ffffffff81008000 None init false
        text ffffffff82200000..ffffffff82200040 None init true
        ffffffff81000000 T _text None
        ffffffff81000000 T _stext None
        ffffffff81000010 t do_int3 None
        ffffffff81000020 T __noinstr_text_start None
        ffffffff81000040 T __noinstr_text_end None
        ffffffff81000050 t blacklisted None
        ffffffff81000060 t next None
        ffffffff81008000 T _etext None
        ffffffff82000000 R __start___ex_table None
        ffffffff8200000c R __stop___ex_table None
        ffffffff82000010 R __start_kprobe_blacklist None
        ffffffff82000018 R __stop_kprobe_blacklist None
        ffffffff82000018 r vermagic None
        ffffffff81001000 fixup ffffffff81001014 data 0x3
        ffffffff81000010..ffffffff81000020 Poking
        ffffffff81000020..ffffffff81000040 Noinstr
        ffffffff81000050..ffffffff81000060 Blacklist
        ffffffff82200000..ffffffff82200040 Init
    "#]].assert_eq(&summary(&kernel));
}

#[test]
fn module_file() {
    let kernel = parse(module(), "tiny.ko").unwrap();
    expect![[r#"
        release Some("6.12.0-test") build id None vermagic Some("6.12.0-test SMP ")
        text ffffffffc0000000..ffffffffc0000010 Some("tiny") init false
        text ffffffffc0000010..ffffffffc0000015 Some("tiny") init true
        ffffffffa0000000 U printk None
        ffffffffc0000000 T tiny:f Some(11)
        ffffffffc0000014 t tiny:g Some(1)
        ffffffffc000000a file 0000000000000000 line 0 flags 0x0
        ffffffffc0000000
        ffffffffc0000010..ffffffffc0000015 Init
        1 relocations of unknown kind, or out of reach, were left alone
        module tiny [ffffffffc0000000..ffffffffc0000010, ffffffffc0000010..ffffffffc0000015] [".text", ".init.text", "__mcount_loc", "__bug_table", ".modinfo"]
    "#]].assert_eq(&summary(&kernel));
    let call = |at: u64| {
        let b = kernel.bytes(at + 1, 4).unwrap();
        let to = (at + 5).wrapping_add(i64::from(i32::from_le_bytes(b.try_into().unwrap())) as u64);
        kernel
            .symbols()
            .containing(to)
            .map(|(s, o)| format!("{}+{o}", s.id()))
    };
    let f = kernel.symbols().named("f")[0].addr;
    assert_eq!(call(f).as_deref(), Some("tiny:g+0"));
    assert_eq!(call(f + 5).as_deref(), Some("printk+0"));
}

#[test]
fn damage_is_named() {
    let image = bzimage(&vmlinux());
    let mut all = String::new();
    let mut note =
        |what: &str, bytes: Vec<u8>| all.push_str(&format!("{what}: {}\n", error(bytes)));
    note("empty", Vec::new());
    note("text", b"hello".to_vec());
    note("cut in the header", image[..0x240].to_vec());
    note("cut in the payload", image[..image.len() - 100].to_vec());
    let mut broken = image.clone();
    let middle = image.len() - 2000;
    broken[middle..middle + 16].fill(0x55);
    note("broken payload", broken);
    let mut unknown = image.clone();
    unknown[1040..1044].fill(0);
    note("unknown payload", unknown);
    note("cut ELF", vmlinux()[..4000].to_vec());
    let mut no_names = vmlinux();
    let at = memchr::memmem::find(&no_names, b"0\x001\x002\x003\x00").unwrap();
    no_names[at] = b'x';
    note("no kallsyms", no_names);
    note(
        "other machine",
        [b"\x7fELF\x01\x01".as_slice(), &[0; 100]].concat(),
    );
    note("cut xz", b"\xfd7zXZ\0\0\x04".to_vec());
    note("cut zstd", b"\x28\xb5\x2f\xfd\x04".to_vec());
    note(
        "cut lz4",
        b"\x02\x21\x4c\x18\x04\0\0\0\xff\xff\xff\xff".to_vec(),
    );
    expect![[r#"
        empty: not a kernel: it is neither a bzImage nor an ELF file, compressed or not
        text: not a kernel: it is neither a bzImage nor an ELF file, compressed or not
        cut in the header: corrupt: the bzImage is truncated in its header
        cut in the payload: corrupt: the bzImage is truncated: its payload is at 0x410..0x22ae, the file has 0x224a bytes
        broken payload: corrupt: damaged gzip data: corrupt gzip stream does not have a matching checksum
        unknown payload: corrupt: its payload is compressed in an unknown way
        cut ELF: corrupt: the ELF file is truncated: the section table lies outside it
        no kallsyms: corrupt: it has no symbols: no ELF symbol table, and no kallsyms token table
        other machine: corrupt: not a 64-bit little-endian x86-64 ELF file
        cut xz: corrupt: damaged xz data: failed to fill whole buffer
        cut zstd: corrupt: damaged zstd data: WindowDescriptorReadError(Error { kind: UnexpectedEof, message: "failed to fill whole buffer" })
        cut lz4: corrupt: damaged lz4 data: expected another byte, found none
    "#]].assert_eq(&all);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = parse(bytes, "x");
    }

    #[test]
    fn damaged_files(flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..10), cut: prop::sample::Index) {
        for whole in [vmlinux(), bzimage(&vmlinux()), module()] {
            let mut bytes = whole.clone();
            for (at, value) in &flips {
                // Most of the files are symbols: aim at the headers at both ends too.
                let at = at.index(bytes.len());
                let end = bytes.len();
                for at in [at, at % 64, end - 1 - at % 1000] {
                    bytes[at] = *value;
                }
            }
            for bytes in [bytes, whole[..cut.index(whole.len())].to_vec()] {
                if let Ok(kernel) = parse(bytes, "x") {
                    let _ = summary(&kernel);
                }
            }
        }
    }
}
