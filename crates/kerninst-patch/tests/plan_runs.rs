//! Random functions are run as they are and again with all splices armed, by a model of control flow: each counter
//! must be the number of times that its instruction began.

mod common;

use std::collections::{HashMap, HashSet};

use common::random::{case, item, len};
use common::{F, PATCH, SLOT, requests};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use kerninst_analysis::Analysis;
use kerninst_kernel::Kernel;
use kerninst_patch::{Boards, Fixup, Options, Plan, Planner, Tactics};
use proptest::prelude::*;

/// Where execution goes on after a fault or a breakpoint at an address.
type Goto = HashMap<u64, u64>;

/// Memory, tables and the decisions that data would make: which branches are taken, which instructions fault.
struct World<'a> {
    memory: HashMap<u64, u8>,
    fixups: Goto,
    breakpoints: Goto,
    /// `ud2` instructions after which execution goes on.
    warnings: HashSet<u64>,
    /// One bit for each conditional branch and each instruction that may fault, in the order of execution.
    decisions: &'a [bool],
}

/// What a run left behind.
#[derive(Default)]
struct Trace {
    /// How often the instruction at an address began.
    began: HashMap<u64, u64>,
    counters: HashMap<u64, u64>,
    decided: usize,
    left: bool,
}

impl World<'_> {
    fn inside(&self, ip: u64) -> bool {
        self.memory.contains_key(&ip)
    }

    fn decode(&self, ip: u64) -> Instruction {
        let bytes: Vec<u8> = (ip..ip + 15)
            .map_while(|a| self.memory.get(&a).copied())
            .collect();
        Decoder::with_ip(64, &bytes, ip, DecoderOptions::NONE).decode()
    }

    /// Runs from the entry of `f` until it is left or the decisions run out; `None` if it never needs one again.
    fn run(&self) -> Option<Trace> {
        let mut t = Trace::default();
        let mut decisions = self.decisions.iter();
        let mut regs: HashMap<Register, u64> = HashMap::new();
        let mut returns: Vec<u64> = vec![];
        let mut decoded: HashMap<u64, Instruction> = HashMap::new();
        let mut ip = F;
        for _ in 0..20_000 {
            if !self.inside(ip) {
                // Another function: it returns. To where a call said; if there was none, `f` is left.
                match returns.pop() {
                    Some(back) => ip = back,
                    None => {
                        t.left = true;
                        return Some(t);
                    }
                }
                continue;
            }
            if let Some(to) = self.breakpoints.get(&ip) {
                ip = *to;
                continue;
            }
            *t.began.entry(ip).or_default() += 1;
            if let Some(fixup) = self.fixups.get(&ip) {
                let Some(faults) = decisions.next() else {
                    return Some(t);
                };
                t.decided += 1;
                if *faults {
                    ip = *fixup;
                    continue;
                }
            }
            let i = *decoded.entry(ip).or_insert_with(|| self.decode(ip));
            assert!(!i.is_invalid(), "invalid code at {ip:#x}");
            ip = i.next_ip();
            match i.flow_control() {
                FlowControl::ConditionalBranch => {
                    let Some(taken) = decisions.next() else {
                        return Some(t);
                    };
                    t.decided += 1;
                    if *taken {
                        ip = i.near_branch_target();
                    }
                }
                FlowControl::UnconditionalBranch => ip = i.near_branch_target(),
                // Through a pointer: always another function.
                FlowControl::IndirectBranch => ip = 0,
                FlowControl::Return => {
                    // Whatever was pushed by the model's calls is gone by then: this leaves `f`.
                    assert!(returns.is_empty());
                    ip = 0;
                }
                FlowControl::Call => {
                    returns.push(i.next_ip());
                    ip = i.near_branch_target();
                }
                FlowControl::IndirectCall => {
                    returns.push(i.next_ip());
                    ip = 0;
                }
                // Fill after a call that the analysis takes for one that does not return.
                FlowControl::Interrupt => return None,
                FlowControl::Exception if !self.warnings.contains(&i.ip()) => {
                    t.left = true;
                    return Some(t);
                }
                FlowControl::Next | FlowControl::Exception | FlowControl::XbeginXabortXend => {}
            }
            match i.mnemonic() {
                // The push of an emulated call; the functions' own pushes are of registers.
                Mnemonic::Push if i.code() == Code::Pushq_imm32 => {
                    returns.push(i.immediate32to64() as u64)
                }
                Mnemonic::Mov if i.code() == Code::Mov_r64_imm64 => {
                    regs.insert(i.op0_register(), i.immediate64());
                }
                Mnemonic::Inc if i.segment_prefix() == Register::GS => {
                    let slot = regs
                        .get(&i.memory_base())
                        .copied()
                        .expect("the slot was loaded");
                    *t.counters.entry(slot).or_default() += 1;
                }
                _ => {}
            }
        }
        None
    }
}

