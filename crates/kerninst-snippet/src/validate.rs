//! What a program must be, to be compiled.

use crate::Reg;
use crate::ir::{Base, Label, MAX_FRAME, Op, Program, Region, V, Val, Width};

/// Most steps, virtual registers and labels of a region: far more than any script that a person writes; what is generated must have a bound too.
pub const MAX_OPS: usize = 20_000;

/// Why a program is none: a fault of whoever made it, not of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("step {at} of the {region} {what}")]
pub struct Invalid {
    /// `filter` or `body`.
    pub region: &'static str,
    /// Number of the step; of what concerns the whole region: the number of its steps.
    pub at: usize,
    /// What is wrong.
    pub what: What,
}

/// What is wrong with a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum What {
    /// A virtual register above [`Region::registers`].
    #[error("names register {}, which is not declared", .0.0)]
    Register(V),
    /// It is read, and there is a way on which it was not written.
    #[error("reads register {}, which is not written on every way there", .0.0)]
    Unwritten(V),
    /// A label above [`Region::labels`].
    #[error("names label {}, which is not declared", .0.0)]
    Label(Label),
    /// A label stands twice.
    #[error("is label {} again", .0.0)]
    Twice(Label),
    /// A branch to a label that stands before it, or nowhere.
    #[error("branches to label {}, which does not stand after it", .0.0)]
    Backward(Label),
    /// [`Op::Again`] to a label that stands after it, or nowhere.
    #[error("goes back to label {}, which does not stand before it", .0.0)]
    Forward(Label),
    /// The counter of [`Op::Again`] is written between the label and it.
    #[error("counts its rounds in register {}, which is written inside", .0.0)]
    Counter(V),
    /// The counter of [`Op::Again`] is not set to the number of rounds before the label, and nothing else.
    #[error("counts its rounds in register {}, which is not set to them before the label", .0.0)]
    Rounds(V),
    /// A branch into a loop from outside: it would not be entered from above.
    #[error("leads into a loop, to label {}", .0.0)]
    IntoLoop(Label),
    /// Loops that overlap without one being inside the other.
    #[error("ends a loop that began before another one that goes on")]
    Crossed,
    /// Beyond the frame.
    #[error("names scratch memory that is not there")]
    Frame,
    /// A frame above [`MAX_FRAME`], or not a multiple of 8.
    #[error("comes after the end: {0} bytes of scratch memory are too much, or no multiple of 8")]
    FrameSize(u32),
    /// An offset of [`Op::Probe`] so large that the check of the address has no room for it.
    #[error("adds {0} to an address, which is too much")]
    Offset(i32),
    /// More arguments than registers carry.
    #[error("passes {0} arguments")]
    Arguments(usize),
    /// The stack pointer is never changed.
    #[error("changes the stack pointer")]
    StackPointer,
    /// More values at the same time than there is room for.
    #[error("comes after the end: too many values are needed at the same time")]
    Pressure,
    /// More steps than [`MAX_OPS`].
    #[error("is one too many")]
    TooLong,
    /// More virtual registers or labels than [`MAX_OPS`].
    #[error("comes after the end: too many registers or labels are declared")]
    Declared,
}

/// Whether it is a program: every branch but [`Op::Again`] leads forward, loops are nested and counted, every virtual register was
/// written before it is read, all numbers are in range.
pub fn validate(program: &Program) -> Result<(), Invalid> {
    for (name, region) in [("filter", &program.filter), ("body", &program.body)] {
        check(region).map_err(|(at, what)| Invalid {
            region: name,
            at,
            what,
        })?;
    }
    Ok(())
}

/// Steps that an execution takes at most, calls counted as one; `u64::MAX` if more than that. Of a valid program.
pub fn worst_cost(program: &Program) -> u64 {
    worst(&program.filter).saturating_add(worst(&program.body))
}

