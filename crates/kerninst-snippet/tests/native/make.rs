//! Random programs, valid by construction, from a list of small random numbers that `proptest` can shorten.

use kerninst_snippet::Reg;
use kerninst_snippet::ir::{Base, BinOp, Cond, Label, Op, Program, Region, V, Val, Width};

/// What one step is made from.
pub type Gene = (u8, u8, u8, u8, u64);

/// Memory that is there: addresses for the program.
#[derive(Clone, Copy)]
pub struct Areas {
    pub sure: u64,
    pub cpu: u64,
    pub probed: u64,
}

/// Quadwords of each area.
pub const WORDS: u64 = 32;
/// Bytes of the frame.
pub const FRAME: u32 = 64;
/// Address that a program leaves to.
pub const LEAVE: u64 = 0xffff_ffff_8123_4560;
/// Functions that a program calls: one that returns a mix of its arguments, one that fills memory at its first.
pub const MIX: u64 = 0xffff_ffff_8100_0000;
pub const FILL: u64 = 0xffff_ffff_8100_0010;

struct Maker {
    ops: Vec<Op>,
    registers: u32,
    labels: u32,
    fixed: u32,
    frame: u32,
    /// Labels that are still to come, by loop.
    pending: Vec<Vec<Label>>,
    loops: Vec<(V, Label, u32)>,
    /// Written by the step before, for the next one.
    fresh: Option<V>,
    areas: Areas,
    set: bool,
}

fn value(n: u64) -> u64 {
    match n % 16 {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => i64::MIN as u64,
        4 => n >> 32,
        5 => 64,
        6 => n >> 58,
        7 => 1 << (n >> 58),
        8 => u64::MAX - (n >> 56),
        9 => 0x7fff_ffff + (n >> 62),
        10 => n >> 33 | 0xffff_ffff_8000_0000,
        _ => n,
    }
}

fn width(n: u8) -> Width {
    [Width::B1, Width::B2, Width::B4, Width::B8][usize::from(n % 4)]
}

impl Maker {
    fn v(&mut self) -> V {
        self.registers += 1;
        V(self.registers - 1)
    }

    fn label(&mut self) -> Label {
        self.labels += 1;
        let l = Label(self.labels - 1);
        self.pending.last_mut().unwrap().push(l);
        l
    }

    /// An operand: often a register.
    fn val(&self, n: u8, imm: u64) -> Val {
        match n % 4 {
            0 => Val::Imm(value(imm)),
            _ if self.fixed == 0 => Val::Imm(value(imm)),
            1 if self.fresh.is_some() => Val::V(self.fresh.unwrap()),
            _ => Val::V(V(u32::from(n / 4) % self.fixed)),
        }
    }

    fn to(&mut self, n: u8) -> V {
        if n.is_multiple_of(3) || self.fixed == 0 {
            self.v()
        } else {
            V(u32::from(n / 3) % self.fixed)
        }
    }

    /// An address of an area: a constant or in a register; less than eight words of offset may be added.
    fn address(&mut self, area: u64, n: u64) -> Val {
        let at = area + n % (WORDS - 8) * 8;
        if n & 0x1000 == 0 {
            let v = self.v();
            self.ops.push(Op::Copy {
                to: v,
                from: Val::Imm(at),
            });
            Val::V(v)
        } else {
            Val::Imm(at)
        }
    }

    fn base(&mut self, n: u8, imm: u64) -> (Base, i32) {
        let offset = i32::from(n / 4 % 7) * 8;
        if n.is_multiple_of(4) && self.frame > 0 {
            return (Base::Frame, offset);
        }
        (Base::At(self.address(self.areas.sure, imm)), offset)
    }

    /// An address to be probed: good, bad, or of another kind.
    fn probed(&mut self, n: u8, imm: u64) -> Val {
        match n % 4 {
            0 => self.val(n, imm),
            1 => {
                let v = self.v();
                let bad = [
                    0x8000_0000_0000_0000,
                    0xffff_7fff_ffff_fff8,
                    0xffff_ffff_ff5f_fff8,
                    0x1000,
                    self.areas.probed + WORDS * 8,
                    0,
                ];
                let from = Val::Imm(bad[imm as usize % bad.len()]);
                self.ops.push(Op::Copy { to: v, from });
                Val::V(v)
            }
            _ => self.address(self.areas.probed, imm),
        }
    }

