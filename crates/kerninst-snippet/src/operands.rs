//! What a step reads, writes, and where it may lead.

use crate::ir::{Base, Label, Op, V, Val};

impl Op {
    /// The virtual register that it writes.
    pub fn writes(&self) -> Option<V> {
        match self {
            Op::Copy { to, .. }
            | Op::Reg { to, .. }
            | Op::Bin { to, .. }
            | Op::Set { to, .. }
            | Op::Extend { to, .. }
            | Op::HighBit { to, .. }
            | Op::Probe { to, .. }
            | Op::Load { to, .. }
            | Op::FrameAddress { to, .. }
            | Op::CpuLoad { to, .. }
            | Op::Clock { to } => Some(*to),
            Op::Again { left, .. } => Some(*left),
            Op::Call { to, .. } => *to,
            _ => None,
        }
    }

    /// Its operands, in order.
    pub fn reads(&self) -> Vec<Val> {
        let based = |base: &Base| match base {
            Base::At(at) => Some(*at),
            Base::Frame => None,
        };
        match self {
            Op::Copy { from, .. } | Op::Extend { from, .. } | Op::HighBit { from, .. } => {
                vec![*from]
            }
            Op::Bin { a, b, .. } | Op::Set { a, b, .. } | Op::Branch { a, b, .. } => vec![*a, *b],
            Op::Again { left, .. } => vec![Val::V(*left)],
            Op::Probe { at, .. } => vec![*at],
            Op::ProbeStore { at, value, .. } => vec![*at, *value],
            Op::Load { base, .. } => based(base).into_iter().collect(),
            Op::Store { base, value, .. } => based(base).into_iter().chain([*value]).collect(),
            Op::CpuLoad { pointer, .. } => vec![*pointer],
            Op::CpuAdd { pointer, value } => vec![*pointer, *value],
            Op::CpuSwap {
                pointer, old, new, ..
            } => vec![*pointer, *old, *new],
            Op::Swap { base, old, new, .. } => {
                based(base).into_iter().chain([*old, *new]).collect()
            }
            Op::Call { args, .. } => args.clone(),
            Op::SetReg { value, .. } => vec![*value],
            Op::Reg { .. }
            | Op::Label(_)
            | Op::Jump(_)
            | Op::FrameAddress { .. }
            | Op::Clock { .. }
            | Op::Leave { .. }
            | Op::End => Vec::new(),
        }
    }

    /// Its operands, to be replaced. Not that of [`Op::Again`], which it also writes.
    pub(crate) fn reads_mut(&mut self) -> Vec<&mut Val> {
        fn based(base: &mut Base) -> Option<&mut Val> {
            match base {
                Base::At(at) => Some(at),
                Base::Frame => None,
            }
        }
        match self {
            Op::Copy { from, .. } | Op::Extend { from, .. } | Op::HighBit { from, .. } => {
                vec![from]
            }
            Op::Bin { a, b, .. } | Op::Set { a, b, .. } | Op::Branch { a, b, .. } => vec![a, b],
            Op::Probe { at, .. } => vec![at],
            Op::ProbeStore { at, value, .. } => vec![at, value],
            Op::Load { base, .. } => based(base).into_iter().collect(),
            Op::Store { base, value, .. } => based(base).into_iter().chain([value]).collect(),
            Op::CpuLoad { pointer, .. } => vec![pointer],
            Op::CpuAdd { pointer, value } => vec![pointer, value],
            Op::CpuSwap {
                pointer, old, new, ..
            } => vec![pointer, old, new],
            Op::Swap { base, old, new, .. } => based(base).into_iter().chain([old, new]).collect(),
            Op::Call { args, .. } => args.iter_mut().collect(),
            Op::SetReg { value, .. } => vec![value],
            _ => Vec::new(),
        }
    }

    /// The label further down that it may lead to.
    pub fn branch(&self) -> Option<Label> {
        match self {
            Op::Jump(to) | Op::Branch { to, .. } => Some(*to),
            Op::Probe { fault, .. } | Op::ProbeStore { fault, .. } => Some(*fault),
            Op::CpuSwap { fail, .. } | Op::Swap { fail, .. } => Some(*fail),
            _ => None,
        }
    }

    /// The same, to be replaced.
    pub(crate) fn branch_mut(&mut self) -> Option<&mut Label> {
        match self {
            Op::Jump(to) | Op::Branch { to, .. } => Some(to),
            Op::Probe { fault, .. } | Op::ProbeStore { fault, .. } => Some(fault),
            Op::CpuSwap { fail, .. } | Op::Swap { fail, .. } => Some(fail),
            _ => None,
        }
    }

    /// Control does not go on to the next step.
    pub fn ends_way(&self) -> bool {
        matches!(self, Op::Jump(_) | Op::Leave { .. } | Op::End)
    }

    /// All it does is to write its register: if nobody reads that, it may be left out. Loads of memory that is there for sure
    /// have no other effect; a probe that fails counts a loss, at its label.
    pub(crate) fn is_pure(&self) -> bool {
        matches!(
            self,
            Op::Copy { .. }
                | Op::Reg { .. }
                | Op::Bin { .. }
                | Op::Set { .. }
                | Op::Extend { .. }
                | Op::HighBit { .. }
                | Op::Load { .. }
                | Op::FrameAddress { .. }
                | Op::CpuLoad { .. }
                | Op::Clock { .. }
        )
    }
}
