//! Sessions: what a user asks for becomes armed points, counts, and an untouched kernel again. The public API.
//!
//! - [`Probe`] is what a user writes; [`resolve`] finds its [`Point`]s in a kernel.
//! - [`Target`] holds a kernel's picture; [`Session::arm`] puts a counter before every point.
//! - Ownership is armed state: dropping a [`Session`] disarms, and the driver does when this process dies.
//! - [`status`], [`reset`] and [`doctor`] work without a session.

mod arm;
mod collect;
mod counters;
mod doctor;
mod error;
mod exits;
mod owners;
mod point;
mod probe;
mod resolve;
mod session;
mod status;

pub use collect::{Collected, reset};
pub use counters::{Count, Counts};
pub use doctor::{Check, Report as DoctorReport, Verdict, doctor};
pub use error::{ArmError, ResolveError, SessionError};
pub use owners::{Conflict, Owner, Owners};
pub use point::{Point, PointKind};
pub use probe::{ParseError, Place, Probe, ProbeKind};
pub use resolve::{Resolved, resolve};
pub use session::{ArmOptions, ArmedPoint, DisarmReport, PlannedSession, Session, plan};
pub use status::{BatchStatus, Status, status};