    fn gene(&mut self, (kind, x, y, z, imm): Gene) {
        let (a, b) = (self.val(y, imm), self.val(z, imm.rotate_left(17)));
        let cond = [
            Cond::Eq,
            Cond::Ne,
            Cond::LtU,
            Cond::LeU,
            Cond::GtU,
            Cond::GeU,
            Cond::LtS,
            Cond::LeS,
            Cond::GtS,
            Cond::GeS,
        ][usize::from(x % 10)];
        let before = self.ops.len();
        match kind % 32 {
            0..=6 => {
                use BinOp::*;
                let all = [
                    Add, Sub, Mul, And, Or, Xor, Shl, Shr, Sar, DivU, RemU, DivS, RemS,
                ];
                let op = all[usize::from(x) % all.len()];
                let to = self.to(z ^ y);
                self.ops.push(Op::Bin { op, to, a, b });
            }
            7 => {
                let to = self.to(z);
                self.ops.push(Op::Set { to, cond, a, b });
            }
            8 => {
                let to = self.to(z);
                let (width, signed) = (width(x), x & 4 != 0);
                self.ops.push(Op::Extend {
                    to,
                    from: a,
                    width,
                    signed,
                });
            }
            9 => {
                let to = self.to(z);
                self.ops.push(Op::HighBit { to, from: a });
            }
            10 | 11 => {
                let to = self.label();
                self.ops.push(Op::Branch { cond, a, b, to });
            }
            12..=14 => {
                if let Some(l) = self.pending.last_mut().unwrap().pop() {
                    self.ops.push(Op::Label(l));
                    self.fresh = None;
                    return;
                }
            }
            15 if self.loops.len() < 2 => {
                let rounds = u32::from(x % 4) + 1;
                let left = self.v();
                let from = Val::Imm(u64::from(rounds));
                self.ops.push(Op::Copy { to: left, from });
                self.labels += 1;
                let l = Label(self.labels - 1);
                self.ops.push(Op::Label(l));
                self.loops.push((left, l, rounds));
                self.pending.push(Vec::new());
                self.fresh = None;
                return;
            }
            16 => return self.end_loop(x),
            17..=19 => {
                let at = self.probed(x, imm);
                let offset = [0, 8, -8, 1, 0x7000_0000, i32::MIN, -0x100_0000]
                    [usize::from(if z < 200 { z % 4 } else { z % 7 })];
                let (to, fault) = (self.to(y), self.label());
                self.ops.push(Op::Probe {
                    to,
                    at,
                    offset,
                    width: width(z),
                    signed: y & 4 != 0,
                    fault,
                });
            }
            20 => {
                let at = self.probed(x, imm);
                let fault = self.label();
                self.ops.push(Op::ProbeStore {
                    at,
                    offset: i32::from(z % 8),
                    width: width(y),
                    value: b,
                    fault,
                });
            }
            21 => {
                let (base, offset) = self.base(x, imm);
                let to = self.to(y);
                self.ops.push(Op::Load {
                    to,
                    base,
                    offset,
                    width: width(z),
                    signed: z & 4 != 0,
                });
            }
            22 => {
                let (base, offset) = self.base(x, imm);
                self.ops.push(Op::Store {
                    base,
                    offset,
                    width: width(y),
                    value: b,
                });
            }
            23 => {
                let pointer = self.address(self.areas.cpu, imm);
                if z & 1 == 0 {
                    let to = self.to(y);
                    self.ops.push(Op::CpuLoad {
                        to,
                        pointer,
                        width: width(z / 2),
                    });
                } else {
                    let value = if z & 2 == 0 { Val::Imm(1) } else { a };
                    self.ops.push(Op::CpuAdd { pointer, value });
                }
            }
            24 => {
                let (pointer, fail) = (self.address(self.areas.cpu, imm), self.label());
                let old = self.v();
                self.ops.push(Op::CpuLoad {
                    to: old,
                    pointer,
                    width: Width::B8,
                });
                let old = if z & 3 == 0 { a } else { Val::V(old) };
                self.ops.push(Op::CpuSwap {
                    pointer,
                    old,
                    new: b,
                    fail,
                });
            }
            25 => {
                let ((base, offset), fail) = (self.base(x, imm), self.label());
                let old = self.v();
                self.ops.push(Op::Load {
                    to: old,
                    base,
                    offset,
                    width: Width::B8,
                    signed: false,
                });
                let old = if z & 3 == 0 { a } else { Val::V(old) };
                self.ops.push(Op::Swap {
                    base,
                    offset,
                    old,
                    new: b,
                    fail,
                });
            }
            26 => {
                let to = self.v();
                self.ops.push(Op::Clock { to });
                let (op, a, b) = (BinOp::And, Val::V(to), Val::Imm(0));
                self.ops.push(Op::Bin { op, to, a, b });
            }
            27 | 28 => {
                let mut args: Vec<Val> = (0..x % 7)
                    .map(|n| self.val(z.wrapping_add(n.wrapping_mul(y | 1)), imm ^ u64::from(n)))
                    .collect();
                let to = (z & 1 == 0).then(|| self.to(y));
                let mut function = MIX;
                if self.frame > 0 && x & 8 != 0 && !args.is_empty() {
                    let at = self.v();
                    self.ops.push(Op::FrameAddress { to: at, offset: 16 });
                    args[0] = Val::V(at);
                    function = FILL;
                }
                self.ops.push(Op::Call { function, args, to });
            }
            29 => {
                let to = self.to(y);
                let reg = Reg::new(x % 16).unwrap();
                self.ops.push(Op::Reg { to, reg });
            }
            30 if self.set && x % 16 != 4 => {
                let reg = Reg::new(x % 16).unwrap();
                self.ops.push(Op::SetReg { reg, value: a });
            }
            31 if z < 60 => {
                // Under a condition, or nothing would ever run after it.
                let to = self.label();
                self.ops.push(Op::Branch { cond, a, b, to });
                let end = match z < 20 && self.set {
                    true => Op::Leave { address: LEAVE },
                    false => Op::End,
                };
                self.ops.push(end);
                let l = self.pending.last_mut().unwrap().pop().unwrap();
                self.ops.push(Op::Label(l));
            }
            31 => {
                let to = self.label();
                self.ops.push(Op::Branch { cond, a, b, to });
                let other = self.label();
                self.ops.push(Op::Jump(other));
                self.pending.last_mut().unwrap().retain(|l| *l != to);
                self.ops.push(Op::Label(to));
            }
            _ => {
                let to = self.to(y);
                self.ops.push(Op::Copy { to, from: a });
            }
        }
        let written = self.ops.get(before..).unwrap().last();
        self.fresh = written.and_then(Op::writes).or(self.fresh);
        if matches!(written, Some(Op::Label(_))) {
            self.fresh = None;
        }
    }

