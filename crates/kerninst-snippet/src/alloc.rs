//! Registers for the virtual registers of a region: a linear scan over their ranges (Poletto and Sarkar, 1999), with what is free
//! at the point first, then what was saved, then what can be saved, and the stack for what is left.

use crate::Reg;
use crate::insns::imm32;
use crate::ir::{Base, BinOp, Op, Region, V, Val, Width};
use crate::ranges::{self, CALLER_SAVED, Range, clobbers, in_the_way, ranges};

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loc {
    Reg(Reg),
    /// Number of a quadword after the region's frame.
    Slot(u32),
    /// It has no value at all.
    Nowhere,
}

/// What a region finds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    /// May be changed without being saved, if the region itself does not need it.
    pub free: u16,
    /// Was saved already.
    pub saved: u16,
    /// Must stay as it is, in place.
    pub fixed: u16,
    /// Must be saved by the region in any case.
    pub force: u16,
}

/// Where everything of a region is.
#[derive(Debug, Clone)]
pub(crate) struct Allocation {
    /// Of each virtual register.
    pub locs: Vec<Loc>,
    /// Registers that each step may use up.
    pub temps: Vec<Vec<Reg>>,
    /// Registers to be saved, beyond those that were.
    pub saves: u16,
    /// Quadwords on the stack.
    pub slots: u32,
}

/// Most quadwords on the stack for values that found no register.
pub(crate) const MAX_SLOTS: u32 = 64;

/// Never rbp: unwinders may need it even where no code reads it again (before a call that does not return). Caller-saved ones
/// first: the unwinder knows nothing about them.
const ORDER: [u8; 14] = [0, 1, 2, 6, 7, 8, 9, 11, 10, 3, 12, 14, 15, 13];

/// Registers for all values. `None` if that needs more room on the stack than there is.
pub(crate) fn allocate(region: &Region, given: Given) -> Option<Allocation> {
    let ranges = ranges(region);
    let mut spilled = vec![false; ranges.len()];
    // Each turn takes one more value to the stack.
    for _ in 0..=ranges.len() {
        match Scan::new(region, given, &ranges, &spilled).run() {
            Ok(mut done) => {
                done.slots = slots(&ranges, &spilled, &mut done.locs);
                return (done.slots <= MAX_SLOTS).then_some(done);
            }
            Err(v) => *spilled.get_mut(v?)? = true,
        }
    }
    None
}

/// Places on the stack: what is not needed at the same time shares one.
fn slots(ranges: &[Option<Range>], spilled: &[bool], locs: &mut [Loc]) -> u32 {
    let mut order: Vec<usize> = (0..ranges.len())
        .filter(|v| spilled.get(*v) == Some(&true))
        .collect();
    let range = |v: usize| ranges.get(v).copied().flatten();
    order.sort_by_key(|v| range(*v).map(|r| r.start));
    let mut ends: Vec<usize> = Vec::new();
    for v in order {
        let (Some(r), Some(loc)) = (range(v), locs.get_mut(v)) else {
            continue;
        };
        let slot = match ends.iter().position(|end| *end < r.start) {
            Some(slot) => slot,
            None => {
                ends.push(0);
                ends.len() - 1
            }
        };
        if let Some(end) = ends.get_mut(slot) {
            *end = r.end;
        }
        *loc = Loc::Slot(slot as u32);
    }
    ends.len() as u32
}

struct Scan<'a> {
    region: &'a Region,
    given: Given,
    ranges: &'a [Option<Range>],
    spilled: &'a [bool],
    last_reads: [usize; 16],
    /// Registers that the region sets.
    set: u16,
    clobbering: Vec<(usize, u16)>,
    /// Of each register the last position that is taken, and by which value.
    taken: [Option<(usize, Option<usize>)>; 16],
    saves: u16,
    locs: Vec<Loc>,
}

