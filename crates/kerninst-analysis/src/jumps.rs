//! Where a jump goes: on in the function, to another one, or out by a thunk.

use crate::decode::Decoded;
use crate::flow::Walk;
use crate::function::{Incomplete, InsnKind};
use crate::names::Class;
use crate::node::{Bits, Leave, Node};

/// Where a jump goes.
pub(crate) enum Goes {
    /// To code that belongs to the function.
    Inside,
    /// To another function's start, or to code that is not known.
    Tail,
    /// Into the middle of another function.
    Into,
    Return,
    Indirect(u8),
    /// Out of all text where the kernel itself would not jump.
    Foreign,
}

impl Walk<'_, '_> {
    pub(crate) fn queue(&mut self, addr: u64) {
        self.joins.push(addr);
        self.work.push(addr);
    }

    pub(crate) fn is_return_thunk(&self, addr: u64) -> bool {
        let start = self.shared.index.at(addr);
        start.is_some_and(|s| s.class.contains(Class::RETURN_THUNK))
    }

    /// The register of an indirect branch thunk that the kernel made at boot, in memory of no image:
    /// `jmp *%reg; int3` (its_init_thunk(), arch/x86/kernel/alternative.c, 6.12).
    pub(crate) fn made_thunk(&self, target: u64) -> Option<u8> {
        let index = &self.shared.index;
        if !index.kernel.is_live() || index.text_at(target).is_some() {
            return None;
        }
        match index.kernel.read(target, 4).ok()?.as_slice() {
            [0xff, modrm @ 0xe0..=0xe7, 0xcc, _] => Some(modrm & 7),
            [0x41, 0xff, modrm @ 0xe0..=0xe7, 0xcc] => Some(8 | modrm & 7),
            _ => None,
        }
    }

    /// Does a direct jump to `target` belong to somebody who has overwritten this text? The kernel's own code jumps to
    /// its own text only, and a module's to its own, the core's or another module's functions: a jump to memory that is
    /// no image's text, from the core into a module, or into one of our patch modules leads to a kprobe's detour or
    /// to a patch, from where control comes back behind the overwritten bytes.
    fn is_foreign(&self, target: u64) -> bool {
        let index = &self.shared.index;
        if !index.kernel.is_live() {
            return false;
        }
        let module = |addr| index.text_at(addr).map(|t| t.module.as_deref());
        match (module(self.flow.region.start), module(target)) {
            (_, None) => !self.is_gone(target),
            (Some(None), Some(Some(_))) => true,
            (_, Some(Some(there))) => there.starts_with("kerninst_p"),
            _ => false,
        }
    }

    /// Is `target` in the core's init text? It is gone by now; what only ran at boot still jumps there.
    fn is_gone(&self, target: u64) -> bool {
        let symbols = self.shared.index.kernel.symbols();
        let bounds = symbols
            .addr_of("_sinittext")
            .zip(symbols.addr_of("_einittext"));
        bounds.is_some_and(|(start, end)| (start..end).contains(&target))
    }

    pub(crate) fn goes(&self, target: u64) -> Goes {
        if self.flow.region.contains(&target) {
            return Goes::Inside;
        }
        if let Some(register) = self.made_thunk(target) {
            return Goes::Indirect(register);
        }
        if self.is_foreign(target) {
            return Goes::Foreign;
        }
        let index = &self.shared.index;
        if let Some(start) = index.at(target) {
            return match start.class {
                c if c.contains(Class::RETURN_THUNK) => Goes::Return,
                c if c.contains(Class::INDIRECT_THUNK) => Goes::Indirect(start.register),
                c if c.contains(Class::COLD) => Goes::Inside,
                _ => Goes::Tail,
            };
        }
        let Some(n) = index.region_at(target) else {
            return Goes::Tail;
        };
        let (Some(start), Some(region)) = (index.at(n), index.region(n)) else {
            return Goes::Tail;
        };
        // A cold part: with its own symbol (6.1), or without one in the region of some other symbol (6.12).
        let cold = start.class.contains(Class::COLD)
            || !start.class.contains(Class::PADDING)
                && !self.shared.reached_in_region(region, target);
        if cold { Goes::Inside } else { Goes::Into }
    }

    pub(crate) fn jump(&mut self, node: &mut Node) {
        match self.goes(node.target) {
            Goes::Inside => {
                node.bits |= Bits::INSIDE;
                self.queue(node.target);
            }
            Goes::Tail => {
                node.leave = Leave::Tail;
                if node.kind == InsnKind::Jmp {
                    node.kind = InsnKind::TailCall;
                }
            }
            Goes::Into => {
                node.leave = Leave::Into;
                if node.kind == InsnKind::Jmp {
                    node.kind = InsnKind::TailCall;
                }
            }
            Goes::Foreign => {
                node.leave = Leave::Tail;
                self.flow.incomplete.push(Incomplete::ForeignJump {
                    addr: node.addr,
                    to: node.target,
                });
            }
            Goes::Return => {
                node.leave = Leave::Return;
                if node.kind == InsnKind::Jmp {
                    node.kind = InsnKind::Return;
                }
            }
            Goes::Indirect(register) => {
                node.leave = Leave::IndirectTail;
                node.uses |= 1 << (register & 15);
                if node.kind == InsnKind::Jmp {
                    node.kind = InsnKind::IndirectJmp;
                    node.target = 0;
                }
            }
        }
    }

    pub(crate) fn indirect_jump(&mut self, node: &mut Node, decoded: &Decoded) {
        node.kind = InsnKind::IndirectJmp;
        let index = &self.shared.index;
        let listed = index.kernel.tables().retpolines.at(node.addr).is_some();
        let c_code = self.flow.abi && index.retpolines && !decoded.indexed;
        // An indirect branch thunk is nothing but such a jump.
        let thunk = index
            .at(self.flow.region.start)
            .is_some_and(|s| s.class.contains(Class::INDIRECT_THUNK));
        if listed || c_code || thunk {
            node.leave = Leave::IndirectTail;
        } else {
            node.leave = Leave::Unknown;
            self.flow
                .incomplete
                .push(Incomplete::IndirectJump { addr: node.addr });
        }
    }
}
