//! The code of a version.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction};
use kerninst_analysis::{EdgeKind, EdgeTarget, ExitKind, Insn, InsnKind, Live, Sites};
use kerninst_snippet::{Features, StackStep, compile};
use rustc_hash::FxHashMap;

use super::entry::WayIn;
use super::{NoVersion, Wanted};
use crate::facts::Facts;
use crate::{
    BugSite, CodePatch, ExSite, Fixup, JumpSite, PlannedPoint, Reloc, RelocKind, Spot, StaticSite,
    Tactic, relocate,
};

/// An emitted function.
pub(super) struct Body {
    pub code: CodePatch,
    pub placed: Vec<PlannedPoint>,
    pub blocks: Vec<u32>,
}

/// Where a branch leads.
#[derive(Clone, Copy)]
enum To {
    /// A label: the number of an instruction, or of a stub after all of those.
    Label(usize),
    /// A kernel address.
    Kernel(u64),
}

/// Code that runs a snippet on an edge that is not a fall-through.
struct Stub {
    spot: Spot,
    label: usize,
    to: To,
    live: Live,
    /// Address whose unwind data holds there.
    like: u64,
}

/// What a table entry of the original becomes, once all labels have places.
enum Late {
    Extable { at: u32, to: To, data: u32 },
    JumpLabel { at: u32, to: To, key: u64 },
}

const UNSET: u32 = u32::MAX;

struct Builder<'a, 'b> {
    facts: &'a Facts<'b>,
    wanted: &'a Wanted,
    features: Features,
    code: CodePatch,
    placed: Vec<PlannedPoint>,
    /// Offset of each label.
    labels: Vec<u32>,
    /// 32-bit displacements to labels: offset of the field, label.
    fields: Vec<(u32, usize)>,
    late: Vec<Late>,
    stubs: Vec<Stub>,
    stub_of: FxHashMap<Spot, usize>,
    /// By index of the instruction: some snippet is wanted before it, after it or on its way elsewhere.
    touched: Vec<bool>,
    /// Addresses with the same unwind data, and that data: those that were looked up last.
    stack: Option<(Range<u64>, [u8; 6])>,
    /// The part of the original that was met last.
    text: Option<(u64, &'b [u8])>,
    /// The kernel unwinds by such data.
    has_orc: bool,
    /// Instructions that run in place, in the original, and that nothing in the version leads to.
    in_place: Range<usize>,
}

/// The version with blocks in `order`.
pub(super) fn emit(
    facts: &Facts,
    order: &[u32],
    wanted: &Wanted,
    way_in: &WayIn,
    features: Features,
) -> Result<Body, NoVersion> {
    let mut b = Builder {
        facts,
        wanted,
        features,
        code: CodePatch {
            // Half as much again as the original: snippets, and longer branches.
            bytes: Vec::with_capacity(facts.function.insns.len() * 6),
            ..CodePatch::default()
        },
        placed: Vec::new(),
        labels: vec![UNSET; facts.function.insns.len()],
        fields: Vec::new(),
        late: Vec::new(),
        stubs: Vec::new(),
        stub_of: FxHashMap::default(),
        touched: vec![false; facts.function.insns.len()],
        stack: None,
        text: None,
        has_orc: !facts.kernel.tables().orc.is_empty(),
        in_place: 0..0,
    };
    for spot in wanted.keys() {
        let index = facts.function.index_at(spot.addr());
        if let Some(touched) = index.and_then(|i| b.touched.get_mut(i)) {
            *touched = true;
        }
    }
    b.head(way_in);
    // The way in falls through into the block of the entry if that comes first; otherwise it jumps.
    let entry_block = facts.insn(way_in.at).map_or(0, |i| i.block);
    if let Some(block) = facts.function.blocks.get(entry_block as usize) {
        let again = EdgeTarget::Block(entry_block);
        if !facts.function.edges.iter().any(|e| e.to == again) {
            b.in_place = block.first as usize..way_in.at;
        }
        let front = |i: usize| b.is_front(i) || b.in_place.contains(&i);
        let straight =
            order.first() == Some(&entry_block) && (block.first as usize..way_in.at).all(front);
        if !straight {
            b.jump(To::Label(way_in.at));
        }
    }
    let mut blocks = vec![UNSET; facts.function.blocks.len()];
    for (n, block) in order.iter().enumerate() {
        if let Some(start) = blocks.get_mut(*block as usize) {
            *start = b.here();
        }
        b.block(*block, order.get(n + 1).copied())?;
    }
    b.stubs()?;
    b.finish(blocks)
}

impl Builder<'_, '_> {
    fn here(&self) -> u32 {
        self.code.here()
    }

