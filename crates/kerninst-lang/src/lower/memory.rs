//! Reads of memory that may not be there.

use kerninst_snippet::ir::{Base, BinOp, Cond, Label, V, Val, Width};

use super::expr::width;
use super::{Lower, Result};
use crate::hir::{Expr, ExprKind};
use crate::layout::Loss;

impl Lower<'_> {
    /// The value of a `Load`; 0, and counted once, if it, or another that its address comes from, cannot be read.
    pub(super) fn read(&mut self, e: &Expr) -> Result<Val> {
        let value = self.code.reg();
        let fault = self.code.label();
        let done = self.code.label();
        self.read_into(e, value, fault)?;
        self.code.jump(done);
        self.code.place(fault);
        self.loss(Loss::Unreadable);
        self.code.copy(value, Val::Imm(0));
        self.code.place(done);
        Ok(Val::V(value))
    }

    fn read_into(&mut self, e: &Expr, value: V, fault: Label) -> Result<()> {
        let ExprKind::Load {
            address,
            offset,
            bytes,
            signed,
            bits,
            user,
        } = &e.kind
        else {
            return self.malformed(e, "no read");
        };
        let at = match &address.kind {
            ExprKind::Load { .. } => {
                self.deeper(e.span, |l| l.read_into(address, value, fault))?;
                Val::V(value)
            }
            _ => self.word(address)?,
        };
        let how = (width(bytes.saturating_mul(8)), *signed && bits.is_none());
        if *user {
            self.read_user(e, at, *offset, how, value, fault)?;
        } else {
            self.code.probe(value, at, *offset, how, fault);
        }
        if let Some((low, count)) = *bits {
            let count = count.clamp(1, 64);
            let above = 64_u8.saturating_sub(low).saturating_sub(count);
            let shift = if *signed { BinOp::Sar } else { BinOp::Shr };
            if above > 0 {
                self.code
                    .change(value, BinOp::Shl, Val::Imm(u64::from(above)));
            }
            self.code
                .change(value, shift, Val::Imm(u64::from(64 - count)));
        }
        Ok(())
    }

    /// The task's own memory is read by a callout, which waits for nothing: a page that is not there is a fault.
    fn read_user(
        &mut self,
        e: &Expr,
        at: Val,
        offset: i32,
        (width, signed): (Width, bool),
        value: V,
        fault: Label,
    ) -> Result<()> {
        let function = self.callout(
            self.session.facts.callouts.bytes,
            "reading the task's memory",
            e.span,
        )?;
        let from = self
            .code
            .bin(BinOp::Add, at, Val::Imm(i64::from(offset) as u64));
        let mark = self.code.mark();
        let frame = self.code.scratch(1);
        let to = self.code.frame_address(frame);
        let size = Val::Imm(u64::from(width.bytes()));
        let result = self.code.call(function, vec![to, from, size]);
        let there = self.code.label();
        self.code.branch(Cond::GeS, result, Val::Imm(0), there);
        self.unless_nested(result);
        self.code.jump(fault);
        self.code.place(there);
        let read = self.code.load(Base::Frame, frame as i32, width, signed);
        self.code.copy(value, read);
        self.code.release(mark);
        Ok(())
    }

    /// Reads kernel memory; 0, and counted, if it cannot be read.
    pub(super) fn probe_or_zero(
        &mut self,
        at: Val,
        offset: i32,
        width: Width,
        signed: bool,
    ) -> Val {
        let value = self.code.reg();
        let fault = self.code.label();
        let done = self.code.label();
        self.code.probe(value, at, offset, (width, signed), fault);
        self.code.jump(done);
        self.code.place(fault);
        self.loss(Loss::Unreadable);
        self.code.copy(value, Val::Imm(0));
        self.code.place(done);
        Val::V(value)
    }
}
