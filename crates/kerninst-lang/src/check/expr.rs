//! Expressions.

use super::Checker;
use super::convert::{convert, cut, describe, merge, promoted, stored};
use super::map_info::Kind;
use crate::ast::{self, ExprKind as Ast};
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, Span, Type};

/// Most bytes of a text in the script.
const MAX_TEXT: usize = 200;

impl Checker<'_> {
    /// An expression that has a value.
    pub(super) fn value(&mut self, e: &ast::Expr) -> Option<Expr> {
        self.count_node();
        if self.nodes > super::MAX_NODES || self.diagnostics.len() >= super::MAX_DIAGNOSTICS {
            return None;
        }
        let span = e.span;
        match &e.kind {
            Ast::Int(v) => Some(integer(*v, span)),
            Ast::Text(text) => self.text(text, span),
            Ast::Param(n) => self.param(*n, span),
            Ast::Name(name) => self.name(name, span),
            Ast::Local(name) => {
                let local = self.local(name, span)?;
                let ty = self
                    .locals
                    .get(self.clause)?
                    .get(local as usize)?
                    .ty
                    .clone()?;
                Some(Expr {
                    kind: ExprKind::Local(local),
                    ty,
                    span,
                })
            }
            Ast::Map { name, key } => self.map_value(name, key, span),
            Ast::Call {
                name,
                name_span,
                args,
            } => self.call_value(name, *name_span, args, span),
            Ast::Unary(op, a) => self.unary(*op, a, span),
            Ast::Binary(op, a, b) => self.binary(*op, a, b, span),
            Ast::Choice(c, a, b) => self.choice(c, a, b, span),
            Ast::Cast(ty, a) => {
                let ty = self.type_named(ty);
                let a = self.value(a);
                self.cast(a?, ty?, span)
            }
            Ast::SizeOfType(ty) => {
                let size = self.size_named(ty)?;
                Some(constant(size, span))
            }
            Ast::SizeOf(a) => {
                let size = self.size_of(a)?;
                Some(constant(size, span))
            }
            Ast::Member {
                of,
                name,
                name_span,
                ..
            } if is_args(of) => self.arg_named(name, *name_span, span),
            Ast::Deref(_) | Ast::Member { .. } | Ast::Index(..) => {
                let place = self.place(e)?;
                self.load(place)
            }
            Ast::Address(a) => self.address_of(a, span),
            Ast::Tuple(_) => self.fail(
                Diagnostic::error(span, "several values in brackets are no value")
                    .help("they can be a map's key: `@x[a, b]`"),
            ),
        }
    }

    /// An expression that is 0 or not.
    pub(super) fn condition(&mut self, e: &ast::Expr) -> Option<Expr> {
        let c = self.value(e)?;
        if c.ty.is_word() && c.ty != Type::Name {
            return Some(c);
        }
        let what = describe(&c.ty, self.types);
        self.fail(
            Diagnostic::error(e.span, format!("{what} is no condition"))
                .help("compare it: `comm == \"bash\"`"),
        )
    }

    /// An integer of 64 bits; pointers and places in the kernel are taken as their address.
    pub(super) fn number(&mut self, e: &ast::Expr, what: &str) -> Option<Expr> {
        let v = self.value(e)?;
        self.as_number(v, what)
    }

    pub(super) fn as_number(&mut self, v: Expr, what: &str) -> Option<Expr> {
        match &v.ty {
            Type::Int { .. } => {
                let ty = promoted(&v.ty);
                Some(convert(v, &ty))
            }
            Type::Pointer { .. } | Type::Symbol => Some(convert(v, &Type::U64)),
            ty => {
                let is = describe(ty, self.types);
                self.fail(Diagnostic::error(
                    v.span,
                    format!("{what} must be an integer, and this is {is}"),
                ))
            }
        }
    }

    /// A constant integer in a range, for what must be known before anything runs.
    pub(super) fn constant_in(
        &mut self,
        e: &ast::Expr,
        what: &str,
        range: std::ops::RangeInclusive<i64>,
    ) -> Option<i64> {
        let v = self.number(e, what)?;
        let Some(n) = super::convert::constant(&v) else {
            return self.fail(Diagnostic::error(
                e.span,
                format!("{what} must be a constant"),
            ));
        };
        let n = match v.ty {
            Type::U64 => i64::try_from(n).unwrap_or(i64::MAX),
            _ => n as i64,
        };
        if range.contains(&n) {
            return Some(n);
        }
        let (low, high) = (range.start(), range.end());
        self.fail(Diagnostic::error(
            e.span,
            format!("{what} is {n}, it must be {low} to {high}"),
        ))
    }

    /// Text that is a constant: in quotes, or a parameter.
    pub(super) fn constant_text(&mut self, e: &ast::Expr, what: &str) -> Option<String> {
        match &e.kind {
            Ast::Text(text) => Some(text.clone()),
            Ast::Param(n @ 1..) => self.param_text(*n, e.span),
            _ => self.fail(Diagnostic::error(
                e.span,
                format!("{what} must be text in quotes"),
            )),
        }
    }

    pub(super) fn text(&mut self, text: &str, span: Span) -> Option<Expr> {
        if text.len() >= MAX_TEXT {
            let most = MAX_TEXT - 1;
            return self.fail(Diagnostic::error(
                span,
                format!("a text as a value has at most {most} bytes"),
            ));
        }
        if text.contains('\0') {
            return self.fail(Diagnostic::error(
                span,
                "a text cannot contain NUL: it ends there",
            ));
        }
        Some(Expr {
            kind: ExprKind::Text(text.to_string()),
            ty: Type::Str(text.len() as u32 + 1),
            span,
        })
    }

    /// The text of `$n`.
    pub(super) fn param_text(&mut self, n: u32, span: Span) -> Option<String> {
        let params = &self.options.params;
        if let Some(text) = (n as usize).checked_sub(1).and_then(|n| params.get(n)) {
            return Some(text.clone());
        }
        let given = match params.len() {
            0 => "none was given".to_string(),
            1 => "1 was given".into(),
            n => format!("{n} were given"),
        };
        self.fail(
            Diagnostic::error(
                span,
                format!("the script needs a parameter `${n}`, {given}"),
            )
            .help("parameters follow the script on the command line"),
        )
    }

    /// `$n`: a number if it is one, otherwise text.
    fn param(&mut self, n: u32, span: Span) -> Option<Expr> {
        if n == 0 {
            return Some(constant(self.options.params.len() as u64, span));
        }
        let text = self.param_text(n, span)?;
        let (digits, minus) = match text.strip_prefix('-') {
            Some(digits) => (digits, true),
            None => (text.as_str(), false),
        };
        let parsed = match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        };
        match parsed {
            Some(v) if minus && v <= 1 << 63 => Some(constant(v.wrapping_neg(), span)),
            Some(v) if !minus => Some(integer(v, span)),
            _ => self.text(&text, span),
        }
    }

    fn map_value(&mut self, name: &str, key: &[ast::Expr], span: Span) -> Option<Expr> {
        let map = self.map_number(name)?;
        let key = self.map_key(map, key, span);
        let (info, in_kernel) = (self.map(map)?, self.context()?.places.first().copied());
        let (kind, first) = (info.kind(), info.kind_span());
        let ty = match kind {
            Kind::Plain => info.value.clone()?.0,
            Kind::Aggregation("hist" | "lhist" | "stats") => {
                return self.fail(
                    Diagnostic::error(
                        span,
                        format!("`{name}` is more than one number: it has no value"),
                    )
                    .note(first, "this says what it holds")
                    .help(format!("show it: `print({name})`")),
                );
            }
            Kind::Aggregation(_) | Kind::Added { .. } => {
                if let Some((_, probe)) = in_kernel {
                    return self.fail(
                        Diagnostic::error(
                            span,
                            format!("`{name}` is counted on each CPU: a probe in the kernel cannot read it"),
                        )
                        .note(first, "this says what it holds")
                        .note(probe, "this runs in the kernel")
                        .help("print it, or read it in END or interval: ; for a value that probes read, assign with `=`"),
                    );
                }
                match self.map(map)?.finish().value {
                    crate::hir::MapValue::Count => Type::U64,
                    crate::hir::MapValue::Sum { signed: false }
                    | crate::hir::MapValue::Min { signed: false }
                    | crate::hir::MapValue::Max { signed: false }
                    | crate::hir::MapValue::Avg { signed: false } => Type::U64,
                    _ => Type::I64,
                }
            }
        };
        Some(Expr {
            kind: ExprKind::Map { map, key: key? },
            ty,
            span,
        })
    }

    fn choice(&mut self, c: &ast::Expr, a: &ast::Expr, b: &ast::Expr, span: Span) -> Option<Expr> {
        let c = self.condition(c);
        let (a, b) = (self.value(a), self.value(b));
        let (c, a, b) = (c?, a?, b?);
        let Some(ty) = merge(&stored(&a.ty), &stored(&b.ty), true) else {
            let (x, y) = (describe(&a.ty, self.types), describe(&b.ty, self.types));
            return self.fail(
                Diagnostic::error(
                    b.span,
                    format!("both sides of `:` must have one type, this is {y}"),
                )
                .note(a.span, format!("and this is {x}")),
            );
        };
        Some(Expr {
            kind: ExprKind::Choice {
                c: c.into(),
                a: convert(a, &ty).into(),
                b: convert(b, &ty).into(),
            },
            ty,
            span,
        })
    }

    /// `(ty)a`.
    pub(super) fn cast(&mut self, a: Expr, ty: Type, span: Span) -> Option<Expr> {
        let ok = matches!(a.ty, Type::Int { .. } | Type::Pointer { .. } | Type::Symbol);
        if !ok {
            let (from, to) = (describe(&a.ty, self.types), describe(&ty, self.types));
            return self.fail(Diagnostic::error(
                span,
                format!("{from} cannot become {to}"),
            ));
        }
        // A pointer of user space stays one.
        let ty = match (ty, &a.ty) {
            (Type::Pointer { to, .. }, Type::Pointer { user, .. }) => {
                Type::Pointer { to, user: *user }
            }
            (ty, _) => ty,
        };
        if a.ty == ty {
            return Some(Expr { span, ..a });
        }
        if let ExprKind::Int(v) = a.kind {
            return Some(Expr {
                kind: ExprKind::Int(cut(v, &ty)),
                ty,
                span,
            });
        }
        Some(Expr {
            kind: ExprKind::Cast(a.into()),
            ty,
            span,
        })
    }
}

/// `args`, of which only members have a value.
pub(super) fn is_args(e: &ast::Expr) -> bool {
    matches!(&e.kind, Ast::Name(n) if n == "args")
}

/// A literal: signed if it fits.
pub(super) fn integer(v: u64, span: Span) -> Expr {
    let ty = if i64::try_from(v).is_ok() {
        Type::I64
    } else {
        Type::U64
    };
    Expr {
        kind: ExprKind::Int(v),
        ty,
        span,
    }
}

/// A signed constant.
pub(super) fn constant(v: u64, span: Span) -> Expr {
    Expr {
        kind: ExprKind::Int(v),
        ty: Type::I64,
        span,
    }
}
