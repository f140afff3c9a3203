//! Finds the instructions of a function: decodes from its entry along every way that control can go.

use std::ops::Range;

use iced_x86::Code;

use crate::decode::{Decoded, Effects, Op, Reader, address_taken, fill_len};
use crate::function::{Incomplete, InsnKind, Sites};
use crate::hash::AddrMap;
use crate::masks::{ALL, ARGS};
use crate::names::{Class, KeyConvention};
use crate::near::Near;
use crate::node::{Bits, Flow, Leave, Node};
use crate::reach::NO_RETURN_LEVELS;
use crate::shared::Shared;

/// More instructions than any function has (the largest in Debian's 6.12 has some 12,000).
const LIMIT: usize = 200_000;

/// Memory that is used again from function to function.
pub(crate) struct Scratch {
    slots: Vec<bool>,
    effects: Effects,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            effects: Effects::new(),
        }
    }
}

/// Where a jump goes.
enum Goes {
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

struct Walk<'a, 'k> {
    shared: &'a Shared<'k>,
    scratch: &'a mut Scratch,
    near: Near<'k>,
    flow: Flow,
    main: Reader<'k>,
    /// Decoded addresses outside of the main region.
    far: AddrMap<u64, ()>,
    work: Vec<u64>,
    joins: Vec<u64>,
    roots: Vec<u64>,
    taken: Vec<u64>,
}

impl<'k> Shared<'k> {
    /// Works out the function (or other code) at start number `n`. With `incoming`, ways in from other
    /// functions are looked for too (where such can be); what is live at the entry does not need them.
    pub(crate) fn flow(&self, n: usize, incoming: bool, scratch: &mut Scratch) -> Option<Flow> {
        let start = self.index.get(n)?;
        let region = self.index.region(n)?;
        let size = usize::try_from(region.end.checked_sub(region.start)?).ok()?;
        let bytes = self.index.text_at(region.start)?.get(region.start, size)?;
        scratch.slots.clear();
        scratch.slots.resize(size, false);
        let near = Near::new(self.index.kernel.tables(), region.clone());
        let mut walk = Walk {
            shared: self,
            scratch,
            near,
            main: Reader::new(region.start, bytes),
            far: AddrMap::default(),
            work: vec![region.start],
            joins: vec![region.start],
            roots: vec![region.start],
            taken: Vec::new(),
            flow: Flow {
                nodes: Vec::with_capacity((size / 4).min(1024)),
                region,
                fixups: Vec::new(),
                extra: Vec::new(),
                fentry: None,
                abi: start.class.contains(Class::FENTRY),
                incomplete: Vec::new(),
            },
        };
        if start.class.contains(Class::COLD) {
            walk.flow.abi = self.cold_abi(n);
        }
        walk.run();
        if incoming && !walk.flow.abi {
            walk.enter(n);
        }
        Some(walk.finish())
    }

    /// A cold part follows the ABI if every function of its name does.
    fn cold_abi(&self, n: usize) -> bool {
        let Some(name) = self.index.get(n).map(|s| s.symbol.name) else {
            return false;
        };
        let Some((stem, _)) = name.split_once(".cold") else {
            return false;
        };
        let owners = self.index.kernel.symbols().named(stem);
        let fentry = |addr| {
            self.index
                .at(addr)
                .is_some_and(|s| s.class.contains(Class::FENTRY))
        };
        !owners.is_empty() && owners.iter().all(|s| fentry(s.addr))
    }
}

impl<'k> Walk<'_, 'k> {
    fn run(&mut self) {
        loop {
            while let Some(addr) = self.work.pop() {
                self.straight(addr);
                if self.flow.nodes.len() > LIMIT {
                    self.flow
                        .incomplete
                        .push(Incomplete::TooLarge { limit: LIMIT });
                    return;
                }
            }
            // Addresses that the code takes of itself may be jumped to.
            let Some(addr) = self.taken.pop() else { return };
            if self.is_inside_insn(addr) {
                continue;
            }
            self.joins.push(addr);
            self.roots.push(addr);
            self.work.push(addr);
        }
    }

    /// Adds the ways in from other functions.
    fn enter(&mut self, n: usize) {
        for way in self.shared.incoming(n, self.flow.region.clone()) {
            self.joins.push(way.addr);
            self.roots.push(way.addr);
            if way.code {
                self.work.push(way.addr);
            }
        }
        self.run();
    }

    /// Is `addr` in the middle of an instruction that is reached? (Data then, such as an operand to patch.)
    fn is_inside_insn(&self, addr: u64) -> bool {
        self.flow
            .nodes
            .iter()
            .any(|n| n.addr < addr && addr < n.end())
    }

