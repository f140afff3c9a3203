//! Tactics, code patches, relocation and patch module files; pure.
//!
//! Points in ([`Request`]), splices out ([`Splice`]): a [`Planner`] chooses for every point of a function how code
//! is put before it ([`Tactic`]), relocates the instructions that a splice displaces ([`relocate`]) and gives the
//! code patch that runs them ([`CodePatch`]). A [`PatchModule`] collects code patches into one kernel module file.
//! Once the kernel has loaded it, [`Splice::site_bytes`] says what to write where.
//!
//! No input can make this crate panic: corrupt bytes and tables lead to a [`Refusal`].

mod boards;
mod choose;
mod code_patch;
mod edge_spots;
mod edges;
pub mod elf;
mod emit;
mod facts;
mod module;
mod odd;
mod orc;
mod place;
mod planner;
mod refusal;
mod relocate;
mod splice;
mod spot;
mod tactic;
mod version;

pub use boards::Boards;
pub use code_patch::{
    BugSite, CodePatch, ExSite, Fixup, JumpSite, OrcSite, Reloc, RelocKind, StaticSite,
};
pub use edge_spots::edge_spots;
pub use module::{BuildError, HITS, ModuleInfo, PatchModule, RETURNS};
pub use odd::Odd;
pub use planner::{Options, Plan, Planner, Request, Surveyed};
pub use refusal::{ManagedSite, Refusal, Refused};
pub use relocate::{Fragment, Unrelocatable, relocate};
pub use splice::{Board, OutOfReach, PlannedPoint, SiteBytes, Splice};
pub use spot::Spot;
pub use tactic::{Tactic, Tactics};
pub use version::{NoSpot, NoVersion, Version};
