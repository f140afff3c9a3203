//! Exact block and edge profiles from few counters; pure.
//!
//! A function's [`Flow`] is its control flow graph with the ways in and out made edges too. What enters a block leaves it
//! again, but for the visits that were inside when the counters were read. So not every edge needs a counter: those off
//! a spanning tree suffice ([`Placement`]), and [`solve`] gives all the others exactly. One counter more than needed per
//! function makes the conservation of visits a fact that is checked: what does not add up is a [`Violation`], shown with
//! place and amounts, never smoothed.
//!
//! Sources: D. E. Knuth and F. R. Stevenson, "Optimal measurement points for program frequency counts", BIT 13 (1973); T. Ball and
//! J. R. Larus, "Optimally profiling and tracing programs", ACM TOPLAS 16(4) (1994): the maximum spanning tree, and the
//! edge from the exit back to the entry that makes the flow a circulation; Y. Wu and J. R. Larus, "Static branch
//! frequency and program profile analysis", MICRO-27 (1994): [`Weights::estimate`]. KernInst's own way, edges from block
//! counts, is [`Derivation`]. Where only what ran at all is wanted, [`Marks`] tell it.

mod code;
mod derive;
mod diff;
pub mod file;
mod flow;
mod marks;
mod node;
mod placement;
mod solve;
mod tree;
mod weights;

pub use code::{Part, Way};
pub use derive::Derivation;
pub use diff::{Change, Diff};
pub use flow::{Flow, FlowEdge, Role};
pub use marks::Marks;
pub use node::Node;
pub use placement::{Counter, Placement};
pub use solve::{Profile, Violation, WrongCounts, solve};
pub use weights::Weights;