    fn mark(&mut self, addr: u64) -> bool {
        if self.flow.region.contains(&addr) {
            let offset = (addr - self.flow.region.start) as usize;
            match self.scratch.slots.get_mut(offset) {
                Some(slot) => !std::mem::replace(slot, true),
                None => false,
            }
        } else {
            self.far.insert(addr, ()).is_none()
        }
    }

    /// Decodes from `at` on until control does not fall through or known code is met.
    fn straight(&mut self, mut at: u64) {
        if self.flow.region.contains(&at) {
            // The reader is taken out so that the walk can be changed while it is in use.
            let empty = Reader::new(0, &[]);
            let mut reader = std::mem::replace(&mut self.main, empty);
            let region = self.flow.region.clone();
            self.straight_in(&mut at, &mut reader, region);
            self.main = reader;
            return;
        }
        let index = &self.shared.index;
        let part = index.region_at(at).and_then(|n| index.region(n));
        let bytes = part.clone().and_then(|r| {
            index
                .text_at(at)?
                .get(at, usize::try_from(r.end.checked_sub(at)?).ok()?)
        });
        match (part, bytes) {
            (Some(part), Some(bytes)) => {
                let mut reader = Reader::new(at, bytes);
                self.straight_in(&mut at, &mut reader, part);
            }
            _ => self.flow.incomplete.push(Incomplete::OffText { addr: at }),
        }
    }

    fn straight_in(&mut self, at: &mut u64, reader: &mut Reader<'k>, part: Range<u64>) {
        while self.mark(*at) {
            let Some(decoded) = reader.decode(*at) else {
                self.flow
                    .incomplete
                    .push(Incomplete::BadInstruction { addr: *at });
                return;
            };
            let (mut uses, kills) = self.scratch.effects.of(&reader.insn);
            if let Some(taken) = address_taken(&reader.insn)
                && taken != self.flow.region.start
                && self.flow.region.contains(&taken)
            {
                self.taken.push(taken);
            }
            let end = at.wrapping_add(u64::from(decoded.len));
            if decoded.through_global {
                // Only paravirt operations are called through globals in a kernel with retpolines, and
                // some of them have conventions of their own.
                uses = ALL;
            }
            let mut node = Node {
                addr: *at,
                target: decoded.target.unwrap_or(0),
                uses,
                kills,
                sites: Sites::empty(),
                bits: Bits::empty(),
                len: decoded.len,
                kind: InsnKind::Plain,
                leave: Leave::Not,
            };
            self.describe(&mut node, &decoded, &part);
            if self.is_endbr(reader, &decoded, &node) {
                node.sites |= Sites::ENDBR;
            }
            if decoded.op == Op::Trap && is_emulation_prefix(reader, end) {
                self.flow
                    .incomplete
                    .push(Incomplete::BadInstruction { addr: *at });
            }
            if node.bits.contains(Bits::FALLS) && !part.contains(&end) {
                node.bits.insert(Bits::FALLS_OUT);
            }
            self.flow.nodes.push(node);
            if self.flow.nodes.len() > LIMIT || !node.bits.contains(Bits::FALLS) {
                return;
            }
            if node.bits.contains(Bits::FALLS_OUT) {
                return;
            }
            *at = end;
        }
    }

    /// An `endbr64`, or the nop that boot code made of it: four bytes at the start of the function, before the fentry
    /// site (`gen_endbr_poison`, arch/x86/include/asm/ibt.h; which nop it is differs between kernels). The kernel's
    /// list of them is in init memory, gone after boot.
    fn is_endbr(&self, reader: &Reader<'_>, decoded: &Decoded, node: &Node) -> bool {
        reader.insn.code() == Code::Endbr64
            || node.addr == self.flow.region.start
                && decoded.len == 4
                && decoded.op == Op::Nop
                && self.near.is_fentry(node.end())
    }