fn world<'a>(kernel: &Kernel, decisions: &'a [bool], end: u64) -> World<'a> {
    let mut memory = HashMap::new();
    for at in F - 64..end {
        if let Some([b]) = kernel.bytes(at, 1) {
            memory.insert(at, *b);
        }
    }
    let fixups = kernel
        .tables()
        .extable
        .entries()
        .iter()
        .map(|e| (e.insn, e.fixup))
        .collect();
    World {
        memory,
        fixups,
        breakpoints: HashMap::new(),
        warnings: kernel
            .tables()
            .bugs
            .entries()
            .iter()
            .map(|b| b.addr)
            .collect(),
        decisions,
    }
}

fn arm(world: &mut World, plan: &Plan) {
    for (n, s) in plan.splices.iter().enumerate() {
        let at = PATCH + 0x1000 * n as u64;
        let b = s.site_bytes(at).expect("in reach");
        // A jump does not fault.
        world.fixups.retain(|at, _| !s.range().contains(at));
        let armed = b.jump.iter().chain(&b.tail);
        world.memory.extend((s.site..).zip(armed.copied()));
        if let Some((addr, bytes)) = b.board {
            world.memory.extend((addr..).zip(bytes));
        }
        if b.jump == [0xcc] {
            world.breakpoints.insert(s.site, b.target);
        }
        world
            .memory
            .extend((at..).zip(s.patch.linked_at(at).expect("in reach")));
        world
            .warnings
            .extend(s.patch.bugs.iter().map(|b| at + u64::from(b.offset)));
        for e in &s.patch.extable {
            let fixup = match e.fixup {
                Fixup::Inside(o) => at + u64::from(o),
                Fixup::Address(a) => a,
            };
            world.fixups.insert(at + u64::from(e.offset), fixup);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000, failure_persistence: None, max_global_rejects: 1_000_000, ..ProptestConfig::default()
    })]
    #[test]
    fn counters_are_the_number_of_times_that_the_instruction_began(
        items in prop::collection::vec(item(), 1..30),
        before in 0usize..17,
        after in 0usize..17,
        tactics in prop_oneof![2 => Just(0x7fu8), 2 => any::<u8>().prop_map(|t| t | 0x40)],
        merge in any::<bool>(),
        distance in 0usize..10,
        chosen in prop::collection::vec(any::<bool>(), 64),
        decisions in prop::collection::vec(any::<bool>(), 0..200),
    ) {
        let case = case(&items, before, after, true);
        let kernel = case.kernel();
        let analysis = Analysis::new(&kernel);
        let f = analysis.function_at(F);
        prop_assume!(f.as_ref().is_some_and(|f| f.is_complete()));
        let f = f.unwrap();
        let options = Options { tactics: Tactics::from_bits_truncate(tactics), merge, distance, ..Options::default() };
        let offsets: Vec<u64> = f.insns.iter().map(|i| i.addr - F).collect();
        let offsets: Vec<u64> = offsets.iter().zip(chosen).filter(|(_, c)| *c).map(|(o, _)| *o).collect();
        let plan = Planner::new(&analysis, options).plan(&requests(&offsets), &mut Boards::new());

        let end = F + 5 + items.iter().map(len).sum::<usize>() as u64;
        let mut world = world(&kernel, &decisions, end);
        // A function that runs in circles without deciding anything says nothing.
        let plain = world.run();
        prop_assume!(plain.is_some());
        let plain = plain.unwrap();
        arm(&mut world, &plan);
        let spliced = world.run().expect("the spliced function needs decisions as the plain one does");

        prop_assert_eq!(spliced.decided, plain.decided);
        prop_assert_eq!(spliced.left, plain.left);
        let served: Vec<u64> = plan.splices.iter().flat_map(|s| s.points.iter().map(|p| p.addr)).collect();
        for (n, offset) in offsets.iter().enumerate() {
            let addr = F + offset;
            if served.contains(&addr) {
                let counted = spliced.counters.get(&(SLOT + 8 * n as u64)).copied().unwrap_or(0);
                let began = plain.began.get(&addr).copied().unwrap_or(0);
                prop_assert_eq!(counted, began, "f+{:#x} of {:#?}", offset, plan);
            }
        }
    }
}
