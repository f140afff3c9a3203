//! What the planner must know about each instruction of one function.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use kerninst_analysis::{Analysis, Function, Insn, InsnKind, Sites};
use kerninst_kernel::{Kernel, OffLimit};

use crate::odd::{Odd, changes_gs, names_gs_base, odd_name, waits};
use crate::{Boards, Fragment, ManagedSite, Unrelocatable, relocate};

/// One instruction, relocated once to see whether that works.
pub(crate) struct Fact {
    /// Its relocated form, or why there is none.
    pub moved: Result<Fragment, Unrelocatable>,
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
    /// No snippet may run anywhere in it.
    pub no_snippet: Option<Odd>,
    /// Padding in and around each part of the function, by the part's start: looked up once.
    padding: RefCell<HashMap<u64, Rc<[Range<u64>]>>>,
}

/// How far around a function padding is of use: a short jump and the board it leads to.
const NEAR: u64 = 128 + 16;

impl<'a> Facts<'a> {
    pub fn new(kernel: &'a Kernel, function: &'a Function) -> Facts<'a> {
        let mut facts: Vec<Fact> = Vec::with_capacity(function.insns.len());
        let mut gs = false;
        let (mut names_base, mut writes_msr) = (false, false);
        let mut sti = None;
        for insn in &function.insns {
            let mut fact = Fact {
                moved: Err(Unrelocatable::Invalid),
                managed: managed(insn, kernel.is_live()),
                off_limits: kernel.off_limits().touching(insn.addr..insn.end()),
                no_snippet: None,
                falls: matches!(
                    insn.kind,
                    InsnKind::Plain | InsnKind::Nop | InsnKind::Jcc | InsnKind::Loop
                ),
            };
            if let Some(bytes) = kernel.bytes(insn.addr, usize::from(insn.len)) {
                let i = Decoder::with_ip(64, bytes, insn.addr, DecoderOptions::NONE).decode();
                gs |= changes_gs(&i);
                names_base |= names_gs_base(&i);
                writes_msr |=
                    i.mnemonic() == Mnemonic::Wrmsr || insn.sites.contains(Sites::PARAVIRT);
                // What the analysis decoded must be what is here.
                if i.len() == usize::from(insn.len) && insn.kind != InsnKind::Int3 {
                    fact.moved = relocate(bytes, insn.addr).and_then(|f| tables(kernel, insn, f));
                }
                if waits(&i) && sti == Some(insn.addr) {
                    fact.no_snippet = Some(Odd::StiShadow);
                    fact.moved = Err(Odd::StiShadow.into());
                    if let Some(before) = facts.last_mut() {
                        before.moved = Err(Odd::StiShadow.into());
                    }
                }
                sti = (i.mnemonic() == Mnemonic::Sti).then_some(insn.end());
            }
            facts.push(fact);
        }
        let changes = (gs || names_base && writes_msr).then_some(Odd::UserGs);
        let no_snippet = odd_name(&function.name).or(changes);
        Facts {
            kernel,
            function,
            facts,
            no_snippet,
            padding: RefCell::default(),
        }
    }

    /// Ranges of proven padding around `addr`, sorted: all in reach of a short jump from there.
    pub fn padding(&self, analysis: &Analysis<'_>, addr: u64) -> Rc<[Range<u64>]> {
        let part = self.function.ranges.iter().find(|r| r.contains(&addr));
        let part = part.cloned().unwrap_or(addr..addr.saturating_add(1));
        let mut cache = self.padding.borrow_mut();
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

    /// Whether the instruction may be overwritten, or copied into a patch so that the original is not run.
    pub fn movable(&self, index: usize, boards: &Boards) -> bool {
        let (Some(fact), Some(insn)) = (self.fact(index), self.insn(index)) else {
            return false;
        };
        fact.moved.is_ok()
            && fact.managed.is_none()
            && !insn.sites.intersects(Sites::MANAGED)
            && fact.off_limits.is_none()
            && boards.conflict(&(insn.addr..insn.end())).is_none()
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