    /// Fills in kind, target, exit and flags of a node, and queues where it may go.
    fn describe(&mut self, node: &mut Node, decoded: &Decoded, part: &Range<u64>) {
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
            Op::Int3 => {
                node.kind = InsnKind::Int3;
                node.leave = Leave::Unknown;
                self.flow
                    .incomplete
                    .push(Incomplete::Breakpoint { addr: node.addr });
            }
            Op::Special => {
                node.kind = InsnKind::Special;
                node.leave = Leave::Special;
            }
        }
    }

    /// A site that boot code may replace (files only; on a live kernel the table is gone and the bytes are
    /// final): what either version reads counts as live, nothing as overwritten, and both versions'
    /// branches are followed.
    fn alternatives(&mut self, node: &mut Node) -> bool {
        let mut any = false;
        for entry in self.near.alternatives(node.addr) {
            any = true;
            node.sites |= Sites::ALTERNATIVE;
            node.kills = 0;
            let len = usize::from(entry.replacement_len);
            let kernel = self.shared.index.kernel;
            let (mut at, end) = (
                entry.replacement,
                entry.replacement.wrapping_add(len as u64),
            );
            let mut owned = Vec::new();
            if kernel.bytes(at, len).is_none() {
                owned = kernel.read(at, len).unwrap_or_default();
            }
            let mut reader = Reader::new(at, kernel.bytes(at, len).unwrap_or(&owned));
            while at != end {
                let Some(insn) = reader.decode(at) else {
                    node.bits |= Bits::OPAQUE;
                    break;
                };
                at = at.wrapping_add(u64::from(insn.len));
                node.uses |= self.scratch.effects.of(&reader.insn).0;
                match (insn.op, insn.target) {
                    (Op::Plain | Op::Nop | Op::Int3, _) => {}
                    (Op::Jmp | Op::Jcc, Some(target)) => self.replacement_branch(node, target),
                    _ => node.bits |= Bits::OPAQUE,
                }
            }
        }
        any
    }

    fn replacement_branch(&mut self, node: &mut Node, target: u64) {
        let inside = matches!(self.goes(target), Goes::Inside);
        if inside && self.shared.index.region_at(target).is_some() {
            self.flow.extra.push((node.addr, target));
            self.queue(target);
        } else {
            node.bits |= Bits::OPAQUE;
        }
    }

    fn queue(&mut self, addr: u64) {
        self.joins.push(addr);
        self.work.push(addr);
    }

    fn is_return_thunk(&self, addr: u64) -> bool {
        let start = self.shared.index.at(addr);
        start.is_some_and(|s| s.class.contains(Class::RETURN_THUNK))
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
            (_, None) => true,
            (Some(None), Some(Some(_))) => true,
            (_, Some(Some(there))) => there.starts_with("kerninst_p"),
            _ => false,
        }
    }

    fn goes(&self, target: u64) -> Goes {
        if self.flow.region.contains(&target) {
            return Goes::Inside;
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
        let (Some(start), Some(region)) = (index.get(n), index.region(n)) else {
            return Goes::Tail;
        };
        // A cold part: with its own symbol (6.1), or without one in the region of some other symbol (6.12).
        let cold = start.class.contains(Class::COLD)
            || !start.class.contains(Class::PADDING)
                && !self.shared.reached_in_region(region, target);
        if cold { Goes::Inside } else { Goes::Into }
    }

    fn jump(&mut self, node: &mut Node) {
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

    fn indirect_jump(&mut self, node: &mut Node, decoded: &Decoded) {
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

    fn call(&mut self, node: &mut Node, part: &Range<u64>) {
        node.kind = InsnKind::Call;
        node.bits |= Bits::FALLS;
        let target = node.target;
        if let Some(start) = self.shared.index.at(target) {
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
        1 << (data >> 8 & 15) | crate::masks::RCX
    } else {
        0
    }
}

/// `ud2` followed by "xen": the prefix that asks the hypervisor to emulate the next instruction
/// (arch/x86/include/asm/xen/prefix.h).
fn is_emulation_prefix(reader: &Reader<'_>, end: u64) -> bool {
    reader.bytes_at(end, 3) == Some(b"xen")
}

impl Walk<'_, '_> {
    fn finish(mut self) -> Flow {
        let flow = &mut self.flow;
        // Decoded in ascending runs: a stable sort merges them.
        flow.nodes.sort_by_key(|n| n.addr);
        flow.fixups.sort_unstable();
        flow.extra.sort_unstable();
        for pair in flow.nodes.windows(2) {
            if let [a, b] = pair
                && b.addr < a.end()
            {
                flow.incomplete.push(Incomplete::Overlap { addr: b.addr });
            }
        }
        for (list, bit) in [
            (&self.joins, Bits::JOIN),
            (&self.roots, Bits::ROOT | Bits::JOIN),
        ] {
            for &addr in list {
                if let Ok(n) = flow.nodes.binary_search_by_key(&addr, |n| n.addr)
                    && let Some(node) = flow.nodes.get_mut(n)
                {
                    node.bits |= bit;
                }
            }
        }
        crate::sites::apply(flow, self.shared.index.kernel.tables());
        flow.incomplete.dedup();
        self.flow
    }
}
