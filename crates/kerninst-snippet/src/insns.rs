//! The instructions that programs need, by their encoding (Intel SDM, volume 2). Operands have 64 bits unless it says otherwise.

use crate::Reg;
use crate::asm::{Asm, Bytes, Mark};
use crate::ir::{Cond, Width};

/// Where memory is: `disp(base)`, `%gs:disp(base)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mem {
    pub base: Option<Reg>,
    pub disp: i32,
    pub gs: bool,
}

/// A register or memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rm {
    Reg(Reg),
    Mem(Mem),
}

/// Instructions of the form `op source, target`: their opcode for a register as target, and the digit of their form with a
/// constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alu {
    Add,
    Or,
    And,
    Sub,
    Xor,
    Cmp,
}

impl Alu {
    fn digit(self) -> u8 {
        match self {
            Alu::Add => 0,
            Alu::Or => 1,
            Alu::And => 4,
            Alu::Sub => 5,
            Alu::Xor => 6,
            Alu::Cmp => 7,
        }
    }
}

/// A shift, by its digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shift {
    Left = 4,
    Right = 5,
    Signed = 7,
}

/// Condition codes of `jcc` and `setcc`.
pub(crate) fn cc(cond: Cond) -> u8 {
    match cond {
        Cond::Eq => 4,
        Cond::Ne => 5,
        Cond::LtU => 2,
        Cond::GeU => 3,
        Cond::LeU => 6,
        Cond::GtU => 7,
        Cond::LtS => 0xc,
        Cond::GeS => 0xd,
        Cond::LeS => 0xe,
        Cond::GtS => 0xf,
    }
}

/// Prefixes, size and opcode of an instruction with a ModRM byte.
#[derive(Clone, Copy)]
struct Form<'a> {
    lock: bool,
    short: bool,
    wide: bool,
    /// `reg` is an 8-bit register.
    byte: bool,
    opcode: &'a [u8],
}

const W: Form = Form {
    lock: false,
    short: false,
    wide: true,
    byte: false,
    opcode: &[],
};

fn encode(form: Form, reg: u8, rm: Rm, imm: &[u8]) -> Bytes {
    let mut b = Bytes::default();
    if form.lock {
        b.put(0xf0);
    }
    if form.short {
        b.put(0x66);
    }
    let high = match rm {
        Rm::Reg(r) => r.high(),
        Rm::Mem(m) => {
            if m.gs {
                b.put(0x65);
            }
            m.base.is_some_and(Reg::high)
        }
    };
    let rex = u8::from(form.wide) << 3 | (reg >> 3 & 1) << 2 | u8::from(high);
    // Without REX, 4 to 7 are ah, ch, dh, bh.
    let plain = matches!(rm, Rm::Reg(r) if r.number() >= 4) || reg >= 4;
    if rex != 0 || form.byte && plain {
        b.put(0x40 | rex);
    }
    b.extend(form.opcode);
    let reg = (reg & 7) << 3;
    match rm {
        Rm::Reg(r) => b.put(0xc0 | reg | r.low()),
        Rm::Mem(m) => match m.base {
            None => {
                // A SIB byte without base and index: an absolute address.
                b.extend(&[reg | 4, 0x25]);
                b.extend(&m.disp.to_le_bytes());
            }
            Some(base) => {
                let small = i8::try_from(m.disp).ok();
                let mode = match small {
                    // rbp and r13 have no form without displacement.
                    Some(0) if base.low() != 5 => 0,
                    Some(_) => 0x40,
                    None => 0x80,
                };
                b.put(mode | reg | base.low());
                if base.low() == 4 {
                    b.put(0x24);
                }
                match (mode, small) {
                    (0, _) => {}
                    (_, Some(d)) => b.put(d as u8),
                    (_, None) => b.extend(&m.disp.to_le_bytes()),
                }
            }
        },
    }
    b.extend(imm);
    b
}

impl Asm {
    fn op(&mut self, opcode: &[u8], reg: u8, rm: Rm) {
        self.insn(encode(Form { opcode, ..W }, reg, rm, &[]));
    }

    /// `push`.
    pub fn push(&mut self, reg: Reg) {
        let mut b = Bytes::default();
        if reg.high() {
            b.put(0x41);
        }
        b.put(0x50 | reg.low());
        self.insn(b);
        self.set_pushed(self.pushed() + 8);
    }

