//! Generated code, run by the processor, does what the interpreter says, and changes nothing else: registers, flags, memory, calls,
//! whatever is free at the point. It would catch a wrong encoding, a wrong allocation, a register or flag that is not restored, a
//! wrong table of faults or of the stack. The optimiser's programs do what those do that they are made from, too.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod make;
mod run;
mod world;

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess, Register};
use kerninst_snippet::eval::{Ended, Machine, eval};
use kerninst_snippet::ir::{Op, Program, Region, Width, validate, worst_cost};
use kerninst_snippet::{Code, Features, Flags, Free, Snippet, compile, optimise};
use make::{Areas, Gene, WORDS};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use run::Runner;
use world::World;

/// CF, PF, AF, ZF, SF, OF in the flags register, in the order of [`Flags`].
const FLAG_BITS: [u32; 6] = [0, 2, 4, 6, 7, 11];

fn flags_register(six: u8) -> u64 {
    let bits = FLAG_BITS.iter().enumerate();
    let set = bits.map(|(n, bit)| u64::from(six >> n & 1) << bit);
    // Bit 1 is always set, interrupts are enabled.
    set.fold(0x202, |all, bit| all | bit)
}

fn six(register: u64) -> u8 {
    let bits = FLAG_BITS.iter().enumerate();
    bits.fold(0, |all, (n, bit)| all | ((register >> bit & 1) as u8) << n)
}

fn arguments(program: &Program) -> Vec<usize> {
    let ops = program.filter.ops.iter().chain(&program.body.ops);
    ops.filter_map(|op| match op {
        Op::Call { args, .. } => Some(args.len()),
        Op::Leave { .. } => Some(0),
        _ => None,
    })
    .collect()
}

#[derive(Debug)]
struct Case {
    filter: Vec<Gene>,
    body: Vec<Gene>,
    fixed: (u32, u32),
    set: bool,
    far: bool,
    odd: bool,
    optimised: bool,
    twice: bool,
    dead: u16,
    dead_flags: u8,
    flags: u8,
    regs: [u64; 16],
    seed: u64,
}

fn gene() -> impl Strategy<Value = Gene> {
    any::<Gene>()
}

fn case() -> impl Strategy<Value = Case> {
    let counts = (
        prop_oneof![Just(0u32), 0u32..5],
        prop_oneof![0u32..6, 0u32..24],
    );
    let body = prop_oneof![
        prop::collection::vec(gene(), 0..12),
        prop::collection::vec(gene(), 0..60)
    ];
    let dead = prop_oneof![any::<u16>(), Just(0u16), Just(0xffffu16), Just(0x0fc7u16)];
    let shape = (any::<bool>(), any::<bool>(), any::<bool>());
    let start = (dead, 0u8..64, 0u8..64, any::<[u64; 16]>(), any::<u64>());
    (
        prop::collection::vec(gene(), 0..8),
        body,
        counts,
        shape,
        start,
    )
        .prop_map(
            |(filter, body, fixed, (set, far, odd), (dead, dead_flags, flags, regs, seed))| Case {
                filter,
                body,
                fixed,
                set,
                far,
                odd,
                optimised: seed >> 60 & 1 == 1,
                twice: seed >> 61 == 1,
                dead,
                dead_flags,
                flags,
                regs,
                seed,
            },
        )
}

fn memory(seed: u64) -> Vec<u8> {
    let words = (0..WORDS).map(|n| (n + 1).wrapping_mul(seed | 1).rotate_left(n as u32));
    words.flat_map(u64::to_le_bytes).collect()
}

/// What a second decoder sees: instructions of the base set for integers, none of which writes rbp (unless a program says so) or below the
/// stack pointer, and
/// a stack that is as the table says at the end of each push and pop.
fn decent(code: &Code, sets_rbp: bool) -> Result<(), TestCaseError> {
    let mut info = InstructionInfoFactory::new();
    for i in Decoder::with_ip(64, &code.bytes, 0, DecoderOptions::NONE).iter() {
        prop_assert!(!i.is_invalid());
        let depth = |at: u64| {
            let steps = code.stack.iter();
            let before = steps.take_while(|s| u64::from(s.offset) <= at).last();
            i64::from(before.map_or(0, |s| s.pushed))
        };
        let info = info.info(&i);
        for r in info.used_registers() {
            let register = r.register();
            let known = register.is_gpr() || register.is_segment_register();
            prop_assert!(known, "{}", i);
            let written = !matches!(r.access(), OpAccess::Read | OpAccess::CondRead);
            let bp = register.full_register() == Register::RBP;
            prop_assert!(!(bp && written) || sets_rbp, "{}", i);
        }
        let sp = i.is_stack_instruction();
        if !sp && i.memory_base() == Register::RSP && i.mnemonic() != Mnemonic::Lea {
            let at = i.memory_displacement64() as i64;
            prop_assert!((0..depth(i.ip())).contains(&at), "{}", i);
        }
        let pushes = match i.mnemonic() {
            Mnemonic::Push | Mnemonic::Pushfq => 8,
            Mnemonic::Pop | Mnemonic::Popfq => -8,
            Mnemonic::Lea if i.op0_register() == Register::RSP => {
                (i.memory_displacement64() as i64).wrapping_neg()
            }
            // After it the code goes on from elsewhere.
            Mnemonic::Jmp => continue,
            _ => 0,
        };
        prop_assert_eq!(depth(i.next_ip()), depth(i.ip()) + pushes, "{}", i);
    }
    let end = code.stack.last().map_or(0, |s| s.pushed);
    prop_assert_eq!(end, 0);
    Ok(())
}

