//! Sessions: what a user asks for becomes armed points, counts, and an untouched kernel again. The public API.
//!
//! - [`Probe`] is what a user writes; [`resolve`] finds its [`Point`]s in a kernel.
//! - [`Target`] holds a kernel's picture; [`Session::arm`] puts a counter before every point.
//! - Ownership is armed state: dropping a [`Session`] disarms, and the driver does when this process dies.
//! - [`status`], [`reset`] and [`doctor`] work without a session.

mod access;
mod arm;
mod attach;
mod collect;
mod counters;
mod doctor;
mod error;
mod exits;
mod hits;
mod owners;
mod plan;
mod point;
mod probe;
mod resolve;
pub mod script;
mod session;
mod sleepers;
mod status;
mod ways;

pub use access::Access;
pub use attach::{Attached, Runs};
pub use collect::{Collected, UnderWay, reset};
pub use counters::{Count, Counts};
pub use doctor::{Check, Report as DoctorReport, Verdict, doctor};
pub use error::{ArmError, ResolveError, SessionError};
pub use owners::{Conflict, Owner, Owners};
pub use plan::{
    ArmedPoint, Means, PlannedSession, Records, VersionOf, WhyNoVersion, plan, plan_revised,
    plan_snippets,
};
pub use point::{Callee, Point, PointKind};
pub use probe::{ParseError, Place, Probe, ProbeKind};
pub use resolve::{Resolved, resolve};
pub use session::{ArmOptions, DisarmReport, Session};
pub use sleepers::{OldBodies, Sleepers};
pub use status::{BatchStatus, Status, in_use, status};
