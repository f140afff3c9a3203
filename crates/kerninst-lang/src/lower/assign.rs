//! Assignments to maps: see [`super::plain`] for how.

use kerninst_snippet::ir::{Base, BinOp, Cond, V, Val};

use super::aggregate::value_offset;
use super::plain::{Plain, ROUNDS};
use super::wide::Wide;
use super::words::Place;
use super::{Lower, Result};
use crate::hir::Expr;
use crate::layout::{Loss, Shape, TRIES, state};

/// A value to write.
enum New {
    Word(Val),
    Wide(Wide),
}

impl Lower<'_> {
    /// `@x[key] = value`.
    pub(super) fn assign(&mut self, map: u32, key: &[Expr], value: &Expr) -> Result<()> {
        let (map, place) = self.map(map)?;
        let new = if self.plain_type(map)?.is_word() {
            New::Word(self.word(value)?)
        } else {
            New::Wide(self.wide(value)?)
        };
        let plain = self.plain(map, place, key)?;
        match (&new, map.key.is_empty()) {
            (New::Word(value), true) => {
                let entry = Base::At(Val::Imm(place.table));
                self.code.store(entry, value_offset(plain.shape), *value);
                self.code.store(entry, 0, Val::Imm(state::THERE));
            }
            (_, true) => self.assign_single(&plain, &new),
            _ => self.assign_keyed(&plain, &new),
        }
        Ok(())
    }

    /// Claims the only entry and writes it.
    fn assign_single(&mut self, plain: &Plain, new: &New) {
        let entry = Val::Imm(plain.place.table);
        let at = Base::At(entry);
        let (done, retry) = (self.code.label(), self.code.label());
        let all = self.code.repeat(ROUNDS);
        let s = self.code.word(at, 0);
        let low = self.code.bin(BinOp::And, s, Val::Imm(3));
        self.code
            .branch(Cond::Eq, low, Val::Imm(state::BUSY), retry);
        let times = self.code.bin(BinOp::And, s, Val::Imm(state::TIMES));
        let busy = self.code.bin(BinOp::Or, times, Val::Imm(state::BUSY));
        self.code.swap(at, 0, s, busy, retry);
        self.write_value(entry, plain.shape, new);
        self.publish(entry, times, Val::Imm(0));
        self.code.jump(done);
        self.code.place(retry);
        self.code.again(all);
        self.loss(Loss::Contended);
        self.code.place(done);
    }

    fn assign_keyed(&mut self, plain: &Plain, new: &New) {
        let none = Val::Imm(0);
        let tag = self.tag(plain.hash);
        // The entry that is claimed, and how often it was taken before.
        let mine = self.code.variable(none);
        let times = self.code.variable(none);
        let free = self.code.reg();
        let free_state = self.code.reg();
        let [done, publish, busy, retry] = [(); 4].map(|()| self.code.label());
        let [unused, end, next, here, taken] = [(); 5].map(|()| self.code.label());
        let all = self.code.repeat(ROUNDS);
        self.code.copy(free, none);
        self.code.copy(free_state, none);
        let walk = self.walk(
            plain.hash,
            plain.place,
            plain.shape,
            TRIES.min(plain.place.capacity),
        );
        let at = Base::At(walk.entry);
        let s = self.code.word(at, 0);
        self.code.branch(Cond::Eq, s, none, unused);
        self.code.branch(Cond::Eq, walk.entry, Val::V(mine), next);
        let low = self.code.bin(BinOp::And, s, Val::Imm(3));
        self.code
            .branch(Cond::Ne, low, Val::Imm(state::DELETED), here);
        self.code.branch(Cond::Ne, Val::V(free), none, next);
        self.code.copy(free, walk.entry);
        self.code.copy(free_state, s);
        self.code.jump(next);
        self.code.place(here);
        self.match_entry(plain, walk, s, next, busy);
        self.code.jump(taken);
        self.code.place(next);
        self.next_entry(walk);
        self.code.jump(end);

        // The key has its entry: whoever has it being written may write it.
        self.code.place(taken);
        self.give_back(mine, times, tag);
        let now = self.code.bin(BinOp::And, s, Val::Imm(state::TIMES));
        self.code.copy(times, now);
        let writing = self.code.bin(BinOp::Xor, s, Val::Imm(3));
        self.code.swap(at, 0, s, writing, retry);
        self.code.copy(mine, walk.entry);
        self.write_value(Val::V(mine), plain.shape, new);
        self.publish(Val::V(mine), Val::V(times), tag);
        self.code.jump(done);

        // After this entry there is none of the key.
        self.code.place(unused);
        self.code.branch(Cond::Ne, Val::V(free), none, end);
        self.code.copy(free, walk.entry);
        self.code.copy(free_state, s);
        self.code.place(end);
        self.code.branch(Cond::Ne, Val::V(mine), none, publish);
        let found = self.code.label();
        self.code.branch(Cond::Ne, Val::V(free), none, found);
        self.loss(Loss::Keys);
        self.code.jump(done);
        self.code.place(found);
        let now = self
            .code
            .bin(BinOp::And, Val::V(free_state), Val::Imm(state::TIMES));
        self.code.copy(times, now);
        let claim = self.code.bin(BinOp::Or, tag, now);
        let claim = self.code.bin(BinOp::Or, claim, Val::Imm(state::BUSY));
        self.code
            .swap(Base::At(Val::V(free)), 0, Val::V(free_state), claim, retry);
        self.code.copy(mine, Val::V(free));
        self.code.jump(retry);

        self.code.place(busy);
        self.give_back(mine, times, tag);
        self.code.place(retry);
        self.code.again(all);
        self.give_back(mine, times, tag);
        self.loss(Loss::Contended);
        self.code.jump(done);

        self.code.place(publish);
        self.write_key(&plain.key, Val::V(mine));
        self.write_value(Val::V(mine), plain.shape, new);
        self.publish(Val::V(mine), Val::V(times), tag);
        self.code.place(done);
    }

    /// Takes a claim back, if there is one.
    fn give_back(&mut self, mine: V, times: V, tag: Val) {
        let none = self.code.label();
        self.code.branch(Cond::Eq, Val::V(mine), Val::Imm(0), none);
        let s = self.code.bin(BinOp::Or, tag, Val::V(times));
        let s = self.code.bin(BinOp::Or, s, Val::Imm(state::DELETED));
        self.code.store(Base::At(Val::V(mine)), 0, s);
        self.code.copy(mine, Val::Imm(0));
        self.code.place(none);
    }

    /// Makes an entry that is being written one that is there, for one more time.
    fn publish(&mut self, entry: Val, times: Val, tag: Val) {
        let more = self.code.bin(BinOp::Add, times, Val::Imm(state::AGAIN));
        let more = self.code.bin(BinOp::And, more, Val::Imm(state::TIMES));
        let s = self.code.bin(BinOp::Or, more, tag);
        let s = self.code.bin(BinOp::Or, s, Val::Imm(state::THERE));
        self.code.store(Base::At(entry), 0, s);
    }

    fn write_value(&mut self, entry: Val, shape: Shape, new: &New) {
        let to = Place::at(entry, value_offset(shape));
        match new {
            New::Word(value) => self.code.store(to.base, to.offset, *value),
            New::Wide(wide) => self.put(wide, to, shape.value),
        }
    }
}
