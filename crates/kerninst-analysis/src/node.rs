//! An instruction while its function is being worked out.

use std::ops::Range;

use crate::function::{ExitKind, Incomplete, InsnKind, Shape, Sites};

bitflags::bitflags! {
    /// Facts about a node.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) struct Bits: u16 {
        /// Control may go on to the next instruction.
        const FALLS = 1;
        /// The target is part of the function.
        const INSIDE = 1 << 1;
        /// Reached otherwise than by falling through.
        const JOIN = 1 << 2;
        /// Entered in a way that has no edge in the function.
        const ROOT = 1 << 3;
        /// A call of code with a convention of its own, or code that may be something else: everything is live.
        const OPAQUE = 1 << 4;
        /// Falls out of its region into the next function.
        const FALLS_OUT = 1 << 5;
        /// The call does not return, which is seen only from what follows it (nothing but fill).
        const NO_RETURN_BY_LAYOUT = 1 << 6;
        /// A call that is passed nothing and preserves everything.
        const TRANSPARENT = 1 << 8;
        /// The static key sense: the target side runs while the key is disabled.
        const KEY_INVERTED = 1 << 7;
    }
}

/// How a node leaves the function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leave {
    /// It does not (or only by falling out).
    Not,
    Return,
    /// To the target, a function's start or unknown code.
    Tail,
    /// To the target, in the middle of another function.
    Into,
    IndirectTail,
    NoReturn,
    Trap,
    Special,
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub addr: u64,
    /// Direct target; 0: none.
    pub target: u64,
    pub uses: u32,
    pub kills: u32,
    pub sites: Sites,
    pub bits: Bits,
    pub len: u8,
    pub kind: InsnKind,
    pub shape: Shape,
    pub leave: Leave,
}

impl Node {
    pub(crate) fn end(&self) -> u64 {
        self.addr.wrapping_add(u64::from(self.len))
    }

    pub(crate) fn exit(&self) -> Option<ExitKind> {
        Some(match self.leave {
            Leave::Not => return None,
            Leave::Return => ExitKind::Return,
            Leave::Tail if self.target == 0 => ExitKind::IndirectTailCall,
            Leave::Tail => ExitKind::TailCall(self.target),
            Leave::Into => ExitKind::JumpInto(self.target),
            Leave::IndirectTail => ExitKind::IndirectTailCall,
            Leave::NoReturn => ExitKind::NoReturn,
            Leave::Trap => ExitKind::Trap,
            Leave::Special => ExitKind::Special,
            Leave::Unknown => ExitKind::Unknown,
        })
    }
}

/// The instructions of a function and how control goes between them.
pub(crate) struct Flow {
    /// Region of the entry's symbol.
    pub region: Range<u64>,
    /// Sorted by address.
    pub nodes: Vec<Node>,
    /// Exception table: instruction, fixup; sorted.
    pub fixups: Vec<(u64, u64)>,
    /// Further targets of boot-time alternatives (files only): instruction, target; sorted.
    pub extra: Vec<(u64, u64)>,
    pub fentry: Option<u64>,
    pub abi: bool,
    /// Other functions lead into it: it may be more than what its own code reaches.
    pub entered: bool,
    pub incomplete: Vec<Incomplete>,
}

impl Flow {
    pub(crate) fn index_of(&self, addr: u64) -> Option<usize> {
        self.nodes.binary_search_by_key(&addr, |n| n.addr).ok()
    }
}
