//! Entries that keep their key for ever: those of aggregations. Found without any lock, and made by one compare-and-swap.

use kerninst_snippet::ir::{Base, BinOp, Cond, Label, Val};

use super::Lower;
use super::key::Key;
use crate::layout::{Loss, MapPlace, Shape, TRIES, state};

impl Lower<'_> {
    /// Address of the key's entry, which is made if there is none; goes to `lost` (and counts it) if the map is full.
    pub(super) fn entry_to_keep(
        &mut self,
        key: &Key,
        place: MapPlace,
        shape: Shape,
        lost: Label,
    ) -> Val {
        let found = self.code.label();
        let mut own = None;
        if let Some(word) = key.only_word() {
            // Most keys are where they are looked for first: nothing is computed for what follows if not.
            let slow = self.code.label();
            let hash = self.hash(key);
            let first = self.first_address(hash, place, shape);
            let entry = match first {
                // A register of its own.
                Val::V(v) => v,
                known => self.code.variable(known),
            };
            own = Some(entry);
            let have = self.code.word(Base::At(Val::V(entry)), 8);
            self.code.branch(Cond::Ne, have, word, slow);
            self.code.branch(Cond::Eq, word, Val::Imm(0), slow);
            self.code.jump(found);
            self.code.place(slow);
        }
        let own = own.unwrap_or_else(|| self.code.reg());
        let hash = self.hash(key);
        let walk = self.walk(hash, place, shape, TRIES);
        let entry = Base::At(walk.entry);
        let [same, unlike, next, round] = [(); 4].map(|()| self.code.label());
        match key.only_word() {
            Some(word) => {
                // The one word tells all, unless it is 0, which is also what stands where no key was written yet: it is written
                // whole, after that entry's claim, and never changes. So a claimed entry may be counted in before it is
                // published.
                let have = self.code.word(entry, 8);
                self.code.branch(Cond::Ne, have, word, unlike);
                self.code.branch(Cond::Ne, word, Val::Imm(0), same);
                let s = self.code.word(entry, 0);
                let there = self.code.bin(BinOp::And, s, Val::Imm(state::THERE));
                self.code.branch(Cond::Ne, there, Val::Imm(0), same);
            }
            None => {
                let tag = self.tag(hash);
                let there = self.code.bin(BinOp::Or, tag, Val::Imm(state::THERE | 1));
                let s = self.code.word(entry, 0);
                // Whether there or cleared.
                let s = self.code.bin(BinOp::Or, s, Val::Imm(1));
                self.code.branch(Cond::Ne, s, there, unlike);
                self.other_key(key, walk.entry, next);
                self.code.jump(same);
            }
        }
        self.code.place(unlike);
        let s = self.code.word(entry, 0);
        self.code.branch(Cond::Ne, s, Val::Imm(0), next);
        // Rather computed again than kept in a register meanwhile.
        let hash = match key.only_word() {
            Some(_) => self.hash(key),
            None => hash,
        };
        let tag = self.tag(hash);
        let busy = self.code.bin(BinOp::Or, tag, Val::Imm(state::BUSY));
        self.code.swap(entry, 0, Val::Imm(0), busy, round);
        self.write_key(key, walk.entry);
        let there = self.code.bin(BinOp::Or, tag, Val::Imm(state::THERE));
        self.code.store(entry, 0, there);
        self.code.jump(same);
        self.code.place(next);
        self.advance(walk);
        self.code.place(round);
        self.round(walk);
        self.loss(Loss::Keys);
        self.code.jump(lost);
        self.code.place(same);
        self.code.copy(own, walk.entry);
        self.code.place(found);
        Val::V(own)
    }
}
