//! Memory, and what leaves the program: calls, the registers of the interrupted code.

use super::{RAX, Select};
use crate::alloc::argument;
use crate::asm::Mark;
use crate::eval::may_probe;
use crate::insns::{Alu, Mem, Rm, Shift, cc, imm32};
use crate::ir::{Cond, Label, Op, PROBE_END, Val, Width};

impl Select<'_> {
    pub(super) fn memory(&mut self, op: &Op) {
        match op {
            Op::Probe {
                to,
                at,
                offset,
                width,
                signed,
                fault,
            } => {
                let fault = self.label(*fault);
                let Some(mem) = self.probed(*at, *offset, fault) else {
                    return;
                };
                let target = self.target(*to);
                self.asm
                    .load(target, Rm::Mem(mem), *width, *signed, Some(fault));
                self.done(*to, target);
            }
            Op::ProbeStore {
                at,
                offset,
                width,
                value,
                fault,
            } => {
                let fault = self.label(*fault);
                if let Some(mem) = self.probed(*at, *offset, fault) {
                    self.store(mem, *value, *width, Some(fault));
                }
            }
            Op::Load {
                to,
                base,
                offset,
                width,
                signed,
            } => {
                let target = self.target(*to);
                let mem = self.based(*base, *offset, Some(target));
                self.asm.load(target, Rm::Mem(mem), *width, *signed, None);
                self.done(*to, target);
            }
            Op::Store {
                base,
                offset,
                width,
                value,
            } => {
                let mem = self.based(*base, *offset, None);
                self.store(mem, *value, *width, None);
            }
            Op::FrameAddress { to, offset } => {
                let target = self.target(*to);
                let mem = self.on_stack(*offset);
                self.asm.lea(target, mem);
                self.done(*to, target);
            }
            Op::CpuLoad { to, pointer, width } => {
                let target = self.target(*to);
                let mem = self.mem(*pointer, 0, true, Some(target));
                self.asm.load(target, Rm::Mem(mem), *width, false, None);
                self.done(*to, target);
            }
            Op::CpuAdd { pointer, value } => {
                let mem = self.mem(*pointer, 0, true, None);
                match value {
                    Val::Imm(1) => self.asm.inc(Rm::Mem(mem)),
                    Val::Imm(v) if imm32(*v).is_some() => {
                        self.asm.alu_imm(Alu::Add, Rm::Mem(mem), *v as u32 as i32);
                    }
                    _ => {
                        let value = self.in_reg(*value);
                        self.asm.alu_to(Alu::Add, Rm::Mem(mem), value);
                    }
                }
            }
            Op::CpuSwap {
                pointer,
                old,
                new,
                fail,
            } => {
                let mem = self.mem(*pointer, 0, true, None);
                self.swap(mem, *old, *new, *fail, false);
            }
            Op::Swap {
                base,
                offset,
                old,
                new,
                fail,
            } => {
                let mem = self.based(*base, *offset, None);
                self.swap(mem, *old, *new, *fail, true);
            }
            Op::Clock { to } => {
                self.asm.plain(&[0x0f, 0x31]);
                let (low, high) = (RAX, argument(2).unwrap_or(RAX));
                self.asm.shift_imm(Shift::Left, high, 32);
                self.asm.alu(Alu::Or, low, Rm::Reg(high));
                self.done(*to, low);
            }
            Op::Call { function, args, to } => {
                self.arguments(args);
                self.asm.call(*function);
                if let Some(to) = to {
                    self.done(*to, RAX);
                }
            }
            Op::SetReg { reg, value } => match self.interrupted(*reg) {
                Rm::Reg(reg) => self.put(reg, *value),
                Rm::Mem(mem) => self.store(mem, *value, Width::B8, None),
            },
            Op::Leave { address } => {
                self.saved.restore_all(self.asm);
                self.asm.leave(*address);
                self.asm.set_pushed(self.saved.pushed());
            }
            Op::End => self.asm.jump(self.out),
            _ => {}
        }
    }

    pub(super) fn swap(&mut self, mem: Mem, old: Val, new: Val, fail: Label, lock: bool) {
        let new = self.in_reg(new);
        self.put(RAX, old);
        self.asm.cmpxchg(mem, new, lock);
        let fail = self.label(fail);
        self.asm.jcc(cc(Cond::Ne), fail);
    }

    /// Memory that may not be there, after the check that it may be kernel memory. `None`: it is none, whatever happens.
    ///
    /// One signed comparison of the address before `offset` is added: the sum is below the end exactly when the address is
    /// below the end less the offset, but for sums that wrap around, and these have no canonical form.
    pub(super) fn probed(&mut self, at: Val, offset: i32, fault: Mark) -> Option<Mem> {
        if let Val::Imm(address) = at {
            let sum = address.wrapping_add_signed(i64::from(offset));
            if !may_probe(sum) {
                self.asm.jump(fault);
                return None;
            }
            let base = self.in_reg(Val::Imm(sum));
            return Some(Mem {
                base: Some(base),
                disp: 0,
                gs: false,
            });
        }
        let base = self.in_reg(at);
        let Some(end) = probe_end(offset) else {
            // `validate` refuses it.
            self.asm.jump(fault);
            return None;
        };
        self.asm.alu_imm(Alu::Cmp, Rm::Reg(base), end);
        self.asm.jcc(cc(Cond::GeS), fault);
        Some(Mem {
            base: Some(base),
            disp: offset,
            gs: false,
        })
    }
}

/// What an address must be below, before `offset` is added to it.
pub(crate) fn probe_end(offset: i32) -> Option<i32> {
    i32::try_from(PROBE_END as i64 - i64::from(offset)).ok()
}
