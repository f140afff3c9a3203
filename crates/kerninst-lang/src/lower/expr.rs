//! Expressions that are held in one register.

use kerninst_snippet::ir::{BinOp, Val, Width};

use super::{Local, Lower, LowerError, Reason, Result};
use crate::hir::{Binary, Expr, ExprKind, Type, Unary};

/// The width of so many bits.
pub(super) fn width(bits: u8) -> Width {
    match bits {
        0..=8 => Width::B1,
        9..=16 => Width::B2,
        17..=32 => Width::B4,
        _ => Width::B8,
    }
}

fn is_signed(ty: &Type) -> bool {
    matches!(ty, Type::Int { signed: true, .. })
}

impl Lower<'_> {
    /// The value of an expression that is held in one register.
    pub(super) fn word(&mut self, e: &Expr) -> Result<Val> {
        self.deeper(e.span, |l| l.word_inner(e))
    }

    fn word_inner(&mut self, e: &Expr) -> Result<Val> {
        match &e.kind {
            ExprKind::Int(value) => Ok(Val::Imm(*value)),
            ExprKind::Builtin(b) => self.builtin(*b, &e.ty, e.span),
            ExprKind::Local(n) => match self.locals.get(*n as usize) {
                Some(Local::Word(v)) => Ok(Val::V(*v)),
                Some(Local::Zero) => Ok(Val::Imm(0)),
                _ => self.malformed(e, "no such variable"),
            },
            ExprKind::Map { map, key } => self.plain_word(*map, key),
            ExprKind::Unary { op, a } => match op {
                Unary::Not => self.truth(e),
                Unary::Neg => {
                    let a = self.word(a)?;
                    let value = self.code.bin(BinOp::Sub, Val::Imm(0), a);
                    Ok(self.narrow(value, &e.ty))
                }
                Unary::Invert => {
                    let a = self.word(a)?;
                    let value = self.code.bin(BinOp::Xor, a, Val::Imm(u64::MAX));
                    Ok(self.narrow(value, &e.ty))
                }
            },
            ExprKind::Binary { op, a, b } => self.binary(e, *op, a, b),
            ExprKind::Choice { c, a, b } => {
                let value = self.code.reg();
                self.choose(
                    c,
                    |l| {
                        let a = l.word(a)?;
                        l.code.copy(value, a);
                        Ok(())
                    },
                    |l| {
                        let b = l.word(b)?;
                        l.code.copy(value, b);
                        Ok(())
                    },
                )?;
                Ok(Val::V(value))
            }
            ExprKind::Cast(a) => {
                let a = self.word(a)?;
                Ok(self.narrow(a, &e.ty))
            }
            ExprKind::Load { .. } => self.read(e),
            ExprKind::Text(_) | ExprKind::Str { .. } | ExprKind::Buf { .. } => {
                self.malformed(e, "text where a number belongs")
            }
        }
    }

    /// One of two ways.
    pub(super) fn choose(
        &mut self,
        c: &Expr,
        then: impl FnOnce(&mut Self) -> Result<()>,
        other: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let no = self.code.label();
        let done = self.code.label();
        self.cond(c, false, no)?;
        then(self)?;
        self.code.jump(done);
        self.code.place(no);
        other(self)?;
        self.code.place(done);
        Ok(())
    }

    fn binary(&mut self, e: &Expr, op: Binary, left: &Expr, right: &Expr) -> Result<Val> {
        let signed = is_signed(&left.ty) && is_signed(&right.ty);
        let op = match op {
            Binary::Add => BinOp::Add,
            Binary::Sub => BinOp::Sub,
            Binary::Mul => BinOp::Mul,
            Binary::Div if signed => BinOp::DivS,
            Binary::Div => BinOp::DivU,
            Binary::Rem if signed => BinOp::RemS,
            Binary::Rem => BinOp::RemU,
            Binary::And => BinOp::And,
            Binary::Or => BinOp::Or,
            Binary::Xor => BinOp::Xor,
            Binary::Shl => BinOp::Shl,
            // Of a shift the left side alone says what it is.
            Binary::Shr if is_signed(&left.ty) => BinOp::Sar,
            Binary::Shr => BinOp::Shr,
            _ => return self.truth(e),
        };
        let a = self.word(left)?;
        let b = self.word(right)?;
        let value = self.code.bin(op, a, b);
        let bitwise = matches!(op, BinOp::And | BinOp::Or | BinOp::Xor);
        if bitwise && left.ty == e.ty && right.ty == e.ty {
            return Ok(value);
        }
        Ok(self.narrow(value, &e.ty))
    }

    /// 64 bits as a value of this type: cut off and extended again.
    pub(super) fn narrow(&mut self, value: Val, ty: &Type) -> Val {
        match *ty {
            Type::Int { bits, signed } => self.code.extend(value, width(bits), signed),
            _ => value,
        }
    }

    /// The checker lets no such thing through.
    pub(super) fn malformed<T>(&self, e: &Expr, what: &'static str) -> Result<T> {
        Err(LowerError::new(e.span, Reason::Malformed(what)))
    }
}
