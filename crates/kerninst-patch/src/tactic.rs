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
    /// The splice is a springboard or a run at an earlier instruction, from which control reaches the point in a straight
    /// line.
    HoistShort,
    /// The splice displaces a call that the point is reached from when it returns: the patch makes the call itself, so
    /// a task that sleeps in it holds an address of the patch. No quiescence to arm.
    AfterCall,
    /// All ways to the point are known branches and fall-through of the function: a splice on each of them, which all
    /// change the same counter.
    Edges,
    /// Inline in an instrumented version of the function, which one splice at its entry leads to: how a point is reached,
    /// never how a site is overwritten.
    Version,
    /// `int3` at the first byte; the driver's handler goes on in the patch.
    Int3,
}

impl Tactic {
    /// All that a splice can be, best first.
    pub const ALL: [Tactic; 10] = [
        Tactic::InPlace,
        Tactic::InPlacePadded,
        Tactic::HoistInBlock,
        Tactic::HoistPastJcc,
        Tactic::Springboard,
        Tactic::Run,
        Tactic::HoistShort,
        Tactic::AfterCall,
        Tactic::Edges,
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
            Tactic::Version => "version",
            Tactic::HoistShort => "hoist-short",
            Tactic::AfterCall => "after-call",
            Tactic::Edges => "edges",
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
            Tactic::Int3 | Tactic::Version => 0,
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
    pub struct Tactics: u16 {
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
        /// [`Tactic::HoistShort`].
        const HOIST_SHORT = 1 << 8;
        /// [`Tactic::AfterCall`].
        const AFTER_CALL = 1 << 9;
        /// [`Tactic::Edges`].
        const EDGES = 1 << 10;
        /// [`Tactic::Version`].
        const VERSION = 1 << 7;
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
            Tactic::Version => Tactics::VERSION,
            Tactic::HoistShort => Tactics::HOIST_SHORT,
            Tactic::AfterCall => Tactics::AFTER_CALL,
            Tactic::Edges => Tactics::EDGES,
            Tactic::Int3 => Tactics::INT3,
        }
    }
}
