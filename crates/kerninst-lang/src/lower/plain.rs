//! Maps of assigned values. Their entries can be deleted and taken for other keys, so:
//!
//! - Whoever changes an entry swaps its state from what it saw to "being written": if that works the key that it saw is still
//!   there. Published again, the state counts one more time, so whoever only reads sees afterwards whether it read one value.
//! - A new entry is claimed first, with the key's tag; then all entries are looked at once more for the same key, claimed or
//!   there. Of two that do this at once at least one sees the other and takes its claim back: no key has two entries.
//! - Nobody waits: what is being written by somebody else is looked at again a few times, then that is counted and given up.

use kerninst_snippet::ir::{Base, BinOp, Cond, Label, V, Val};

use super::aggregate::value_offset;
use super::key::{Key, Walk};
use super::words::Place;
use super::{Lower, LowerError, Reason, Result};
use crate::hir::{Expr, Map, MapValue, Type};
use crate::layout::{Loss, MapPlace, Shape, TRIES, state};

/// So often all is tried again if somebody else is at the same entry.
pub(super) const ROUNDS: u32 = 8;

/// A plain map with what is needed to get at it.
pub(super) struct Plain {
    pub place: MapPlace,
    pub shape: Shape,
    pub key: Key,
    pub hash: Val,
}

/// Where a value that is read goes.
#[derive(Clone, Copy)]
enum Out {
    Word(V),
    Wide(Place, u32),
}

