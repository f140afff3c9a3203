//! Code run by a model of control flow: which way branches go and what faults is given, data is not looked at.

use std::collections::{HashMap, HashSet};

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use kerninst_analysis::Function;
use kerninst_kernel::Kernel;
use kerninst_patch::{Fixup, Plan, Splice, Spot};

use super::spots::expected;
use super::{PATCH, SLOT};

/// Where execution goes on after a fault or a breakpoint at an address.
pub type Goto = HashMap<u64, u64>;

/// Memory, tables and the decisions that data would make: which branches are taken, which instructions fault.
pub struct World<'a> {
    pub entry: u64,
    pub memory: HashMap<u64, u8>,
    /// Where the function's own instructions start: a call that returns elsewhere is one that does not return.
    pub instructions: HashSet<u64>,
    pub fixups: Goto,
    pub breakpoints: Goto,
    /// `ud2` instructions after which execution goes on.
    pub warnings: HashSet<u64>,
    /// One bit for each conditional branch and each instruction that may fault, in the order of execution.
    pub decisions: &'a [bool],
}

/// What a run left behind.
#[derive(Default)]
pub struct Trace {
    /// How often the instruction at an address began.
    pub began: HashMap<u64, u64>,
    /// How often one instruction began after another.
    pub steps: HashMap<(u64, u64), u64>,
    pub counters: HashMap<u64, u64>,
    pub decided: usize,
    pub left: bool,
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

    /// Runs from `entry` until it is left or the decisions run out; `None` if neither happens within so many steps.
    pub fn run(&self, steps: usize) -> Option<Trace> {
        let mut t = Trace::default();
        let mut decisions = self.decisions.iter();
        let mut regs: HashMap<Register, u64> = HashMap::new();
        let mut returns: Vec<u64> = vec![];
        let mut decoded: HashMap<u64, Instruction> = HashMap::new();
        let mut ip = self.entry;
        let mut previous = None;
        for _ in 0..steps {
            if !self.inside(ip) {
                if let Some(from) = previous {
                    *t.steps.entry((from, ip)).or_default() += 1;
                }
                // Another function: it returns. To where a call said; if there was none, `f` is left.
                match returns.pop() {
                    Some(back) if self.instructions.contains(&back) => ip = back,
                    _ => {
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
            if let Some(from) = previous.replace(ip) {
                *t.steps.entry((from, ip)).or_default() += 1;
            }
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
                // Of a call that the function makes to itself, or of the function.
                FlowControl::Return => ip = returns.pop().unwrap_or(0),
                FlowControl::Call if !i.is_call_near() => {}
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
                // Only what a snippet loaded is a counter of ours.
                Mnemonic::Inc
                    if i.code() == Code::Inc_rm64 && i.segment_prefix() == Register::GS =>
                {
                    if let Some(slot) = regs.remove(&i.memory_base()).filter(|s| *s >= SLOT) {
                        *t.counters.entry(slot).or_default() += 1;
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// `function` as it is, with everything else outside.
pub fn world<'a>(kernel: &Kernel, function: &Function, decisions: &'a [bool]) -> World<'a> {
    let mut memory = HashMap::new();
    for range in &function.ranges {
        let len = (range.end - range.start) as usize;
        let bytes = kernel.bytes(range.start, len).unwrap_or(&[]);
        memory.extend((range.start..).zip(bytes.iter().copied()));
    }
    let tables = kernel.tables();
    let faults = function
        .ranges
        .iter()
        .flat_map(|r| tables.extable.in_range(r.clone()));
    let traps = function
        .ranges
        .iter()
        .flat_map(|r| tables.bugs.in_range(r.clone()));
    World {
        entry: function.entry(),
        memory,
        instructions: function.insns.iter().map(|i| i.addr).collect(),
        fixups: faults.map(|e| (e.insn, e.fixup)).collect(),
        breakpoints: HashMap::new(),
        warnings: traps
            .filter(|b| function.insn_at(b.addr + 2).is_some())
            .map(|b| b.addr)
            .collect(),
        decisions,
    }
}

/// Writes a splice whose patch starts at `at`: the site, its board, the patch and where its faults go on. The patch's code.
pub fn write(world: &mut World, s: &Splice, at: u64) -> Vec<u8> {
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
    let code = s.patch.linked_at(at).expect("in reach");
    world.memory.extend((at..).zip(code.iter().copied()));
    for e in &s.patch.extable {
        let fixup = match e.fixup {
            Fixup::Inside(o) => at + u64::from(o),
            Fixup::Address(a) => a,
        };
        world.fixups.insert(at + u64::from(e.offset), fixup);
    }
    code
}

/// Arms every splice of the plan, the first patch at [`PATCH`].
pub fn arm(world: &mut World, plan: &Plan) {
    for (n, s) in plan.splices.iter().enumerate() {
        let at = PATCH + 0x1000 * n as u64;
        let code = write(world, s, at);
        // Calls of the patch itself come back to it.
        let calls = Decoder::with_ip(64, &code, at, DecoderOptions::NONE).into_iter();
        let calls = calls.filter(Instruction::is_call_near);
        world.instructions.extend(calls.map(|i| i.next_ip()));
        world
            .warnings
            .extend(s.patch.bugs.iter().map(|b| at + u64::from(b.offset)));
    }
}

/// Runs `function` with and without the splices of `plan`: for each served point, in order of `spots` (the n-th has the
/// counter `SLOT + 8 n`), the counter must be the number of times that the spot was passed. The number of points that
/// were reached; `None` if a run says nothing.
pub fn compare(
    kernel: &Kernel,
    function: &Function,
    spots: &[Spot],
    plan: &Plan,
    decisions: &[bool],
) -> Result<Option<usize>, String> {
    let mut world = world(kernel, function, decisions);
    let Some(plain) = world.run(20_000) else {
        return Ok(None);
    };
    arm(&mut world, plan);
    let Some(spliced) = world.run(400_000) else {
        return Err("the spliced function needs no decisions any more, or met a breakpoint".into());
    };
    if (spliced.decided, spliced.left) != (plain.decided, plain.left) {
        return Err(format!(
            "{} decisions with splices, {} without",
            spliced.decided, plain.decided
        ));
    }
    let served: HashSet<Spot> = plan
        .splices
        .iter()
        .flat_map(|s| s.points.iter().map(|p| p.at))
        .collect();
    let mut reached = 0;
    for (n, spot) in spots.iter().enumerate().filter(|(_, s)| served.contains(s)) {
        let Some(passed) = expected(function, *spot, &plain) else {
            continue;
        };
        let counted = spliced
            .counters
            .get(&(SLOT + 8 * n as u64))
            .copied()
            .unwrap_or(0);
        if counted != passed {
            return Err(format!(
                "{spot} was passed {passed} times and was counted {counted} times"
            ));
        }
        reached += usize::from(passed > 0);
    }
    Ok(Some(reached))
}
