//! What one instruction does to control: its kind, where it may go, what the tables say.

use std::ops::Range;

use iced_x86::Code;

use crate::decode::{Decoded, Op, Reader, fill_len};
use crate::flow::Walk;
use crate::function::{Incomplete, InsnKind, Sites};
use crate::jumps::Goes;
use crate::masks::{ARGS, RCX};
use crate::names::{Class, KeyConvention};
use crate::node::{Bits, Leave, Node};
use crate::reach::NO_RETURN_LEVELS;

impl Walk<'_, '_> {
    /// An `endbr64`, or the nop that boot code made of it: four bytes at the start of the function, before the fentry
    /// site (`gen_endbr_poison`, arch/x86/include/asm/ibt.h; which nop it is differs between kernels). The kernel's
    /// list of them is in init memory, gone after boot.
    pub(crate) fn is_endbr(&self, reader: &Reader<'_>, decoded: &Decoded, node: &Node) -> bool {
        reader.insn.code() == Code::Endbr64
            || node.addr == self.flow.region.start
                && decoded.len == 4
                && decoded.op == Op::Nop
                && self.near.is_fentry(node.end())
    }

    /// Fills in kind, target, exit and flags of a node, and queues where it may go.
    pub(crate) fn describe(&mut self, node: &mut Node, decoded: &Decoded, part: &Range<u64>) {
        for entry in self.near.fixups(node.addr) {
            node.sites |= Sites::EXTABLE;
            node.uses |= fixup_reads(entry.data);
            self.flow.fixups.push((node.addr, entry.fixup));
            if matches!(self.goes(entry.fixup), Goes::Inside) {
                self.queue(entry.fixup);
            }
        }
        if self.near.is_paravirt(node.addr) {
            node.sites |= Sites::PARAVIRT;
            node.bits |= Bits::OPAQUE;
        }
        let alternative = self.alternatives(node);
        if self.near.is_fentry(node.addr) {
            if !matches!(decoded.op, Op::Nop | Op::Call) {
                return self.rewritten(node);
            }
            node.sites |= Sites::FENTRY;
            node.kind = InsnKind::Nop;
            node.bits |= Bits::FALLS;
            node.target = 0;
            // ftrace, BPF and livepatch look at the arguments here; nothing is changed for the function.
            (node.uses, node.kills) = (ARGS, 0);
            self.flow.fentry = self.flow.fentry.or(Some(node.addr));
            return;
        }
        if let Some(label) = self.near.jump_label(node.addr) {
            if !matches!(decoded.op, Op::Nop | Op::Jmp) {
                return self.rewritten(node);
            }
            node.sites |= Sites::JUMP_LABEL;
            node.kind = InsnKind::JumpLabel;
            node.target = label.target;
            node.bits |= Bits::FALLS;
            if label.key & 1 != 0 {
                node.bits |= Bits::KEY_INVERTED;
            }
            self.jump(node);
            return;
        }
        if let Some(call) = self.near.static_call(node.addr) {
            if decoded.op == Op::Int3 {
                return self.rewritten(node);
            }
            node.sites |= Sites::STATIC_CALL;
            match self.shared.index.key_convention(call.key) {
                KeyConvention::C => {}
                KeyConvention::Preserves => node.bits |= Bits::TRANSPARENT,
                KeyConvention::Own => node.bits |= Bits::OPAQUE,
            }
            let target = node.target;
            if call.tail {
                node.leave = Leave::Tail;
                let conditional = decoded.op == Op::Jcc;
                node.kind = if conditional {
                    InsnKind::Jcc
                } else {
                    InsnKind::TailCall
                };
                node.bits.set(Bits::FALLS, conditional);
                if self.is_return_thunk(target) {
                    node.target = 0;
                }
            } else {
                node.kind = InsnKind::Call;
                node.bits |= Bits::FALLS;
            }
            return;
        }
        node.bits.set(Bits::FALLS, alternative);
        match decoded.op {
            Op::Plain => node.bits |= Bits::FALLS,
            Op::Nop => {
                node.kind = InsnKind::Nop;
                node.bits |= Bits::FALLS;
            }
            Op::Jcc | Op::Loop => {
                node.kind = if decoded.op == Op::Jcc {
                    InsnKind::Jcc
                } else {
                    InsnKind::Loop
                };
                node.bits |= Bits::FALLS;
                self.jump(node);
            }
            Op::Jmp => {
                node.kind = InsnKind::Jmp;
                self.jump(node);
            }
            Op::IndirectJmp => self.indirect_jump(node, decoded),
            Op::Call => self.call(node, part),
            Op::IndirectCall => {
                node.kind = InsnKind::IndirectCall;
                node.bits |= Bits::FALLS;
                self.layout(node, part);
            }
            Op::Ret => {
                node.kind = InsnKind::Return;
                node.leave = Leave::Return;
            }
            Op::Trap => {
                node.kind = InsnKind::Trap;
                if self.near.trap_resumes(node.addr) {
                    node.bits |= Bits::FALLS;
                } else {
                    node.leave = Leave::Trap;
                }
            }
            Op::Int3 => self.rewritten(node),
            Op::Special => {
                node.kind = InsnKind::Special;
                node.leave = Leave::Special;
            }
        }
    }