fn worst(region: &Region) -> u64 {
    // Loops are nested: of each step the product of the rounds of those around it.
    let loops = loops(region);
    let cost = |at: usize| {
        let around = loops.iter().filter(|l| l.start <= at && at <= l.end);
        around.fold(1u64, |n, l| n.saturating_mul(u64::from(l.rounds.max(1))))
    };
    let ops = region.ops.iter().enumerate();
    let real = ops.filter(|(_, op)| !matches!(op, Op::Label(_)));
    real.fold(0, |all, (at, _)| all.saturating_add(cost(at)))
}

/// A loop: positions of its label and of its [`Op::Again`].
pub(crate) struct Loop {
    pub start: usize,
    pub end: usize,
    rounds: u32,
}

pub(crate) fn loops(region: &Region) -> Vec<Loop> {
    let labels = places(region);
    let ops = region.ops.iter().enumerate();
    ops.filter_map(|(end, op)| match op {
        Op::Again { to, rounds, .. } => Some(Loop {
            start: labels.get(to.0 as usize).copied().flatten()?,
            end,
            rounds: *rounds,
        }),
        _ => None,
    })
    .filter(|l| l.start < l.end)
    .collect()
}

/// Where each label stands.
pub(crate) fn places(region: &Region) -> Vec<Option<usize>> {
    let mut places = vec![None; (region.labels as usize).min(MAX_OPS)];
    for (at, op) in region.ops.iter().enumerate() {
        if let Op::Label(l) = op
            && let Some(place) = places.get_mut(l.0 as usize)
        {
            *place = Some(at);
        }
    }
    places
}

fn check(region: &Region) -> Result<(), (usize, What)> {
    let ops = &region.ops;
    if ops.len() > MAX_OPS {
        return Err((MAX_OPS, What::TooLong));
    }
    if region.registers as usize > MAX_OPS || region.labels as usize > MAX_OPS {
        return Err((ops.len(), What::Declared));
    }
    if region.frame > MAX_FRAME || !region.frame.is_multiple_of(8) {
        return Err((ops.len(), What::FrameSize(region.frame)));
    }
    let labels = places(region);
    for (at, op) in ops.iter().enumerate() {
        alone(region, op).map_err(|what| (at, what))?;
        let place = |l: Label| labels.get(l.0 as usize).copied().flatten();
        if let Op::Label(l) = op
            && place(*l) != Some(at)
        {
            return Err((at, What::Twice(*l)));
        }
        if let Some(l) = op.branch()
            && place(l).is_none_or(|p| p <= at)
        {
            return Err((at, What::Backward(l)));
        }
        if let Op::Again { to, .. } = op
            && place(*to).is_none_or(|p| p >= at)
        {
            return Err((at, What::Forward(*to)));
        }
    }
    nested(region, &labels)?;
    written(region, &labels)?;
    let pressure = crate::ranges::pressure(region);
    if pressure > crate::alloc::MAX_SLOTS as usize {
        return Err((ops.len(), What::Pressure));
    }
    Ok(())
}

/// What can be said of a step without the others.
fn alone(region: &Region, op: &Op) -> Result<(), What> {
    let known = |v: V| match v.0 < region.registers {
        true => Ok(()),
        false => Err(What::Register(v)),
    };
    op.writes().map_or(Ok(()), known)?;
    for val in op.reads() {
        if let Val::V(v) = val {
            known(v)?;
        }
    }
    let label = match op {
        Op::Label(l) | Op::Again { to: l, .. } => Some(*l),
        _ => op.branch(),
    };
    if let Some(l) = label.filter(|l| l.0 >= region.labels) {
        return Err(What::Label(l));
    }
    let in_frame = |offset: i64, width: Width| {
        offset >= 0 && offset + i64::from(width.bytes()) <= i64::from(region.frame)
    };
    match op {
        Op::Load {
            base: Base::Frame,
            offset,
            width,
            ..
        }
        | Op::Store {
            base: Base::Frame,
            offset,
            width,
            ..
        } if !in_frame(i64::from(*offset), *width) => Err(What::Frame),
        Op::Swap {
            base: Base::Frame,
            offset,
            ..
        } if !in_frame(i64::from(*offset), Width::B8) => Err(What::Frame),
        Op::FrameAddress { offset, .. } if *offset > region.frame => Err(What::Frame),
        Op::Probe { offset, .. } | Op::ProbeStore { offset, .. }
            if crate::select::probe_end(*offset).is_none() =>
        {
            Err(What::Offset(*offset))
        }
        Op::Call { args, .. } if args.len() > 6 => Err(What::Arguments(args.len())),
        Op::SetReg { reg, .. } if *reg == Reg::RSP => Err(What::StackPointer),
        _ => Ok(()),
    }
}

