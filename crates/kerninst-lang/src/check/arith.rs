//! Operators.

use super::Checker;
use super::convert::{self, convert, describe, promoted};
use super::expr::constant;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Binary, Expr, ExprKind, Pointee, Span, Type, Unary};

impl Checker<'_> {
    pub(super) fn unary(&mut self, op: Unary, a: &ast::Expr, span: Span) -> Option<Expr> {
        if op == Unary::Not {
            let a = self.condition(a)?;
            let kind = ExprKind::Unary { op, a: a.into() };
            return Some(Expr {
                kind,
                ty: Type::I64,
                span,
            });
        }
        let a = self.number(a, "an operand of arithmetic")?;
        let ty = a.ty.clone();
        if let ExprKind::Int(v) = a.kind {
            // A minus before a literal makes it signed, as far as it fits.
            let (v, ty) = match op {
                Unary::Neg if v <= 1 << 63 => (v.wrapping_neg(), Type::I64),
                Unary::Neg => (v.wrapping_neg(), ty),
                _ => (!v, ty),
            };
            return Some(Expr {
                kind: ExprKind::Int(v),
                ty,
                span,
            });
        }
        let kind = ExprKind::Unary { op, a: a.into() };
        Some(Expr { kind, ty, span })
    }

    pub(super) fn binary(
        &mut self,
        op: Binary,
        a: &ast::Expr,
        b: &ast::Expr,
        span: Span,
    ) -> Option<Expr> {
        if matches!(op, Binary::Both | Binary::Either) {
            let (a, b) = (self.condition(a), self.condition(b));
            return Some(node(op, a?, b?, Type::I64, span));
        }
        let (a, b) = (self.value(a), self.value(b));
        self.operate(op, a?, b?, span)
    }

    /// `a op b`, of checked operands.
    pub(super) fn operate(&mut self, op: Binary, a: Expr, b: Expr, span: Span) -> Option<Expr> {
        let compares = matches!(
            op,
            Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge
        );
        match (&a.ty, &b.ty) {
            (Type::Str(_), Type::Str(_)) if matches!(op, Binary::Eq | Binary::Ne) => {
                return Some(self.texts(op, a, b, span));
            }
            (Type::Str(_), Type::Str(_)) if compares => {
                let d = Diagnostic::error(span, "texts can be compared with `==` and `!=` only");
                return self.fail(d);
            }
            (Type::Name, _) | (_, Type::Name) => {
                let d = Diagnostic::error(
                    span,
                    "`func` and `probe` can be shown and be keys, not compared",
                )
                .help("write a clause for each probe that differs");
                return self.fail(d);
            }
            (Type::Pointer { .. }, _) | (_, Type::Pointer { .. }) if !compares => {
                if let Some(done) = self.pointer_arithmetic(op, &a, &b, span) {
                    return done;
                }
            }
            (Type::KernelStack, Type::KernelStack) if matches!(op, Binary::Eq | Binary::Ne) => {
                return Some(node(op, a, b, Type::I64, span));
            }
            _ => {}
        }
        if let (Type::Str(_), other) | (other, Type::Str(_)) = (&a.ty, &b.ty) {
            let other = describe(other, self.types);
            let d = Diagnostic::error(
                span,
                format!("text and {other}: `{}` has no meaning for them", op.sign()),
            );
            return self.fail(if other.contains("char") || other.contains("int8") {
                d.help("text at an address is `str(p)`")
            } else {
                d
            });
        }
        let what = format!("an operand of `{}`", op.sign());
        let (a, b) = (self.as_number(a, &what), self.as_number(b, &what));
        let (a, b) = (a?, b?);
        self.numbers(op, a, b, compares, span)
    }

    /// Of 64-bit integers: unsigned if one side is, as in C; a shift is of the left side's type.
    fn numbers(
        &mut self,
        op: Binary,
        a: Expr,
        b: Expr,
        compares: bool,
        span: Span,
    ) -> Option<Expr> {
        let right = convert::constant(&b);
        match op {
            Binary::Div | Binary::Rem if right == Some(0) => {
                return self.fail(Diagnostic::error(b.span, "division by zero"));
            }
            Binary::Shl | Binary::Shr => {
                if right.is_some_and(|n| n >= 64) {
                    let d =
                        Diagnostic::error(b.span, "a shift by less than 0 or more than 63 bits");
                    return self.fail(d);
                }
                let ty = a.ty.clone();
                return Some(node(op, a, b, ty, span));
            }
            _ => {}
        }
        let negative =
            |e: &Expr| e.ty == Type::I64 && convert::constant(e).is_some_and(|v| (v as i64) < 0);
        if compares && (a.ty == Type::U64 && negative(&b) || b.ty == Type::U64 && negative(&a)) {
            self.report(
                Diagnostic::warning(span, "a value without sign is compared with a negative one")
                    .help("give it a sign: `(int64)x`"),
            );
        }
        let ty = if a.ty == Type::U64 || b.ty == Type::U64 {
            Type::U64
        } else {
            Type::I64
        };
        let (a, b) = (convert(a, &ty), convert(b, &ty));
        let ty = if compares { Type::I64 } else { ty };
        Some(node(op, a, b, ty, span))
    }

    /// Comparison of texts; of constants, the shorter one is filled up.
    fn texts(&mut self, op: Binary, a: Expr, b: Expr, span: Span) -> Expr {
        let (x, y) = (a.ty.clone(), b.ty.clone());
        let longer = convert::merge(&x, &y, false).unwrap_or(x);
        node(
            op,
            convert(a, &longer),
            convert(b, &longer),
            Type::I64,
            span,
        )
    }

    /// Adding to a pointer counts in elements, as in C; the difference of two is a number of elements. Other operators take the
    /// address as a number.
    fn pointer_arithmetic(
        &mut self,
        op: Binary,
        a: &Expr,
        b: &Expr,
        span: Span,
    ) -> Option<Option<Expr>> {
        let (pointer, index, other) = match (op, &a.ty, &b.ty) {
            (Binary::Sub, Type::Pointer { to, .. }, Type::Pointer { to: t2, .. }) => {
                if to != t2 {
                    let d = Diagnostic::error(span, "the two pointers point to different types");
                    return Some(self.fail(d));
                }
                let size = self.pointee_size(to).filter(|s| *s > 0)?;
                let (a, b) = (
                    convert(a.clone(), &Type::I64),
                    convert(b.clone(), &Type::I64),
                );
                let bytes = node(Binary::Sub, a, b, Type::I64, span);
                return Some(Some(if size == 1 {
                    bytes
                } else {
                    node(Binary::Div, bytes, constant(size, span), Type::I64, span)
                }));
            }
            (Binary::Add | Binary::Sub, Type::Pointer { to, .. }, Type::Int { .. }) => (a, b, to),
            (Binary::Add, Type::Int { .. }, Type::Pointer { to, .. }) => (b, a, to),
            _ => return None,
        };
        let Some(size) = self.pointee_size(other) else {
            let what = describe(&pointer.ty, self.types);
            let d = Diagnostic::error(
                span,
                format!("the size of what {what} points to is not known"),
            );
            return Some(self.fail(d.help("cast it: `(uint64)p + 8`")));
        };
        let index = convert(index.clone(), &promoted(&index.ty));
        Some(Some(scaled(op, pointer.clone(), index, size, span)))
    }

    /// Bytes that a pointer's next element is further; of `void *` 1, as GCC has it.
    pub(super) fn pointee_size(&self, to: &Pointee) -> Option<u64> {
        match to {
            Pointee::Void => Some(1),
            Pointee::Int { bits, .. } => Some(u64::from(*bits) / 8),
            Pointee::Btf(id) => self.types.size(*id),
        }
    }
}

/// `pointer op index * size`, of the pointer's type.
pub(super) fn scaled(op: Binary, pointer: Expr, index: Expr, size: u64, span: Span) -> Expr {
    let ty = pointer.ty.clone();
    let bytes = match (index.kind, index.ty) {
        (ExprKind::Int(n), ty) => Expr {
            kind: ExprKind::Int(n.wrapping_mul(size)),
            ty,
            span: index.span,
        },
        (kind, ty) if size == 1 => Expr {
            kind,
            ty,
            span: index.span,
        },
        (kind, ty) => {
            let span = index.span;
            let index = Expr {
                kind,
                ty: ty.clone(),
                span,
            };
            let size = convert(constant(size, span), &ty);
            node(Binary::Mul, index, size, ty, span)
        }
    };
    node(op, pointer, bytes, ty, span)
}

pub(super) fn node(op: Binary, a: Expr, b: Expr, ty: Type, span: Span) -> Expr {
    Expr {
        kind: ExprKind::Binary {
            op,
            a: a.into(),
            b: b.into(),
        },
        ty,
        span,
    }
}
