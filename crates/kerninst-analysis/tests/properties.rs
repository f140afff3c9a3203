//! Nothing panics on any text and any tables; what liveness calls dead is dead.

mod listing;

use kerninst_analysis::{Analysis, EdgeTarget, InsnKind, Live};
use kerninst_kernel::{
    Alternative, BugEntry, ExEntry, JumpLabel, Kernel, ParavirtSite, Site, StaticCall, Table,
    Tables,
};
use proptest::prelude::*;

const BASE: u64 = listing::BASE;

/// An address in or around the text.
fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0u64..600).prop_map(|o| BASE + o),
        1 => any::<u64>(),
        1 => (0u64..64).prop_map(|o| BASE - 32 + o),
    ]
}

fn places(max: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(place(), 0..max)
}

/// Bytes that decode to something more often than noise does.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 1..12),
        2 => Just(vec![0x0f, 0x1f, 0x44, 0, 0]),
        2 => any::<i8>().prop_map(|d| vec![0x74, d as u8]),
        2 => any::<i8>().prop_map(|d| vec![0xeb, d as u8]),
        1 => (-300i32..300).prop_map(|d| [vec![0xe8], d.to_le_bytes().to_vec()].concat()),
        1 => (-300i32..300).prop_map(|d| [vec![0xe9], d.to_le_bytes().to_vec()].concat()),
        1 => (-300i32..300).prop_map(|d| [vec![0x0f, 0x84], d.to_le_bytes().to_vec()].concat()),
        1 => (-300i32..300).prop_map(|d| [vec![0x48, 0x8d, 0x05], d.to_le_bytes().to_vec()].concat()),
        1 => Just(vec![0xc3]),
        1 => Just(vec![0x0f, 0x0b]),
        1 => Just(vec![0x90; 16]),
        1 => Just(vec![0xcc; 7]),
        1 => Just(vec![0xff, 0xe0]),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "f",
        "g",
        "f.cold",
        "__pfx_f",
        "__pfx_g",
        "panic",
        "__x86_return_thunk",
        "__x86_indirect_thunk_rax",
        "__SCT__x",
        "__get_user_4",
        "_stext",
    ])
}

/// Table entries, whatever they may say.
#[derive(Clone, Debug)]
struct Entries {
    ex: Vec<(u64, u64, u32)>,
    bugs: Vec<(u64, u16)>,
    jumps: Vec<(u64, u64, u64)>,
    calls: Vec<(u64, u64, bool)>,
    alternatives: Vec<(u64, u64, u8, u8)>,
    paravirt: Vec<(u64, u8)>,
    /// fentry, retpolines, returns, ENDBR, SMP locks, call sites.
    sites: [Vec<u64>; 6],
}

prop_compose! {
    fn entries()(
        ex in prop::collection::vec((place(), place(), any::<u32>()), 0..6),
        bugs in prop::collection::vec((place(), any::<u16>()), 0..6),
        jumps in prop::collection::vec((place(), place(), any::<u64>()), 0..6),
        calls in prop::collection::vec((place(), any::<u64>(), any::<bool>()), 0..4),
        alternatives in prop::collection::vec((place(), place(), any::<u8>(), any::<u8>()), 0..4),
        paravirt in prop::collection::vec((place(), any::<u8>()), 0..3),
        sites in [places(6), places(4), places(4), places(4), places(4), places(4)],
    ) -> Entries {
        Entries { ex, bugs, jumps, calls, alternatives, paravirt, sites }
    }
}

fn table<A, T: kerninst_kernel::Entry>(entries: Vec<A>, make: impl Fn(A) -> T) -> Table<T> {
    Table::new(entries.into_iter().map(make).collect())
}

fn tables(e: Entries) -> Tables {
    let [
        fentry,
        retpolines,
        returns,
        endbr_seals,
        smp_locks,
        call_sites,
    ] = e.sites.map(|list| table(list, |addr| Site { addr }));
    Tables {
        extable: table(e.ex, |(insn, fixup, data)| ExEntry { insn, fixup, data }),
        bugs: table(e.bugs, |(addr, flags)| BugEntry {
            addr,
            file: 0,
            line: 0,
            flags,
        }),
        jump_labels: table(e.jumps, |(code, target, key)| JumpLabel {
            code,
            target,
            key,
        }),
        static_calls: table(e.calls, |(addr, key, tail)| StaticCall { addr, key, tail }),
        alternatives: table(
            e.alternatives,
            |(addr, replacement, len, replacement_len)| Alternative {
                addr,
                replacement,
                feature: 0,
                flags: 0,
                len,
                replacement_len,
            },
        ),
        paravirt: table(e.paravirt, |(addr, len)| ParavirtSite {
            addr,
            kind: 0,
            len,
        }),
        fentry,
        retpolines,
        returns,
        endbr_seals,
        smp_locks,
        call_sites,
        ..Tables::default()
    }
}

