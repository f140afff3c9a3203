//! The code of a program: what its filter saves, the filter, what its body saves beyond that, the body, and the way out.
//!
//! ```text
//!     save for the filter
//!     filter            -- holds not: to `filtered`
//!     save for the body
//!     body              -- done: to `done`
//! done:
//!     restore of the body
//! filtered:
//!     restore of the filter
//! ```

use crate::alloc::{Allocation, Given, allocate};
use crate::asm::Asm;
use crate::compile::Code;
use crate::ir::{BinOp, Op, Program, Region, Val, validate};
use crate::ranges::{clobbers, read_regs, regs, set_regs};
use crate::saved::Saved;
use crate::select::select;
use crate::{Flags, Free};

/// Registers that are set and stay where they are; all others are set on the stack, so that enough are left to compute with.
const SET_IN_PLACE: usize = 4;

/// The code of a program where `free` may be destroyed. Nothing of a program that is not valid.
pub(crate) fn compile(program: &Program, free: Free) -> Code {
    if validate(program).is_err() {
        return Code::default();
    }
    // A valid program has room for all its values.
    generate(program, free).unwrap_or_default()
}

fn generate(program: &Program, free: Free) -> Option<Code> {
    let (filter, body) = (&program.filter, &program.body);
    let set = program.sets();
    let clobbered = all_clobbers(body);

    // What is set must stay set, and what the body reads must still be there.
    let set_early = set_regs(filter);
    let pushed = excess(set_early) | set_early & (all_clobbers(filter) | clobbered);
    let in_filter = Given {
        free: free.mask() & !set & !read_regs(body),
        saved: 0,
        fixed: set_early & !pushed,
        force: pushed,
    };
    let filter_at = allocate(filter, in_filter)?;

    let saved_before = filter_at.saves;
    let set_here = set & !saved_before;
    let pushed = set_here & !set_early & (excess(set_here) | clobbered);
    let in_body = Given {
        free: free.mask() & !set,
        saved: saved_before,
        fixed: set_here & !pushed,
        force: pushed,
    };
    let body_at = allocate(body, in_body)?;

    let live = |region: &Region| {
        let changed = region.ops.iter().map(changes);
        let changed = changed.fold(Flags::NONE, Flags::union);
        !free.flags().contains(changed)
    };

    let mut asm = Asm::default();
    let mut saved = Saved::default();
    let (filtered, done, through) = (asm.mark(), asm.mark(), asm.mark());
    let flags_early = live(filter);
    enter(&mut asm, &mut saved, filter, &filter_at, flags_early);
    select(&mut asm, filter, &filter_at, &saved, 0, filtered);
    asm.here(through);
    let outer = saved.len();
    enter(
        &mut asm,
        &mut saved,
        body,
        &body_at,
        live(body) && !flags_early,
    );
    select(&mut asm, body, &body_at, &saved, saved_before, done);
    asm.here(done);
    saved.restore(&mut asm, outer);
    asm.here(filtered);
    saved.restore(&mut asm, 0);
    let cost = asm.straight(None);
    let cost_filtered = match filter.ops.is_empty() {
        true => cost,
        false => asm.straight(Some(filtered)),
    };
    Some(Code {
        cost,
        cost_filtered,
        ..asm.finish()
    })
}

/// Saves what a region changes, and makes room for its values.
fn enter(asm: &mut Asm, saved: &mut Saved, region: &Region, at: &Allocation, flags: bool) {
    for r in regs(at.saves) {
        saved.reg(asm, r);
    }
    if flags {
        saved.flags(asm);
    }
    saved.room(asm, region.frame + 8 * at.slots);
}

fn all_clobbers(region: &Region) -> u16 {
    region.ops.iter().fold(0, |all, op| all | clobbers(op))
}

/// All but the first few.
fn excess(set: u16) -> u16 {
    regs(set)
        .skip(SET_IN_PLACE)
        .fold(0, |all, r| all | 1 << r.number())
}

/// Flags that the instructions of a step may change.
fn changes(op: &Op) -> Flags {
    match op {
        Op::Copy { .. }
        | Op::Reg { .. }
        | Op::Extend { .. }
        | Op::Label(_)
        | Op::Jump(_)
        | Op::Load { .. }
        | Op::Store { .. }
        | Op::FrameAddress { .. }
        | Op::CpuLoad { .. }
        | Op::SetReg { .. }
        | Op::Leave { .. }
        | Op::End => Flags::NONE,
        Op::CpuAdd {
            value: Val::Imm(1), ..
        } => Flags::INC,
        Op::Bin {
            op: BinOp::Shl | BinOp::Shr | BinOp::Sar,
            b: Val::Imm(0),
            ..
        } => Flags::NONE,
        _ => Flags::ALL,
    }
}