fn check(runner: &mut Runner, c: &Case) -> Result<(), TestCaseError> {
    let mut sure = memory(c.seed);
    let mut cpu = memory(c.seed ^ 0xff00);
    let mut probed = memory(c.seed ^ 0xff_0000);
    // Per-CPU pointers within 32 bits or beyond.
    let pointer = if c.far { 0x5000_0000_0000 } else { 0x1000 };
    let areas = Areas {
        sure: sure.as_ptr() as u64,
        cpu: pointer,
        probed: 0xffff_8880_0012_3000,
    };
    let filter = if c.fixed.0 == 0 { &[] } else { &c.filter[..] };
    let program = make::program(areas, filter, &c.body, c.fixed, c.set);
    prop_assert_eq!(validate(&program), Ok(()), "{:#?}", program);

    let free = Free::new(c.dead, Flags::from_bits(c.dead_flags));
    let mut regs = c.regs;
    regs[4] = runner.rsp(c.odd);
    let mut world = World {
        areas,
        regs,
        sure: sure.clone(),
        cpu: cpu.clone(),
        probed: probed.clone(),
        frame: Default::default(),
        calls: Vec::new(),
    };
    // What counts comes first.
    let far = areas.cpu + 8;
    if c.twice {
        let count = world.cpu_load(far, Width::B8);
        world.cpu_store(far, count.wrapping_add(1));
    }
    let mut shorter = world.clone();
    let ended = eval(&program, &mut world);
    let optimised = optimise(&program);
    prop_assert_eq!(
        validate(&optimised),
        Ok(()),
        "{:#?}\n{:#?}",
        program,
        optimised
    );
    let ended_too = eval(&optimised, &mut shorter);
    let same = ended_too == ended
        && shorter.calls == world.calls
        && shorter.regs == world.regs
        && shorter.sure == world.sure
        && shorter.cpu == world.cpu
        && shorter.probed == world.probed;
    let steps = |r: &Region| format!("{:#x?}", r.ops);
    prop_assert!(
        same,
        "before {} after {}",
        steps(&program.body),
        steps(&optimised.body)
    );
    let program = if c.optimised { optimised } else { program };
    // A second program at the same point runs after it, unless it left.
    let second = make::program(areas, &[], &c.filter, (0, 3), false);
    if !matches!(ended, Ended::Left(_)) && c.twice {
        prop_assert_eq!(eval(&second, &mut world), Ended::Done);
    }

    let mut counts = arguments(&program);
    let mut snippets = vec![Snippet::Program(program.clone().into())];
    if c.twice {
        counts.extend(arguments(&second));
        snippets.push(Snippet::Program(second.clone().into()));
        snippets.push(Snippet::Count { percpu: far });
    }
    let code = compile(&snippets, free, Features::default());
    decent(&code, program.sets() >> 5 & 1 == 1)?;
    let code_tables = (&code.faults, &code.stack);
    let base = (cpu.as_mut_ptr() as u64).wrapping_sub(pointer);
    let flags = flags_register(c.flags);
    let after = runner.run(
        &code,
        counts,
        regs,
        flags,
        (areas.probed, &mut probed),
        base,
    );
    let show = || {
        let ops = |r: &Region| -> String {
            let ops = r.ops.iter().enumerate();
            ops.map(|(n, op)| format!("{n}: {op:x?}\n")).collect()
        };
        let (filter, body): (String, String) = (ops(&program.filter), ops(&program.body));
        let code: String = Decoder::with_ip(64, &code.bytes, 0, DecoderOptions::NONE)
            .iter()
            .map(|i| format!("{:x}: {i}\n", i.ip()))
            .collect();
        let tables = format!("{:?}", code_tables);
        let twice = if c.twice {
            ops(&second.body)
        } else {
            String::new()
        };
        format!("{twice}\nfilter\n{filter}body\n{body}\n{code}{tables}")
    };
    prop_assert_eq!(after.wrong, None);
    prop_assert_eq!(&after.calls, &world.calls, "calls {}", show());
    prop_assert!(sure == world.sure, "memory {}", show());
    prop_assert!(cpu == world.cpu, "per-CPU memory {}", show());
    prop_assert!(probed == world.probed, "probed memory {}", show());
    prop_assert_eq!(after.left, matches!(ended, Ended::Left(_)));
    let sets = program.sets();
    for (n, (is, should)) in after.regs.iter().zip(&world.regs).enumerate() {
        let dead = c.dead >> n & 1 == 1 && n != 4 && n != 5 && sets >> n & 1 == 0;
        prop_assert!(
            dead || is == should,
            "register {}: {:#x}, not {:#x} {}",
            n,
            is,
            should,
            show()
        );
    }
    let changed = (six(after.flags) ^ c.flags) & !c.dead_flags;
    prop_assert_eq!(changed, 0, "flags {}", show());
    prop_assert_eq!(after.flags & !0x8d5, flags & !0x8d5, "other flags");
    let _ = &mut sure;
    Ok(())
}