fn inspect(kernel: &Kernel) {
    let analysis = Analysis::new(kernel);
    analysis.all(|f| {
        // The shape holds whatever the input: blocks partition the instructions, edges name blocks.
        let mut at = 0u32;
        for (n, block) in f.blocks.iter().enumerate() {
            assert_eq!(block.first, at);
            at += block.count;
            assert!(block.count > 0);
            for insn in f.block_insns(block) {
                assert_eq!(insn.block as usize, n);
                assert!((1..=15).contains(&insn.len));
                assert!(insn.live.reg(4));
            }
            for edge in f.block_edges(block) {
                assert_eq!(edge.from as usize, n);
                if let EdgeTarget::Block(b) = edge.to {
                    assert!((b as usize) < f.blocks.len());
                }
            }
        }
        assert_eq!(at as usize, f.insns.len());
        assert!(f.insns.is_sorted_by_key(|i| i.addr));
        assert!(f.insns.iter().all(|i| f.contains(i.addr)));
        let dominators = f.dominators();
        assert_eq!(dominators.idom.len(), f.blocks.len());
        for l in f.loops() {
            assert!(l.blocks.iter().all(|b| dominators.dominates(l.header, *b)));
        }
        for exit in f.exits() {
            assert!((exit.insn as usize) < f.insns.len());
        }
        f.calls();
    });
    let _ = analysis.call_graph();
    for offset in (0..700).step_by(13) {
        let _ = analysis.function_at(BASE - 20 + offset);
        for range in analysis.padding_near(BASE - 20 + offset, offset) {
            // What is called free was never found to be an instruction.
            for id in analysis.functions() {
                let Some(f) = analysis.function_at(id.start) else {
                    continue;
                };
                let hit = f
                    .insns
                    .iter()
                    .find(|i| i.addr < range.end && range.start < i.end());
                assert!(
                    hit.is_none() || !f.is_complete() || !f.abi,
                    "{range:x?} {hit:x?}"
                );
            }
        }
    }
}

/// Failing inputs are printed, not written next to the test.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn no_panic_on_any_text(
        bytes in text(),
        symbols in prop::collection::vec((name(), 0u64..600), 0..12),
        entries in entries(),
    ) {
        let mut builder = Kernel::builder().text(BASE, &bytes);
        for (name, offset) in symbols {
            builder = builder.symbol(name, BASE + offset, 't');
        }
        inspect(&builder.tables(tables(entries)).build());
    }
}

const CF: u8 = 16;
const ZF: u8 = 17;

/// Instructions, each with what it reads and surely overwrites by its definition in the manual (register
/// numbers, and the two flags above), written down without a look at the decoder's tables.
const CODE: &[(&[u8], &[u8], &[u8])] = &[
    (&[0x48, 0x89, 0xc1], &[0], &[1]),              // mov rcx, rax
    (&[0x48, 0x01, 0xf0], &[0, 6], &[0, CF, ZF]),   // add rax, rsi
    (&[0x89, 0xd7], &[2], &[7]),                    // mov edi, edx
    (&[0xb1, 0x07], &[], &[]),                      // mov cl, 7
    (&[0x66, 0xb8, 0x07, 0x00], &[], &[]),          // mov ax, 7
    (&[0x4d, 0x31, 0xc0], &[], &[8, CF, ZF]),       // xor r8, r8
    (&[0x0f, 0x44, 0xc2], &[0, 2, ZF], &[0]),       // cmove eax, edx
    (&[0xd3, 0xe2], &[2, 1], &[2]),                 // shl edx, cl
    (&[0x49, 0x0f, 0xaf, 0xf9], &[7, 9], &[7, CF]), // imul rdi, r9
    (&[0xf7, 0xe6], &[0, 6], &[0, 2, CF]),          // mul esi
    (&[0x0f, 0x94, 0xc0], &[ZF], &[]),              // sete al
    (&[0x4c, 0x8d, 0x14, 0x37], &[7, 6], &[10]),    // lea r10, [rdi+rsi]
    (&[0x41, 0x53, 0x59], &[11], &[1]),             // push r11; pop rcx
    (&[0x11, 0xc8], &[1, 0, CF], &[0, CF, ZF]),     // adc eax, ecx
    (&[0x85, 0xd2], &[2], &[CF, ZF]),               // test edx, edx
    (&[0x4c, 0x87, 0xd8], &[0, 11], &[0, 11]),      // xchg rax, r11
    (&[0xf3, 0xa4], &[1, 6, 7], &[]),               // rep movsb
    (&[0x9c, 0x41, 0x58], &[CF, ZF], &[8]),         // pushf; pop r8
    (&[0x0f, 0xbc, 0xc1], &[1], &[ZF]),             // bsf eax, ecx
    (&[0x0f, 0xb1, 0x0f], &[0, 1, 7], &[CF, ZF]),   // cmpxchg [rdi], ecx
    (&[0xff, 0xc1], &[1], &[1, ZF]),                // inc ecx
    (&[0xf8], &[], &[CF]),                          // clc
    (&[0x90], &[], &[]),
];

