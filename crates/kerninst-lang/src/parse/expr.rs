//! Expressions: C's operators with C's precedence.

use super::{MAX_EXPR, Parser};
use crate::ast::{Binary, Expr, ExprKind, Unary};
use crate::diag::Diagnostic;
use crate::hir::Span;
use crate::lex::Tok;

/// Operators with two operands; the higher the number, the tighter.
const OPERATORS: [(&str, Binary, u8); 18] = [
    ("||", Binary::Either, 1),
    ("&&", Binary::Both, 2),
    ("|", Binary::Or, 3),
    ("^", Binary::Xor, 4),
    ("&", Binary::And, 5),
    ("==", Binary::Eq, 6),
    ("!=", Binary::Ne, 6),
    ("<", Binary::Lt, 7),
    ("<=", Binary::Le, 7),
    (">", Binary::Gt, 7),
    (">=", Binary::Ge, 7),
    ("<<", Binary::Shl, 8),
    (">>", Binary::Shr, 8),
    ("+", Binary::Add, 9),
    ("-", Binary::Sub, 9),
    ("*", Binary::Mul, 10),
    ("/", Binary::Div, 10),
    ("%", Binary::Rem, 10),
];

impl Parser<'_> {
    /// Any expression.
    pub(super) fn expr(&mut self) -> Option<Expr> {
        self.deeper(|p| {
            let c = p.binary(0)?;
            if !p.accept("?") {
                return Some(c);
            }
            let a = p.expr()?;
            p.expect(":")?;
            let b = p.expr()?;
            let span = p.since(c.span);
            p.node(ExprKind::Choice(c.into(), a.into(), b.into()), span)
        })
    }

    /// Bounds the recursion.
    fn deeper(&mut self, f: impl FnOnce(&mut Self) -> Option<Expr>) -> Option<Expr> {
        if self.expr_depth >= MAX_EXPR {
            return self.too_deep(self.tok.span);
        }
        self.expr_depth += 1;
        let e = f(self);
        self.expr_depth -= 1;
        e
    }

    fn binary(&mut self, least: u8) -> Option<Expr> {
        let mut a = self.unary()?;
        while let Some((op, level)) = self.operator().filter(|(_, level)| *level > least) {
            self.advance();
            let b = self.deeper(|p| p.binary(level))?;
            let span = Span {
                start: a.span.start,
                end: b.span.end,
            };
            a = self.node(ExprKind::Binary(op, a.into(), b.into()), span)?;
        }
        Some(a)
    }

    fn operator(&self) -> Option<(Binary, u8)> {
        let Tok::Sign(sign) = &self.tok.tok else {
            return None;
        };
        if *sign == "/" && self.in_filter && self.ends_filter() {
            return None;
        }
        let found = OPERATORS.iter().find(|(s, ..)| s == sign)?;
        Some((found.1, found.2))
    }

    /// After the `/` that is looked at comes the body.
    fn ends_filter(&self) -> bool {
        let mut ahead = self.lex.clone();
        ahead.skip_blanks().is_ok() && ahead.rest().starts_with('{')
    }

    /// An operand with the operators before it.
    pub(super) fn unary(&mut self) -> Option<Expr> {
        let start = self.tok.span;
        let Tok::Sign(sign) = self.tok.tok else {
            return self.postfix();
        };
        let wrap: fn(Box<Expr>) -> ExprKind = match sign {
            "-" => |a| ExprKind::Unary(Unary::Neg, a),
            "~" => |a| ExprKind::Unary(Unary::Invert, a),
            "!" => |a| ExprKind::Unary(Unary::Not, a),
            "*" => ExprKind::Deref,
            "&" => ExprKind::Address,
            "+" => {
                self.advance();
                return self.deeper(Self::unary);
            }
            "++" | "--" => {
                let d = Diagnostic::error(start, format!("`{sign}` is a statement, not a value"))
                    .help("step first, and use the variable then");
                return self.fail(d);
            }
            "(" if self.is_cast() => return self.cast(),
            _ => return self.postfix(),
        };
        self.advance();
        let a = self.deeper(Self::unary)?;
        let span = self.since(start);
        self.node(wrap(a.into()), span)
    }

    /// `(type)operand`.
    fn cast(&mut self) -> Option<Expr> {
        let start = self.tok.span;
        self.advance();
        let ty = self.type_name()?;
        self.expect(")")?;
        let a = self.deeper(Self::unary)?;
        let span = self.since(start);
        self.node(ExprKind::Cast(ty, a.into()), span)
    }

    fn postfix(&mut self) -> Option<Expr> {
        let mut e = self.primary()?;
        loop {
            let open = self.tok.span;
            let kind = if self.accept("[") {
                let index = self.expr()?;
                self.expect("]")?;
                ExprKind::Index(e.into(), index.into())
            } else if self.at(".") || self.at("->") {
                let arrow = self.at("->");
                self.advance();
                let name_span = self.tok.span;
                let Tok::Word(name) = self.tok.tok.clone() else {
                    return self.expected("the name of a member", &[]);
                };
                self.advance();
                ExprKind::Member {
                    of: e.into(),
                    arrow,
                    name,
                    name_span,
                }
            } else if self.at("(") {
                let d = Diagnostic::error(open, "only names can be called");
                return self.fail(d);
            } else {
                return Some(e);
            };
            let start = match &kind {
                ExprKind::Index(of, _) | ExprKind::Member { of, .. } => of.span,
                _ => open,
            };
            let span = self.since(start);
            e = self.node(kind, span)?;
        }
    }

    fn primary(&mut self) -> Option<Expr> {
        let span = self.tok.span;
        let kind = match self.tok.tok.clone() {
            Tok::Int(n) => {
                self.advance();
                ExprKind::Int(n)
            }
            Tok::Text(text) => {
                self.advance();
                ExprKind::Text(text)
            }
            Tok::Param(n) => {
                self.advance();
                ExprKind::Param(n)
            }
            Tok::Local(name) => {
                self.advance();
                ExprKind::Local(name)
            }
            Tok::Map(name) => {
                self.advance();
                let open = self.tok.span;
                let key = if self.accept("[") {
                    self.list("]", open)?
                } else {
                    Vec::new()
                };
                if key.is_empty() && self.end > span.end {
                    let d = Diagnostic::error(self.since(open), "a key is missing").help(format!(
                        "a map without key is written without brackets: `{name}`"
                    ));
                    return self.fail(d);
                }
                // `@a[1, 2]` and `@a[(1, 2)]` are the same, as in bpftrace.
                let key = match <[Expr; 1]>::try_from(key) {
                    Ok(
                        [
                            Expr {
                                kind: ExprKind::Tuple(parts),
                                ..
                            },
                        ],
                    ) => parts,
                    Ok(one) => one.into(),
                    Err(parts) => parts,
                };
                ExprKind::Map { name, key }
            }
            Tok::Word(name) if name == "sizeof" => return self.size_of(),
            Tok::Word(name) => {
                self.advance();
                let open = self.tok.span;
                if self.accept("(") {
                    let args = self.list(")", open)?;
                    ExprKind::Call {
                        name,
                        name_span: span,
                        args,
                    }
                } else {
                    ExprKind::Name(name)
                }
            }
            Tok::Sign("(") => {
                self.advance();
                // Inside brackets a `/` divides, whatever follows.
                let outer = std::mem::replace(&mut self.in_filter, false);
                let parts = self.list(")", span);
                self.in_filter = outer;
                let mut parts = parts?;
                match parts.len() {
                    0 => {
                        return self.fail(Diagnostic::error(
                            self.since(span),
                            "a value is missing between the brackets",
                        ));
                    }
                    1 => {
                        let mut e = parts.pop()?;
                        e.span = self.since(span);
                        return Some(e);
                    }
                    _ => ExprKind::Tuple(parts),
                }
            }
            _ => return self.expected("a value", &[]),
        };
        let span = self.since(span);
        self.node(kind, span)
    }

    fn size_of(&mut self) -> Option<Expr> {
        let start = self.tok.span;
        self.advance();
        if !self.at("(") {
            return self.expected("`(`", &["write `sizeof(TYPE)`"]);
        }
        let is_type = self.is_type_in_brackets();
        self.advance();
        let kind = if is_type {
            ExprKind::SizeOfType(self.type_name()?)
        } else {
            ExprKind::SizeOf(self.expr()?.into())
        };
        self.expect(")")?;
        let span = self.since(start);
        self.node(kind, span)
    }
}
