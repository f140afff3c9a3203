//! `count`, `sum`, `avg`, `stats`, `hist`, `lhist`, `min`, `max`.

use kerninst_snippet::ir::{Base, BinOp, Cond, Op, Val};

use super::{Lower, LowerError, Reason, Result};
use crate::hir::{Expr, Map, MapValue, Type};
use crate::layout::{Loss, Shape, lhist_buckets, rank, state};

/// So often a compare-and-swap is tried again: that others come first as often is no accident.
pub(super) const SWAPS: u32 = 32;

impl Lower<'_> {
    /// `@x[key] = count()` and so on.
    pub(super) fn update(&mut self, map: u32, key: &[Expr], value: Option<&Expr>) -> Result<()> {
        let (map, place) = self.map(map)?;
        let shape = Shape::of(map);
        let signed = value.is_none_or(|e| matches!(e.ty, Type::Int { signed: true, .. }));
        let key = self.key(map, key)?;
        let value = match value {
            Some(e) => self.word(e)?,
            None => Val::Imm(1),
        };
        let done = self.code.label();
        match map.value {
            MapValue::Plain(_) => {
                let reason = Reason::Malformed("an update of a plain map");
                return Err(LowerError::new(self.clause.span, reason));
            }
            MapValue::Min { signed } | MapValue::Max { signed } => {
                let max = matches!(map.value, MapValue::Max { .. });
                let ranked = self
                    .code
                    .bin(BinOp::Xor, value, Val::Imm(rank(0, max, signed)));
                let entry = if map.key.is_empty() {
                    Val::Imm(place.table)
                } else {
                    self.entry_to_keep(&key, place, shape, done)
                };
                self.raise(entry, shape, ranked, done);
            }
            _ => {
                let cells = if map.key.is_empty() {
                    Val::Imm(place.cells)
                } else {
                    let entry = self.entry_to_keep(&key, place, shape, done);
                    self.code.word(Base::At(entry), value_offset(shape))
                };
                self.add(map, cells, value, signed);
            }
        }
        self.code.place(done);
        Ok(())
    }

    /// Adds to the cells of an entry, on whatever CPU each addition is.
    fn add(&mut self, map: &Map, cells: Val, value: Val, signed: bool) {
        match map.value {
            MapValue::Avg { .. } | MapValue::Stats { .. } => {
                self.add_to(cells, Val::Imm(1));
                let sum = self.code.bin(BinOp::Add, cells, Val::Imm(8));
                self.add_to(sum, value);
            }
            MapValue::Hist => {
                let bucket = self.bucket(value, signed);
                self.add_to_bucket(cells, bucket);
            }
            MapValue::LHist { min, max, step } => {
                let bucket = self.linear_bucket(value, signed, (min, max, step));
                self.add_to_bucket(cells, bucket);
            }
            _ => self.add_to(cells, value),
        }
    }

    fn add_to(&mut self, pointer: Val, value: Val) {
        self.code.push(Op::CpuAdd { pointer, value });
    }

    fn add_to_bucket(&mut self, cells: Val, bucket: Val) {
        let offset = self.code.bin(BinOp::Mul, bucket, Val::Imm(8));
        let cell = self.code.bin(BinOp::Add, offset, cells);
        self.add_to(cell, Val::Imm(1));
    }

    /// The bucket of `hist`: 0 of negative values, 1 of 0, then by the highest bit.
    fn bucket(&mut self, value: Val, signed: bool) -> Val {
        let bucket = self.code.variable(Val::Imm(0));
        let done = self.code.label();
        if signed {
            self.code.branch(Cond::LtS, value, Val::Imm(0), done);
        }
        let high = self.code.high_bit(value);
        let some = self.code.set(Cond::Ne, value, Val::Imm(0));
        let sum = self.code.bin(BinOp::Add, high, some);
        let sum = self.code.bin(BinOp::Add, sum, Val::Imm(1));
        self.code.copy(bucket, sum);
        self.code.place(done);
        Val::V(bucket)
    }

    /// The bucket of `lhist`.
    fn linear_bucket(
        &mut self,
        value: Val,
        signed: bool,
        (min, max, step): (i64, i64, i64),
    ) -> Val {
        let buckets = lhist_buckets(min, max, step);
        let step = step.max(1);
        // Not more than there are buckets for.
        let end = i128::from(min) + i128::from(step) * i128::from(buckets.saturating_sub(2));
        let end = i64::try_from(end).unwrap_or(i64::MAX).min(max);
        let last = Val::Imm(u64::from(buckets.saturating_sub(1)));
        let bucket = self.code.variable(last);
        let done = self.code.label();
        if !signed {
            // More than any upper end.
            self.code.branch(Cond::LtS, value, Val::Imm(0), done);
        }
        self.code
            .branch(Cond::GeS, value, Val::Imm(end as u64), done);
        self.code.copy(bucket, Val::Imm(0));
        self.code
            .branch(Cond::LtS, value, Val::Imm(min as u64), done);
        let above = self.code.bin(BinOp::Sub, value, Val::Imm(min as u64));
        let n = self.code.bin(BinOp::DivU, above, Val::Imm(step as u64));
        let n = self.code.bin(BinOp::Add, n, Val::Imm(1));
        self.code.copy(bucket, n);
        self.code.place(done);
        Val::V(bucket)
    }

    /// Makes the entry's ranked value the larger of it and this one.
    fn raise(&mut self, entry: Val, shape: Shape, value: Val, lost: kerninst_snippet::ir::Label) {
        let at = Base::At(entry);
        let offset = value_offset(shape);
        let (large, retry) = (self.code.label(), self.code.label());
        let round = self.code.repeat(SWAPS);
        let have = self.code.word(at, offset);
        self.code.branch(Cond::GeU, have, value, large);
        self.code.swap(at, offset, have, value, retry);
        self.code.jump(large);
        self.code.place(retry);
        self.code.again(round);
        self.loss(Loss::Contended);
        self.code.jump(lost);
        self.code.place(large);
        // Whatever was there, or was cleared: now there is something. Whoever clears it at this moment does so after this.
        let there = self.code.label();
        let s = self.code.word(at, 0);
        let low = self.code.bin(BinOp::And, s, Val::Imm(3));
        if shape.key == 0 {
            self.code
                .branch(Cond::Eq, low, Val::Imm(state::THERE), there);
            self.code.store(at, 0, Val::Imm(state::THERE));
        } else {
            // One that is still being written is somebody else's to publish.
            self.code
                .branch(Cond::Ne, low, Val::Imm(state::DELETED), there);
            let new = self.code.bin(BinOp::Xor, s, Val::Imm(1));
            self.code.swap(at, 0, s, new, there);
        }
        self.code.place(there);
    }
}

/// Offset of an entry's value, or of the pointer of its cells.
pub(super) fn value_offset(shape: Shape) -> i32 {
    i32::try_from(shape.value_at().saturating_mul(8)).unwrap_or(i32::MAX)
}
