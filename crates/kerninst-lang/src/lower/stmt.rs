//! Statements.

use kerninst_snippet::Reg;
use kerninst_snippet::ir::{BinOp, Cond, Label, Op, Val};

use super::expr::width;
use super::words::Place;
use super::{Local, Lower, LowerError, Reason, Result};
use crate::hir::{Expr, ExprKind, Stmt, Type};
use crate::layout::{Loss, What};

impl Lower<'_> {
    /// Statements, one after the other.
    pub(super) fn block(&mut self, stmts: &[Stmt]) -> Result<()> {
        let span = self.clause.span;
        self.deeper(span, |l| {
            for stmt in stmts {
                let mark = l.code.mark();
                l.stmt(stmt)?;
                l.code.release(mark);
            }
            Ok(())
        })
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        let span = self.clause.span;
        match stmt {
            Stmt::SetLocal { local, value } => self.set_local(*local, value),
            Stmt::SetMap { map, key, value } => self.assign(*map, key, value),
            Stmt::Update { map, key, value } => self.update(*map, key, value.as_ref()),
            Stmt::Delete { map, key } => self.delete(*map, key),
            Stmt::Printf { format, args } => self.send(What::Printf(*format), args),
            Stmt::PrintValue(e) => self.send(What::PrintValue, std::slice::from_ref(e)),
            Stmt::PrintMap { map, top, div } => self.send(
                What::PrintMap {
                    map: *map,
                    top: *top,
                    div: *div,
                },
                &[],
            ),
            Stmt::Clear(map) => self.send(What::Clear(*map), &[]),
            Stmt::Zero(map) => self.send(What::Zero(*map), &[]),
            Stmt::Time(format) => self.send(What::Time(format.clone()), &[]),
            Stmt::Cat(file) => self.send(What::Cat(file.clone()), &[]),
            // As in bpftrace, and in clauses of user space, nothing of the clause comes after it.
            Stmt::Exit => {
                self.send(What::Exit, &[])?;
                self.code.end();
                Ok(())
            }
            Stmt::If { c, then, other } => self.choose(c, |l| l.block(then), |l| l.block(other)),
            Stmt::Repeat {
                local,
                from,
                to,
                rounds,
                body,
            } => self.repeat(*local, (from, to), *rounds, body),
            Stmt::While { c, rounds, body } => self.while_loop(c, *rounds, body),
            Stmt::Break => self.leave_loop(|(out, _)| out),
            Stmt::Continue => self.leave_loop(|(_, next)| next),
            Stmt::Done => {
                self.code.end();
                Ok(())
            }
            Stmt::Eval(e) if e.ty.is_word() => self.word(e).map(|_| ()),
            Stmt::Eval(e) if e.ty == Type::None => Ok(()),
            Stmt::Eval(e) => self.wide(e).map(|_| ()),
            Stmt::SetReg { reg, value } => {
                let value = self.word(value)?;
                let reg = Reg::new(*reg).filter(|r| *r != Reg::RSP);
                let reg = reg.ok_or(LowerError::new(span, Reason::Register))?;
                self.code.push(Op::SetReg { reg, value });
                Ok(())
            }
            Stmt::SetMemory {
                address,
                offset,
                bytes,
                value,
            } => {
                let at = self.word(address)?;
                let value = self.word(value)?;
                let width = width(bytes.saturating_mul(8));
                let (fault, done) = (self.code.label(), self.code.label());
                self.code.probe_store(at, *offset, width, value, fault);
                self.code.jump(done);
                self.code.place(fault);
                self.loss(Loss::Unreadable);
                self.code.place(done);
                Ok(())
            }
            Stmt::Return(value) => {
                let returns = self.session.facts.returns;
                if !self.at.entry {
                    return Err(LowerError::new(value.span, Reason::NotEntry));
                }
                if returns == 0 {
                    let reason = Reason::NoCallout("return VALUE");
                    return Err(LowerError::new(value.span, reason));
                }
                let value = self.word(value)?;
                let reg = Reg::RAX;
                self.code.push(Op::SetReg { reg, value });
                self.code.leave(returns);
                Ok(())
            }
            Stmt::Skip => match self.at.next {
                Some(next) => {
                    self.code.leave(next);
                    Ok(())
                }
                None => Err(LowerError::new(span, Reason::NoSkip)),
            },
        }
    }

    fn set_local(&mut self, local: u32, value: &Expr) -> Result<()> {
        match self.locals.get(local as usize).copied() {
            Some(Local::Word(to)) => {
                let value = self.word(value)?;
                self.code.copy(to, value);
                Ok(())
            }
            Some(Local::Frame { at, words }) => match &value.kind {
                // What may be read twice, by a key that the variable is in, is not read into it.
                ExprKind::Map { .. } | ExprKind::Choice { .. } | ExprKind::Cast(_) => {
                    let value = self.wide(value)?;
                    self.put(&value, Place::frame(at), words);
                    Ok(())
                }
                _ => self.wide_into(value, Place::frame(at), words),
            },
            _ => self.malformed(value, "no such variable"),
        }
    }

    fn repeat(
        &mut self,
        local: Option<u32>,
        (from, to): (&Expr, &Expr),
        rounds: u32,
        body: &[Stmt],
    ) -> Result<()> {
        if rounds == 0 {
            return Ok(());
        }
        let (out, next) = (self.code.label(), self.code.label());
        let Some(local) = local else {
            let round = self.code.repeat(rounds);
            self.in_loop((out, next), body)?;
            self.code.place(next);
            self.code.again(round);
            self.code.place(out);
            return Ok(());
        };
        let signed = matches!(from.ty, Type::Int { signed: true, .. });
        let past = if signed { Cond::GeS } else { Cond::GeU };
        let first = self.word(from)?;
        let end = self.word(to)?;
        // Whatever the body does to its variables, the loop goes on as it began.
        let i = self.code.variable(first);
        let end = match end {
            Val::Imm(_) => end,
            Val::V(_) => Val::V(self.code.variable(end)),
        };
        let round = self.code.repeat(rounds);
        self.code.branch(past, Val::V(i), end, out);
        match self.locals.get(local as usize) {
            Some(Local::Word(v)) => self.code.copy(*v, Val::V(i)),
            _ => return self.malformed(from, "no such variable"),
        }
        self.in_loop((out, next), body)?;
        self.code.place(next);
        self.code.change(i, BinOp::Add, Val::Imm(1));
        self.code.again(round);
        self.code.place(out);
        Ok(())
    }

    fn while_loop(&mut self, c: &Expr, rounds: u32, body: &[Stmt]) -> Result<()> {
        if rounds == 0 {
            return Ok(());
        }
        let (out, next) = (self.code.label(), self.code.label());
        let round = self.code.repeat(rounds);
        self.cond(c, false, out)?;
        self.in_loop((out, next), body)?;
        self.code.place(next);
        self.code.again(round);
        self.code.place(out);
        Ok(())
    }

    fn in_loop(&mut self, labels: (Label, Label), body: &[Stmt]) -> Result<()> {
        self.loops.push(labels);
        let result = self.block(body);
        self.loops.pop();
        result
    }

    fn leave_loop(&mut self, which: impl FnOnce((Label, Label)) -> Label) -> Result<()> {
        let Some(labels) = self.loops.last() else {
            let reason = Reason::Malformed("break outside of a loop");
            return Err(LowerError::new(self.clause.span, reason));
        };
        let to = which(*labels);
        self.code.jump(to);
        Ok(())
    }
}
