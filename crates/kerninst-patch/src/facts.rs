//! What the planner must know about each instruction of one function.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use kerninst_analysis::{Analysis, Function, Insn, InsnKind, Live, Shape, Sites};
use kerninst_kernel::{Kernel, OffLimit};
use kerninst_snippet::{Free, Snippet};

use crate::odd::{Odd, changes_gs, names_gs_base, odd_name, waits};
use crate::{Boards, Fragment, ManagedSite, Unrelocatable, relocate};

/// What matters of one instruction.
pub(crate) struct Fact {
    /// Its relocated form, or why there is none: worked out when first asked for, where that is not known beforehand.
    moved: OnceCell<Result<Fragment, Unrelocatable>>,
    /// The kernel rewrites it (or, in a file, has yet to write it).
    pub managed: Option<ManagedSite>,
    /// Text that must not be touched.
    pub off_limits: Option<OffLimit>,
    /// No snippet may run before it.
    pub no_snippet: Option<Odd>,
    /// Control goes on to the next instruction in a straight line.
    pub falls: bool,
}

/// One function, with facts about each of its instructions.
pub(crate) struct Facts<'a> {
    pub kernel: &'a Kernel,
    pub function: &'a Function,
    pub facts: Vec<Fact>,
    /// Versions only: each instruction decoded; the default one (invalid) where the bytes are not what the analysis saw, and for
    /// instructions that go into a version as they are ([`Facts::goes_as_it_is`]).
    pub decoded: Vec<Instruction>,
    /// What its snippets may not change although it is dead.
    pub kept: Kept,
    /// Indexes of instructions that may be displaced.
    moved: Range<usize>,
    /// No snippet may run anywhere in it.
    pub no_snippet: Option<Odd>,
    /// Padding in and around each part of the function, by the part's start: looked up once.
    padding: RefCell<HashMap<u64, Rc<[Range<u64>]>>>,
    /// Indexes of the edges, by the block that they lead to: worked out once.
    pub(crate) incoming: OnceCell<Vec<usize>>,
}

/// What the snippets of a function may not change although it is dead.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kept {
    /// Registers that some of them read, as bits by hardware number.
    regs: u16,
    /// Some of them leave the function's own ways: then nobody knows what is dead.
    all: bool,
}

impl Kept {
    /// For these, all that are in the function.
    pub fn of<'s>(snippets: impl IntoIterator<Item = &'s Snippet>) -> Kept {
        snippets.into_iter().fold(Kept::default(), |kept, s| Kept {
            regs: kept.regs | s.reads(),
            all: kept.all | s.leaves(),
        })
    }
}

/// How far around a function padding is of use: a short jump and the board it leads to.
const NEAR: u64 = 128 + 16;

