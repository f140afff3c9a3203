//! On real kernel files: `KERNINST_TEST_KERNELS` names a directory that is searched for `vmlinuz*` and `*.ko*` (`cargo xtask test`
//! sets it). What the kernel's own tables say must fit its code, byte for byte.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use kerninst_kernel::{Entry, Error, Kernel, OffLimit, Table};

/// Files below the directory whose names are wanted; at most `most`.
fn files(wanted: fn(&str) -> bool, most: usize) -> Option<Vec<PathBuf>> {
    let Some(dir) = std::env::var_os("KERNINST_TEST_KERNELS") else {
        // Past the test harness, which would hide it.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: KERNINST_TEST_KERNELS names no directory with vmlinuz files; nothing was tested"
        );
        return None;
    };
    let mut found = Vec::new();
    let mut dirs = vec![PathBuf::from(dir)];
    while let Some(dir) = dirs.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(&dir)
            .expect("a readable directory")
            .flatten()
            .map(|e| e.path())
            .collect();
        entries.sort();
        for path in entries {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
            if path.is_dir() && !path.is_symlink() {
                dirs.push(path);
            } else if wanted(name) && found.len() < most {
                found.push(path);
            }
        }
    }
    Some(found)
}

fn kernels() -> Option<Vec<PathBuf>> {
    let found = files(|n| n.starts_with("vmlinuz"), 100)?;
    assert!(!found.is_empty(), "KERNINST_TEST_KERNELS has no vmlinuz");
    Some(found)
}

/// How many entries of a table about core text (not init text) satisfy `good`; all must but `exceptions`.
fn all_sites<T: Entry>(
    k: &Kernel,
    what: &str,
    table: &Table<T>,
    exceptions: usize,
    good: impl Fn(&[u8]) -> bool,
) {
    let core = k.text()[0].range();
    let sites: Vec<_> = table
        .entries()
        .iter()
        .map(Entry::addr)
        .filter(|a| core.contains(a))
        .collect();
    assert!(!sites.is_empty(), "{what}: no entries");
    let bad: Vec<_> = sites
        .iter()
        .filter(|&&a| !k.bytes(a, 5).is_some_and(&good))
        .collect();
    assert!(
        bad.len() <= exceptions,
        "{what}: {} of {} do not fit the code: {bad:x?}",
        bad.len(),
        sites.len()
    );
}

#[test]
fn tables_fit_the_code() {
    for path in kernels().unwrap_or_default() {
        let k = Kernel::from_file(&path).expect("a kernel");
        let release = k.release().expect("a release").to_string();
        println!(
            "{}: {release}, {} symbols",
            path.display(),
            k.symbols().len()
        );
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        assert!(
            name == "vmlinuz" || name == format!("vmlinuz-{release}"),
            "{name} has {release}"
        );
        assert_eq!(k.build_id().map(<[u8]>::len), Some(20));
        assert!(
            k.vermagic()
                .is_some_and(|v| v.starts_with(&format!("{release} SMP ")))
        );
        assert!(k.symbol_crc("module_layout").is_some_and(|c| c != 0));
        assert!(k.symbol_crc("_printk").is_some_and(|c| c != 0));
        assert_eq!(k.symbol_crc("no_such_symbol"), None);

        let t = k.tables();
        assert_eq!(t.missing, []);
        // In the file nothing is patched yet: calls to __fentry__, jumps to the return thunk, retpolines.
        all_sites(&k, "fentry", &t.fentry, 0, |b| b[0] == 0xe8);
        all_sites(&k, "returns", &t.returns, 16, |b| b[0] == 0xe9);
        all_sites(&k, "retpolines", &t.retpolines, 0, |b| {
            matches!(b[0], 0xe8 | 0xe9 | 0x2e | 0x0f)
        });
        all_sites(&k, "static calls", &t.static_calls, 0, |b| {
            matches!(b[0], 0xe8 | 0xe9)
        });
        all_sites(&k, "bugs", &t.bugs, 0, |b| b.starts_with(&[0x0f, 0x0b]));
        // nops of 2 and 5 bytes, or a jump where the key starts enabled
        let label = |b: &[u8]| {
            matches!(
                b,
                [0xeb | 0xe9, ..] | [0x66, 0x90, ..] | [0x0f, 0x1f, 0x44, 0, 0]
            )
        };
        all_sites(&k, "jump labels", &t.jump_labels, 0, label);
        all_sites(&k, "smp locks", &t.smp_locks, 0, |b| {
            matches!(b, [0xf0 | 0x3e, ..] | [0x66, 0xf0, ..])
        });
        if !t.endbr_seals.is_empty() {
            all_sites(&k, "endbr seals", &t.endbr_seals, 0, |b| {
                b.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa])
            });
        }
        if !t.call_sites.is_empty() {
            all_sites(&k, "call sites", &t.call_sites, 0, |b| {
                matches!(b[0], 0xe8 | 0xe9)
            });
        }
        let image = k.text()[0].start..k.symbols().addr_of("_end").expect("_end");
        assert!(
            t.extable
                .entries()
                .iter()
                .all(|e| image.contains(&e.insn) && image.contains(&e.fixup))
        );
        assert!(
            t.alternatives
                .entries()
                .iter()
                .all(|a| a.replacement_len <= a.len && image.contains(&a.addr))
        );
        assert!(
            t.jump_labels
                .entries()
                .iter()
                .all(|j| image.contains(&j.target) && image.contains(&(j.key & !3)))
        );
        let file = t
            .bugs
            .entries()
            .iter()
            .find(|b| b.file != 0)
            .expect("a bug entry with a file");
        let name = k.read(file.file, 8).expect("file names");
        assert!(name.iter().all(|b| b.is_ascii()), "{name:?}");
    }
}

