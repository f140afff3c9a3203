//! The ways to splice.

use std::fmt;

/// How a splice is done: the rungs of the ladder, best first. Which bytes are overwritten decides what arming and
/// removing it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Tactic {
    /// One instruction of five bytes or more becomes a `jmp rel32`. No quiescence to arm.
    InPlace,
    /// A shorter instruction after which control never goes on, with proven padding behind it. No quiescence to arm.
    InPlacePadded,
    /// The splice is [`Tactic::InPlace`] at an earlier instruction of the same block, from which control reaches the
    /// point in a straight line. No quiescence to arm.
    HoistInBlock,
    /// As [`Tactic::HoistInBlock`], past one or more conditional jumps that are not taken.
    HoistPastJcc,
    /// A 2-byte jump to a 5-byte jump in proven padding nearby. No quiescence to arm.
    Springboard,
    /// A `jmp rel32` over several instructions: needs an `int3` first and then quiescence, before the rest is written.
    Run,
    /// `int3` at the first byte; the driver's handler goes on in the patch.
    Int3,
}

impl Tactic {
    /// All of them, best first.
    pub const ALL: [Tactic; 7] = [
        Tactic::InPlace,
        Tactic::InPlacePadded,
        Tactic::HoistInBlock,
        Tactic::HoistPastJcc,
        Tactic::Springboard,
        Tactic::Run,
        Tactic::Int3,
    ];

    /// Short name, as shown and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Tactic::InPlace => "in-place",
            Tactic::InPlacePadded => "in-place-padded",
            Tactic::HoistInBlock => "hoist",
            Tactic::HoistPastJcc => "hoist-past-jcc",
            Tactic::Springboard => "springboard",
            Tactic::Run => "run",
            Tactic::Int3 => "int3",
        }
    }

    /// Whether every task and CPU must be known to be outside the site before all of its bytes may be written.
    pub fn needs_quiescence(self) -> bool {
        self == Tactic::Run
    }

    /// Jump instructions on the way into the patch.
    pub fn jumps_in(self) -> u32 {
        match self {
            Tactic::Springboard => 2,
            Tactic::Int3 => 0,
            _ => 1,
        }
    }
}

impl fmt::Display for Tactic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

bitflags::bitflags! {
    /// A set of tactics: those that a plan may use.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Tactics: u8 {
        /// [`Tactic::InPlace`].
        const IN_PLACE = 1;
        /// [`Tactic::InPlacePadded`].
        const IN_PLACE_PADDED = 1 << 1;
        /// [`Tactic::HoistInBlock`].
        const HOIST_IN_BLOCK = 1 << 2;
        /// [`Tactic::HoistPastJcc`].
        const HOIST_PAST_JCC = 1 << 3;
        /// [`Tactic::Springboard`].
        const SPRINGBOARD = 1 << 4;
        /// [`Tactic::Run`].
        const RUN = 1 << 5;
        /// [`Tactic::Int3`].
        const INT3 = 1 << 6;
    }
}

impl Tactics {
    /// Whether `tactic` is in the set.
    pub fn has(self, tactic: Tactic) -> bool {
        self.contains(tactic.into())
    }
}

impl From<Tactic> for Tactics {
    fn from(t: Tactic) -> Tactics {
        match t {
            Tactic::InPlace => Tactics::IN_PLACE,
            Tactic::InPlacePadded => Tactics::IN_PLACE_PADDED,
            Tactic::HoistInBlock => Tactics::HOIST_IN_BLOCK,
            Tactic::HoistPastJcc => Tactics::HOIST_PAST_JCC,
            Tactic::Springboard => Tactics::SPRINGBOARD,
            Tactic::Run => Tactics::RUN,
            Tactic::Int3 => Tactics::INT3,
        }
    }
}
