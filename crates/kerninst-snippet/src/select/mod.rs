//! From the steps of a region to instructions, once everything has its place.

mod arith;
mod call;
mod compare;
mod memory;
mod operands;

pub(crate) use memory::probe_end;

use crate::Reg;
use crate::alloc::Allocation;
use crate::asm::{Asm, Mark};
use crate::eval::{extend, high_bit, holds};
use crate::insns::{Alu, Rm, cc, imm32};
use crate::ir::{Cond, Label, Op, Region, V, Val, Width};
use crate::ranges::clobbers;
use crate::saved::Saved;
use crate::validate::{Loop, loops, places};

const RAX: Reg = Reg::RAX;

/// The instructions of a region. `stale`: registers that were saved, and may have been changed, before it. `out`: where [`Op::End`] goes.
pub(crate) fn select(
    asm: &mut Asm,
    region: &Region,
    at: &Allocation,
    saved: &Saved,
    stale: u16,
    out: Mark,
) {
    let labels = (0..region.labels).map(|_| asm.mark()).collect();
    let mut s = Select {
        asm,
        region,
        at,
        saved,
        out,
        labels,
        places: places(region),
        loops: loops(region),
        stale,
        temps: &[],
    };
    let mut skip = false;
    for (i, op) in region.ops.iter().enumerate() {
        if std::mem::take(&mut skip) {
            continue;
        }
        s.temps = at.temps.get(i).map_or(&[], Vec::as_slice);
        if let Op::Branch { cond, a, b, to } = op {
            // A branch over a jump is a branch, the other way round.
            let over = region.ops.get(i + 1).filter(|_| s.is_after(*to, i + 2));
            let target = over.and_then(|jump| s.jumps_to(jump));
            skip = target.is_some();
            match target {
                Some(target) => s.branch(cond.opposite(), *a, *b, target),
                None => {
                    let to = s.label(*to);
                    s.branch(*cond, *a, *b, to);
                }
            }
        } else {
            s.step(i, op);
        }
    }
}

struct Select<'a> {
    asm: &'a mut Asm,
    region: &'a Region,
    at: &'a Allocation,
    saved: &'a Saved,
    out: Mark,
    labels: Vec<Mark>,
    places: Vec<Option<usize>>,
    loops: Vec<Loop>,
    /// Registers that may have been changed before the region.
    stale: u16,
    temps: &'a [Reg],
}

/// An operand that an instruction takes as it is.
#[derive(Clone, Copy)]
enum Source {
    Rm(Rm),
    Imm(i32),
}

