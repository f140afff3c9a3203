//! Comparisons.

use super::{Select, Source};
use crate::asm::Mark;
use crate::eval::holds;
use crate::insns::{Alu, Rm, cc};
use crate::ir::{Cond, Val};

impl Select<'_> {
    /// The operands of a comparison; how to compare them then.
    pub(super) fn compare(&mut self, cond: Cond, a: Val, b: Val) -> Cond {
        let (cond, a, b) = match a {
            Val::Imm(_) => (cond.mirrored(), b, a),
            Val::V(_) => (cond, a, b),
        };
        let Val::V(v) = a else { return cond };
        match (self.rm(v), self.source(b)) {
            (Rm::Reg(r), Source::Imm(0)) => self.asm.test(r),
            (left, Source::Imm(imm)) => self.asm.alu_imm(Alu::Cmp, left, imm),
            (left, Source::Rm(Rm::Reg(r))) => self.asm.alu_to(Alu::Cmp, left, r),
            (Rm::Reg(r), Source::Rm(right)) => self.asm.alu(Alu::Cmp, r, right),
            (_, Source::Rm(right)) => {
                let left = self.in_reg(a);
                self.asm.alu(Alu::Cmp, left, right);
            }
        }
        cond
    }

    pub(super) fn branch(&mut self, cond: Cond, a: Val, b: Val, to: Mark) {
        if let (Val::Imm(a), Val::Imm(b)) = (a, b) {
            if holds(cond, a, b) {
                self.asm.jump(to);
            }
            return;
        }
        let cond = self.compare(cond, a, b);
        self.asm.jcc(cc(cond), to);
    }
}
