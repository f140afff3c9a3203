//! Keys of maps: their words, their hash, and the entries that are looked at for them.

use kerninst_snippet::ir::{BinOp, Cond, Label, V, Val};

use super::wide::Wide;
use super::words::Place;
use super::{Lower, LowerError, Reason, Result};
use crate::hir::{Expr, Map};
use crate::layout::{HASH_FACTOR, MapPlace, Shape};

/// A part of a key.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// One word.
    Word(Val),
    /// Words in scratch memory.
    Frame { at: u32, words: u32 },
}

/// An evaluated key.
#[derive(Debug, Clone)]
pub(super) struct Key {
    parts: Vec<Part>,
}

impl Key {
    /// The only word of a key that has just one.
    pub(super) fn only_word(&self) -> Option<Val> {
        match self.parts.as_slice() {
            [Part::Word(word)] => Some(*word),
            _ => None,
        }
    }
}

/// A walk over the entries that are looked at for a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    /// Number of the entry, not yet cut off to the table's size.
    number: V,
    round: super::build::Loop,
    /// Address of the entry.
    pub entry: Val,
}

impl Lower<'_> {
    /// Evaluates a key.
    pub(super) fn key(&mut self, map: &Map, exprs: &[Expr]) -> Result<Key> {
        if map.key.len() != exprs.len() {
            let reason = Reason::Malformed("a key of another size");
            return Err(LowerError::new(self.clause.span, reason));
        }
        let mut parts = Vec::new();
        for (ty, e) in map.key.iter().zip(exprs) {
            if ty.is_word() {
                parts.push(Part::Word(self.word(e)?));
                continue;
            }
            let words = ty.size() / 8;
            match self.wide(e)? {
                Wide::Words(values) => {
                    let zeros = std::iter::repeat(Val::Imm(0));
                    let values = values.into_iter().chain(zeros).take(words as usize);
                    parts.extend(values.map(Part::Word));
                }
                Wide::Frame { at, words: have } => {
                    let cut = have.min(words);
                    parts.push(Part::Frame { at, words: cut });
                    parts.extend((cut..words).map(|_| Part::Word(Val::Imm(0))));
                }
            }
        }
        Ok(Key { parts })
    }

    /// Its hash, as [`crate::layout::hash`].
    pub(super) fn hash(&mut self, key: &Key) -> Val {
        let mut h = Val::Imm(0);
        for part in &key.parts {
            match *part {
                Part::Word(w) => h = self.hash_step(h, w),
                Part::Frame { at, words } if Self::is_long(words) => {
                    let v = self.code.variable(h);
                    self.each_word(at, words, |l, w| {
                        let h = l.hash_step(Val::V(v), w);
                        l.code.copy(v, h);
                    });
                    h = Val::V(v);
                }
                Part::Frame { at, words } => {
                    self.each_word(at, words, |l, w| h = l.hash_step(h, w));
                }
            }
        }
        h
    }

    fn hash_step(&mut self, h: Val, word: Val) -> Val {
        let high = self.code.bin(BinOp::Shr, h, Val::Imm(32));
        let h = self.code.bin(BinOp::Xor, h, high);
        let h = self.code.bin(BinOp::Xor, h, word);
        self.code.bin(BinOp::Mul, h, Val::Imm(HASH_FACTOR))
    }

    /// The high half of a hash, in place.
    pub(super) fn tag(&mut self, hash: Val) -> Val {
        let high = self.code.bin(BinOp::Shr, hash, Val::Imm(32));
        self.code.bin(BinOp::Shl, high, Val::Imm(32))
    }

    /// Begins to look at entries for a key, the first of which is the hash's, at most so many times.
    pub(super) fn walk(&mut self, hash: Val, place: MapPlace, shape: Shape, tries: u32) -> Walk {
        let number = self.first_number(hash, place);
        let number = self.code.variable(number);
        let round = self.code.repeat(tries);
        let mask = Val::Imm(u64::from(place.capacity.saturating_sub(1)));
        let index = self.code.bin(BinOp::And, Val::V(number), mask);
        let entry = self.entry_address(index, place, shape);
        Walk {
            number,
            round,
            entry,
        }
    }

    /// As [`crate::layout::first_entry`].
    fn first_number(&mut self, hash: Val, place: MapPlace) -> Val {
        let bits = place.capacity.checked_ilog2().unwrap_or(0);
        self.code
            .bin(BinOp::Shr, hash, Val::Imm(u64::from(64 - bits)))
    }

    /// Address of the entry that is looked at first.
    pub(super) fn first_address(&mut self, hash: Val, place: MapPlace, shape: Shape) -> Val {
        let number = self.first_number(hash, place);
        self.entry_address(number, place, shape)
    }

    fn entry_address(&mut self, number: Val, place: MapPlace, shape: Shape) -> Val {
        let bytes = Val::Imm(u64::from(shape.words()) * 8);
        let offset = self.code.bin(BinOp::Mul, number, bytes);
        self.code.bin(BinOp::Add, offset, Val::Imm(place.table))
    }

    /// Goes on to the next entry; below, there is none left.
    pub(super) fn next_entry(&mut self, walk: Walk) {
        self.code.change(walk.number, BinOp::Add, Val::Imm(1));
        self.code.again(walk.round);
    }

    /// The next round is about the next entry.
    pub(super) fn advance(&mut self, walk: Walk) {
        self.code.change(walk.number, BinOp::Add, Val::Imm(1));
    }

    /// The end of a round; below, there is none left.
    pub(super) fn round(&mut self, walk: Walk) {
        self.code.again(walk.round);
    }

    /// Goes to the label if the entry has another key.
    pub(super) fn other_key(&mut self, key: &Key, entry: Val, to: Label) {
        let mut at = Place::at(entry, 8);
        for part in &key.parts {
            match *part {
                Part::Word(w) => {
                    let have = self.code.word(at.base, at.offset);
                    self.code.branch(Cond::Ne, have, w, to);
                    at = at.word(1);
                }
                Part::Frame { at: frame, words } => {
                    self.differ(Place::frame(frame), at, words, to);
                    at = at.word(words);
                }
            }
        }
    }

    /// Writes the key into an entry.
    pub(super) fn write_key(&mut self, key: &Key, entry: Val) {
        let mut at = Place::at(entry, 8);
        for part in &key.parts {
            match *part {
                Part::Word(w) => {
                    self.code.store(at.base, at.offset, w);
                    at = at.word(1);
                }
                Part::Frame { at: frame, words } => {
                    self.copy_words(Place::frame(frame), at, words);
                    at = at.word(words);
                }
            }
        }
    }
}
