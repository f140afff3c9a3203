//! Words in memory: copied, compared, cleared; one by one if they are few, in a loop if they are many.

use kerninst_snippet::ir::{Base, BinOp, Cond, Label, V, Val};

use super::Lower;

/// So many words are copied, compared and hashed one by one; more in a loop.
const UNROLLED: u32 = 8;

/// Where words are, or go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub base: Base,
    pub offset: i32,
}

impl Place {
    /// In scratch memory.
    pub(super) fn frame(at: u32) -> Place {
        Place {
            base: Base::Frame,
            offset: i32::try_from(at).unwrap_or(i32::MAX),
        }
    }

    /// At an address.
    pub(super) fn at(address: Val, offset: i32) -> Place {
        Place {
            base: Base::At(address),
            offset,
        }
    }

    /// So many words further.
    pub(super) fn word(self, n: u32) -> Place {
        let bytes = i32::try_from(n.saturating_mul(8)).unwrap_or(i32::MAX);
        Place {
            offset: self.offset.saturating_add(bytes),
            ..self
        }
    }
}

impl Lower<'_> {
    /// Zeros from one word to before another.
    pub(super) fn fill(&mut self, to: Place, from: u32, words: u32) {
        if words.saturating_sub(from) <= UNROLLED {
            for n in from..words {
                let to = to.word(n);
                self.code.store(to.base, to.offset, Val::Imm(0));
            }
            return;
        }
        let p = self.pointer(to.word(from));
        let round = self.code.repeat(words - from);
        self.code.store(Base::At(Val::V(p)), 0, Val::Imm(0));
        self.code.change(p, BinOp::Add, Val::Imm(8));
        self.code.again(round);
    }

    /// Copies words.
    pub(super) fn copy_words(&mut self, from: Place, to: Place, words: u32) {
        if words <= UNROLLED {
            for n in 0..words {
                let value = self.load(from.word(n));
                let to = to.word(n);
                self.code.store(to.base, to.offset, value);
            }
            return;
        }
        let p = self.pointer(from);
        let q = self.pointer(to);
        let round = self.code.repeat(words);
        let value = self.code.word(Base::At(Val::V(p)), 0);
        self.code.store(Base::At(Val::V(q)), 0, value);
        self.code.change(p, BinOp::Add, Val::Imm(8));
        self.code.change(q, BinOp::Add, Val::Imm(8));
        self.code.again(round);
    }

    /// Goes to the label if words differ.
    pub(super) fn differ(&mut self, a: Place, b: Place, words: u32, to: Label) {
        if words <= UNROLLED {
            for n in 0..words {
                let (x, y) = (self.load(a.word(n)), self.load(b.word(n)));
                self.code.branch(Cond::Ne, x, y, to);
            }
            return;
        }
        let (p, q) = (self.pointer(a), self.pointer(b));
        let round = self.code.repeat(words);
        let x = self.code.word(Base::At(Val::V(p)), 0);
        let y = self.code.word(Base::At(Val::V(q)), 0);
        self.code.branch(Cond::Ne, x, y, to);
        self.code.change(p, BinOp::Add, Val::Imm(8));
        self.code.change(q, BinOp::Add, Val::Imm(8));
        self.code.again(round);
    }

    /// Does something with each word in scratch memory. Of many words this is a loop, so `f` runs once and must keep what it
    /// computes in a variable ([`Lower::is_long`]).
    pub(super) fn each_word(&mut self, at: u32, words: u32, mut f: impl FnMut(&mut Self, Val)) {
        let from = Place::frame(at);
        if words <= UNROLLED {
            for n in 0..words {
                let value = self.load(from.word(n));
                f(self, value);
            }
            return;
        }
        let p = self.pointer(from);
        let round = self.code.repeat(words);
        let value = self.code.word(Base::At(Val::V(p)), 0);
        f(self, value);
        self.code.change(p, BinOp::Add, Val::Imm(8));
        self.code.again(round);
    }

    /// Whether more words than are handled one by one.
    pub(super) fn is_long(words: u32) -> bool {
        words > UNROLLED
    }

    /// Reads a word.
    pub(super) fn load(&mut self, from: Place) -> Val {
        self.code.word(from.base, from.offset)
    }

    /// An address as a variable.
    fn pointer(&mut self, to: Place) -> V {
        let address = match to.base {
            Base::Frame => self.code.frame_address(to.offset.unsigned_abs()),
            Base::At(a) => {
                let offset = Val::Imm(i64::from(to.offset) as u64);
                self.code.bin(BinOp::Add, a, offset)
            }
        };
        self.code.variable(address)
    }
}
