//! From where to where the virtual registers of a region hold a value.
//!
//! Positions: step `i` reads its operands at `2 i` and writes its result at `2 i + 1`.

use crate::Reg;
use crate::ir::{BinOp, Op, Region, V, Val};
use crate::validate::loops;

/// A virtual register, or (of a step) a register for a short time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// First position.
    pub start: usize,
    /// Last position.
    pub end: usize,
    /// How often it is read or written.
    pub uses: u32,
}

/// Of each virtual register; `None`: it is not used.
pub(crate) fn ranges(region: &Region) -> Vec<Option<Range>> {
    let mut all: Vec<Option<Range>> = vec![None; region.registers as usize];
    let mut touch = |v: V, at: usize| {
        if let Some(slot) = all.get_mut(v.0 as usize) {
            let r = slot.get_or_insert(Range {
                start: at,
                end: at,
                uses: 0,
            });
            r.end = r.end.max(at);
            r.uses += 1;
        }
    };
    for (i, op) in region.ops.iter().enumerate() {
        for (n, val) in op.reads().into_iter().enumerate() {
            if let Val::V(v) = val {
                touch(v, 2 * i + usize::from(reads_late(op, n)));
            }
        }
        if let Some(v) = op.writes() {
            touch(v, 2 * i + 1);
        }
    }
    // What was written before a loop and is read in it is read again in the next round.
    let loops = loops(region);
    let mut changed = true;
    while changed {
        changed = false;
        for l in &loops {
            for r in all.iter_mut().flatten() {
                if r.start < 2 * l.start && r.end > 2 * l.start && r.end < 2 * l.end + 1 {
                    r.end = 2 * l.end + 1;
                    changed = true;
                }
            }
        }
    }
    all
}

/// How many values are held at the same time at most.
pub(crate) fn pressure(region: &Region) -> usize {
    let mut change = vec![0i64; 2 * region.ops.len() + 1];
    for r in ranges(region).into_iter().flatten() {
        if let Some(c) = change.get_mut(r.start) {
            *c += 1;
        }
        if let Some(c) = change.get_mut(r.end + 1) {
            *c -= 1;
        }
    }
    let sums = change.into_iter().scan(0, |sum, c| {
        *sum += c;
        Some(*sum)
    });
    usize::try_from(sums.max().unwrap_or(0)).unwrap_or(0)
}

/// Whether the operand must be there after the first part of the result was written.
fn reads_late(op: &Op, operand: usize) -> bool {
    match op {
        Op::Bin { op, .. } if takes_fixed(*op) => true,
        Op::Bin { .. } => operand == 1,
        _ => false,
    }
}

fn divides(op: BinOp) -> bool {
    matches!(op, BinOp::DivU | BinOp::RemU | BinOp::DivS | BinOp::RemS)
}

pub(crate) fn shifts(op: BinOp) -> bool {
    matches!(op, BinOp::Shl | BinOp::Shr | BinOp::Sar)
}

fn takes_fixed(op: BinOp) -> bool {
    divides(op) || shifts(op)
}

/// Registers that the calling convention lets a function change: rax, rcx, rdx, rsi, rdi, r8 to r11.
pub(crate) const CALLER_SAVED: u16 = 0x0fc7;

const RAX: u16 = 1;
const RCX: u16 = 1 << 1;
const RDX: u16 = 1 << 2;

/// Registers that a step changes whatever its operands are.
pub(crate) fn clobbers(op: &Op) -> u16 {
    match op {
        Op::Bin { op, .. } if divides(*op) => RAX | RDX,
        Op::Bin {
            op, b: Val::V(_), ..
        } if shifts(*op) => RCX,
        Op::Swap { .. } | Op::CpuSwap { .. } => RAX,
        Op::Clock { .. } => RAX | RDX,
        Op::Call { .. } => CALLER_SAVED,
        _ => 0,
    }
}

/// Whether a value with this range may not be in a register that step `i` clobbers.
pub(crate) fn in_the_way(op: &Op, i: usize, range: Range) -> bool {
    let touches = range.start <= 2 * i + 1 && range.end >= 2 * i;
    let result = range.start == 2 * i + 1 && !matches!(op, Op::Bin { op, .. } if shifts(*op));
    let argument = range.end == 2 * i && matches!(op, Op::Call { .. });
    touches && !result && !argument
}

/// From which position on a register of the interrupted code is not read any more, by hardware number.
pub(crate) fn last_reads(region: &Region) -> [usize; 16] {
    let mut last = [0; 16];
    let loops = loops(region);
    for (i, op) in region.ops.iter().enumerate() {
        let Op::Reg { reg, .. } = op else { continue };
        let around = loops.iter().filter(|l| l.start < i && i < l.end);
        let end = around.map(|l| l.end).max().unwrap_or(i);
        if let Some(slot) = last.get_mut(usize::from(reg.number())) {
            *slot = (*slot).max(2 * end + 1);
        }
    }
    last
}

/// Registers that a region sets.
pub(crate) fn set_regs(region: &Region) -> u16 {
    region.ops.iter().fold(0, |all, op| match op {
        Op::SetReg { reg, .. } => all | 1 << reg.number(),
        _ => all,
    })
}

/// Registers that a region reads.
pub(crate) fn read_regs(region: &Region) -> u16 {
    region.ops.iter().fold(0, |all, op| match op {
        Op::Reg { reg, .. } => all | 1 << reg.number(),
        _ => all,
    })
}

/// Registers in a set.
pub(crate) fn regs(set: u16) -> impl Iterator<Item = Reg> {
    (0..16u8)
        .filter(move |n| set >> n & 1 == 1)
        .filter_map(Reg::new)
}
