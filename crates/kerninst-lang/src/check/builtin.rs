//! Words: what the point, the task and the machine give, and constants of the kernel.

use super::Checker;
use super::expr::integer;
use super::functions;
use crate::ast::{PlaceKind, Tag};
use crate::diag::{Diagnostic, nearest};
use crate::hir::{Builtin, Expr, ExprKind, Pointee, Span, Type};
use crate::types::{Function, Shape, Types};

/// Frames of a stack if nothing is said.
const DEPTH: u8 = 32;

/// General registers by hardware number, with bpftrace's (the kernel's) names for them.
const REGISTERS: [(&str, &str); 16] = [
    ("rax", "ax"),
    ("rcx", "cx"),
    ("rdx", "dx"),
    ("rbx", "bx"),
    ("rsp", "sp"),
    ("rbp", "bp"),
    ("rsi", "si"),
    ("rdi", "di"),
    ("r8", "r8"),
    ("r9", "r9"),
    ("r10", "r10"),
    ("r11", "r11"),
    ("r12", "r12"),
    ("r13", "r13"),
    ("r14", "r14"),
    ("r15", "r15"),
];

/// Registers that arguments come in (System V ABI), for help.
const ARGUMENTS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];

impl Checker<'_> {
    /// A word alone.
    pub(super) fn name(&mut self, name: &str, span: Span) -> Option<Expr> {
        let give = |builtin, ty| {
            Some(Expr {
                kind: ExprKind::Builtin(builtin),
                ty,
                span,
            })
        };
        let id = Type::Int {
            bits: 32,
            signed: false,
        };
        match name {
            "pid" => give(Builtin::Pid, id),
            "tid" => give(Builtin::Tid, id),
            "cpu" => give(Builtin::Cpu, id),
            "nsecs" => give(Builtin::Nsecs, Type::U64),
            "elapsed" => give(Builtin::Elapsed, Type::U64),
            "comm" => give(Builtin::Comm, Type::Str(16)),
            "true" => Some(integer(1, span)),
            "false" | "NULL" => Some(integer(0, span)),
            "func" | "probe" | "ip" | "curtask" | "kstack" | "ustack" => {
                self.kernel_only(span, &format!("`{name}`"))?;
                match name {
                    "func" => give(Builtin::Func, Type::Name),
                    "probe" => give(Builtin::Probe, Type::Name),
                    "ip" => give(Builtin::Ip, Type::Symbol),
                    "kstack" => give(Builtin::KernelStack(DEPTH), Type::KernelStack),
                    "ustack" => give(Builtin::UserStack(DEPTH), Type::UserStack),
                    _ => {
                        let to = match self.find_type(Tag::Struct, "task_struct") {
                            Some(id) => Pointee::Btf(id),
                            None => Pointee::Void,
                        };
                        give(Builtin::CurTask, Type::Pointer { to, user: false })
                    }
                }
            }
            "retval" => self.retval(span),
            "callee" => {
                self.needs_kind(
                    PlaceKind::Call,
                    span,
                    "`callee`",
                    "write `call:FUNCTION->*`",
                )?;
                give(Builtin::Callee, Type::Symbol)
            }
            "caller" => {
                self.needs_kind(
                    PlaceKind::Entry,
                    span,
                    "`caller`",
                    "the stack tells it anywhere: `kstack(2)`",
                )?;
                give(Builtin::Caller, Type::Symbol)
            }
            "args" => self.fail(
                Diagnostic::error(span, "`args` alone is no value").help("write `args.NAME`"),
            ),
            _ => match name.strip_prefix("arg").and_then(|n| n.parse::<u32>().ok()) {
                Some(n) => self.arg(n, span),
                None => self.other_name(name, span),
            },
        }
    }

    /// A constant of the kernel, or a word that nobody knows.
    fn other_name(&mut self, name: &str, span: Span) -> Option<Expr> {
        if let Some(v) = self.constant_named(name) {
            return Some(match u64::try_from(v) {
                Ok(v) => integer(v, span),
                Err(_) => super::expr::constant(v as i64 as u64, span),
            });
        }
        let mut d = Diagnostic::error(span, format!("there is nothing called `{name}`"));
        if let Some((_, help)) = functions::FOREIGN_NAMES.iter().find(|(n, _)| *n == name) {
            d = Diagnostic::error(span, format!("kerninst has no `{name}`")).help(*help);
        } else if functions::is_function(name) || super::survey::AGGREGATIONS.contains(&name) {
            d = d.help(format!(
                "it is a function: `{name}(...)`; text goes between double quotes: `\"{name}\"`"
            ));
        } else if let Some(near) = nearest(name, functions::NAMES) {
            d = d.help(format!("did you mean `{near}`?"));
        } else {
            let names = self.types.constant_names();
            d = d.nearest(name, names.iter().map(String::as_str));
            if d.help.is_empty() {
                d = d.help("variables begin with `$`, maps with `@`, texts are in double quotes");
            }
        }
        self.fail(d)
    }

    /// `argN`.
    fn arg(&mut self, n: u32, span: Span) -> Option<Expr> {
        let Some(register) = ARGUMENTS.get(n as usize) else {
            return self.fail(
                Diagnostic::error(
                    span,
                    format!("there is no `arg{n}`: arguments from the seventh on are on the stack"),
                )
                .help("`arg0` to `arg5` are the first six"),
            );
        };
        let help = format!(
            "elsewhere registers are read by name, `reg(\"{register}\")`, or keep it from the entry in a map: `@a[tid] = arg{n}`"
        );
        self.needs_kind(PlaceKind::Entry, span, &format!("`arg{n}`"), &help)?;
        let types = self.types;
        let known = self.context()?.agreed(|f| {
            let (_, ty) = f.params.get(parameter_in(f, types, n)?)?;
            Some((types.type_name(*ty), *ty))
        });
        let raw = Expr {
            kind: ExprKind::Builtin(Builtin::Arg(n as u8)),
            ty: Type::U64,
            span,
        };
        let typed = known.and_then(|(_, ty)| self.typed(raw.clone(), ty));
        Some(typed.unwrap_or(raw))
    }

    /// `args.NAME`.
    pub(super) fn arg_named(&mut self, name: &str, name_span: Span, span: Span) -> Option<Expr> {
        let help = format!("keep it from the entry in a map: `@a[tid] = args.{name}`");
        self.needs_kind(PlaceKind::Entry, span, "`args`", &help)?;
        let context = self.context()?.clone();
        if let Some(probe) = context.open {
            return self.fail(
                Diagnostic::error(span, "`args` needs to know the function")
                    .note(probe, "this can be any of several")
                    .help("name the functions, or use `arg0` to `arg5`"),
            );
        }
        let mut found: Option<(u32, u32, String)> = None;
        for (function, prototype) in &context.functions {
            let Some(f) = prototype else {
                let d = Diagnostic::error(
                    span,
                    format!("the kernel's types do not tell the arguments of `{function}`"),
                );
                return self.fail(d.help("use `arg0` to `arg5`, and casts"));
            };
            let Some(index) = f.params.iter().position(|(n, _)| n == name) else {
                let names = f.params.iter().map(|(n, _)| n.as_str());
                let all: Vec<&str> = names.clone().collect();
                let d =
                    Diagnostic::error(name_span, format!("`{function}` has no argument `{name}`"));
                let d = match nearest(name, names) {
                    Some(near) => d.help(format!("did you mean `{near}`?")),
                    None if all.is_empty() => d.help("it has none"),
                    None => d.help(format!("it has {}", all.join(", "))),
                };
                return self.fail(d);
            };
            let ty = f.params.get(index).map(|p| p.1)?;
            let Some(register) = register_of(f, self.types, index) else {
                let d = Diagnostic::error(
                    name_span,
                    format!("`{name}` of `{function}` is not in one register"),
                );
                return self.fail(d.help(
                    "it is on the stack, or a structure: `reg(\"rsp\")` and casts reach it",
                ));
            };
            let this = (register, ty, self.types.type_name(ty));
            match &found {
                None => found = Some(this),
                Some((r, _, t)) if *r == this.0 && *t == this.2 => {}
                Some((_, _, t)) => {
                    let (a, b) = (t.clone(), this.2);
                    let message = if a == b {
                        format!("`{name}` is not the same argument of all functions of this clause")
                    } else {
                        format!(
                            "`{name}` is `{a}` in one function of this clause, `{b}` in `{function}`"
                        )
                    };
                    return self.fail(
                        Diagnostic::error(name_span, message).help("write a clause for each"),
                    );
                }
            }
        }
        let (register, ty, type_name) = found?;
        let raw = Expr {
            kind: ExprKind::Builtin(Builtin::Arg(register as u8)),
            ty: Type::U64,
            span,
        };
        match self.typed(raw, ty) {
            Some(e) => Some(e),
            None => self.fail(Diagnostic::error(
                span,
                format!("a value cannot be `{type_name}`"),
            )),
        }
    }

    fn retval(&mut self, span: Span) -> Option<Expr> {
        self.needs_kind(PlaceKind::Exit, span, "`retval`", "write `exit:FUNCTION`")?;
        let types = self.types;
        let known = self
            .context()?
            .agreed(|f| Some((types.type_name(f.returns), f.returns)));
        let raw = Expr {
            kind: ExprKind::Builtin(Builtin::RetVal),
            ty: Type::U64,
            span,
        };
        match known {
            Some((_, ty)) if types.shape(ty) == Shape::Void => {
                self.fail(Diagnostic::error(span, "the function returns nothing"))
            }
            Some((_, ty)) => Some(self.typed(raw.clone(), ty).unwrap_or(raw)),
            None => Some(raw),
        }
    }

    /// What a register holds, as a type of the kernel: of narrower integers the upper bits are anything (System V ABI).
    fn typed(&self, raw: Expr, ty: u32) -> Option<Expr> {
        match self.types.shape(ty) {
            Shape::Int { bits, signed, .. } => {
                let ty = Type::Int { bits, signed };
                if bits == 64 {
                    return Some(Expr { ty, ..raw });
                }
                Some(Expr {
                    span: raw.span,
                    ty,
                    kind: ExprKind::Cast(raw.into()),
                })
            }
            Shape::Pointer(to) => Some(Expr {
                ty: Type::Pointer {
                    to: self.pointee(to),
                    user: false,
                },
                ..raw
            }),
            _ => None,
        }
    }

    /// The number of a register by name; `None` of `ip`.
    pub(super) fn register(&mut self, name: &str, span: Span) -> Option<Option<u8>> {
        if matches!(name, "rip" | "ip") {
            return Some(None);
        }
        if let Some(n) = REGISTERS.iter().position(|(a, b)| *a == name || *b == name) {
            return Some(Some(n as u8));
        }
        let d = Diagnostic::error(span, format!("there is no register `{name}`"));
        // Halves are told apart from what is only misspelt: `eax` is near to `rax` either way.
        let near = nearest(name, REGISTERS.iter().map(|(a, _)| *a));
        self.fail(match near {
            Some(near) => d.help(format!(
                "did you mean `{near}`? narrower parts are casts: `(uint32)reg(\"{near}\")`"
            )),
            None => d.help("there are rax rbx rcx rdx rsi rdi rbp rsp r8 to r15 and rip"),
        })
    }
}

/// How many registers a parameter takes; `None`: it is on the stack in any case (System V ABI, 3.2.3).
fn registers(types: &dyn Types, ty: u32) -> Option<u32> {
    match types.shape(ty) {
        Shape::Int { .. } | Shape::Pointer(_) => Some(1),
        _ => match types.size(ty)? {
            0..=8 => Some(1),
            9..=16 => Some(2),
            _ => None,
        },
    }
}

/// The register, by order, that holds all of a parameter.
fn register_of(f: &Function, types: &dyn Types, index: usize) -> Option<u32> {
    let mut next = 0;
    for (i, (_, ty)) in f.params.iter().enumerate() {
        let takes = registers(types, *ty).filter(|n| next + n <= 6);
        if i == index {
            return (takes == Some(1)).then_some(next);
        }
        next += takes.unwrap_or(0);
    }
    None
}

/// The parameter that a register, by order, holds all of.
fn parameter_in(f: &Function, types: &dyn Types, register: u32) -> Option<usize> {
    (0..f.params.len()).find(|i| register_of(f, types, *i) == Some(register))
}