    fn put(&mut self, bytes: &[u8]) {
        self.code.bytes.extend_from_slice(bytes);
    }

    /// `endbr64` at the entry, and the fentry site: calls have passed them in the original.
    fn is_front(&self, index: usize) -> bool {
        self.facts.insn(index).is_some_and(|i| {
            i.sites.contains(Sites::FENTRY)
                || i.sites.contains(Sites::ENDBR) && i.addr == self.facts.function.entry()
        })
    }

    /// What runs once a call, before the first instruction of the version: the snippets of the entry, and those of the
    /// instructions that have run in place.
    fn head(&mut self, way_in: &WayIn) {
        self.code.entry = self.here();
        let Some(at) = self.facts.insn(way_in.at) else {
            return;
        };
        self.unwind(at.addr, &[]);
        let mut spots = vec![Spot::Enter(self.facts.function.entry())];
        // Not from further back: a cold part may lie at lower addresses.
        let entry = self.facts.function.index_at(self.facts.function.entry());
        for i in entry.unwrap_or(way_in.first)..way_in.at {
            let Some(insn) = self.facts.insn(i) else {
                continue;
            };
            // What is asked for at `endbr64` and at the fentry site runs once a call too.
            spots.extend([Spot::Before(insn.addr), Spot::After(insn.addr)]);
        }
        for spot in spots {
            self.snippets(spot, at.live, at.addr);
        }
    }

    /// The snippets of `spot`, where `live` is live and the stack is as at `like`.
    fn snippets(&mut self, spot: Spot, live: Live, like: u64) {
        let Some(snippets) = self.wanted.get(&spot) else {
            return;
        };
        let code = compile(snippets, self.facts.free(live), self.features);
        self.unwind(like, &code.stack);
        self.code.put_code(&code);
        let copy = self.here();
        self.placed.push(PlannedPoint {
            at: spot,
            tactic: Tactic::Version,
            snippet_cost: code.cost,
            copy,
        });
    }

    fn block(&mut self, number: u32, next: Option<u32>) -> Result<(), NoVersion> {
        let function = self.facts.function;
        let Some(block) = function.blocks.get(number as usize) else {
            return Err(NoVersion::Order);
        };
        let range = block.first as usize..(block.first.saturating_add(block.count)) as usize;
        for index in range.clone() {
            self.instruction(index)?;
        }
        let Some(last) = self.facts.insn(range.end.saturating_sub(1)) else {
            return Ok(());
        };
        if last.kind.is_terminal() {
            return Ok(());
        }
        // Where control goes on after the last instruction.
        match function.index_at(last.end()) {
            Some(index) => {
                let follows = function.insns.get(index).map(|i| i.block);
                if follows != next {
                    self.unwind(last.end(), &[]);
                    self.jump(To::Label(index));
                }
            }
            None => {
                let falls_out = function.block_edges(block).iter().any(|e| {
                    e.to == EdgeTarget::Exit(ExitKind::TailCall(last.end()))
                        && !matches!(e.kind, EdgeKind::Taken)
                });
                if falls_out {
                    self.unwind(last.end(), &[]);
                    self.jump(To::Kernel(last.end()));
                } else {
                    // A call that does not return, or a trap that is not resumed.
                    self.put(&[0xcc]);
                }
            }
        }
        Ok(())
    }

    fn instruction(&mut self, index: usize) -> Result<(), NoVersion> {
        let Some(insn) = self.facts.insn(index).copied() else {
            return Ok(());
        };
        if let Some(label) = self.labels.get_mut(index) {
            *label = self.code.here();
        }
        if self.is_front(index) || self.in_place.contains(&index) {
            return Ok(());
        }
        let touched = self.touched.get(index) != Some(&false);
        if touched {
            self.snippets(Spot::Before(insn.addr), insn.live, insn.addr);
        }
        self.unwind(insn.addr, &[]);
        self.original(index, &insn)?;
        if touched && self.wanted.contains_key(&Spot::After(insn.addr)) {
            let next = self.facts.insn(index + 1).filter(|n| n.addr == insn.end());
            let live = next.map_or(Live::ALL, |n| n.live);
            self.snippets(Spot::After(insn.addr), live, insn.end());
        }
        Ok(())
    }

