//! Whole real kernels: `KERNINST_TEST_KERNELS` names a directory with `vmlinuz*`/`vmlinux*` files.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use kerninst_analysis::{Analysis, EdgeTarget, ExitKind, Sites};
use kerninst_kernel::Kernel;
use yaxpeax_arch::{Decoder, LengthedInstruction, U8Reader};
use yaxpeax_x86::long_mode::InstDecoder;

/// The kernels to test with. Says so loudly if there are none.
fn kernels() -> Vec<PathBuf> {
    let Some(dir) = std::env::var_os("KERNINST_TEST_KERNELS") else {
        // Straight to the terminal: the test harness would swallow what a passing test prints.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: KERNINST_TEST_KERNELS is not set: no real kernel was analysed"
        );
        return Vec::new();
    };
    let entries = std::fs::read_dir(&dir).expect("KERNINST_TEST_KERNELS is a directory");
    let mut found: Vec<PathBuf> = entries
        .map(|e| e.expect("readable directory").path())
        .filter(|p| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with("vmlinu"))
        })
        .collect();
    found.sort();
    assert!(
        !found.is_empty(),
        "no vmlinuz or vmlinux in {}",
        dir.display()
    );
    found
}

fn load(path: &Path) -> Kernel {
    Kernel::from_file(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Instructions of recent processors that yaxpeax-x86 2.2 does not know: serialize, tilerelease, lkgs.
const THEY_DO_NOT_KNOW: [&[u8]; 3] = [
    &[0x0f, 0x01, 0xe8],
    &[0xc4, 0xe2, 0x78, 0x49, 0xc0],
    &[0xf2, 0x0f, 0x00, 0xf7],
];

/// A second decoder, written by someone else, sees the same instruction lengths.
#[test]
fn a_second_decoder_agrees() {
    for path in kernels() {
        let kernel = load(&path);
        let analysis = Analysis::new(&kernel);
        let differ = Mutex::new((0u64, Vec::new()));
        let totals = analysis.all(|f| {
            let decoder = InstDecoder::default();
            for insn in &f.insns {
                // Up to 15 bytes, less at the end of the text.
                let bytes = (insn.len as usize..=15)
                    .rev()
                    .find_map(|n| kernel.bytes(insn.addr, n));
                let bytes = bytes.expect("a decoded instruction has bytes");
                if THEY_DO_NOT_KNOW.contains(&&bytes[..insn.len as usize]) {
                    continue;
                }
                let theirs = decoder.decode(&mut U8Reader::new(bytes));
                if theirs.as_ref().ok().map(|i| i.len().to_const()) != Some(u64::from(insn.len)) {
                    let mut differ = differ.lock().unwrap();
                    differ.0 += 1;
                    if differ.1.len() < 20 {
                        let own = &bytes[..insn.len as usize];
                        differ.1.push(format!(
                            "{:x} {} {own:02x?} theirs {theirs:?}",
                            insn.addr, f.name
                        ));
                    }
                }
            }
        });
        let (count, list) = differ.into_inner().unwrap();
        eprintln!(
            "{}: {} instructions, {count} differ",
            path.display(),
            totals.insns
        );
        assert!(totals.insns > 1_000_000);
        assert_eq!(count, 0, "{list:#?}");
    }
}

/// The kernel's own tables fall on the instructions found, nearly all functions are complete, and every
/// fentry site and static key is where the analysis says.
#[test]
fn tables_and_functions() {
    for path in kernels() {
        let kernel = load(&path);
        let analysis = Analysis::new(&kernel);
        let found = Mutex::new([0u64; 4]);
        let odd = Mutex::new(Vec::new());
        let totals = analysis.all(|f| {
            let mut sum = [0u64; 4];
            for insn in &f.insns {
                let kinds = [
                    Sites::FENTRY,
                    Sites::JUMP_LABEL,
                    Sites::STATIC_CALL,
                    Sites::EXTABLE,
                ];
                for (slot, site) in sum.iter_mut().zip(kinds) {
                    *slot += u64::from(insn.sites.contains(site));
                }
            }
            for (all, one) in found.lock().unwrap().iter_mut().zip(sum) {
                *all += one;
            }
            // A complete function goes nowhere unknown, and each block goes somewhere.
            let unknown = f
                .edges
                .iter()
                .any(|e| e.to == EdgeTarget::Exit(ExitKind::Unknown));
            let stuck = f.blocks.iter().any(|b| b.edges.is_empty());
            if f.is_complete() && (unknown || stuck) {
                odd.lock().unwrap().push(f.id.clone());
            }
        });
        let incomplete = totals.functions - totals.complete;
        let [fentry, labels, calls, faults] = found.into_inner().unwrap();
        let tables = kernel.tables();
        eprintln!(
            "{}: {totals:?}, incomplete {incomplete}; fentry {fentry}/{}, jump labels {labels}/{}, static calls {calls}/{}, faults {faults}/{}",
            path.display(),
            tables.fentry.len(),
            tables.jump_labels.len(),
            tables.static_calls.len(),
            tables.extable.len(),
        );
        let odd = odd.into_inner().unwrap();
        assert!(odd.is_empty(), "{odd:?}");
        assert!(
            incomplete * 1000 < totals.functions,
            "{incomplete} incomplete functions"
        );
        // Each site is in one function, or in the body of a weak function that another one replaced:
        // it has no symbol, and nothing reaches it (1.5 % of the fentry sites of Debian's 6.1).
        for (have, of) in [
            (fentry, tables.fentry.len()),
            (labels, tables.jump_labels.len()),
            (calls, tables.static_calls.len()),
            (faults, tables.extable.len()),
        ] {
            assert!(have * 100 >= of as u64 * 98, "{have} of {of}");
        }
    }
}

/// One function at a time gives what the whole run gives, in whatever order they are asked for.
#[test]
fn on_demand_is_the_same() {
    for path in kernels() {
        let kernel = load(&path);
        let whole = Analysis::new(&kernel);
        let sample = Mutex::new(Vec::new());
        whole.all(|f| {
            if f.entry() / 16 % 199 == 0 {
                sample.lock().unwrap().push(f.clone());
            }
        });
        let mut sample = sample.into_inner().unwrap();
        assert!(sample.len() > 100);
        sample.sort_by_key(|f| std::cmp::Reverse(f.entry()));
        let fresh = Analysis::new(&kernel);
        for f in &sample {
            let alone = fresh.function_at(f.entry()).expect("it was found before");
            assert_eq!(&*alone, f, "{}", f.id);
            for range in fresh.padding_near(f.entry(), 256) {
                let hit = alone
                    .insns
                    .iter()
                    .find(|i| i.addr < range.end && range.start < i.end());
                assert!(
                    hit.is_none(),
                    "{}: {range:x?} is free and has {hit:x?}",
                    f.id
                );
            }
        }
    }
}

/// Where a function jumps into the middle of another one, that one knows: the place is a join.
#[test]
fn jumps_into_functions_are_joins() {
    for path in kernels() {
        let kernel = load(&path);
        let analysis = Analysis::new(&kernel);
        let into = Mutex::new(Vec::new());
        analysis.all(|f| {
            let mut into = into.lock().unwrap();
            for edge in &f.edges {
                if let EdgeTarget::Exit(ExitKind::JumpInto(to)) = edge.to {
                    into.push((f.id.clone(), to));
                }
            }
        });
        let into = into.into_inner().unwrap();
        assert!(!into.is_empty());
        for (from, to) in into {
            let f = analysis
                .function_at(to)
                .unwrap_or_else(|| panic!("{from} jumps to {to:x}"));
            let insn = f
                .insn_at(to)
                .unwrap_or_else(|| panic!("{from} jumps to {to:x} in {}", f.id));
            assert!(insn.joins, "{from} jumps to {to:x} in {}", f.id);
        }
    }
}