impl<'a> Facts<'a> {
    /// All facts about all instructions.
    pub fn new(kernel: &'a Kernel, function: &'a Function) -> Facts<'a> {
        Facts::build(kernel, function, 0..function.insns.len(), false)
    }

    /// What a version needs: instructions are kept decoded, and only those in `moved`, where its entry may be spliced, are
    /// relocated; the others count as unmovable.
    pub fn for_version(
        kernel: &'a Kernel,
        function: &'a Function,
        moved: Range<usize>,
    ) -> Facts<'a> {
        Facts::build(kernel, function, moved, true)
    }

    fn build(
        kernel: &'a Kernel,
        function: &'a Function,
        moved: Range<usize>,
        version: bool,
    ) -> Facts<'a> {
        let mut facts: Vec<Fact> = Vec::with_capacity(function.insns.len());
        let mut decoded = Vec::with_capacity(if version { function.insns.len() } else { 0 });
        let mut gs = false;
        let (mut names_base, mut writes_msr) = (false, false);
        let mut sti = None;
        let guarded = function
            .ranges
            .iter()
            .any(|r| kernel.off_limits().touching(r.clone()).is_some());
        let mut text: Option<(u64, &[u8])> = None;
        let mut decoder: Option<(u64, Decoder)> = None;
        for insn in &function.insns {
            let off_limits = guarded
                .then(|| kernel.off_limits().touching(insn.addr..insn.end()))
                .flatten();
            let mut fact = Fact {
                moved: OnceCell::new(),
                managed: managed(insn, kernel.is_live()),
                off_limits,
                no_snippet: None,
                falls: matches!(
                    insn.kind,
                    InsnKind::Plain | InsnKind::Nop | InsnKind::Jcc | InsnKind::Loop
                ),
            };
            let mut instruction = Instruction::default();
            if as_it_is(insn) {
                sti = None;
            } else if let Some(bytes) = bytes_of(kernel, function, insn, &mut text) {
                let i = decode_in(&mut decoder, text, insn, bytes);
                gs |= changes_gs(&i);
                names_base |= names_gs_base(&i);
                writes_msr |=
                    i.mnemonic() == Mnemonic::Wrmsr || insn.sites.contains(Sites::PARAVIRT);
                // What the analysis decoded must be what is here.
                let same = i.len() == usize::from(insn.len) && !i.is_invalid();
                if same {
                    instruction = i;
                }
                if waits(&i) && sti == Some(insn.addr) {
                    fact.no_snippet = Some(Odd::StiShadow);
                    fact.moved = OnceCell::from(Err(Odd::StiShadow.into()));
                    if let Some(before) = facts.last_mut() {
                        before.moved = OnceCell::from(Err(Odd::StiShadow.into()));
                    }
                }
                sti = (i.mnemonic() == Mnemonic::Sti).then_some(insn.end());
            }
            if version {
                decoded.push(instruction);
            }
            facts.push(fact);
        }
        let changes = (gs || names_base && writes_msr).then_some(Odd::UserGs);
        let no_snippet = odd_name(&function.name).or(changes);
        Facts {
            kernel,
            function,
            facts,
            decoded,
            kept: Kept::default(),
            moved,
            no_snippet,
            padding: RefCell::default(),
            incoming: OnceCell::new(),
        }
    }

    /// What a snippet may change where `live` is live.
    pub fn free(&self, live: Live) -> Free {
        if self.kept.all {
            return Free::NOTHING;
        }
        Free::from(live).without(self.kept.regs)
    }

    /// Ranges of proven padding around `addr`, sorted: all in reach of a short jump from there.
    pub fn padding(&self, analysis: &Analysis<'_>, addr: u64) -> Rc<[Range<u64>]> {
        let part = self.function.ranges.iter().find(|r| r.contains(&addr));
        let part = part.cloned().unwrap_or(addr..addr.saturating_add(1));
        let mut cache = self.padding.borrow_mut();
        if !self.decoded.is_empty() {
            // A version needs padding near its entry only.
            let near = cache
                .entry(addr)
                .or_insert_with(|| analysis.padding_near(addr, NEAR).into());
            return near.clone();
        }
        let padding = cache.entry(part.start).or_insert_with(|| {
            let half = part.end.saturating_sub(part.start) / 2 + 1;
            let middle = part.start.saturating_add(half);
            analysis
                .padding_near(middle, half.saturating_add(NEAR))
                .into()
        });
        padding.clone()
    }

    pub fn insn(&self, index: usize) -> Option<&'a Insn> {
        self.function.insns.get(index)
    }

    pub fn fact(&self, index: usize) -> Option<&Fact> {
        self.facts.get(index)
    }

    /// The relocated form of an instruction, or why there is none; none: there is no such instruction.
    pub fn moved(&self, index: usize) -> Option<&Result<Fragment, Unrelocatable>> {
        let (fact, insn) = (self.fact(index)?, self.insn(index)?);
        let moved = || {
            if insn.kind == InsnKind::Int3 || !self.moved.contains(&index) {
                return Err(Unrelocatable::Invalid);
            }
            let bytes = bytes_of(self.kernel, self.function, insn, &mut None);
            let bytes = bytes.ok_or(Unrelocatable::Invalid)?;
            // What the analysis decoded must be what is here.
            let i = Decoder::with_ip(64, bytes, insn.addr, DecoderOptions::NONE).decode();
            if i.is_invalid() || i.len() != usize::from(insn.len) {
                return Err(Unrelocatable::Invalid);
            }
            relocate(bytes, insn.addr).and_then(|f| tables(self.kernel, insn, f))
        };
        Some(fact.moved.get_or_init(moved))
    }

    /// The bytes of an instruction; `text` is the part of the function that was met last.
    pub fn bytes_of(&self, insn: &Insn, text: &mut Option<(u64, &'a [u8])>) -> Option<&'a [u8]> {
        bytes_of(self.kernel, self.function, insn, text)
    }

    /// Whether a version has this instruction's bytes as they are, without any look at them.
    pub fn goes_as_it_is(&self, index: usize) -> bool {
        self.insn(index).is_some_and(as_it_is)
    }

    /// Whether the instruction may be overwritten, or copied into a patch so that the original is not run.
    pub fn movable(&self, index: usize, boards: &Boards) -> bool {
        let (Some(fact), Some(insn)) = (self.fact(index), self.insn(index)) else {
            return false;
        };
        fact.managed.is_none()
            && !insn.sites.intersects(Sites::MANAGED)
            && fact.off_limits.is_none()
            && boards.conflict(&(insn.addr..insn.end())).is_none()
            && self.moved(index).is_some_and(Result::is_ok)
    }

    /// Whether instruction `index` is reached in one way only: by falling through from the one before it.
    pub fn only_falls_into(&self, index: usize) -> bool {
        let Some(before) = index.checked_sub(1) else {
            return false;
        };
        let (Some(insn), Some(prev), Some(fact)) =
            (self.insn(index), self.insn(before), self.fact(before))
        else {
            return false;
        };
        insn.addr == prev.end() && !insn.joins && !insn.after_call && !insn.after_trap && fact.falls
    }

    /// Whether `index` is only reached from the instruction before it, and that one can run in a patch instead: the
    /// link of which straight lines are made.
    pub fn linked(&self, index: usize, boards: &Boards) -> bool {
        self.only_falls_into(index) && self.movable(index.wrapping_sub(1), boards)
    }
}

/// See [`Facts::goes_as_it_is`]. None of these has to do with interrupts or the gs segment either.
fn as_it_is(insn: &Insn) -> bool {
    insn.shape == Shape::ORDINARY
        && matches!(insn.kind, InsnKind::Plain | InsnKind::Nop)
        && !insn.sites.intersects(Sites::MANAGED.union(Sites::PARAVIRT))
}

/// The bytes of an instruction; `text` is the part of the function that was met last.
fn bytes_of<'k>(
    kernel: &'k Kernel,
    function: &Function,
    insn: &Insn,
    text: &mut Option<(u64, &'k [u8])>,
) -> Option<&'k [u8]> {
    let len = usize::from(insn.len);
    let within = |(start, bytes): (u64, &'k [u8])| {
        let at = usize::try_from(insn.addr.checked_sub(start)?).ok()?;
        bytes.get(at..at.checked_add(len)?)
    };
    if let Some(found) = text.and_then(within) {
        return Some(found);
    }
    let part = function.ranges.iter().find(|r| r.contains(&insn.addr))?;
    let size = usize::try_from(part.end.checked_sub(part.start)?).ok()?;
    if let Some(bytes) = kernel.bytes(part.start, size) {
        *text = Some((part.start, bytes));
        return text.and_then(within);
    }
    kernel.bytes(insn.addr, len)
}