#[test]
fn functions_have_unwind_data_and_names() {
    for path in kernels().unwrap_or_default() {
        let k = Kernel::from_file(&path).expect("a kernel");
        let t = k.tables();
        assert!(t.orc.entries().is_sorted_by_key(|e| e.ip));
        for name in [
            "vfs_read",
            "path_openat",
            "schedule",
            "tcp_rcv_established",
            "do_syscall_64",
        ] {
            let s = *k.symbols().named(name).first().expect(name);
            assert_eq!(k.symbols().by_id(&s.id()), Some(s));
            assert_eq!(
                k.symbols().containing(s.addr + 3).map(|(s, o)| (s.name, o)),
                Some((name, 3))
            );
            assert!(s.end() > s.addr + 16 && k.text()[0].range().contains(&s.end()));
            // One entry may cover the padding in front of a function and its start.
            assert!(
                t.orc
                    .lookup(s.addr + 1)
                    .is_some_and(|e| e.ip + 32 > s.addr && e.ip <= s.addr + 1),
                "{name}"
            );
        }
        // Names that are there several times keep apart.
        let twins = k.symbols().named("__func__.0");
        assert!(twins.len() > 2);
        assert_eq!(twins[2].id(), "__func__.0#3");
        assert_eq!(k.symbols().by_id("__func__.0#3"), Some(twins[2]));

        // The BPF interpreter's table of labels.
        let interpreter = *k
            .symbols()
            .named("___bpf_prog_run")
            .first()
            .expect("___bpf_prog_run");
        let labels = k.code_pointers_in(interpreter.addr..interpreter.end());
        assert!(labels.len() > 80, "{labels:x?}");

        let limits = k.off_limits();
        assert_eq!(limits.missing(), [] as [String; 0]);
        let at = |name: &str| {
            limits.at(k
                .symbols()
                .addr_of(name)
                .unwrap_or_else(|| panic!("{name}")))
        };
        assert_eq!(at("entry_SYSCALL_64"), Some(OffLimit::Entry));
        assert_eq!(at("exc_int3"), Some(OffLimit::Noinstr));
        assert_eq!(at("do_syscall_64"), Some(OffLimit::Noinstr));
        assert_eq!(at("__x86_return_thunk"), Some(OffLimit::Thunk));
        assert_eq!(at("start_kernel"), Some(OffLimit::Init));
        // On the kernel's own blacklist from 6.12 on.
        assert!(matches!(
            at("notify_die"),
            Some(OffLimit::Poking | OffLimit::Blacklist)
        ));
        for name in ["text_poke_bp", "smp_text_poke_single"] {
            if let Some(addr) = k.symbols().addr_of(name) {
                assert_eq!(limits.at(addr), Some(OffLimit::Poking), "{name}");
            }
        }
        assert_eq!(at("vfs_read"), None);
        let allowed = k
            .symbols()
            .text()
            .filter(|s| k.text()[0].range().contains(&s.addr));
        let (allowed, all) = allowed.fold((0, 0), |(n, all), s| {
            (n + u32::from(limits.at(s.addr).is_none()), all + 1)
        });
        assert!(
            allowed * 100 > all * 85,
            "{allowed} of {all} are not off limits"
        );
    }
}