/// Registers that the caller may look at behind the return of a function with an fentry site.
const AT_RETURN: u32 = 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 0xf000;

/// Is register `r` read before it is wholly written on some path from step `from`? By walking all paths.
fn is_read(steps: &[Step], from: usize, r: u8, fuel: usize) -> bool {
    if fuel == 0 {
        return false;
    }
    let Some(step) = steps.get(from) else {
        return r < 16 && AT_RETURN >> r & 1 != 0;
    };
    match step {
        Step::Code(n) => {
            let (_, reads, writes) = CODE[*n];
            reads.contains(&r) || !writes.contains(&r) && is_read(steps, from + 1, r, fuel - 1)
        }
        Step::Branch(to) => {
            // je: reads the zero flag.
            r == ZF || is_read(steps, from + 1, r, fuel - 1) || is_read(steps, *to, r, fuel - 1)
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Code(usize),
    /// `je` to step number `to`.
    Branch(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    (1usize..14).prop_flat_map(|len| {
        let step = prop_oneof![
            5 => (0..CODE.len()).prop_map(Step::Code),
            1 => (0..=len).prop_map(Step::Branch),
        ];
        prop::collection::vec(step, len)
    })
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn what_is_called_dead_is_not_read(steps in steps()) {
        let len = |s: &Step| match s {
            Step::Code(n) => CODE[*n].0.len(),
            Step::Branch(_) => 2,
        };
        let mut starts = vec![5usize];
        for step in &steps {
            starts.push(starts.last().unwrap() + len(step));
        }
        let mut bytes = vec![0x0f, 0x1f, 0x44, 0, 0];
        for (n, step) in steps.iter().enumerate() {
            match step {
                Step::Code(c) => bytes.extend(CODE[*c].0),
                Step::Branch(to) => {
                    let d = starts[*to] as i64 - starts[n + 1] as i64;
                    bytes.extend([0x74, d as i8 as u8]);
                }
            }
        }
        bytes.push(0xc3);
        let tables = Tables { fentry: Table::new(vec![Site { addr: BASE }]), ..Tables::default() };
        let kernel = Kernel::builder().text(BASE, &bytes).symbol("f", BASE, 't').tables(tables).build();
        let analysis = Analysis::new(&kernel);
        let f = analysis.function_at(BASE).unwrap();
        prop_assert!(f.is_complete());
        for (n, _) in steps.iter().enumerate() {
            let insn = f.insn_at(BASE + starts[n] as u64);
            // Steps behind nothing but a jump may be unreachable; there are none here.
            let insn = insn.expect("every step is reachable");
            // Enough fuel for every path without a repeated step, and then some.
            let fuel = 18;
            for r in 0..16u8 {
                if r != 4 && !insn.live.reg(r) {
                    prop_assert!(!is_read(&steps, n, r, fuel), "register {r} at step {n}");
                }
            }
            for (flag, bit) in [(CF, Live::CF), (ZF, Live::ZF)] {
                if !insn.live.contains(bit) {
                    prop_assert!(!is_read(&steps, n, flag, fuel), "{bit} at step {n}");
                }
            }
        }
        // And it is no good to call everything live: at the return the scratch registers are dead.
        let last = f.insns.last().unwrap();
        prop_assert_eq!(last.kind, InsnKind::Return);
        prop_assert!(last.live.flags_dead() && !last.live.reg(1) && !last.live.reg(11));
    }
}