    /// The instruction itself.
    fn original(&mut self, index: usize, insn: &Insn) -> Result<(), NoVersion> {
        let cannot = |why| NoVersion::Unrelocatable {
            addr: insn.addr,
            why,
        };
        let invalid = cannot(crate::Unrelocatable::Invalid);
        let bytes = self.facts.bytes_of(insn, &mut self.text);
        let (Some(bytes), Some(i)) = (bytes, self.facts.decoded.get(index)) else {
            return Err(invalid);
        };
        self.table_entries(insn);
        if self.facts.goes_as_it_is(index) {
            self.put(bytes);
            return Ok(());
        }
        if insn.sites.contains(Sites::JUMP_LABEL) {
            return self.jump_label(insn);
        }
        if insn.sites.contains(Sites::STATIC_CALL) {
            return self.static_call(insn);
        }
        match i.flow_control() {
            FlowControl::UnconditionalBranch => {
                let to = self.branch_to(insn, i.near_branch_target());
                self.put(&[0xe9]);
                self.rel32(to);
            }
            FlowControl::ConditionalBranch => {
                let to = self.branch_to(insn, i.near_branch_target());
                self.conditional(i, bytes, to).ok_or(invalid)?;
            }
            FlowControl::Call if i.is_call_near() => {
                self.put(&[0xe8]);
                self.rel32(To::Kernel(i.near_branch_target()));
                self.note_return(insn);
            }
            FlowControl::IndirectCall => {
                let f = crate::relocate::copied(bytes, insn.addr).map_err(cannot)?;
                self.fragment(&f);
                self.note_return(insn);
            }
            // Most instructions run anywhere as they are.
            _ if !i.is_ip_rel_memory_operand() => self.put(bytes),
            _ => {
                let f = relocate(bytes, insn.addr).map_err(cannot)?;
                self.fragment(&f);
            }
        }
        Ok(())
    }

    fn fragment(&mut self, f: &crate::Fragment) {
        let base = self.here();
        self.put(&f.bytes);
        self.code.relocs.extend(f.relocs.iter().map(|r| Reloc {
            offset: r.offset + base,
            ..*r
        }));
    }

    fn to(&self, addr: u64) -> To {
        match self.facts.function.index_at(addr) {
            Some(index) => To::Label(index),
            None => To::Kernel(addr),
        }
    }

    /// The branch target, or the stub in front of it that runs the edge's snippets.
    fn branch_to(&mut self, insn: &Insn, target: u64) -> To {
        // A branch of an inline thunk sequence leads where it says; all others where the analysis says.
        let target = insn.target.unwrap_or(target);
        let to = self.to(target);
        self.via_stub(Spot::Taken(insn.addr), insn, target, to)
    }

    fn via_stub(&mut self, spot: Spot, insn: &Insn, target: u64, to: To) -> To {
        if !self.wanted.contains_key(&spot) {
            return to;
        }
        if let Some(label) = self.stub_of.get(&spot) {
            return To::Label(*label);
        }
        // What is live behind a jump to another function is not known here; before the jump it is also live.
        let (live, like) = match self.facts.function.insn_at(target) {
            Some(t) => (t.live, target),
            None => (insn.live, insn.addr),
        };
        let label = self.labels.len();
        self.labels.push(UNSET);
        self.stub_of.insert(spot, label);
        self.stubs.push(Stub {
            spot,
            label,
            to,
            live,
            like,
        });
        To::Label(label)
    }

    /// Exception and bug table entries of an instruction that is about to be emitted.
    fn table_entries(&mut self, insn: &Insn) {
        let tables = self.facts.kernel.tables();
        let at = self.here();
        if insn.sites.contains(Sites::EXTABLE)
            && let Some(e) = tables.extable.at(insn.addr)
        {
            let to = self.to(e.fixup);
            let to = self.via_stub(Spot::Fixup(insn.addr), insn, e.fixup, to);
            let data = e.data;
            self.late.push(Late::Extable { at, to, data });
        }
        if insn.kind == InsnKind::Trap
            && let Some(e) = tables.bugs.at(insn.addr)
        {
            self.code.bugs.push(BugSite {
                offset: at,
                file: e.file,
                line: e.line,
                flags: e.flags,
            });
        }
    }

