//! An interpreter of programs: what generated code must do, step by step. The oracle of tests.

use crate::Reg;
use crate::ir::{Base, BinOp, Cond, Op, PROBE_END, PROBE_START, Program, Region, Val, Width};

/// The world that a program acts on. Values that are read are extended with zeros; of values that are written only the low
/// bytes count.
pub trait Machine {
    /// A register of the interrupted code (`rsp` too), as the last [`Machine::set_reg`] left it.
    fn reg(&mut self, reg: Reg) -> u64;
    /// Gives it another value.
    fn set_reg(&mut self, reg: Reg, value: u64);
    /// Reads kernel memory that may not be there.
    fn probe(&mut self, at: u64, width: Width) -> Option<u64>;
    /// Writes kernel memory that may not be there, or may be read-only: whether it could be written.
    fn probe_store(&mut self, at: u64, width: Width, value: u64) -> bool;
    /// Reads memory that is there for sure, the frame included.
    fn load(&mut self, at: u64, width: Width) -> u64;
    /// Writes it.
    fn store(&mut self, at: u64, width: Width, value: u64);
    /// Address of so many bytes of scratch memory, asked for once by each region that has some.
    fn frame(&mut self, bytes: u32) -> u64;
    /// Reads this CPU's copy of per-CPU memory.
    fn cpu_load(&mut self, pointer: u64, width: Width) -> u64;
    /// Writes 64 bits of it.
    fn cpu_store(&mut self, pointer: u64, value: u64);
    /// The time stamp counter.
    fn clock(&mut self) -> u64;
    /// Calls a function. What it may do to memory it does to the machine's.
    fn call(&mut self, function: u64, args: &[u64]) -> u64;
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// Its filter did not hold.
    Filtered,
    /// It is done.
    Done,
    /// The interrupted code goes on at this address ([`Op::Leave`]).
    Left(u64),
    /// It is no program: a label that is not there, or more steps than its loops allow. [`crate::ir::validate`] refuses such.
    Invalid,
}

/// Runs a program.
pub fn eval(program: &Program, machine: &mut impl Machine) -> Ended {
    match region(&program.filter, machine) {
        Way::Through => match region(&program.body, machine) {
            Way::Through | Way::End => Ended::Done,
            Way::Left(address) => Ended::Left(address),
            Way::Invalid => Ended::Invalid,
        },
        Way::End => Ended::Filtered,
        Way::Left(address) => Ended::Left(address),
        Way::Invalid => Ended::Invalid,
    }
}

/// How a region ended.
enum Way {
    Through,
    End,
    Left(u64),
    Invalid,
}

/// No test needs more.
const MOST_STEPS: u32 = 10_000_000;

fn region(region: &Region, machine: &mut impl Machine) -> Way {
    let mut values = vec![0; region.registers as usize];
    let frame = match region.frame {
        0 => 0,
        bytes => machine.frame(bytes),
    };
    let mut state = State {
        values: &mut values,
        frame,
        machine,
    };
    let mut at = 0;
    for _ in 0..MOST_STEPS {
        let Some(op) = region.ops.get(at) else {
            return Way::Through;
        };
        let to = match state.step(op) {
            Next::On => {
                at += 1;
                continue;
            }
            Next::To(label) => label,
            Next::End => return Way::End,
            Next::Leave(address) => return Way::Left(address),
        };
        match region.ops.iter().position(|op| *op == Op::Label(to)) {
            Some(found) => at = found,
            None => return Way::Invalid,
        }
    }
    Way::Invalid
}

enum Next {
    On,
    To(crate::ir::Label),
    End,
    Leave(u64),
}

struct State<'a, M> {
    values: &'a mut [u64],
    frame: u64,
    machine: &'a mut M,
}