    /// `pop`.
    pub fn pop(&mut self, reg: Reg) {
        let mut b = Bytes::default();
        if reg.high() {
            b.put(0x41);
        }
        b.put(0x58 | reg.low());
        self.insn(b);
        self.set_pushed(self.pushed().saturating_sub(8));
    }

    /// `pushfq`.
    pub fn pushfq(&mut self) {
        self.plain(&[0x9c]);
        self.set_pushed(self.pushed() + 8);
    }

    /// `popfq`.
    pub fn popfq(&mut self) {
        self.plain(&[0x9d]);
        self.set_pushed(self.pushed().saturating_sub(8));
    }

    /// An instruction without operands.
    pub fn plain(&mut self, bytes: &[u8]) {
        let mut b = Bytes::default();
        b.extend(bytes);
        self.insn(b);
    }

    /// Moves the stack pointer, flags unchanged; negative: room on the stack.
    pub fn lea_rsp(&mut self, by: i32) {
        let mem = Mem {
            base: Some(Reg::RSP),
            disp: by,
            gs: false,
        };
        self.lea(Reg::RSP, mem);
        self.set_pushed(self.pushed().saturating_add_signed(by.saturating_neg()));
    }

    /// `lea`.
    pub fn lea(&mut self, to: Reg, mem: Mem) {
        self.op(&[0x8d], to.number(), Rm::Mem(mem));
    }

    /// `mov` from a register or memory.
    pub fn mov(&mut self, to: Reg, from: Rm) {
        if from != Rm::Reg(to) {
            self.op(&[0x8b], to.number(), from);
        }
    }

    /// The shortest `mov` of a constant; flags unchanged.
    pub fn mov_imm(&mut self, to: Reg, value: u64) {
        let mut b = Bytes::default();
        if let Ok(small) = u32::try_from(value) {
            if to.high() {
                b.put(0x41);
            }
            b.put(0xb8 | to.low());
            b.extend(&small.to_le_bytes());
        } else if let Some(imm) = imm32(value) {
            let form = Form {
                opcode: &[0xc7],
                ..W
            };
            b = encode(form, 0, Rm::Reg(to), &imm.to_le_bytes());
        } else {
            b.extend(&[0x48 | u8::from(to.high()), 0xb8 | to.low()]);
            b.extend(&value.to_le_bytes());
        }
        self.insn(b);
    }

    /// A load of so many bytes, extended to 64 bits.
    pub fn load(&mut self, to: Reg, from: Rm, width: Width, signed: bool, fault: Option<Mark>) {
        let (opcode, wide): (&[u8], bool) = match (width, signed) {
            (Width::B1, false) => (&[0x0f, 0xb6], false),
            (Width::B2, false) => (&[0x0f, 0xb7], false),
            (Width::B4, false) => (&[0x8b], false),
            (Width::B1, true) => (&[0x0f, 0xbe], true),
            (Width::B2, true) => (&[0x0f, 0xbf], true),
            (Width::B4, true) => (&[0x63], true),
            (Width::B8, _) => (&[0x8b], true),
        };
        let form = Form {
            opcode,
            wide,
            byte: width == Width::B1 && matches!(from, Rm::Reg(_)),
            ..W
        };
        self.maybe_faulting(encode(form, to.number(), from, &[]), fault);
    }

    /// A store of the low bytes of a register.
    pub fn store(&mut self, to: Mem, from: Reg, width: Width, fault: Option<Mark>) {
        let form = Form {
            opcode: if width == Width::B1 { &[0x88] } else { &[0x89] },
            short: width == Width::B2,
            wide: width == Width::B8,
            byte: width == Width::B1,
            ..W
        };
        self.maybe_faulting(encode(form, from.number(), Rm::Mem(to), &[]), fault);
    }

    /// A store of a constant; of 8 bytes it is sign-extended.
    pub fn store_imm(&mut self, to: Mem, value: i32, width: Width, fault: Option<Mark>) {
        let form = Form {
            opcode: if width == Width::B1 { &[0xc6] } else { &[0xc7] },
            short: width == Width::B2,
            wide: width == Width::B8,
            ..W
        };
        let bytes = value.to_le_bytes();
        let imm = bytes.get(..width.bytes() as usize).unwrap_or(&bytes);
        self.maybe_faulting(encode(form, 0, Rm::Mem(to), imm), fault);
    }

