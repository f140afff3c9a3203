//! Builds one region of a program: numbers registers, labels and scratch memory, folds constants, and leaves out what cannot be
//! reached.

use kerninst_snippet::ir::{Base, BinOp, Cond, Label, Op, Region, V, Val, Width};
use kerninst_snippet::{Reg, eval};

use super::fold;

/// A region under construction.
#[derive(Debug, Clone, Default)]
pub(super) struct Code {
    ops: Vec<Op>,
    registers: u32,
    /// By label: whether something jumps there.
    labels: Vec<bool>,
    /// Bytes of scratch memory in use, and the most that ever were.
    top: u32,
    frame: u32,
    /// Nothing comes here: what is emitted is left out.
    dead: bool,
    /// Something is called.
    calls: bool,
}

/// A loop under construction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loop {
    left: V,
    top: Label,
    rounds: u32,
}

impl Code {
    /// The finished region.
    pub(super) fn finish(self) -> Region {
        Region {
            ops: self.ops,
            registers: self.registers,
            labels: u32::try_from(self.labels.len()).unwrap_or(u32::MAX),
            frame: self.frame,
        }
    }

    /// Whether it needs neither scratch memory nor a call.
    pub(super) fn is_simple(&self) -> bool {
        self.frame == 0 && !self.calls
    }

    /// Bytes of scratch memory, so far.
    pub(super) fn frame_size(&self) -> u32 {
        self.frame
    }

    /// A new register.
    pub(super) fn reg(&mut self) -> V {
        self.registers += 1;
        V(self.registers - 1)
    }