impl<M: Machine> State<'_, M> {
    fn get(&self, val: Val) -> u64 {
        match val {
            Val::Imm(value) => value,
            Val::V(v) => self.values.get(v.0 as usize).copied().unwrap_or(0),
        }
    }

    fn set(&mut self, to: crate::ir::V, value: u64) {
        if let Some(v) = self.values.get_mut(to.0 as usize) {
            *v = value;
        }
    }

    fn address(&self, base: Base, offset: i32) -> u64 {
        let start = match base {
            Base::At(at) => self.get(at),
            Base::Frame => self.frame,
        };
        start.wrapping_add_signed(i64::from(offset))
    }

    fn step(&mut self, op: &Op) -> Next {
        match op {
            Op::Copy { to, from } => self.set(*to, self.get(*from)),
            Op::Reg { to, reg } => {
                let value = self.machine.reg(*reg);
                self.set(*to, value);
            }
            Op::Bin { op, to, a, b } => self.set(*to, binary(*op, self.get(*a), self.get(*b))),
            Op::Set { to, cond, a, b } => {
                self.set(*to, u64::from(holds(*cond, self.get(*a), self.get(*b))));
            }
            Op::Extend {
                to,
                from,
                width,
                signed,
            } => self.set(*to, extend(self.get(*from), *width, *signed)),
            Op::HighBit { to, from } => self.set(*to, high_bit(self.get(*from))),
            Op::Label(_) => {}
            Op::Jump(to) => return Next::To(*to),
            Op::Branch { cond, a, b, to } => {
                if holds(*cond, self.get(*a), self.get(*b)) {
                    return Next::To(*to);
                }
            }
            Op::Again { left, to, .. } => {
                let rest = self.get(Val::V(*left)).wrapping_sub(1);
                self.set(*left, rest);
                if rest != 0 {
                    return Next::To(*to);
                }
            }
            Op::Probe {
                to,
                at,
                offset,
                width,
                signed,
                fault,
            } => {
                let at = self.address(Base::At(*at), *offset);
                let read = may_probe(at).then(|| self.machine.probe(at, *width));
                match read.flatten() {
                    Some(value) => self.set(*to, extend(value, *width, *signed)),
                    None => return Next::To(*fault),
                }
            }
            Op::ProbeStore {
                at,
                offset,
                width,
                value,
                fault,
            } => {
                let at = self.address(Base::At(*at), *offset);
                let value = extend(self.get(*value), *width, false);
                if !(may_probe(at) && self.machine.probe_store(at, *width, value)) {
                    return Next::To(*fault);
                }
            }
            Op::Load {
                to,
                base,
                offset,
                width,
                signed,
            } => {
                let value = self.machine.load(self.address(*base, *offset), *width);
                self.set(*to, extend(value, *width, *signed));
            }
            Op::Store {
                base,
                offset,
                width,
                value,
            } => {
                let value = extend(self.get(*value), *width, false);
                let at = self.address(*base, *offset);
                self.machine.store(at, *width, value);
            }
            Op::FrameAddress { to, offset } => {
                self.set(*to, self.frame.wrapping_add(u64::from(*offset)));
            }
            Op::CpuLoad { to, pointer, width } => {
                let value = self.machine.cpu_load(self.get(*pointer), *width);
                self.set(*to, extend(value, *width, false));
            }
            Op::CpuAdd { pointer, value } => {
                let pointer = self.get(*pointer);
                let sum = self.machine.cpu_load(pointer, Width::B8);
                let sum = sum.wrapping_add(self.get(*value));
                self.machine.cpu_store(pointer, sum);
            }
            Op::CpuSwap {
                pointer,
                old,
                new,
                fail,
            } => {
                let pointer = self.get(*pointer);
                if self.machine.cpu_load(pointer, Width::B8) != self.get(*old) {
                    return Next::To(*fail);
                }
                self.machine.cpu_store(pointer, self.get(*new));
            }
            Op::Swap {
                base,
                offset,
                old,
                new,
                fail,
            } => {
                let at = self.address(*base, *offset);
                if self.machine.load(at, Width::B8) != self.get(*old) {
                    return Next::To(*fail);
                }
                self.machine.store(at, Width::B8, self.get(*new));
            }
            Op::Clock { to } => {
                let clock = self.machine.clock();
                self.set(*to, clock);
            }
            Op::Call { function, args, to } => {
                let args: Vec<u64> = args.iter().map(|a| self.get(*a)).collect();
                let result = self.machine.call(*function, &args);
                if let Some(to) = to {
                    self.set(*to, result);
                }
            }
            Op::SetReg { reg, value } => self.machine.set_reg(*reg, self.get(*value)),
            Op::Leave { address } => return Next::Leave(*address),
            Op::End => return Next::End,
        }
        Next::On
    }
}

/// Whether [`Op::Probe`] tries to read there at all.
pub fn may_probe(at: u64) -> bool {
    (PROBE_START..PROBE_END).contains(&at)
}

/// What [`Op::Bin`] computes.
pub fn binary(op: BinOp, a: u64, b: u64) -> u64 {
    let (sa, sb) = (a as i64, b as i64);
    let count = u32::try_from(b).ok();
    match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::Mul => a.wrapping_mul(b),
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl => count.and_then(|n| a.checked_shl(n)).unwrap_or(0),
        BinOp::Shr => count.and_then(|n| a.checked_shr(n)).unwrap_or(0),
        BinOp::Sar => sa.wrapping_shr(count.unwrap_or(63).min(63)) as u64,
        BinOp::DivU => a.checked_div(b).unwrap_or(0),
        BinOp::RemU => a.checked_rem(b).unwrap_or(0),
        BinOp::DivS if sb == 0 => 0,
        BinOp::DivS => sa.wrapping_div(sb) as u64,
        BinOp::RemS if sb == 0 => 0,
        BinOp::RemS => sa.wrapping_rem(sb) as u64,
    }
}

/// Whether a comparison holds.
pub fn holds(cond: Cond, a: u64, b: u64) -> bool {
    let (sa, sb) = (a as i64, b as i64);
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::LtU => a < b,
        Cond::LeU => a <= b,
        Cond::GtU => a > b,
        Cond::GeU => a >= b,
        Cond::LtS => sa < sb,
        Cond::LeS => sa <= sb,
        Cond::GtS => sa > sb,
        Cond::GeS => sa >= sb,
    }
}

/// The low bytes of a value, extended to 64 bits.
pub fn extend(value: u64, width: Width, signed: bool) -> u64 {
    let unused = 64 - 8 * width.bytes();
    let high = value << unused;
    if signed {
        ((high as i64) >> unused) as u64
    } else {
        high >> unused
    }
}

/// What [`Op::HighBit`] computes.
pub fn high_bit(value: u64) -> u64 {
    u64::from((value | 1).ilog2())
}