impl<'a> Scan<'a> {
    fn new(
        region: &'a Region,
        given: Given,
        ranges: &'a [Option<Range>],
        spilled: &'a [bool],
    ) -> Scan<'a> {
        let ops = region.ops.iter().enumerate();
        let clobbering: Vec<(usize, u16)> = ops
            .map(|(i, op)| (i, clobbers(op)))
            .filter(|(_, c)| *c != 0)
            .collect();
        let mut scan = Scan {
            region,
            given,
            ranges,
            spilled,
            last_reads: ranges::last_reads(region),
            set: ranges::set_regs(region),
            clobbering,
            taken: [None; 16],
            saves: given.force & !given.saved,
            locs: vec![Loc::Nowhere; ranges.len()],
        };
        // What is changed in any case.
        let clobbered = scan.clobbering.clone();
        for (i, set) in clobbered {
            for r in ranges::regs(set) {
                if !scan.usable(r, 2 * i) {
                    scan.saves |= 1 << r.number();
                }
            }
        }
        scan
    }

    /// Whether the register may be changed from a position on without being saved now.
    fn usable(&self, r: Reg, from: usize) -> bool {
        let bit = 1 << r.number();
        let last = self.last_reads.get(usize::from(r.number()));
        (self.given.saved | self.saves) & bit != 0
            || self.given.free & bit != 0 && last.is_some_and(|l| *l <= from)
    }

    fn vacant(&self, r: Reg, range: Range) -> bool {
        self.may_hold(r, range) && self.undisturbed(r, range)
    }

    fn may_hold(&self, r: Reg, range: Range) -> bool {
        let bit = 1u16 << r.number();
        self.given.fixed & bit == 0 && ORDER.contains(&r.number()) && !self.clobbered(r, range)
    }

    /// Neither taken nor clobbered from the start to the end of a range.
    fn undisturbed(&self, r: Reg, range: Range) -> bool {
        let taken = self.taken.get(usize::from(r.number())).copied().flatten();
        taken.is_none_or(|(end, _)| end < range.start) && !self.clobbered(r, range)
    }

    fn clobbered(&self, r: Reg, range: Range) -> bool {
        let bit = 1u16 << r.number();
        let from = self
            .clobbering
            .partition_point(|(i, _)| 2 * i + 1 < range.start);
        let mut within = self.clobbering.iter().skip(from);
        within
            .by_ref()
            .take_while(|(i, _)| 2 * i <= range.end)
            .filter(|(_, set)| set & bit != 0)
            .any(|(i, _)| {
                let op = self.region.ops.get(*i);
                op.is_some_and(|op| in_the_way(op, *i, range))
            })
    }

    fn run(mut self) -> Result<Allocation, Option<usize>> {
        let mut temps = vec![Vec::new(); self.region.ops.len()];
        let mut starts: Vec<(usize, usize)> = Vec::new();
        for (v, range) in self.ranges.iter().enumerate() {
            if let Some(r) = range
                && self.spilled.get(v) == Some(&false)
            {
                starts.push((r.start, v));
            }
        }
        starts.sort_unstable();
        let mut next = starts.into_iter().peekable();
        for (i, op) in self.region.ops.iter().enumerate() {
            // Temporary registers are in use while the step reads and while it writes.
            let range = Range {
                start: 2 * i,
                end: 2 * i + 1,
                uses: 2,
            };
            let spilled = |v: V| self.spilled.get(v.0 as usize) == Some(&true);
            for _ in 0..temps_of(op, spilled) {
                let r = self.take(range, None, &[])?;
                if let Some(t) = temps.get_mut(i) {
                    t.push(r);
                }
            }
            while let Some((start, v)) = next.next_if(|(start, _)| *start <= 2 * i + 1) {
                let Some(range) = self.ranges.get(v).copied().flatten() else {
                    continue;
                };
                let hints = self.hints(start / 2, v);
                let r = match self.in_place(start / 2, v, range) {
                    Some(r) => r,
                    None => self.take(range, Some(v), &hints)?,
                };
                if let Some(loc) = self.locs.get_mut(v) {
                    *loc = Loc::Reg(r);
                }
            }
        }
        Ok(Allocation {
            locs: self.locs,
            temps,
            saves: self.saves,
            slots: 0,
        })
    }

    /// The register of the interrupted code that the value is, if it can stay there: nothing is moved, and nothing saved.
    fn in_place(&mut self, at: usize, v: usize, range: Range) -> Option<Reg> {
        let Some(Op::Reg { reg, .. }) = self.region.ops.get(at) else {
            return None;
        };
        let bit = 1u16 << reg.number();
        let unset = (self.set | self.given.fixed | self.given.saved) & bit == 0;
        let writes = self.region.ops.iter().filter(|op| {
            let to = op.writes();
            to == Some(V(v as u32))
        });
        // If the register is saved later on, `select` loads it from there again, which changes nothing.
        if *reg == Reg::RSP || !unset || writes.count() != 1 || !self.undisturbed(*reg, range) {
            return None;
        }
        if let Some(t) = self.taken.get_mut(usize::from(reg.number())) {
            *t = Some((range.end, Some(v)));
        }
        Some(*reg)
    }

    /// A register; or else which value must go to the stack.
    fn take(
        &mut self,
        range: Range,
        value: Option<usize>,
        hints: &[Reg],
    ) -> Result<Reg, Option<usize>> {
        let order = || ORDER.into_iter().filter_map(Reg::new);
        let ready = |r: &Reg| self.usable(*r, range.start) && self.vacant(*r, range);
        let mut found = hints.iter().copied().chain(order()).find(ready);
        if found.is_none() {
            // To save and restore one costs two instructions, and so does a value on the stack that is read once.
            let calls = self.clobbering.iter();
            let crosses = calls
                .filter(|(i, set)| *set == CALLER_SAVED && range.start < 2 * i && range.end > 2 * i)
                .count();
            let rarely = crosses > 0 && range.uses < 3;
            let read = ranges::read_regs(self.region);
            let vacant = || order().filter(|r| self.vacant(*r, range));
            let unread = vacant().find(|r| read >> r.number() & 1 == 0);
            found = unread.or_else(|| vacant().next());
            if let (true, Some(v)) = (rarely, value) {
                return Err(Some(v));
            }
            if let Some(r) = found {
                self.saves |= 1 << r.number();
            }
        }
        let Some(r) = found else {
            return Err(self.victim(range, value));
        };
        if let Some(t) = self.taken.get_mut(usize::from(r.number())) {
            *t = Some((range.end, value));
        }
        Ok(r)
    }

    /// The value that goes to the stack: the one that is needed longest of those whose register would do.
    fn victim(&self, range: Range, value: Option<usize>) -> Option<usize> {
        let held = ranges::regs(0xffff).filter(|r| self.may_hold(*r, range));
        let held = held.filter_map(|r| self.taken.get(usize::from(r.number())).copied().flatten());
        let held = held.filter_map(|(end, v)| Some((end, v?)));
        let own = value.map(|v| (range.end, v));
        held.chain(own).max().map(|(_, v)| v)
    }

    /// Registers in which the value would spare a move.
    fn hints(&self, at: usize, v: usize) -> Vec<Reg> {
        let mut out = Vec::new();
        let mut of = |val: &Val| {
            if let Val::V(a) = val
                && let Some(Loc::Reg(r)) = self.locs.get(a.0 as usize)
            {
                out.push(*r);
            }
        };
        match self.region.ops.get(at) {
            Some(Op::Reg { reg, .. }) => out.push(*reg),
            Some(Op::Bin { op, a, .. }) => {
                of(a);
                match op {
                    BinOp::DivU | BinOp::DivS => out.extend(Reg::new(0)),
                    BinOp::RemU | BinOp::RemS => out.extend(Reg::new(2)),
                    _ => {}
                }
            }
            Some(Op::Copy { from, .. } | Op::Extend { from, .. } | Op::HighBit { from, .. }) => {
                of(from)
            }
            Some(Op::Probe { at, .. }) => of(at),
            Some(Op::Call { .. } | Op::Clock { .. }) => out.extend(Reg::new(0)),
            _ => {}
        }
        // The next call, if it is the last use.
        let end = self.ranges.get(v).copied().flatten().map_or(0, |r| r.end);
        if let Some(Op::Call { args, .. }) = self.region.ops.get(end / 2) {
            let number = args.iter().position(|a| *a == Val::V(V(v as u32)));
            out.extend(number.and_then(argument));
        }
        out
    }
}