#[test]
fn code_does_what_the_interpreter_says() {
    let mut runner = Runner::new();
    let config = Config {
        cases: std::env::var("CODEGEN_CASES").map_or(6000, |n| n.parse().expect("a number")),
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Config::default()
    };
    let mut tests = TestRunner::new(config);
    // One runner for all: cases run one after the other.
    let runner = std::cell::RefCell::new(&mut runner);
    let result = tests.run(&case(), |c| check(&mut runner.borrow_mut(), &c));
    if let Err(e) = result {
        panic!("{e}");
    }
}

/// Would catch an allocation that takes forever where there are far more values than registers, or that fails.
#[test]
fn a_large_program_with_many_values_is_compiled() {
    let areas = Areas {
        sure: 0x5000,
        cpu: 0x1000,
        probed: 0xffff_8880_0012_3000,
    };
    let mut seed = 1u64;
    let mut next = || {
        // A linear congruential generator (Knuth's MMIX).
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        seed ^ seed >> 33
    };
    let genes: Vec<Gene> = (0..4000)
        .map(|_| {
            let [a, b, c, d, ..] = next().to_be_bytes();
            (a, b, c, d, next())
        })
        .collect();
    let program = make::program(areas, &[], &genes, (0, 50), true);
    assert_eq!(validate(&program), Ok(()));
    let snippet = Snippet::Program(program.clone().into());
    let code = compile(&[snippet], Free::NOTHING, Features::default());
    assert!(code.bytes.len() > 10_000);
    assert!(optimise(&program).body.ops.len() < program.body.ops.len());
}

/// A place in the list of steps, and what is done to it.
fn damage(ops: &mut Vec<Op>, (kind, at, with): (u8, u16, u16)) {
    if ops.is_empty() {
        return;
    }
    let (at, with) = (usize::from(at) % ops.len(), usize::from(with) % ops.len());
    match kind % 4 {
        0 => drop(ops.remove(at)),
        1 => ops.swap(at, with),
        2 => ops.insert(at, ops[with].clone()),
        _ => ops.truncate(at),
    }
}

proptest! {
    #![proptest_config(Config { cases: 3000, failure_persistence: None, ..Config::default() })]
    /// Would catch a panic on what is no program, and a program that the optimiser makes invalid.
    #[test]
    fn what_is_no_program_is_refused_and_nothing_panics(
        body in prop::collection::vec(gene(), 0..40),
        fixed in 0u32..20,
        damages in prop::collection::vec(any::<(u8, u16, u16)>(), 1..6),
        registers in 0u32..40,
        labels in 0u32..40,
        dead in any::<u16>(),
    ) {
        let areas = Areas { sure: 0x5000, cpu: 0x1000, probed: 0xffff_8880_0012_3000 };
        let mut program = make::program(areas, &[], &body, (0, fixed), true);
        damages.into_iter().for_each(|d| damage(&mut program.body.ops, d));
        if registers < 20 {
            program.body.registers = registers;
        }
        if labels < 20 {
            program.body.labels = labels;
        }
        let valid = validate(&program).is_ok();
        let better = optimise(&program);
        prop_assert_eq!(validate(&better).is_ok(), valid);
        worst_cost(&program);
        let free = Free::new(dead, Flags::NONE);
        let code = compile(&[Snippet::Program(program.clone().into())], free, Features::default());
        prop_assert!(valid || code.bytes.is_empty());
        decent(&code, true)?;
    }
}