    /// A new label, to be placed further down.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(false);
        Label(u32::try_from(self.labels.len() - 1).unwrap_or(u32::MAX))
    }

    /// Scratch memory for so many words: its offset.
    pub(super) fn scratch(&mut self, words: u32) -> u32 {
        let at = self.top;
        self.top = self.top.saturating_add(words.saturating_mul(8));
        self.frame = self.frame.max(self.top);
        at
    }

    /// What is in use, for [`Code::release`].
    pub(super) fn mark(&self) -> u32 {
        self.top
    }

    /// Scratch memory taken since that mark is free again.
    pub(super) fn release(&mut self, mark: u32) {
        self.top = mark;
    }

    /// A step, unless nothing comes here.
    pub(super) fn push(&mut self, op: Op) {
        if !self.dead {
            self.calls |= matches!(op, Op::Call { .. });
            self.ops.push(op);
        }
    }

    fn refer(&mut self, label: Label) -> Label {
        if !self.dead
            && let Some(used) = self.labels.get_mut(label.0 as usize)
        {
            *used = true;
        }
        label
    }

    /// `to = from`.
    pub(super) fn copy(&mut self, to: V, from: Val) {
        self.push(Op::Copy { to, from });
    }

    /// A register of its own with this value, to be changed later.
    pub(super) fn variable(&mut self, from: Val) -> V {
        let to = self.reg();
        self.copy(to, from);
        to
    }

    /// `a op b`.
    pub(super) fn bin(&mut self, op: BinOp, a: Val, b: Val) -> Val {
        if let Some(known) = fold::bin(op, a, b) {
            return known;
        }
        let (op, b) = fold::cheaper(op, b);
        let to = self.reg();
        self.push(Op::Bin { op, to, a, b });
        Val::V(to)
    }

    /// `v = v op b`.
    pub(super) fn change(&mut self, v: V, op: BinOp, b: Val) {
        self.push(Op::Bin {
            op,
            to: v,
            a: Val::V(v),
            b,
        });
    }

    /// 1 if the comparison holds, otherwise 0.
    pub(super) fn set(&mut self, cond: Cond, a: Val, b: Val) -> Val {
        if let (Val::Imm(a), Val::Imm(b)) = (a, b) {
            return Val::Imm(u64::from(eval::holds(cond, a, b)));
        }
        let to = self.reg();
        self.push(Op::Set { to, cond, a, b });
        Val::V(to)
    }

    /// The low bytes, extended.
    pub(super) fn extend(&mut self, from: Val, width: Width, signed: bool) -> Val {
        if width == Width::B8 {
            return from;
        }
        if let Val::Imm(value) = from {
            return Val::Imm(eval::extend(value, width, signed));
        }
        let to = self.reg();
        self.push(Op::Extend {
            to,
            from,
            width,
            signed,
        });
        Val::V(to)
    }

    /// Number of the highest bit that is set.
    pub(super) fn high_bit(&mut self, from: Val) -> Val {
        if let Val::Imm(value) = from {
            return Val::Imm(eval::high_bit(value));
        }
        let to = self.reg();
        self.push(Op::HighBit { to, from });
        Val::V(to)
    }

    /// Goes on at a label further down.
    pub(super) fn jump(&mut self, to: Label) {
        self.refer(to);
        self.push(Op::Jump(to));
        self.dead = true;
    }

    /// The same, if the comparison holds.
    pub(super) fn branch(&mut self, cond: Cond, a: Val, b: Val, to: Label) {
        if let (Val::Imm(a), Val::Imm(b)) = (a, b) {
            if eval::holds(cond, a, b) {
                self.jump(to);
            }
            return;
        }
        // Constants on the right, as the processor has them.
        let (cond, a, b) = match a {
            Val::Imm(_) => (cond.mirrored(), b, a),
            Val::V(_) => (cond, a, b),
        };
        self.refer(to);
        self.push(Op::Branch { cond, a, b, to });
    }

    /// Here is the label.
    pub(super) fn place(&mut self, label: Label) {
        if self.labels.get(label.0 as usize) == Some(&true) {
            // A jump to what follows it is none.
            if self.dead && self.ops.last() == Some(&Op::Jump(label)) {
                self.ops.pop();
            }
            self.dead = false;
            self.push(Op::Label(label));
        }
    }

    /// The region ends.
    pub(super) fn end(&mut self) {
        self.push(Op::End);
        self.dead = true;
    }

    /// The interrupted code goes on there.
    pub(super) fn leave(&mut self, address: u64) {
        self.push(Op::Leave { address });
        self.dead = true;
    }

    /// Begins a loop of at most so many rounds, 1 or more.
    pub(super) fn repeat(&mut self, rounds: u32) -> Loop {
        let left = self.reg();
        let top = self.label();
        if rounds > 1 {
            self.copy(left, Val::Imm(u64::from(rounds)));
            self.push(Op::Label(top));
        }
        Loop { left, top, rounds }
    }

    /// The end of a round: the next one begins, or there is none and the code goes on below.
    pub(super) fn again(&mut self, l: Loop) {
        if l.rounds > 1 {
            self.push(Op::Again {
                left: l.left,
                to: l.top,
                rounds: l.rounds,
            });
        }
    }

    /// The interrupted code's register.
    pub(super) fn register(&mut self, reg: Reg) -> V {
        let to = self.reg();
        self.push(Op::Reg { to, reg });
        to
    }

    /// Reads memory that is there.
    pub(super) fn load(&mut self, base: Base, offset: i32, width: Width, signed: bool) -> Val {
        let to = self.reg();
        self.push(Op::Load {
            to,
            base,
            offset,
            width,
            signed,
        });
        Val::V(to)
    }

    /// Reads a word of memory that is there.
    pub(super) fn word(&mut self, base: Base, offset: i32) -> Val {
        self.load(base, offset, Width::B8, false)
    }

    /// Writes a word of memory that is there.
    pub(super) fn store(&mut self, base: Base, offset: i32, value: Val) {
        self.push(Op::Store {
            base,
            offset,
            width: Width::B8,
            value,
        });
    }

    /// Reads memory that may not be there.
    pub(super) fn probe(
        &mut self,
        to: V,
        at: Val,
        offset: i32,
        (width, signed): (Width, bool),
        fault: Label,
    ) {
        self.refer(fault);
        self.push(Op::Probe {
            to,
            at,
            offset,
            width,
            signed,
            fault,
        });
    }

    /// Writes memory that may not be there.
    pub(super) fn probe_store(
        &mut self,
        at: Val,
        offset: i32,
        width: Width,
        value: Val,
        fault: Label,
    ) {
        self.refer(fault);
        self.push(Op::ProbeStore {
            at,
            offset,
            width,
            value,
            fault,
        });
    }

    /// Compare and swap of a word that all CPUs share.
    pub(super) fn swap(&mut self, base: Base, offset: i32, old: Val, new: Val, fail: Label) {
        self.refer(fail);
        self.push(Op::Swap {
            base,
            offset,
            old,
            new,
            fail,
        });
    }

    /// Calls a callout.
    pub(super) fn call(&mut self, function: u64, args: Vec<Val>) -> Val {
        let to = self.reg();
        self.push(Op::Call {
            function,
            args,
            to: Some(to),
        });
        Val::V(to)
    }

    /// Address of scratch memory.
    pub(super) fn frame_address(&mut self, offset: u32) -> Val {
        let to = self.reg();
        self.push(Op::FrameAddress { to, offset });
        Val::V(to)
    }
}