    fn end_loop(&mut self, x: u8) {
        let Some((left, to, rounds)) = self.loops.pop() else {
            return;
        };
        let inner = self.pending.pop().unwrap();
        for (n, l) in inner.into_iter().enumerate() {
            if x >> (n % 8) & 1 == 0 {
                self.ops.push(Op::Label(l));
            } else {
                self.pending.last_mut().unwrap().push(l);
            }
        }
        self.ops.push(Op::Again { left, to, rounds });
        self.fresh = None;
    }

    fn region(mut self, genes: &[Gene]) -> Region {
        for n in 0..self.fixed {
            let imm = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let op = match Reg::new((n * 5 % 16) as u8) {
                Some(reg) if n % 3 != 0 => Op::Reg { to: V(n), reg },
                _ => Op::Copy {
                    to: V(n),
                    from: Val::Imm(value(imm)),
                },
            };
            self.ops.push(op);
        }
        for at in (0..self.frame).step_by(8) {
            self.ops.push(Op::Store {
                base: Base::Frame,
                offset: at as i32,
                width: Width::B8,
                value: Val::Imm(u64::from(at) << 40),
            });
        }
        genes.iter().for_each(|g| self.gene(*g));
        while !self.loops.is_empty() {
            self.end_loop(0x55);
        }
        for l in self.pending.pop().unwrap() {
            self.ops.push(Op::Label(l));
        }
        // All values that are left must be right.
        for n in 0..self.fixed {
            self.ops.push(Op::CpuAdd {
                pointer: Val::Imm(self.areas.cpu + u64::from(n) % WORDS * 8),
                value: Val::V(V(n)),
            });
        }
        Region {
            ops: self.ops,
            registers: self.registers,
            labels: self.labels,
            frame: self.frame,
        }
    }
}

fn region(areas: Areas, genes: &[Gene], fixed: u32, frame: bool, set: bool) -> Region {
    let maker = Maker {
        ops: Vec::new(),
        registers: fixed,
        labels: 0,
        fixed,
        frame: if frame { FRAME } else { 0 },
        pending: vec![Vec::new()],
        loops: Vec::new(),
        fresh: None,
        areas,
        set,
    };
    maker.region(genes)
}

/// A program. `set`: it may also set registers and leave.
pub fn program(
    areas: Areas,
    filter: &[Gene],
    body: &[Gene],
    fixed: (u32, u32),
    set: bool,
) -> Program {
    Program {
        filter: region(
            areas,
            filter,
            fixed.0,
            fixed.0.is_multiple_of(2),
            set && fixed.0 == 3,
        ),
        body: region(areas, body, fixed.1, !fixed.1.is_multiple_of(4), set),
    }
}