    /// A breakpoint hides the instruction: somebody's, or that of the kernel, which was rewriting a site of its own when the text
    /// was read (arch/x86/kernel/alternative.c, `text_poke_bp_batch`: first an int3, then the tail, then the first byte). How
    /// long the instruction is cannot be known then.
    fn rewritten(&mut self, node: &mut Node) {
        node.kind = InsnKind::Int3;
        node.leave = Leave::Unknown;
        self.flow
            .incomplete
            .push(Incomplete::Breakpoint { addr: node.addr });
    }

    fn call(&mut self, node: &mut Node, part: &Range<u64>) {
        node.kind = InsnKind::Call;
        node.bits |= Bits::FALLS;
        let target = node.target;
        if let Some(register) = self.made_thunk(target) {
            node.kind = InsnKind::IndirectCall;
            node.uses |= 1 << register;
            node.target = 0;
        } else if let Some(start) = self.shared.index.at(target) {
            if start.class.contains(Class::INDIRECT_THUNK) {
                node.kind = InsnKind::IndirectCall;
                node.uses |= 1 << (start.register & 15);
                node.target = 0;
            } else if start.class.contains(Class::SPECIAL) {
                node.bits |= Bits::OPAQUE;
            }
        } else if self.flow.region.contains(&target) {
            // A local subroutine (assembly): its return comes back here.
            self.roots.push(target);
            self.queue(target);
            if self.next_byte(node) == Some(0xcc) {
                // A retpoline: the subroutine drops the return address.
                node.bits.remove(Bits::FALLS);
                node.leave = Leave::NoReturn;
                return;
            }
        }
        if self.shared.never_returns(target, NO_RETURN_LEVELS)
            && !node.sites.contains(Sites::ALTERNATIVE)
        {
            node.bits.remove(Bits::FALLS);
            node.leave = Leave::NoReturn;
        } else {
            self.layout(node, part);
        }
    }

    fn next_byte(&self, node: &Node) -> Option<u8> {
        let text = self.shared.index.text_at(node.addr)?;
        text.get(node.end(), 1)?.first().copied()
    }

    /// A call in C code with nothing but fill behind it does not return.
    fn layout(&self, node: &mut Node, part: &Range<u64>) {
        if !self.flow.abi || node.sites.contains(Sites::ALTERNATIVE) {
            return;
        }
        let end = node.end();
        let size = usize::try_from(part.end.saturating_sub(end)).unwrap_or(usize::MAX);
        let bytes = self
            .shared
            .index
            .text_at(node.addr)
            .and_then(|t| t.get(end, size));
        let Some(mut bytes) = bytes else { return };
        loop {
            match fill_len(bytes) {
                0 if bytes.is_empty() => break,
                0 => return,
                n => bytes = bytes.get(n..).unwrap_or(&[]),
            }
        }
        node.bits.remove(Bits::FALLS);
        node.bits |= Bits::NO_RETURN_BY_LAYOUT;
        node.leave = Leave::NoReturn;
    }
}

/// Registers that an exception handler reads besides those of the instruction
/// (EX_TYPE_UCOPY_LEN: rcx and the register in bits 8..=11; arch/x86/include/asm/extable_fixup_types.h).
fn fixup_reads(data: u32) -> u32 {
    const EX_TYPE_UCOPY_LEN: u32 = 19;
    if data & 0xff == EX_TYPE_UCOPY_LEN {
        1 << (data >> 8 & 15) | RCX
    } else {
        0
    }
}

/// `ud2` followed by "xen": the prefix that asks the hypervisor to emulate the next instruction
/// (arch/x86/include/asm/xen/prefix.h).
pub(crate) fn is_emulation_prefix(reader: &Reader<'_>, end: u64) -> bool {
    reader.bytes_at(end, 3) == Some(b"xen")
}
