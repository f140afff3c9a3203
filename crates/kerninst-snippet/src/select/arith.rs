//! Arithmetic.

use super::{RAX, Select, Source};
use crate::Reg;
use crate::alloc::argument;
use crate::eval::binary;
use crate::insns::{Alu, Mem, Rm, Shift, cc, imm32};
use crate::ir::{BinOp, Cond, V, Val};

impl Select<'_> {
    pub(super) fn bin(&mut self, op: BinOp, to: V, a: Val, b: Val) {
        if let (Val::Imm(a), Val::Imm(b)) = (a, b) {
            return self.copy(to, Val::Imm(binary(op, a, b)));
        }
        match op {
            BinOp::DivU | BinOp::RemU | BinOp::DivS | BinOp::RemS => self.div(op, to, a, b),
            BinOp::Shl => self.shift(Shift::Left, to, a, b),
            BinOp::Shr => self.shift(Shift::Right, to, a, b),
            BinOp::Sar => self.shift(Shift::Signed, to, a, b),
            _ => self.simple(op, to, a, b),
        }
    }

    pub(super) fn simple(&mut self, op: BinOp, to: V, a: Val, b: Val) {
        let target = self.target(to);
        let is_target = |s: &Self, val: Val| matches!(val, Val::V(v) if s.rm(v) == Rm::Reg(target));
        let (mut a, mut b) = (a, b);
        if is_target(self, b) && !is_target(self, a) {
            if op == BinOp::Sub {
                // b goes away: -b + a.
                self.asm.neg(target);
                return self.alu(Alu::Add, target, a);
            }
            (a, b) = (b, a);
        }
        if let (BinOp::Mul, Val::V(v), Val::Imm(i)) = (op, a, b)
            && let Some(imm) = imm32(i)
        {
            let from = self.rm(v);
            self.asm.imul_imm(target, from, imm);
            return self.done(to, target);
        }
        if let (BinOp::Add, Val::V(v), Val::Imm(i)) = (op, a, b)
            && let (Rm::Reg(from), Some(disp)) = (self.rm(v), imm32(i))
            && from != target
        {
            let mem = Mem {
                base: Some(from),
                disp,
                gs: false,
            };
            self.asm.lea(target, mem);
            return self.done(to, target);
        }
        // A constant comes last where that is shorter.
        if matches!(a, Val::Imm(i) if imm32(i).is_some()) && op != BinOp::Sub {
            (a, b) = (b, a);
        }
        self.put(target, a);
        match op {
            BinOp::Add => self.alu(Alu::Add, target, b),
            BinOp::Sub => self.alu(Alu::Sub, target, b),
            BinOp::And => self.alu(Alu::And, target, b),
            BinOp::Or => self.alu(Alu::Or, target, b),
            BinOp::Xor => self.alu(Alu::Xor, target, b),
            _ => match self.source(b) {
                Source::Rm(rm) => self.asm.imul(target, rm),
                Source::Imm(imm) => self.asm.imul_imm(target, Rm::Reg(target), imm),
            },
        }
        self.done(to, target);
    }

    pub(super) fn alu(&mut self, op: Alu, to: Reg, from: Val) {
        match self.source(from) {
            Source::Rm(rm) => self.asm.alu(op, to, rm),
            Source::Imm(imm) => self.asm.alu_imm(op, Rm::Reg(to), imm),
        }
    }

    pub(super) fn shift(&mut self, op: Shift, to: V, a: Val, b: Val) {
        if let Val::Imm(count) = b {
            if count >= 64 && op != Shift::Signed {
                return self.copy(to, Val::Imm(0));
            }
            let target = self.target(to);
            self.put(target, a);
            if count > 0 {
                self.asm.shift_imm(op, target, count.min(63) as u8);
            }
            return self.done(to, target);
        }
        // The processor takes the count modulo 64.
        let count = argument(3).unwrap_or(RAX);
        self.put(count, b);
        let target = self.target(to);
        self.put(target, a);
        let fits = self.asm.mark();
        if op != Shift::Signed {
            self.asm.shift_cl(op, target);
        }
        self.asm.alu_imm(Alu::Cmp, Rm::Reg(count), 63);
        self.asm.jcc(cc(Cond::LeU), fits);
        if op == Shift::Signed {
            self.asm.mov_imm(count, 63);
            self.asm.here(fits);
            self.asm.shift_cl(op, target);
        } else {
            self.asm.mov_imm(target, 0);
            self.asm.here(fits);
        }
        self.done(to, target);
    }

    /// rdx:rax divided by `b`: quotient in rax, remainder in rdx, both 0 at first for the cases that would trap.
    pub(super) fn div(&mut self, op: BinOp, to: V, a: Val, b: Val) {
        let signed = matches!(op, BinOp::DivS | BinOp::RemS);
        let rdx = argument(2).unwrap_or(RAX);
        let by = match b {
            Val::V(v) => self.rm(v),
            Val::Imm(_) => Rm::Reg(self.in_reg(b)),
        };
        let done = self.asm.mark();
        self.asm.mov_imm(RAX, 0);
        self.asm.mov_imm(rdx, 0);
        if !matches!(b, Val::Imm(n) if n != 0) {
            self.asm.alu_imm(Alu::Cmp, by, 0);
            self.asm.jcc(cc(Cond::Eq), done);
        }
        self.put(RAX, a);
        if signed {
            if !matches!(b, Val::Imm(n) if n != u64::MAX) {
                let divide = self.asm.mark();
                self.asm.alu_imm(Alu::Cmp, by, -1);
                self.asm.jcc(cc(Cond::Ne), divide);
                self.asm.neg(RAX);
                self.asm.jump(done);
                self.asm.here(divide);
            }
            self.asm.plain(&[0x48, 0x99]);
        }
        self.asm.div(by, signed);
        self.asm.here(done);
        let remainder = matches!(op, BinOp::RemU | BinOp::RemS);
        self.done(to, if remainder { rdx } else { RAX });
    }
}