impl Lower<'_> {
    pub(super) fn plain(&mut self, map: &Map, place: MapPlace, key: &[Expr]) -> Result<Plain> {
        let key = self.key(map, key)?;
        let hash = self.hash(&key);
        Ok(Plain {
            place,
            shape: Shape::of(map),
            key,
            hash,
        })
    }

    pub(super) fn plain_type<'m>(&self, map: &'m Map) -> Result<&'m Type> {
        match &map.value {
            MapValue::Plain(ty) => Ok(ty),
            _ => Err(LowerError::new(
                self.clause.span,
                Reason::Malformed("an aggregation in place of a plain map"),
            )),
        }
    }

    /// What a map of words holds; 0 if nothing.
    pub(super) fn plain_word(&mut self, map: u32, key: &[Expr]) -> Result<Val> {
        let (map, place) = self.map(map)?;
        if !self.plain_type(map)?.is_word() {
            let reason = Reason::Malformed("text where a number belongs");
            return Err(LowerError::new(self.clause.span, reason));
        }
        let value = self.code.reg();
        self.get(map, place, key, Out::Word(value))?;
        Ok(Val::V(value))
    }

    /// What a map of texts holds; empty if nothing.
    pub(super) fn plain_wide(
        &mut self,
        map: u32,
        key: &[Expr],
        to: Place,
        words: u32,
    ) -> Result<()> {
        let (map, place) = self.map(map)?;
        if self.plain_type(map)?.is_word() {
            let reason = Reason::Malformed("a number where text belongs");
            return Err(LowerError::new(self.clause.span, reason));
        }
        self.get(map, place, key, Out::Wide(to, words))
    }

    fn get(&mut self, map: &Map, place: MapPlace, key: &[Expr], out: Out) -> Result<()> {
        let plain = self.plain(map, place, key)?;
        let (done, none, retry) = (self.code.label(), self.code.label(), self.code.label());
        let all = self.code.repeat(ROUNDS);
        if map.key.is_empty() {
            let entry = Val::Imm(place.table);
            let s = self.code.word(Base::At(entry), 0);
            self.state_of_single(s, none, retry);
            self.read_value(entry, s, plain.shape, out, done);
        } else {
            let walk = self.walk(plain.hash, place, plain.shape, TRIES.min(place.capacity));
            let next = self.code.label();
            let s = self.code.word(Base::At(walk.entry), 0);
            self.code.branch(Cond::Eq, s, Val::Imm(0), none);
            self.match_entry(&plain, walk, s, next, retry);
            self.read_value(walk.entry, s, plain.shape, out, done);
            self.code.jump(retry);
            self.code.place(next);
            self.next_entry(walk);
            self.code.jump(none);
        }
        self.code.place(retry);
        self.code.again(all);
        self.loss(Loss::Contended);
        self.code.place(none);
        match out {
            Out::Word(v) => self.code.copy(v, Val::Imm(0)),
            Out::Wide(to, words) => self.fill(to, 0, words),
        }
        self.code.place(done);
        Ok(())
    }

    /// Reads a value, and goes to `done` if it was there all the time.
    fn read_value(&mut self, entry: Val, s: Val, shape: Shape, out: Out, done: Label) {
        let offset = value_offset(shape);
        match out {
            Out::Word(to) => {
                let value = self.code.word(Base::At(entry), offset);
                self.code.copy(to, value);
            }
            Out::Wide(to, words) => {
                let have = shape.value.min(words);
                self.copy_words(Place::at(entry, offset), to, have);
                self.fill(to, have, words);
            }
        }
        if shape.key == 0 && shape.value == 1 {
            // One word that is written by one instruction.
            self.code.jump(done);
            return;
        }
        let now = self.code.word(Base::At(entry), 0);
        self.code.branch(Cond::Eq, now, s, done);
    }

    /// Of the only entry of a map without key: goes to `retry` if it is being written, to `none` if nothing is there.
    fn state_of_single(&mut self, s: Val, none: Label, retry: Label) {
        let low = self.code.bin(BinOp::And, s, Val::Imm(3));
        self.code
            .branch(Cond::Eq, low, Val::Imm(state::BUSY), retry);
        self.code
            .branch(Cond::Ne, low, Val::Imm(state::THERE), none);
    }

    /// Goes to `next` if the entry, whose state is `s`, is not the key's; to `retry` if it may be, but is being written.
    pub(super) fn match_entry(
        &mut self,
        plain: &Plain,
        walk: Walk,
        s: Val,
        next: Label,
        retry: Label,
    ) {
        let unlike = self.code.bin(BinOp::Xor, s, plain.hash);
        let unlike = self.code.bin(BinOp::Shr, unlike, Val::Imm(32));
        self.code.branch(Cond::Ne, unlike, Val::Imm(0), next);
        let low = self.code.bin(BinOp::And, s, Val::Imm(3));
        self.code
            .branch(Cond::Eq, low, Val::Imm(state::DELETED), next);
        self.code
            .branch(Cond::Eq, low, Val::Imm(state::BUSY), retry);
        self.other_key(&plain.key, walk.entry, next);
    }

    /// `delete(@x[key])`.
    pub(super) fn delete(&mut self, map: u32, key: &[Expr]) -> Result<()> {
        let (map, place) = self.map(map)?;
        self.plain_type(map)?;
        let plain = self.plain(map, place, key)?;
        let (done, retry) = (self.code.label(), self.code.label());
        let all = self.code.repeat(ROUNDS);
        if map.key.is_empty() {
            let at = Base::At(Val::Imm(place.table));
            let s = self.code.word(at, 0);
            self.state_of_single(s, done, retry);
            let deleted = self.code.bin(BinOp::Or, s, Val::Imm(state::DELETED));
            self.code.swap(at, 0, s, deleted, retry);
            self.code.jump(done);
        } else {
            let walk = self.walk(plain.hash, place, plain.shape, TRIES.min(place.capacity));
            let at = Base::At(walk.entry);
            let next = self.code.label();
            let s = self.code.word(at, 0);
            self.code.branch(Cond::Eq, s, Val::Imm(0), done);
            self.match_entry(&plain, walk, s, next, retry);
            let deleted = self.code.bin(BinOp::Or, s, Val::Imm(state::DELETED));
            self.code.swap(at, 0, s, deleted, retry);
            self.code.jump(done);
            self.code.place(next);
            self.next_entry(walk);
            self.code.jump(done);
        }
        self.code.place(retry);
        self.code.again(all);
        self.loss(Loss::Contended);
        self.code.place(done);
        Ok(())
    }
}