impl Select<'_> {
    /// Whether the label stands at step `i`, or after other labels there.
    fn is_after(&self, label: Label, i: usize) -> bool {
        let rest = self.region.ops.get(i..).unwrap_or_default();
        let mut labels = rest.iter().take_while(|op| matches!(op, Op::Label(_)));
        labels.any(|op| *op == Op::Label(label))
    }

    fn jumps_to(&self, op: &Op) -> Option<Mark> {
        match op {
            Op::End => Some(self.out),
            Op::Jump(to) => Some(self.label(*to)),
            _ => None,
        }
    }

    /// Where a jump to the label ends up.
    fn label(&self, mut label: Label) -> Mark {
        // Jumps lead forward.
        for _ in 0..self.region.ops.len() {
            let place = self.places.get(label.0 as usize).copied().flatten();
            let rest = place.and_then(|p| self.region.ops.get(p..));
            let mut rest = rest.unwrap_or_default().iter();
            match rest.find(|op| !matches!(op, Op::Label(_))) {
                Some(Op::End) => return self.out,
                Some(Op::Jump(to)) => label = *to,
                _ => break,
            }
        }
        self.mark(label)
    }

    fn mark(&self, label: Label) -> Mark {
        let mark = self.labels.get(label.0 as usize);
        mark.copied().unwrap_or(self.out)
    }

    fn step(&mut self, i: usize, op: &Op) {
        match op {
            Op::Copy { to, from } => self.copy(*to, *from),
            Op::Reg { to, reg } => {
                let target = self.target(*to);
                if *reg == Reg::RSP {
                    let mem = self.on_stack(self.asm.pushed());
                    self.asm.lea(target, mem);
                } else if target != *reg || self.changed(i, target) {
                    let from = self.interrupted(*reg);
                    self.asm.mov(target, from);
                }
                self.done(*to, target);
            }
            Op::Bin { op, to, a, b } => self.bin(*op, *to, *a, *b),
            Op::Set { to, cond, a, b } => {
                if let (Val::Imm(a), Val::Imm(b)) = (a, b) {
                    return self.copy(*to, Val::Imm(u64::from(holds(*cond, *a, *b))));
                }
                let cond = self.compare(*cond, *a, *b);
                let target = self.target(*to);
                self.asm.set(cc(cond), target);
                self.done(*to, target);
            }
            Op::Extend {
                to,
                from,
                width,
                signed,
            } => match from {
                Val::Imm(v) => self.copy(*to, Val::Imm(extend(*v, *width, *signed))),
                Val::V(v) => {
                    let target = self.target(*to);
                    let from = self.rm(*v);
                    self.asm.load(target, from, *width, *signed, None);
                    self.done(*to, target);
                }
            },
            Op::HighBit { to, from } => match from {
                Val::Imm(v) => self.copy(*to, Val::Imm(high_bit(*v))),
                // Of 0 the instruction says nothing: of 1 it is the same.
                Val::V(_) => {
                    let target = self.target(*to);
                    self.put(target, *from);
                    self.asm.alu_imm(Alu::Or, Rm::Reg(target), 1);
                    self.asm.bsr(target, target);
                    self.done(*to, target);
                }
            },
            Op::Label(label) => {
                let mark = self.mark(*label);
                self.asm.here(mark);
            }
            Op::Jump(to) => {
                let to = self.label(*to);
                self.asm.jump(to);
            }
            Op::Branch { cond, a, b, to } => {
                let to = self.label(*to);
                self.branch(*cond, *a, *b, to);
            }
            Op::Again { left, to, .. } => {
                let left = self.rm(*left);
                let to = self.mark(*to);
                self.asm.dec(left);
                self.asm.jcc(cc(Cond::Ne), to);
            }
            _ => self.memory(op),
        }
    }

    /// Whether the register of the interrupted code may have another value before step `i` than at the point. (If it is not saved,
    /// it has not: nothing was put into it.)
    fn changed(&self, i: usize, reg: Reg) -> bool {
        if self.saved.of(reg).is_none() {
            return false;
        }
        let around = self.loops.iter().filter(|l| l.start < i && i < l.end);
        let before = around.map(|l| l.end).max().unwrap_or(i);
        let ops = self.region.ops.iter().enumerate().take(before);
        let writes = ops.filter(|(n, op)| *n != i && self.writes(*n, op, reg));
        self.stale >> reg.number() & 1 == 1 || writes.count() > 0
    }

    fn writes(&self, n: usize, op: &Op, reg: Reg) -> bool {
        let to = op.writes().map(|v| self.rm(v)) == Some(Rm::Reg(reg));
        let again = matches!(op, Op::Reg { reg: r, .. } if *r == reg);
        let temps = self.at.temps.get(n).is_some_and(|t| t.contains(&reg));
        let set = matches!(op, Op::SetReg { reg: r, .. } if *r == reg);
        to && !again || temps || set || clobbers(op) >> reg.number() & 1 == 1
    }

    fn copy(&mut self, to: V, from: Val) {
        match (self.rm(to), from) {
            (Rm::Reg(r), _) => self.put(r, from),
            (Rm::Mem(m), Val::Imm(v)) if imm32(v).is_some() => {
                self.asm.store_imm(m, v as u32 as i32, Width::B8, None);
            }
            (Rm::Mem(m), _) => {
                let via = self.in_reg(from);
                self.asm.store(m, via, Width::B8, None);
            }
        }
    }
}