#[test]
fn types() {
    for path in kernels().unwrap_or_default() {
        let k = Kernel::from_file(&path).expect("a kernel");
        let btf = k.btf().expect("BTF");
        assert_eq!(btf.offset("module", "name"), Some(0x18));
        assert!(
            btf.struct_size("module")
                .is_some_and(|s| s > 0x200 && s < 0x1000 && s % 64 == 0)
        );
        assert!(btf.offset("module", "arch.num_orcs").is_some());
        let base = btf
            .offset("module", "mem[0].base")
            .or(btf.offset("module", "core_layout.base"));
        assert!(base.is_some());
        assert_eq!(btf.struct_size("list_head"), Some(16));
        let f = btf.function("vfs_read").expect("vfs_read");
        let params: Vec<_> = f
            .params
            .iter()
            .map(|p| format!("{} {}", btf.type_name(p.type_id), p.name))
            .collect();
        assert_eq!(
            params,
            [
                "struct file * file",
                "char * buf",
                "size_t count",
                "loff_t * pos"
            ]
        );
        assert_eq!(btf.type_name(f.returns), "ssize_t");
        // Every type can be named and sized without trouble.
        for id in 1..=btf.len() {
            let _ = (btf.type_name(id), btf.size_of(id));
        }
    }
}

#[test]
fn damaged_kernels_are_refused() {
    let work = std::env::temp_dir().join(format!("kerninst-kernel-test-{}", std::process::id()));
    for path in kernels().unwrap_or_default() {
        let whole = std::fs::read(&path).expect("readable");
        std::fs::create_dir_all(&work).expect("a temporary directory");
        let try_with = |name: &str, bytes: &[u8]| {
            let file = work.join(name);
            std::fs::write(&file, bytes).expect("a temporary file");
            Kernel::from_file(&file).err()
        };
        for keep in [
            0,
            100,
            0x220,
            0x1000,
            100_000,
            whole.len() / 2,
            whole.len() / 10 * 9,
        ] {
            let e = try_with("cut", &whole[..keep])
                .unwrap_or_else(|| panic!("cut to {keep}: accepted"));
            assert!(
                matches!(e, Error::NotAKernel { .. } | Error::Corrupt { .. }),
                "{keep}: {e}"
            );
        }
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 0x10;
        // LZ4 as the kernel uses it has no checksum: there such damage cannot be noticed.
        let lz4 = whole
            .windows(4)
            .take(1 << 16)
            .any(|w| w == [0x02, 0x21, 0x4c, 0x18]);
        match try_with("flipped", &flipped) {
            None if lz4 => {}
            e => {
                let e = e.expect("damage in the payload is noticed");
                assert!(matches!(e, Error::Corrupt { .. }), "{e}");
            }
        }
        let _ = std::fs::remove_dir_all(&work);
    }
    assert!(matches!(
        Kernel::from_file(Path::new("/no/such/file")),
        Err(Error::Io { .. })
    ));
    assert!(matches!(
        Kernel::from_file(Path::new("/")),
        Err(Error::Io { .. })
    ));
}

#[test]
fn module_files() {
    let is_module = |n: &str| {
        ["ext4.ko", "loop.ko", "dummy.ko", "xfs.ko"]
            .iter()
            .any(|m| n == *m || n.strip_prefix(m).is_some_and(|r| r.starts_with('.')))
    };
    for path in files(is_module, 20).unwrap_or_default() {
        let k = Kernel::from_file(&path).unwrap_or_else(|e| panic!("{e}"));
        let name = k.modules()[0].name.clone();
        println!("{}: {name}", path.display());
        assert_eq!(k.remarks(), [] as [String; 0]);
        assert_eq!(k.tables().missing, []);
        assert!(k.build_id().is_some());
        assert!(k.vermagic().is_some());
        let texts: Vec<_> = k.text().iter().filter(|t| !t.init).collect();
        assert!(texts.iter().all(|t| t.module.as_deref() == Some(&*name)));
        // Every fentry site calls __fentry__, which is a symbol of another image.
        let fentry = k.tables().fentry.entries();
        assert!(!fentry.is_empty());
        for site in fentry {
            let b = k.bytes(site.addr, 5).expect("in text");
            let to = (site.addr + 5)
                .wrapping_add(i64::from(i32::from_le_bytes([b[1], b[2], b[3], b[4]])) as u64);
            let callee = k.symbols().at(to).first().map(|s| s.name);
            assert_eq!(
                (b[0], callee),
                (0xe8, Some("__fentry__")),
                "{:x}",
                site.addr
            );
        }
        assert!(k.tables().orc.entries().is_sorted_by_key(|e| e.ip));
    }
}
