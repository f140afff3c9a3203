//! Where operands are, as instructions take them.

use super::{RAX, Select, Source};
use crate::Reg;
use crate::alloc::Loc;
use crate::asm::Mark;
use crate::insns::{Mem, Rm, imm32};
use crate::ir::{Base, V, Val, Width};

impl Select<'_> {
    pub(super) fn temp(&mut self) -> Reg {
        let (first, rest) = self.temps.split_first().unwrap_or((&RAX, &[]));
        self.temps = rest;
        *first
    }

    pub(super) fn slot(&self, slot: u32) -> Mem {
        self.on_stack(self.region.frame + 8 * slot)
    }

    pub(super) fn on_stack(&self, offset: u32) -> Mem {
        Mem {
            base: Some(Reg::RSP),
            disp: offset as i32,
            gs: false,
        }
    }

    pub(super) fn rm(&self, v: V) -> Rm {
        match self.at.locs.get(v.0 as usize) {
            Some(Loc::Reg(r)) => Rm::Reg(*r),
            Some(Loc::Slot(slot)) => Rm::Mem(self.slot(*slot)),
            // Of a valid program all that are named have a place.
            _ => Rm::Reg(RAX),
        }
    }

    /// The register that a step computes its result in.
    pub(super) fn target(&mut self, to: V) -> Reg {
        match self.rm(to) {
            Rm::Reg(r) => r,
            Rm::Mem(_) => self.temp(),
        }
    }

    /// Takes the result from there to where it belongs.
    pub(super) fn done(&mut self, to: V, from: Reg) {
        match self.rm(to) {
            Rm::Reg(r) => self.asm.mov(r, Rm::Reg(from)),
            Rm::Mem(m) => self.asm.store(m, from, Width::B8, None),
        }
    }

    pub(super) fn put(&mut self, to: Reg, from: Val) {
        match from {
            Val::V(v) => {
                let from = self.rm(v);
                self.asm.mov(to, from);
            }
            Val::Imm(value) => self.asm.mov_imm(to, value),
        }
    }

    /// In a register: its own or a temporary one.
    pub(super) fn in_reg(&mut self, val: Val) -> Reg {
        if let Val::V(v) = val
            && let Rm::Reg(r) = self.rm(v)
        {
            return r;
        }
        let r = self.temp();
        self.put(r, val);
        r
    }

    /// As it is, or a constant that is too long in a temporary register.
    pub(super) fn source(&mut self, val: Val) -> Source {
        match val {
            Val::V(v) => Source::Rm(self.rm(v)),
            Val::Imm(value) => match imm32(value) {
                Some(imm) => Source::Imm(imm),
                None => Source::Rm(Rm::Reg(self.in_reg(val))),
            },
        }
    }

    /// Memory at an address, which may use `via` for it instead of a temporary register.
    pub(super) fn mem(&mut self, at: Val, offset: i32, gs: bool, via: Option<Reg>) -> Mem {
        if let Val::Imm(address) = at
            && let Some(disp) = imm32(address.wrapping_add_signed(i64::from(offset)))
            && imm32(address).is_some()
        {
            return Mem {
                base: None,
                disp,
                gs,
            };
        }
        let base = match (at, via) {
            (Val::V(v), _) if matches!(self.rm(v), Rm::Reg(_)) => self.in_reg(at),
            (_, Some(via)) => {
                self.put(via, at);
                via
            }
            _ => self.in_reg(at),
        };
        Mem {
            base: Some(base),
            disp: offset,
            gs,
        }
    }

    pub(super) fn based(&mut self, base: Base, offset: i32, via: Option<Reg>) -> Mem {
        match base {
            Base::Frame => self.on_stack(offset as u32),
            Base::At(at) => self.mem(at, offset, false, via),
        }
    }

    pub(super) fn store(&mut self, to: Mem, value: Val, width: Width, fault: Option<Mark>) {
        match value {
            Val::Imm(v) if width != Width::B8 => {
                self.asm.store_imm(to, v as u32 as i32, width, fault);
            }
            Val::Imm(v) if imm32(v).is_some() => {
                self.asm.store_imm(to, v as u32 as i32, width, fault);
            }
            _ => {
                let from = self.in_reg(value);
                self.asm.store(to, from, width, fault);
            }
        }
    }

    /// Where the register of the interrupted code is.
    pub(super) fn interrupted(&self, reg: Reg) -> Rm {
        match self.saved.of(reg) {
            Some(depth) => Rm::Mem(self.on_stack(self.asm.pushed().saturating_sub(depth))),
            None => Rm::Reg(reg),
        }
    }
}