/// The instruction of these bytes; `text`, the part that they lie in, has a decoder that is used again.
fn decode_in<'k>(
    decoder: &mut Option<(u64, Decoder<'k>)>,
    text: Option<(u64, &'k [u8])>,
    insn: &Insn,
    bytes: &'k [u8],
) -> Instruction {
    let within = |(start, all): &(u64, &[u8])| {
        let at = insn.addr.checked_sub(*start);
        at.is_some_and(|at| at < all.len() as u64)
    };
    let (start, all) = text.filter(within).unwrap_or((insn.addr, bytes));
    let known = decoder.take().filter(|(at, _)| *at == start);
    let (_, decoder) = decoder.insert(known.unwrap_or_else(|| {
        (
            start,
            Decoder::with_ip(64, all, start, DecoderOptions::NONE),
        )
    }));
    let offset = insn.addr.checked_sub(start).map(usize::try_from);
    let mut instruction = Instruction::default();
    if let Some(Ok(offset)) = offset
        && decoder.set_position(offset).is_ok()
    {
        decoder.set_ip(insn.addr);
        decoder.decode_out(&mut instruction);
    }
    instruction
}

fn managed(insn: &Insn, live: bool) -> Option<ManagedSite> {
    if insn.sites.contains(Sites::JUMP_LABEL) {
        Some(ManagedSite::JumpLabel)
    } else if insn.sites.contains(Sites::STATIC_CALL) {
        Some(ManagedSite::StaticCall)
    } else if !live && insn.sites.intersects(Sites::ALTERNATIVE | Sites::PARAVIRT) {
        Some(ManagedSite::Alternative)
    } else {
        None
    }
}

/// Refuses what needs a table entry that cannot be copied.
fn tables(kernel: &Kernel, insn: &Insn, f: Fragment) -> Result<Fragment, Unrelocatable> {
    let t = kernel.tables();
    // The entry of the copy names its first byte: that must be the faulting instruction itself.
    if insn.sites.contains(Sites::EXTABLE) && (t.extable.at(insn.addr).is_none() || f.extra != 0) {
        return Err(Unrelocatable::Table("exception"));
    }
    if insn.sites.contains(Sites::BUG) && t.bugs.at(insn.addr).is_none() {
        return Err(Unrelocatable::Table("bug"));
    }
    Ok(f)
}
