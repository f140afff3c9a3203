//! Events: a record is reserved, filled, and published by its first word.

use kerninst_snippet::ir::{Base, BinOp, Cond, Label, Op, Val};

use super::aggregate::SWAPS;
use super::words::Place;
use super::{Lower, LowerError, Reason, Result};
use crate::hir::{Expr, ExprKind, Span, Type};
use crate::layout::{Event, Loss, MAX_RECORD, RingPlace, What, cursor, record};

/// A value of a record.
enum Arg<'e> {
    /// Known before the record is reserved.
    Word(Val),
    /// A text whose address is: it is written into the record by the callout.
    At(&'e Expr, Val),
    /// What is put together in the record.
    Wide(&'e Expr),
}

impl Lower<'_> {
    /// Sends an event with these values.
    pub(super) fn send(&mut self, what: What, args: &[Expr]) -> Result<()> {
        let span = args.first().map_or(self.clause.span, |e| e.span);
        let types: Vec<Type> = args.iter().map(|e| e.ty.clone()).collect();
        let size = types
            .iter()
            .fold(record::HEADER, |sum, ty| sum.saturating_add(ty.size()));
        if size > MAX_RECORD {
            return Err(LowerError::new(span, Reason::Record));
        }
        let event = Event { what, args: types };
        let number = self
            .events
            .add(event)
            .ok_or(LowerError::new(span, Reason::Events))?;
        let values = args
            .iter()
            .map(|e| match &e.kind {
                _ if e.ty.is_word() => Ok(Arg::Word(self.word(e)?)),
                ExprKind::Str { at } | ExprKind::Buf { at } => Ok(Arg::At(e, self.word(at)?)),
                _ => Ok(Arg::Wide(e)),
            })
            .collect::<Result<Vec<_>>>()?;

        let out = self.code.label();
        let (cpu, to) = self.reserve(size, span, out)?;
        let clock = self.code.reg();
        self.code.push(Op::Clock { to: clock });
        self.code.store(Base::At(to), 8, Val::V(clock));
        // A value that cannot be had makes the record void: what is reserved must be published.
        let void = self.code.label();
        let outer = self.drop.replace(void);
        let mut at = Place::at(to, record::HEADER as i32);
        for value in values {
            let words = match value {
                Arg::Word(value) => {
                    self.code.store(at.base, at.offset, value);
                    1
                }
                Arg::At(e, from) => {
                    let words = e.ty.size() / 8;
                    self.fetch(e, from, at, words)?;
                    words
                }
                Arg::Wide(e) => {
                    let words = e.ty.size() / 8;
                    self.wide_into(e, at, words)?;
                    words
                }
            };
            at = at.word(words);
        }
        self.drop = outer;
        self.publish_record(cpu, to, number, size);
        self.code.jump(out);
        self.code.place(void);
        self.publish_record(cpu, to, record::VOID, size);
        self.give_up();
        self.code.place(out);
        Ok(())
    }

    /// Takes room from this CPU's buffer: the CPU, and the record's address. Without room goes to `out`, and counts it.
    fn reserve(&mut self, size: u32, span: Span, out: Label) -> Result<(Val, Val)> {
        let ring: RingPlace = self.session.places.ring;
        if ring.area == 0 || ring.bytes < size || !ring.bytes.is_power_of_two() {
            return Err(LowerError::new(span, Reason::NoRing));
        }
        let cpu = self.cpu();
        let own = self
            .code
            .bin(BinOp::Mul, cpu, Val::Imm(u64::from(cursor::SIZE)));
        let own = self.code.bin(BinOp::Add, own, Val::Imm(ring.area));
        let at = Base::At(own);
        let [room, got, retry] = [(); 3].map(|()| self.code.label());
        let round = self.code.repeat(SWAPS);
        // The head first: if there is no room then for this head, there was none. (If the tail is beyond it, it is old.)
        let head = self.code.word(at, cursor::HEAD as i32);
        let tail = self.code.word(at, cursor::TAIL as i32);
        let used = self.code.bin(BinOp::Sub, head, tail);
        let limit = Val::Imm(u64::from(ring.bytes - size));
        self.code.branch(Cond::LeU, used, limit, room);
        self.code.branch(Cond::LtS, used, Val::Imm(0), retry);
        self.loss(Loss::Events);
        self.code.jump(out);
        self.code.place(room);
        let new = self.code.bin(BinOp::Add, head, Val::Imm(u64::from(size)));
        self.code.swap(at, cursor::HEAD as i32, head, new, retry);
        self.code.jump(got);
        self.code.place(retry);
        self.code.again(round);
        self.loss(Loss::Contended);
        self.code.jump(out);
        self.code.place(got);
        let position = self
            .code
            .bin(BinOp::And, head, Val::Imm(u64::from(ring.bytes - 1)));
        let stride = Val::Imm(ring.buffer(1).saturating_sub(ring.buffer(0)));
        let buffer = self.code.bin(BinOp::Mul, cpu, stride);
        let buffer = self.code.bin(
            BinOp::Add,
            buffer,
            Val::Imm(ring.area.wrapping_add(ring.buffer(0))),
        );
        let to = self.code.bin(BinOp::Add, buffer, position);
        Ok((cpu, to))
    }

    /// Writes the head: from now on the record is the reader's.
    fn publish_record(&mut self, cpu: Val, to: Val, number: u16, size: u32) {
        let known = record::PUBLISHED | u64::from(number) << 16 | u64::from(size);
        let cpu = self.code.bin(BinOp::Shl, cpu, Val::Imm(32));
        let head = self.code.bin(BinOp::Or, cpu, Val::Imm(known));
        self.code.store(Base::At(to), 0, head);
    }
}