    fn conditional(&mut self, i: &Instruction, raw: &[u8], to: To) -> Option<()> {
        if i.is_jcc_short_or_near() {
            let back = if i.is_jcc_short() { 2 } else { 5 };
            let condition = raw.get(raw.len().checked_sub(back)?)? & 0x0f;
            self.put(&[0x0f, 0x80 | condition]);
            self.rel32(to);
            return Some(());
        }
        // loop, loope, loopne, jrcxz, jecxz have only a short form: go over a jump.
        let (_, head) = raw.split_last()?;
        self.put(head);
        self.put(&[2, 0xeb, 5]); // taken: over the next jump; not taken: over the long one
        self.jump(to);
        Some(())
    }

    /// A static key's site: five bytes in the key's INITIAL state. The kernel's loader takes them for that and brings
    /// them up to date before the module is live (`jump_label_add_module` in kernel/jump_label.c, 6.1 and 6.12).
    fn jump_label(&mut self, insn: &Insn) -> Result<(), NoVersion> {
        // arch/x86/include/asm/nops.h: what arch/x86/kernel/jump_label.c expects of a 5-byte nop.
        const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
        let Some(e) = self.facts.kernel.tables().jump_labels.at(insn.addr) else {
            let why = crate::Unrelocatable::Table("jump label");
            return Err(NoVersion::Unrelocatable {
                addr: insn.addr,
                why,
            });
        };
        let (target, raw) = (e.target, e.key);
        let at = self.here();
        let to = self.to(target);
        let to = self.via_stub(Spot::Taken(insn.addr), insn, target, to);
        if self.facts.kernel.is_sealed(raw & !3) {
            // The key cannot change, and kernels before 6.10 crash when a module has a site of it: they write to the key
            // (`jump_label_add_module`). The site stays as it is.
            match self.facts.kernel.bytes(insn.addr, 1) {
                Some([0xe9 | 0xeb]) => {
                    self.put(&[0xe9]);
                    self.rel32(to);
                }
                // The nops of 5 and of 2 bytes.
                Some([0x0f | 0x66]) => self.put(&NOP5),
                _ => return Err(NoVersion::Key { key: raw & !3 }),
            }
            return Ok(());
        }
        if initially_jumps(self.facts, raw)? {
            self.put(&[0xe9]);
            self.rel32(to);
        } else {
            self.put(&NOP5);
        }
        self.late.push(Late::JumpLabel { at, to, key: raw });
        Ok(())
    }

    /// A static call's site as it is now: the loader brings it up to date (`__static_call_init` in
    /// kernel/static_call_inline.c) and checks only which kind of instruction is there.
    fn static_call(&mut self, insn: &Insn) -> Result<(), NoVersion> {
        let why = crate::Unrelocatable::Table("static call");
        let cannot = NoVersion::Unrelocatable {
            addr: insn.addr,
            why,
        };
        let kernel = self.facts.kernel;
        let Some(e) = kernel.tables().static_calls.at(insn.addr) else {
            return Err(cannot);
        };
        // Bit 1 marks sites in init text (STATIC_CALL_SITE_INIT, include/linux/static_call_types.h).
        let key = e.key & !2;
        if kernel.is_sealed(key & !3) {
            return Err(cannot);
        }
        let offset = self.here();
        let raw = kernel.bytes(insn.addr, 6).or(kernel.bytes(insn.addr, 5));
        match raw {
            Some(&[op @ (0xe8 | 0xe9), a, b, c, d, ..]) => {
                let target = insn.addr.wrapping_add(5);
                let target =
                    target.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
                self.put(&[op]);
                self.rel32(To::Kernel(target));
            }
            Some(&[0x0f, op @ 0x80..=0x8f, a, b, c, d]) => {
                let target = insn.addr.wrapping_add(6);
                let target =
                    target.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
                let to = self.via_stub(Spot::Taken(insn.addr), insn, target, To::Kernel(target));
                if matches!(to, To::Label(_)) {
                    // The kernel rewrites the target itself: nothing can stand in between.
                    return Err(cannot);
                }
                self.put(&[0x0f, op]);
                self.rel32(to);
            }
            Some(raw) => {
                let five = raw.get(..5).unwrap_or(raw).to_vec();
                self.put(&five);
            }
            None => return Err(cannot),
        }
        self.code.static_calls.push(StaticSite { offset, key });
        if insn.kind == InsnKind::Call {
            self.note_return(insn);
        }
        Ok(())
    }

