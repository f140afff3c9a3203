//! Scripts of the probe language: from clauses to programs at points, the memory that they write, and its reading.

mod data;
mod error;
mod facts;
mod names;
mod place;
mod running;
mod walk;
mod words;

pub use error::ScriptError;
pub use names::NameTable;
pub use place::{LeftOut, PlacedPoint, Placing, place};
pub use running::{Finished, Programs, Running, Sizes, dry_programs};
