//! Assignments: to variables, maps, registers and memory.

use super::Checker;
use super::convert::{convert, describe};
use super::expr::constant;
use super::place::{Place, is_place};
use super::survey::aggregation;
use crate::ast::{self, ExprKind as Ast};
use crate::diag::Diagnostic;
use crate::hir::{Binary, Builtin, Expr, ExprKind, Span, Stmt, Type};
use crate::types::Shape;

impl Checker<'_> {
    /// `to = value`, `to op= value`.
    pub(super) fn assign(
        &mut self,
        to: &ast::Expr,
        op: Option<Binary>,
        value: &ast::Expr,
        span: Span,
    ) -> Option<Stmt> {
        match &to.kind {
            Ast::Map { name, key } => {
                let map = self.map_number(name)?;
                match (aggregation(value), op) {
                    (Some((function, args)), None) => {
                        self.aggregate(map, key, function, args, to.span, value.span)
                    }
                    _ => {
                        let value = self.value(value);
                        let key = self.map_key(map, key, to.span);
                        self.assign_map(map, key?, op, value?, to.span, span)
                    }
                }
            }
            Ast::Local(name) => {
                let value = self.value(value)?;
                let local = self.local(name, to.span)?;
                self.assign_local(local, op, value, to.span, span)
            }
            Ast::Call { name, args, .. } if name == "reg" => {
                self.assign_register(args, op, value, to.span)
            }
            _ if is_place(to) => self.assign_memory(to, op, value, span),
            _ => self.not_assignable(to),
        }
    }

    /// `to++`, `to--`.
    pub(super) fn step(&mut self, to: &ast::Expr, up: bool, span: Span) -> Option<Stmt> {
        let op = if up { Binary::Add } else { Binary::Sub };
        let one = constant(1, span);
        match &to.kind {
            Ast::Map { name, key } => {
                let map = self.map_number(name)?;
                let key = self.map_key(map, key, to.span)?;
                self.assign_map(map, key, Some(op), one, to.span, span)
            }
            Ast::Local(name) => {
                let local = self.local(name, to.span)?;
                self.assign_local(local, Some(op), one, to.span, span)
            }
            _ => {
                let one = ast::Expr {
                    kind: Ast::Int(1),
                    span,
                    depth: 1,
                };
                self.assign(to, Some(op), &one, span)
            }
        }
    }

    fn not_assignable<T>(&mut self, to: &ast::Expr) -> Option<T> {
        self.fail(
            Diagnostic::error(to.span, "this cannot be assigned to")
                .help("variables begin with `$`, maps with `@`"),
        )
    }

    fn assign_local(
        &mut self,
        local: u32,
        op: Option<Binary>,
        value: Expr,
        to_span: Span,
        span: Span,
    ) -> Option<Stmt> {
        let value = match op {
            None => value,
            Some(op) => {
                let ty = self.local_type(local);
                // What is only ever stepped is a number.
                let ty = match ty {
                    Some(ty) => ty,
                    None => self.local_takes(local, &value)?,
                };
                let old = Expr {
                    kind: ExprKind::Local(local),
                    ty,
                    span: to_span,
                };
                self.operate(op, old, value, span)?
            }
        };
        let ty = self.local_takes(local, &value)?;
        let value = convert(value, &ty);
        Some(Stmt::SetLocal { local, value })
    }

    fn local_type(&self, local: u32) -> Option<Type> {
        self.locals
            .get(self.clause)?
            .get(local as usize)?
            .ty
            .clone()
    }

    /// `reg("rax") = e`.
    fn assign_register(
        &mut self,
        args: &[ast::Expr],
        op: Option<Binary>,
        value: &ast::Expr,
        span: Span,
    ) -> Option<Stmt> {
        self.needs_unsafe(span, "changing a register")?;
        let [name] = args else {
            return self.fail(Diagnostic::error(
                span,
                "`reg` takes the name of a register",
            ));
        };
        let text = self.constant_text(name, "the name of a register")?;
        let reg = match self.register(&text, name.span)? {
            None => {
                return self.fail(
                    Diagnostic::error(name.span, "the instruction pointer cannot be assigned to")
                        .help("`skip()` at an insn: probe jumps over the instruction"),
                );
            }
            Some(4) => {
                return self.fail(Diagnostic::error(
                    name.span,
                    "the stack pointer cannot be assigned to",
                ));
            }
            Some(reg) => reg,
        };
        let value = self.number(value, "the value of a register")?;
        let value = match op {
            None => value,
            Some(op) => {
                let old = Expr {
                    kind: ExprKind::Builtin(Builtin::Reg(reg)),
                    ty: Type::U64,
                    span,
                };
                self.operate(op, old, value, span)?
            }
        };
        Some(Stmt::SetReg { reg, value })
    }

    /// `*p = e`, `p->m = e`.
    fn assign_memory(
        &mut self,
        to: &ast::Expr,
        op: Option<Binary>,
        value: &ast::Expr,
        span: Span,
    ) -> Option<Stmt> {
        let allowed = self.needs_unsafe(to.span, "writing to memory of the kernel");
        let (place, value) = (self.place(to), self.number(value, "what is written"));
        let (place, value): (Place, Expr) = (place?, value?);
        allowed?;
        let bytes = match self.shape_of(&place.ty) {
            Shape::Int { bits, .. } if place.bits.is_none() => bits / 8,
            Shape::Pointer(_) => 8,
            Shape::Int { .. } => {
                return self.fail(
                    Diagnostic::error(to.span, "a bit field cannot be written alone")
                        .help("write the whole word: `*(uint32 *)p = e`"),
                );
            }
            _ => {
                return self.fail(Diagnostic::error(
                    to.span,
                    "only integers and pointers can be written",
                ));
            }
        };
        if place.user {
            return self.fail(Diagnostic::error(
                to.span,
                "memory of the program cannot be written",
            ));
        }
        let value = match op {
            None => value,
            Some(op) => {
                let old = self.load(place.clone())?;
                self.operate(op, old, value, span)?
            }
        };
        let Ok(offset) = i32::try_from(place.offset) else {
            return self.fail(Diagnostic::error(
                to.span,
                "the member is more than 2 GiB away",
            ));
        };
        if !value.ty.is_word() {
            let is = describe(&value.ty, self.types);
            return self.fail(Diagnostic::error(
                value.span,
                format!("{is} cannot be written"),
            ));
        }
        Some(Stmt::SetMemory {
            address: place.base,
            offset,
            bytes,
            value,
        })
    }
}
