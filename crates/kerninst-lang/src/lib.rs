//! The probe language; pure.
//!
//! Source text becomes a syntax tree ([`parse()`], [`ast`]), that a checked script ([`check()`], [`hir`]), and that, for each
//! point, a program for `kerninst-snippet` to compile ([`lower`]). What programs leave in shared memory ([`layout`]) is read
//! ([`read`]) and printed ([`show`]) here too; what runs in user space is in [`world`].

pub mod ast;
mod check;
mod diag;
pub mod hir;
mod hir_text;
pub mod layout;
mod lex;
pub mod lower;
mod parse;
pub mod read;
pub mod show;
pub mod types;
pub mod value;
pub mod world;

pub use check::{Options, check, check_all};
pub use diag::{Diagnostic, nearest};
pub use parse::{MAX_SOURCE, parse};

/// Most rounds of a loop.
pub const MAX_ROUNDS: u32 = 1024;
