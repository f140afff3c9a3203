//! Calls that have a value.

use super::Checker;
use super::convert::describe;
use super::functions::{self, Signature};
use crate::ast::{self, ExprKind as Ast};
use crate::diag::Diagnostic;
use crate::hir::{Builtin, Expr, ExprKind, Pointee, Span, Type};

/// Bytes of a text from memory if nothing is said, as in bpftrace; and most.
const TEXT: u32 = 64;
const MAX_TEXT: i64 = 200;
/// Most bytes of `buf`.
const MAX_BYTES: i64 = 512;
/// Most frames of a stack.
const MAX_DEPTH: i64 = 127;

impl Checker<'_> {
    /// A call in an expression.
    pub(super) fn call_value(
        &mut self,
        name: &str,
        name_span: Span,
        args: &[ast::Expr],
        span: Span,
    ) -> Option<Expr> {
        let Some(signature) = functions::VALUES.iter().find(|s| s.name == name) else {
            return self.no_value(name, name_span, span);
        };
        self.arity(signature, args.len(), span)?;
        match (name, args) {
            ("str", [at, size @ ..]) => self.str(at, size.first(), span),
            ("buf", [at, size]) => {
                let n = self.constant_in(size, "the number of bytes", 1..=MAX_BYTES);
                let at = self.address(at, span);
                Some(Expr {
                    kind: ExprKind::Buf { at: at?.into() },
                    ty: Type::Bytes(n? as u32),
                    span,
                })
            }
            ("kstack" | "ustack", [depth]) => {
                self.kernel_only(span, &format!("`{name}`"))?;
                if let Ast::Name(mode) = &depth.kind
                    && matches!(mode.as_str(), "perf" | "bpftrace" | "raw")
                {
                    let d = Diagnostic::error(depth.span, "stacks have one look only");
                    return self.fail(d.help(format!("write `{name}` or `{name}(8)`")));
                }
                let n = self.constant_in(depth, "the number of frames", 1..=MAX_DEPTH)? as u8;
                let (builtin, ty) = if name == "kstack" {
                    (Builtin::KernelStack(n), Type::KernelStack)
                } else {
                    (Builtin::UserStack(n), Type::UserStack)
                };
                Some(Expr {
                    kind: ExprKind::Builtin(builtin),
                    ty,
                    span,
                })
            }
            ("reg", [register]) => {
                self.kernel_only(span, "a register")?;
                let text = self.constant_text(register, "the name of a register")?;
                let builtin = match self.register(&text, register.span)? {
                    Some(n) => Builtin::Reg(n),
                    None => Builtin::Ip,
                };
                Some(Expr {
                    kind: ExprKind::Builtin(builtin),
                    ty: Type::U64,
                    span,
                })
            }
            ("ksym", [address]) => {
                let address = self.number(address, "an address")?;
                Some(Expr {
                    kind: ExprKind::Cast(address.into()),
                    ty: Type::Symbol,
                    span,
                })
            }
            ("uptr" | "kptr", [p]) => {
                let p = self.value(p)?;
                let user = name == "uptr";
                let to = match &p.ty {
                    Type::Pointer { to, .. } => to.clone(),
                    _ => Pointee::Void,
                };
                let p = match p.ty {
                    Type::Pointer { .. } => p,
                    _ => self.as_number(p, "an address")?,
                };
                Some(Expr {
                    kind: ExprKind::Cast(p.into()),
                    ty: Type::Pointer { to, user },
                    span,
                })
            }
            // `kstack()`.
            _ => self.name(name, span),
        }
    }

    fn str(&mut self, at: &ast::Expr, size: Option<&ast::Expr>, span: Span) -> Option<Expr> {
        if let Ast::Param(n @ 1..) = at.kind {
            let text = self.param_text(n, at.span)?;
            return self.text(&text, span);
        }
        let size = match size {
            Some(size) => self
                .constant_in(size, "the size of a text", 1..=MAX_TEXT)
                .map(|n| n as u32),
            None => Some(TEXT),
        };
        let at = self.value(at);
        let (size, at) = (size?, at?);
        let at = match at {
            // It is text already.
            Expr {
                ty: Type::Str(_), ..
            } if size == TEXT => return Some(at),
            Expr {
                kind: ExprKind::Str { at },
                ..
            } => *at,
            at => at,
        };
        self.kernel_only(span, "text from memory")?;
        self.check_address(&at)?;
        Some(Expr {
            kind: ExprKind::Str { at: at.into() },
            ty: Type::Str(size),
            span,
        })
    }

    /// The address of an argument of `buf`: a pointer, or an array of characters, which is text otherwise.
    fn address(&mut self, at: &ast::Expr, span: Span) -> Option<Expr> {
        self.kernel_only(span, "memory of the kernel")?;
        let at = match self.value(at)? {
            Expr {
                kind: ExprKind::Str { at },
                ..
            } => *at,
            at => at,
        };
        self.check_address(&at)?;
        Some(at)
    }

    fn check_address(&mut self, at: &Expr) -> Option<()> {
        let wide = matches!(at.ty, Type::Int { bits: 64, .. } | Type::Pointer { .. });
        if wide {
            return Some(());
        }
        let is = describe(&at.ty, self.types);
        self.fail(Diagnostic::error(
            at.span,
            format!("an address is expected, and this is {is}"),
        ))
    }

    pub(super) fn arity(&mut self, signature: &Signature, given: usize, span: Span) -> Option<()> {
        let Signature {
            name,
            usage,
            least,
            most,
        } = signature;
        if (*least..=*most).contains(&given) {
            return Some(());
        }
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let takes = match (least, most) {
            (0, 0) => "no arguments".to_string(),
            (a, b) if a == b => format!("{a} argument{}", plural(*a)),
            (a, _) if given < *a => format!("at least {a} argument{}", plural(*a)),
            (_, b) => format!("at most {b} argument{}", plural(*b)),
        };
        self.fail(
            Diagnostic::error(span, format!("`{name}` takes {takes}, here are {given}"))
                .help(format!("write `{usage}`")),
        )
    }

    /// A call of what has no value, or is nothing.
    fn no_value(&mut self, name: &str, name_span: Span, span: Span) -> Option<Expr> {
        if let Some(s) = functions::TO_MAPS.iter().find(|s| s.name == name) {
            return self.fail(
                Diagnostic::error(
                    span,
                    format!("`{name}` is no value: what it counts is kept in a map"),
                )
                .help(format!("write `{}`", s.usage)),
            );
        }
        if functions::is_function(name) {
            return self.fail(Diagnostic::error(
                span,
                format!("`{name}` has no value: it is a statement"),
            ));
        }
        self.unknown_function(name, name_span)
    }

    pub(super) fn unknown_function<T>(&mut self, name: &str, span: Span) -> Option<T> {
        if let Some((_, help)) = functions::FOREIGN.iter().find(|(n, _)| *n == name) {
            let d = Diagnostic::error(span, format!("kerninst has no function `{name}`"));
            return self.fail(d.help(*help));
        }
        if functions::NAMES.contains(&name) {
            let d = Diagnostic::error(span, format!("`{name}` is no function"));
            return self.fail(d.help(format!("it is a word without brackets: `{name}`")));
        }
        self.fail(
            Diagnostic::error(span, format!("there is no function `{name}`"))
                .nearest(name, functions::names()),
        )
    }
}