/// The register of an argument (System V ABI): rdi, rsi, rdx, rcx, r8, r9.
pub(crate) fn argument(number: usize) -> Option<Reg> {
    let order = [7, 6, 2, 1, 8, 9];
    order.get(number).copied().and_then(Reg::new)
}

/// How many registers a step uses up beyond its operands and its result. At most three, and what `select` takes.
fn temps_of(op: &Op, spilled: impl Fn(V) -> bool) -> usize {
    let on_stack = |val: &Val| matches!(val, Val::V(v) if spilled(*v));
    let big = |val: &Val| matches!(val, Val::Imm(i) if imm32(*i).is_none());
    let constant = |val: &Val| matches!(val, Val::Imm(_));
    let to = usize::from(op.writes().is_some_and(&spilled));
    let based = |base: &Base| match base {
        Base::At(at) => usize::from(on_stack(at) || big(at)),
        Base::Frame => 0,
    };
    let stored =
        |val: &Val, width: Width| usize::from(on_stack(val) || width == Width::B8 && big(val));
    match op {
        // What is subtracted from, or the operands are exchanged.
        Op::Bin { to: t, a, b, .. } if *b == Val::V(*t) && big(a) => to + 1,
        Op::Bin { op, b, .. } => match op {
            BinOp::Shl | BinOp::Shr | BinOp::Sar => to,
            BinOp::DivU | BinOp::RemU | BinOp::DivS | BinOp::RemS => to + usize::from(constant(b)),
            _ => to + usize::from(big(b)),
        },
        Op::Set { a, b, .. } => to + compared(a, b, &on_stack, &big),
        Op::Branch { a, b, .. } => compared(a, b, &on_stack, &big),
        Op::Probe { at, .. } => to + usize::from(on_stack(at) || constant(at)),
        Op::ProbeStore {
            at, value, width, ..
        } => usize::from(on_stack(at) || constant(at)) + stored(value, *width),
        Op::Store {
            base, value, width, ..
        } => based(base) + stored(value, *width),
        Op::CpuAdd { pointer, value } => {
            usize::from(on_stack(pointer) || big(pointer))
                + usize::from(on_stack(value) || big(value))
        }
        Op::CpuSwap { pointer, new, .. } => {
            usize::from(on_stack(pointer) || big(pointer))
                + usize::from(on_stack(new) || constant(new))
        }
        Op::Swap { base, new, .. } => based(base) + usize::from(on_stack(new) || constant(new)),
        Op::SetReg { value, .. } => usize::from(on_stack(value) || big(value)),
        Op::Again { .. } | Op::Call { .. } => 0,
        _ => to,
    }
}

/// A comparison needs a register for one of two operands on the stack, and for a constant that does not fit.
fn compared(
    a: &Val,
    b: &Val,
    on_stack: &impl Fn(&Val) -> bool,
    big: &impl Fn(&Val) -> bool,
) -> usize {
    match (a, b) {
        (Val::Imm(_), Val::Imm(_)) => 0,
        _ => usize::from(on_stack(a) && on_stack(b) || big(a) || big(b)),
    }
}
