//! Values that no register holds: texts, bytes, stacks of user programs. They are words in scratch memory, or wherever they are
//! wanted.

use kerninst_snippet::ir::{Base, BinOp, Cond, Label, Val};

use super::words::Place;
use super::{Local, Lower, Result};
use crate::hir::{Builtin, Expr, ExprKind, Type};
use crate::layout::Loss;

/// A value of several words.
#[derive(Debug, Clone)]
pub(super) enum Wide {
    /// Each of which is known or in a register.
    Words(Vec<Val>),
    /// In scratch memory.
    Frame { at: u32, words: u32 },
}

impl Lower<'_> {
    /// A value of several words: where it is already, or in new scratch memory.
    pub(super) fn wide(&mut self, e: &Expr) -> Result<Wide> {
        let words = e.ty.size() / 8;
        Ok(match &e.kind {
            ExprKind::Text(text) => Wide::Words(text_words(text.as_bytes(), words)),
            ExprKind::Builtin(Builtin::Comm) => {
                let task = self.current();
                let comm = Place::at(task, self.session.facts.comm);
                Wide::Words(vec![self.load(comm), self.load(comm.word(1))])
            }
            ExprKind::Builtin(Builtin::UserStack(depth)) => {
                Wide::Words(self.user_stack(*depth, e.span)?.to_vec())
            }
            ExprKind::Local(n) => match self.locals.get(*n as usize) {
                Some(Local::Frame { at, words }) => Wide::Frame {
                    at: *at,
                    words: *words,
                },
                Some(Local::Zero) => Wide::Words(Vec::new()),
                _ => return self.malformed(e, "no such variable"),
            },
            _ => {
                let at = self.code.scratch(words);
                self.wide_into(e, Place::frame(at), words)?;
                Wide::Frame { at, words }
            }
        })
    }

    /// Writes a value of several words to a place, padded with zeros or cut off to so many words.
    pub(super) fn wide_into(&mut self, e: &Expr, to: Place, words: u32) -> Result<()> {
        self.deeper(e.span, |l| l.wide_into_inner(e, to, words))
    }

    fn wide_into_inner(&mut self, e: &Expr, to: Place, words: u32) -> Result<()> {
        match &e.kind {
            ExprKind::Choice { c, a, b } => self.choose(
                c,
                |l| l.wide_into(a, to, words),
                |l| l.wide_into(b, to, words),
            ),
            ExprKind::Map { map, key } => self.plain_wide(*map, key, to, words),
            ExprKind::Cast(a) if !a.ty.is_word() => {
                self.wide_into(a, to, words)?;
                self.cut(&e.ty, to, words);
                Ok(())
            }
            ExprKind::Str { at } | ExprKind::Buf { at } => {
                let at = self.word(at)?;
                self.fetch(e, at, to, words)
            }
            _ if e.ty.is_word() => self.malformed(e, "a number where text belongs"),
            ExprKind::Text(_) | ExprKind::Builtin(_) | ExprKind::Local(_) => {
                let wide = self.wide(e)?;
                self.put(&wide, to, words);
                Ok(())
            }
            _ => self.malformed(e, "no text"),
        }
    }

    /// `str` and `buf`: the callout writes to the place itself.
    pub(super) fn fetch(&mut self, e: &Expr, at: Val, to: Place, words: u32) -> Result<()> {
        let callouts = self.session.facts.callouts;
        let (function, what, size) = match e.ty {
            Type::Str(n) => (callouts.text, "str", n),
            Type::Bytes(n) => (callouts.bytes, "buf", n),
            _ => return self.malformed(e, "no text"),
        };
        let function = self.callout(function, what, e.span)?;
        let size = size.min(words.saturating_mul(8));
        // Bytes that the callout does not write.
        self.fill(to, size / 8, words);
        let address = match to.base {
            Base::Frame => self.code.frame_address(to.offset.unsigned_abs()),
            Base::At(a) => {
                let offset = Val::Imm(i64::from(to.offset) as u64);
                self.code.bin(BinOp::Add, a, offset)
            }
        };
        let args = vec![address, at, Val::Imm(u64::from(size))];
        let result = self.code.call(function, args);
        let done = self.code.label();
        self.code.branch(Cond::GeS, result, Val::Imm(0), done);
        self.unless_nested(result);
        self.loss(Loss::Unreadable);
        self.code.place(done);
        Ok(())
    }

    /// Writes words to a place, padded with zeros or cut off.
    pub(super) fn put(&mut self, wide: &Wide, to: Place, words: u32) {
        match wide {
            Wide::Words(values) => {
                let zeros = std::iter::repeat(Val::Imm(0));
                for (n, value) in (0..words).zip(values.iter().copied().chain(zeros)) {
                    let to = to.word(n);
                    self.code.store(to.base, to.offset, value);
                }
            }
            Wide::Frame { at, words: have } => {
                let have = (*have).min(words);
                self.copy_words(Place::frame(*at), to, have);
                self.fill(to, have, words);
            }
        }
    }

    /// Goes to the label if two texts are the same (`when`), or if they are not.
    pub(super) fn compare_texts(
        &mut self,
        a: &Expr,
        b: &Expr,
        when: bool,
        to: Label,
    ) -> Result<()> {
        let mark = self.code.mark();
        let words = a.ty.size().max(b.ty.size()) / 8;
        let (a, b) = (self.wide(a)?, self.wide(b)?);
        let past = self.code.label();
        let other = if when { past } else { to };
        match (&a, &b) {
            (Wide::Frame { at: x, words: m }, Wide::Frame { at: y, words: n }) if m == n => {
                self.differ(Place::frame(*x), Place::frame(*y), words, other);
            }
            _ => {
                for n in 0..words {
                    let (x, y) = (self.word_of(&a, n), self.word_of(&b, n));
                    self.code.branch(Cond::Ne, x, y, other);
                }
            }
        }
        if when {
            self.code.jump(to);
        }
        self.code.place(past);
        self.code.release(mark);
        Ok(())
    }

    /// A word of a value; 0 after its end.
    pub(super) fn word_of(&mut self, wide: &Wide, n: u32) -> Val {
        match wide {
            Wide::Words(values) => values.get(n as usize).copied().unwrap_or(Val::Imm(0)),
            Wide::Frame { at, words } if n < *words => self.load(Place::frame(*at).word(n)),
            Wide::Frame { .. } => Val::Imm(0),
        }
    }

    /// Clears the bytes after the end of a shorter type, and the last one of a text.
    fn cut(&mut self, ty: &Type, to: Place, words: u32) {
        let bytes = match ty {
            Type::Str(n) => n.saturating_sub(1),
            Type::Bytes(n) => *n,
            _ => return,
        };
        if bytes % 8 != 0 && bytes / 8 < words {
            let last = to.word(bytes / 8);
            let value = self.load(last);
            let mask = u64::MAX >> (64 - bytes % 8 * 8);
            let value = self.code.bin(BinOp::And, value, Val::Imm(mask));
            self.code.store(last.base, last.offset, value);
        }
        self.fill(to, bytes.div_ceil(8), words);
    }
}

/// A text constant as words.
fn text_words(text: &[u8], words: u32) -> Vec<Val> {
    text.chunks(8)
        .take(words as usize)
        .map(|chunk| {
            let bytes = chunk.iter().rev();
            Val::Imm(bytes.fold(0, |word, byte| word << 8 | u64::from(*byte)))
        })
        .collect()
}