/// Loops: nested, entered from above only, and each counted by a register of its own.
fn nested(region: &Region, labels: &[Option<usize>]) -> Result<(), (usize, What)> {
    let loops = loops(region);
    for l in &loops {
        let crossed = |o: &&Loop| o.start < l.start && l.start < o.end && o.end < l.end;
        if loops.iter().any(|o| crossed(&o)) {
            return Err((l.end, What::Crossed));
        }
        let Some(Op::Again { left, to, rounds }) = region.ops.get(l.end) else {
            continue;
        };
        let inside = region.ops.get(l.start..l.end).unwrap_or_default();
        if inside.iter().any(|op| op.writes() == Some(*left)) {
            return Err((l.end, What::Counter(*left)));
        }
        // The last write before the label in the order of the text, and no label between that could be reached without it.
        let before = region.ops.get(..l.start).unwrap_or_default();
        let set = Op::Copy {
            to: *left,
            from: Val::Imm(u64::from(*rounds)),
        };
        let since = before.iter().rev().take_while(|op| **op != set);
        let clean = since.clone().count() < before.len();
        let disturbed = |op: &Op| op.writes() == Some(*left) || matches!(op, Op::Label(_));
        if !clean || *rounds == 0 || since.clone().any(disturbed) {
            return Err((l.end, What::Rounds(*left)));
        }
        // Nobody jumps to the loop's label, or behind it, from before it.
        let skip = |op: &Op| {
            let place = labels.get(op.branch()?.0 as usize).copied().flatten()?;
            (l.start..=l.end).contains(&place).then_some(place)
        };
        if let Some(at) = before.iter().position(|op| skip(op).is_some()) {
            return Err((at, What::IntoLoop(*to)));
        }
    }
    Ok(())
}

/// Every register was written before it is read: one pass forward, because a way around a loop has written more than the way in.
fn written(region: &Region, labels: &[Option<usize>]) -> Result<(), (usize, What)> {
    let words = (region.registers as usize).div_ceil(64);
    // Of each label what was written on all ways seen to it; `None`: no way yet.
    let mut at_label: Vec<Option<Vec<u64>>> = vec![None; labels.len()];
    let mut now: Option<Vec<u64>> = Some(vec![0; words]);
    for (at, op) in region.ops.iter().enumerate() {
        if let Op::Label(l) = op {
            let jumped = at_label.get_mut(l.0 as usize).and_then(Option::take);
            now = match (now, jumped) {
                (Some(a), Some(b)) => Some(a.iter().zip(&b).map(|(a, b)| a & b).collect()),
                (a, b) => a.or(b),
            };
        }
        // What is never reached reads nothing.
        let Some(set) = &mut now else { continue };
        let bit = |v: V| (v.0 as usize / 64, 1u64 << (v.0 % 64));
        for val in op.reads() {
            if let Val::V(v) = val {
                let (word, bit) = bit(v);
                if set.get(word).is_none_or(|w| w & bit == 0) {
                    return Err((at, What::Unwritten(v)));
                }
            }
        }
        let arrive = |slot: &mut Option<Vec<u64>>, set: &Vec<u64>| match slot {
            Some(old) => old.iter_mut().zip(set).for_each(|(o, n)| *o &= n),
            None => *slot = Some(set.clone()),
        };
        // A branch leaves before what it would write.
        if let Some(to) = op.branch()
            && let Some(slot) = at_label.get_mut(to.0 as usize)
        {
            arrive(slot, set);
        }
        if let Some(v) = op.writes() {
            let (word, bit) = bit(v);
            if let Some(w) = set.get_mut(word) {
                *w |= bit;
            }
        }
        if op.ends_way() {
            now = None;
        }
    }
    Ok(())
}