    fn maybe_faulting(&mut self, bytes: Bytes, fault: Option<Mark>) {
        match fault {
            Some(to) => self.faulting(bytes, to),
            None => self.insn(bytes),
        }
    }

    /// `op source, register`.
    pub fn alu(&mut self, op: Alu, to: Reg, from: Rm) {
        self.op(&[op.digit() << 3 | 3], to.number(), from);
    }

    /// `op register, target`.
    pub fn alu_to(&mut self, op: Alu, to: Rm, from: Reg) {
        self.op(&[op.digit() << 3 | 1], from.number(), to);
    }

    /// `op $constant, target`.
    pub fn alu_imm(&mut self, op: Alu, to: Rm, imm: i32) {
        match i8::try_from(imm) {
            Ok(small) => {
                let form = Form {
                    opcode: &[0x83],
                    ..W
                };
                self.insn(encode(form, op.digit(), to, &[small as u8]));
            }
            Err(_) => {
                let form = Form {
                    opcode: &[0x81],
                    ..W
                };
                self.insn(encode(form, op.digit(), to, &imm.to_le_bytes()));
            }
        }
    }

    /// `test %reg, %reg`.
    pub fn test(&mut self, reg: Reg) {
        self.op(&[0x85], reg.number(), Rm::Reg(reg));
    }

    /// `imul source, %to`.
    pub fn imul(&mut self, to: Reg, from: Rm) {
        self.op(&[0x0f, 0xaf], to.number(), from);
    }

    /// `imul $constant, source, %to`.
    pub fn imul_imm(&mut self, to: Reg, from: Rm, imm: i32) {
        let form = Form {
            opcode: &[0x69],
            ..W
        };
        self.insn(encode(form, to.number(), from, &imm.to_le_bytes()));
    }

    /// A shift by a constant.
    pub fn shift_imm(&mut self, op: Shift, to: Reg, by: u8) {
        let form = Form {
            opcode: &[0xc1],
            ..W
        };
        self.insn(encode(form, op as u8, Rm::Reg(to), &[by]));
    }

    /// A shift by cl.
    pub fn shift_cl(&mut self, op: Shift, to: Reg) {
        self.op(&[0xd3], op as u8, Rm::Reg(to));
    }

    /// `neg`.
    pub fn neg(&mut self, reg: Reg) {
        self.op(&[0xf7], 3, Rm::Reg(reg));
    }

    /// `div`, or `idiv`, of rdx:rax.
    pub fn div(&mut self, by: Rm, signed: bool) {
        self.op(&[0xf7], if signed { 7 } else { 6 }, by);
    }

    /// `setcc` and an extension to 64 bits.
    pub fn set(&mut self, cc: u8, to: Reg) {
        let form = Form {
            opcode: &[0x0f, 0x90 | cc],
            wide: false,
            byte: true,
            ..W
        };
        self.insn(encode(form, 0, Rm::Reg(to), &[]));
        self.load(to, Rm::Reg(to), Width::B1, false, None);
    }

    /// `bsr source, %to`.
    pub fn bsr(&mut self, to: Reg, from: Reg) {
        self.op(&[0x0f, 0xbd], to.number(), Rm::Reg(from));
    }

    /// `inc`.
    pub fn inc(&mut self, to: Rm) {
        self.op(&[0xff], 0, to);
    }

    /// `dec`.
    pub fn dec(&mut self, to: Rm) {
        self.op(&[0xff], 1, to);
    }

    /// `xchg`.
    pub fn xchg(&mut self, a: Reg, b: Reg) {
        self.op(&[0x87], a.number(), Rm::Reg(b));
    }

    /// `cmpxchg %new, target`.
    pub fn cmpxchg(&mut self, to: Mem, new: Reg, lock: bool) {
        let form = Form {
            opcode: &[0x0f, 0xb1],
            lock,
            ..W
        };
        self.insn(encode(form, new.number(), Rm::Mem(to), &[]));
    }
}

/// The value as a sign-extended 32-bit constant, if it is one.
pub(crate) fn imm32(value: u64) -> Option<i32> {
    i32::try_from(value as i64).ok()
}
