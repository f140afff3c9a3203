//! Free bytes: fill between and inside functions that control never reaches.

use std::ops::Range;
use std::sync::Arc;

use kerninst_kernel::{Entry, Table};

use crate::Analysis;
use crate::decode::fill_len;
use crate::flow;
use crate::function::InsnKind;
use crate::names::Class;
use crate::node::{Bits, Flow, Leave, Node};
use crate::reach::NO_RETURN_LEVELS;
use crate::shared::Shared;

/// Gaps longer than this (alignment of sections: up to 2 MiB) count only if they are int3 throughout.
const LONG: u64 = 4096;

/// Where control surely does not go on in one region, whatever lies there.
pub(crate) struct Ends {
    /// Bytes between an instruction that does not go on and the next one, sorted.
    behind: Vec<Range<u64>>,
    /// Control runs out of the region's end into what follows, or that is not known.
    runs_out: bool,
}

/// What one region leaves free.
pub(crate) struct Gaps {
    /// Proven free bytes, sorted.
    free: Vec<Range<u64>>,
    /// Control runs out of the region's end into what follows, or that is not known.
    runs_out: bool,
}

impl Ends {
    const UNKNOWN: Ends = Ends {
        behind: Vec::new(),
        runs_out: true,
    };
}

impl Analysis<'_> {
    /// Bytes that are proven free, in ranges within `reach` bytes of `addr` (`addr - reach..addr + reach`):
    /// nop or int3 fill that control never reaches, that no symbol but `__pfx_`/`__cfi_` names and no
    /// table mentions. Sorted; ranges that touch are one.
    pub fn padding_near(&self, addr: u64, reach: u64) -> Vec<Range<u64>> {
        let shared = self.shared();
        let index = &shared.index;
        let Some(text) = index.text_at(addr) else {
            return Vec::new();
        };
        let window =
            addr.saturating_sub(reach).max(text.start)..addr.saturating_add(reach).min(text.end());
        let mut free: Vec<Range<u64>> = Vec::new();
        let first = index
            .region_at(window.start)
            .or_else(|| index.next_start(window.start));
        let mut at = first;
        while let Some(start) = at.filter(|s| *s < window.end) {
            free.extend(shared.gaps(start).free.iter().cloned());
            at = index.next_start(start);
        }
        merge(free, &window)
    }
}

impl Shared<'_> {
    /// What the region of the start `n` leaves free.
    fn gaps(&self, n: u64) -> Arc<Gaps> {
        let Some((start, region)) = self.index.at(n).zip(self.index.region(n)) else {
            return Arc::new(Gaps {
                free: Vec::new(),
                runs_out: true,
            });
        };
        self.padding.get(start.addr, || {
            Arc::new(if start.class.contains(Class::PADDING) {
                self.symbol_padding(n, region)
            } else {
                self.function_gaps(n)
            })
        })
    }

    /// All of a `__pfx_`/`__cfi_` region, if it is fill (the kernel may keep code there: call depth
    /// tracking, FineIBT) and the function before does not run into it.
    fn symbol_padding(&self, n: u64, region: Range<u64>) -> Gaps {
        let before = self.index.previous_start(n).filter(|&b| {
            let start = self.index.at(b);
            start.is_some_and(|s| !s.class.contains(Class::PADDING))
        });
        let runs_in = before.is_some_and(|b| self.gaps(b).runs_out);
        let free = !runs_in && self.is_fill(&region) && self.is_unmentioned(&region);
        Gaps {
            free: free.then_some(region).into_iter().collect(),
            runs_out: false,
        }
    }

    /// The fill in the gaps behind instructions of a function that do not go on.
    fn function_gaps(&self, n: u64) -> Gaps {
        let ends = self.ends.get(n, || {
            let flow = flow::with_scratch(|scratch| self.flow(n, false, scratch));
            Arc::new(flow.map_or(Ends::UNKNOWN, |flow| self.ends_in(&flow)))
        });
        let mut gaps = Gaps {
            free: Vec::new(),
            runs_out: ends.runs_out,
        };
        for gap in &ends.behind {
            let mut gap = gap.clone();
            // A tail call by static call: the kernel writes 5 bytes, whatever is there now.
            for call in self
                .index
                .kernel
                .tables()
                .static_calls
                .in_range(gap.clone())
            {
                gap.start = gap.start.max(call.addr.saturating_add(5));
            }
            let long = gap.end.saturating_sub(gap.start) > LONG;
            let fill = if long {
                self.is_int3(&gap)
            } else {
                self.is_fill(&gap)
            };
            if gap.start < gap.end && fill && self.is_unmentioned(&gap) {
                gaps.free.push(gap);
            }
        }
        gaps
    }

    /// Notes where control ends in the function at `n`, whose flow is at hand: it need not be worked out again for its padding,
    /// for which ways in from other functions do not count.
    pub(crate) fn note_ends(&self, n: u64, flow: &Flow) {
        if !flow.entered {
            self.ends.get(n, || Arc::new(self.ends_in(flow)));
        }
    }

    fn ends_in(&self, flow: &Flow) -> Ends {
        if !flow.incomplete.is_empty() {
            return Ends::UNKNOWN;
        }
        let region = &flow.region;
        let mut behind = Vec::new();
        // Assembly may be entered at places that are not known here, which all lead to code: only what
        // lies behind the last instruction is certain. (A cold part on its own counts as incomplete.)
        let inner = flow.abi;
        let from = flow.nodes.partition_point(|i| i.addr < region.start);
        let to = flow.nodes.partition_point(|i| i.addr < region.end);
        let nodes = flow.nodes.get(from..to).unwrap_or(&[]);
        for (at, node) in nodes.iter().enumerate() {
            let next = nodes.get(at + 1);
            if next.is_some() && !inner {
                continue;
            }
            let gap = node.end()..next.map_or(region.end, |i| i.addr);
            if gap.start < gap.end && self.ends(flow, node) {
                behind.push(gap);
            }
        }
        Ends {
            behind,
            runs_out: flow.nodes.iter().any(|n| n.bits.contains(Bits::FALLS_OUT)),
        }
    }

    /// Is it certain that control does not go on behind this instruction? A call counts only if its
    /// callee is known not to return, not by what follows it; a trap does not count.
    fn ends(&self, flow: &Flow, node: &Node) -> bool {
        if node.bits.contains(Bits::FALLS) || flow.extra.iter().any(|e| e.0 == node.addr) {
            return false;
        }
        match node.kind {
            InsnKind::Jmp | InsnKind::TailCall | InsnKind::IndirectJmp | InsnKind::Return => true,
            InsnKind::Call => {
                node.leave == Leave::NoReturn && self.never_returns(node.target, NO_RETURN_LEVELS)
            }
            _ => false,
        }
    }

    /// Is every byte of the range part of a nop or an int3?
    pub(crate) fn is_fill(&self, range: &Range<u64>) -> bool {
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
        self.index.text_at(range.start)?.get(range.start, len)
    }

    /// No table names an address in the range, and no symbol but padding's lies in it.
    fn is_unmentioned(&self, range: &Range<u64>) -> bool {
        let tables = self.index.kernel.tables();
        let symbols = self.index.kernel.symbols();
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
        .all(|e| e.addr() >= range.end || e.addr().saturating_add(e.span()) <= range.start)
        && table.targets_in(range.clone()).next().is_none()
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
