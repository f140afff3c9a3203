//! Conditions: jumps in place of values.

use kerninst_snippet::ir::{Cond, Label, Val};

use super::{Lower, Result};
use crate::hir::{Binary, Expr, ExprKind, Type, Unary};

/// The comparison of two values of these types.
fn comparison(op: Binary, a: &Type, b: &Type) -> Option<Cond> {
    let signed = |ty: &Type| matches!(ty, Type::Int { signed: true, .. });
    let signed = signed(a) && signed(b);
    Some(match (op, signed) {
        (Binary::Eq, _) => Cond::Eq,
        (Binary::Ne, _) => Cond::Ne,
        (Binary::Lt, false) => Cond::LtU,
        (Binary::Le, false) => Cond::LeU,
        (Binary::Gt, false) => Cond::GtU,
        (Binary::Ge, false) => Cond::GeU,
        (Binary::Lt, true) => Cond::LtS,
        (Binary::Le, true) => Cond::LeS,
        (Binary::Gt, true) => Cond::GtS,
        (Binary::Ge, true) => Cond::GeS,
        _ => return None,
    })
}

impl Lower<'_> {
    /// Goes to the label if the expression is not 0 (`when`), or if it is (not `when`); otherwise falls through.
    pub(super) fn cond(&mut self, e: &Expr, when: bool, to: Label) -> Result<()> {
        self.deeper(e.span, |l| l.cond_inner(e, when, to))
    }

    fn cond_inner(&mut self, e: &Expr, when: bool, to: Label) -> Result<()> {
        match &e.kind {
            ExprKind::Unary { op: Unary::Not, a } => self.cond(a, !when, to),
            ExprKind::Binary { op, a, b } => match op {
                Binary::Both | Binary::Either => {
                    // `a && b` fails, and `a || b` holds, as soon as one side does.
                    let at_once = *op == Binary::Either;
                    if when == at_once {
                        self.cond(a, when, to)?;
                        return self.cond(b, when, to);
                    }
                    let not = self.code.label();
                    self.cond(a, !when, not)?;
                    self.cond(b, when, to)?;
                    self.code.place(not);
                    Ok(())
                }
                _ => match comparison(*op, &a.ty, &b.ty) {
                    Some(cond) if a.ty.is_word() => {
                        let cond = if when { cond } else { cond.opposite() };
                        let a = self.word(a)?;
                        let b = self.word(b)?;
                        self.code.branch(cond, a, b, to);
                        Ok(())
                    }
                    Some(Cond::Eq) => self.compare_texts(a, b, when, to),
                    Some(Cond::Ne) => self.compare_texts(a, b, !when, to),
                    Some(_) => self.malformed(e, "texts have no order"),
                    None => self.not_zero(e, when, to),
                },
            },
            _ => self.not_zero(e, when, to),
        }
    }

    fn not_zero(&mut self, e: &Expr, when: bool, to: Label) -> Result<()> {
        let value = self.word(e)?;
        let cond = if when { Cond::Ne } else { Cond::Eq };
        self.code.branch(cond, value, Val::Imm(0), to);
        Ok(())
    }

    /// A condition as a value: 1 or 0.
    pub(super) fn truth(&mut self, e: &Expr) -> Result<Val> {
        if let ExprKind::Binary { op, a, b } = &e.kind
            && let Some(cond) = comparison(*op, &a.ty, &b.ty)
            && a.ty.is_word()
        {
            let a = self.word(a)?;
            let b = self.word(b)?;
            return Ok(self.code.set(cond, a, b));
        }
        if let ExprKind::Unary { op: Unary::Not, a } = &e.kind {
            let a = self.word(a)?;
            return Ok(self.code.set(Cond::Eq, a, Val::Imm(0)));
        }
        let value = self.code.variable(Val::Imm(0));
        let no = self.code.label();
        self.cond(e, false, no)?;
        self.code.copy(value, Val::Imm(1));
        self.code.place(no);
        Ok(Val::V(value))
    }
}
