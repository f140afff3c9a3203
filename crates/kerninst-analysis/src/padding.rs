//! Free bytes: fill between and inside functions that control never reaches.

use std::ops::Range;

use kerninst_kernel::{Entry, Table};

use crate::Analysis;
use crate::decode::fill_len;
use crate::function::{EdgeKind, EdgeTarget, Function, InsnKind};
use crate::names::Class;
use crate::reach::NO_RETURN_LEVELS;

/// Gaps longer than this are not looked through as a whole (alignment of sections: up to 2 MiB).
const LONG: u64 = 4096;
/// Longest nop.
const NOP: u64 = 16;

impl Analysis<'_> {
    /// Bytes that are proven free, in ranges within `reach` bytes of `addr` (`addr - reach..addr + reach`):
    /// nop or int3 fill that control never reaches, that no symbol but `__pfx_`/`__cfi_` names and no
    /// table mentions. Sorted; ranges that touch are one.
    pub fn padding_near(&self, addr: u64, reach: u64) -> Vec<Range<u64>> {
        let index = &self.shared().index;
        let Some(text) = index.text_at(addr) else {
            return Vec::new();
        };
        let window =
            addr.saturating_sub(reach).max(text.start)..addr.saturating_add(reach).min(text.end());
        let mut free: Vec<Range<u64>> = Vec::new();
        let first = index.region_at(window.start).unwrap_or(0);
        for n in first..index.len() {
            let Some(region) = index.region(n) else { break };
            if region.start >= window.end {
                break;
            }
            let padding = index
                .get(n)
                .is_some_and(|s| s.class.contains(Class::PADDING));
            if padding {
                self.symbol_padding(n, region, &mut free);
            } else {
                self.function_gaps(n, region, &window, &mut free);
            }
        }
        merge(free, &window)
    }

    /// All of a `__pfx_`/`__cfi_` region, if it is fill (the kernel may keep code there: call depth
    /// tracking, FineIBT) and the function before does not run into it.
    fn symbol_padding(&self, n: usize, region: Range<u64>, free: &mut Vec<Range<u64>>) {
        let before = n.checked_sub(1).and_then(|b| {
            let start = self.shared().index.get(b)?;
            // Padding behind padding: no code before.
            (!start.class.contains(Class::PADDING)).then(|| self.numbered(b))
        });
        let runs_in = match before {
            None => false,
            Some(None) => true,
            Some(Some(f)) => !f.is_complete() || runs_out(&f, region.start),
        };
        if !runs_in && self.is_fill(&region) && self.is_unmentioned(&region) {
            free.push(region);
        }
    }

    /// The fill in the gaps behind instructions of a function that do not go on.
    fn function_gaps(
        &self,
        n: usize,
        region: Range<u64>,
        window: &Range<u64>,
        free: &mut Vec<Range<u64>>,
    ) {
        let Some(function) = self.numbered(n) else {
            return;
        };
        let cold = self
            .shared()
            .index
            .get(n)
            .is_none_or(|s| s.class.contains(Class::COLD));
        if !function.is_complete() {
            return;
        }
        let from = function.insns.partition_point(|i| i.addr < region.start);
        let to = function.insns.partition_point(|i| i.addr < region.end);
        for at in from..to {
            let Some(insn) = function.insns.get(at) else {
                break;
            };
            let next = at.checked_add(1).filter(|&n| n < to);
            if cold && next.is_some() {
                // A cold part may be entered at places that only its function knows.
                continue;
            }
            let next = next.and_then(|n| function.insns.get(n));
            let mut gap = insn.end()..next.map_or(region.end, |i| i.addr);
            if gap.start >= gap.end || gap.end <= window.start || gap.start >= window.end {
                continue;
            }
            if !self.ends(&function, at) {
                continue;
            }
            // A tail call by static call: the kernel writes 5 bytes, whatever is there now.
            for call in self.kernel().tables().static_calls.in_range(gap.clone()) {
                gap.start = gap.start.max(call.addr.saturating_add(5));
            }
            if gap.end.saturating_sub(gap.start.min(gap.end)) > LONG {
                gap.end = gap.end.min(window.end.saturating_add(NOP));
                if !self.is_int3(&gap) {
                    continue;
                }
            }
            if gap.start < gap.end && self.is_fill(&gap) && self.is_unmentioned(&gap) {
                free.push(gap);
            }
        }
    }

    /// Is it certain that control does not go on behind this instruction? A call counts only if its
    /// callee is known not to return, not by what follows it.
    fn ends(&self, function: &Function, at: usize) -> bool {
        let Some(insn) = function.insns.get(at) else {
            return false;
        };
        let Some(block) = function.blocks.get(insn.block as usize) else {
            return false;
        };
        let goes_on = |kind: EdgeKind| {
            matches!(
                kind,
                EdgeKind::FallThrough
                    | EdgeKind::CallReturn
                    | EdgeKind::TrapResume
                    | EdgeKind::StaticKeyOn
                    | EdgeKind::StaticKeyOff
            )
        };
        if block.end != insn.end() || function.block_edges(block).iter().any(|e| goes_on(e.kind)) {
            return false;
        }
        match insn.kind {
            InsnKind::Jmp | InsnKind::TailCall | InsnKind::IndirectJmp | InsnKind::Return => true,
            InsnKind::Call => insn
                .target
                .is_some_and(|t| self.shared().never_returns(t, NO_RETURN_LEVELS)),
            _ => false,
        }
    }

    fn is_fill(&self, range: &Range<u64>) -> bool {
        let Some(mut bytes) = self.text_bytes(range) else {
            return false;
        };
        while !bytes.is_empty() {
            match fill_len(bytes) {
                0 => return false,
                n => bytes = bytes.get(n..).unwrap_or(&[]),
            }
        }
        true
    }

    fn is_int3(&self, range: &Range<u64>) -> bool {
        self.text_bytes(range)
            .is_some_and(|b| b.iter().all(|b| *b == 0xcc))
    }

    fn text_bytes(&self, range: &Range<u64>) -> Option<&[u8]> {
        let len = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        self.shared()
            .index
            .text_at(range.start)?
            .get(range.start, len)
    }

    /// No table names an address in the range, and no symbol but padding's lies in it.
    fn is_unmentioned(&self, range: &Range<u64>) -> bool {
        let tables = self.kernel().tables();
        let symbols = self.kernel().symbols();
        untouched(&tables.extable, range)
            && untouched(&tables.bugs, range)
            && untouched(&tables.jump_labels, range)
            && untouched(&tables.static_calls, range)
            && untouched(&tables.fentry, range)
            && untouched(&tables.alternatives, range)
            && untouched(&tables.paravirt, range)
            && untouched(&tables.endbr_seals, range)
            && untouched(&tables.smp_locks, range)
            && untouched(&tables.call_sites, range)
            && symbols.in_range(range.clone()).all(|s| {
                s.addr == range.start
                    && (s.name.starts_with("__pfx_") || s.name.starts_with("__cfi_"))
            })
    }
}

fn untouched<T: Entry>(table: &Table<T>, range: &Range<u64>) -> bool {
    let near = table.in_range(range.clone());
    near.iter()
        .all(|e| e.addr() >= range.end || e.addr().saturating_add(e.len()) <= range.start)
        && table.targets_in(range.clone()).next().is_none()
}

/// Does control leave the function by falling out of its end at `end`?
fn runs_out(function: &Function, end: u64) -> bool {
    function.edges.iter().any(|e| {
        e.kind != EdgeKind::Exit
            && matches!(e.to, EdgeTarget::Exit(crate::ExitKind::TailCall(t)) if t == end)
    })
}

/// Sorts, joins ranges that touch, and cuts to the window.
fn merge(mut ranges: Vec<Range<u64>>, window: &Range<u64>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|r| r.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let range = range.start.max(window.start)..range.end.min(window.end);
        if range.start >= range.end {
            continue;
        }
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}