    /// The call that was just emitted.
    fn note_return(&mut self, insn: &Insn) {
        let at = self.here();
        self.code.returns.push((at, insn.end()));
    }

    fn jump(&mut self, to: To) {
        self.put(&[0xe9]);
        self.rel32(to);
    }

    fn rel32(&mut self, to: To) {
        let offset = self.here();
        match to {
            To::Label(label) => self.fields.push((offset, label)),
            To::Kernel(target) => self.code.relocs.push(Reloc {
                offset,
                kind: RelocKind::Pc32,
                target,
                addend: -4,
            }),
        }
        self.put(&[0; 4]);
    }

    fn stubs(&mut self) -> Result<(), NoVersion> {
        for stub in std::mem::take(&mut self.stubs) {
            let here = self.here();
            *self.labels.get_mut(stub.label).ok_or(NoVersion::TooLarge)? = here;
            self.unwind(stub.like, &[]);
            let before = self.placed.len();
            self.snippets(stub.spot, stub.live, stub.like);
            if let Some(p) = self.placed.get_mut(before) {
                p.snippet_cost += 1;
            }
            self.unwind(stub.like, &[]);
            self.jump(stub.to);
        }
        Ok(())
    }

    /// From here on the stack is as at `addr`, then as `steps` (offsets from here) say.
    fn unwind(&mut self, addr: u64, steps: &[StackStep]) {
        if !self.has_orc {
            return;
        }
        // Mostly it is as it was.
        if let (Some((run, raw)), Some(last)) = (&self.stack, self.code.orc.last())
            && run.contains(&addr)
            && last.raw == *raw
            && steps.is_empty()
        {
            return;
        }
        let known = self.stack.as_ref().filter(|(run, _)| run.contains(&addr));
        let raw = known.map(|(_, raw)| *raw).or_else(|| {
            let (entry, run) = self.facts.kernel.tables().orc.lookup_run(addr)?;
            self.stack = Some((run, entry.raw));
            Some(entry.raw)
        });
        self.code.unwind_as(raw, steps);
    }

    fn place(&self, label: usize) -> Result<u32, NoVersion> {
        let at = self.labels.get(label).copied();
        at.filter(|a| *a != UNSET).ok_or(NoVersion::Order)
    }

    fn finish(mut self, blocks: Vec<u32>) -> Result<Body, NoVersion> {
        for (field, label) in std::mem::take(&mut self.fields) {
            let displacement = i64::from(self.place(label)?) - i64::from(field) - 4;
            let displacement = i32::try_from(displacement).map_err(|_| NoVersion::TooLarge)?;
            let at = self.code.bytes.iter_mut().skip(field as usize);
            at.zip(displacement.to_le_bytes())
                .for_each(|(to, from)| *to = from);
        }
        for late in std::mem::take(&mut self.late) {
            let fixup = |to| -> Result<Fixup, NoVersion> {
                Ok(match to {
                    To::Label(l) => Fixup::Inside(self.place(l)?),
                    To::Kernel(a) => Fixup::Address(a),
                })
            };
            match late {
                Late::Extable { at, to, data } => {
                    let fixup = fixup(to)?;
                    self.code.extable.push(ExSite {
                        offset: at,
                        fixup,
                        data,
                    });
                }
                Late::JumpLabel { at, to, key } => {
                    let target = fixup(to)?;
                    self.code.jump_labels.push(JumpSite {
                        offset: at,
                        target,
                        key,
                    });
                }
            }
        }
        Ok(Body {
            code: self.code,
            placed: self.placed,
            blocks,
        })
    }
}

/// Whether the site of a static key holds the jump while the key has its initial value: the key's type bit, turned
/// round if the site is the unlikely one (`jump_label_init_type` in kernel/jump_label.c; `struct static_key` in
/// include/linux/jump_label.h: a 32-bit counter, then at 8 the word whose bit 0 is `JUMP_TYPE_TRUE`).
fn initially_jumps(facts: &Facts, raw: u64) -> Result<bool, NoVersion> {
    let key = raw & !3;
    let initially_true = match facts.kernel.read(key.wrapping_add(8), 1) {
        Ok(word) => word.first().is_some_and(|b| b & 1 == 1),
        // A file does not hold what is zero at first.
        Err(_) if !facts.kernel.is_live() => false,
        Err(_) => return Err(NoVersion::Key { key }),
    };
    Ok(initially_true != (raw & 1 == 1))
}
