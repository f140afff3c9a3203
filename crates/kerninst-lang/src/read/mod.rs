//! What generated code left in shared memory, read back: maps ([`MapReader`]) and events ([`RingReader`]). Pure: the memory is
//! behind traits, so that tests give vectors and the engine what it mapped.

mod decode;
mod gather;
mod map;
mod order;
mod ring;
mod user;

pub use decode::{value, words};
pub use map::{Entries, MapReader};
pub use ring::{Damaged, Record, RingReader};
pub use user::Unchanged;

/// A shared area, or a part of one. Offsets are in bytes, multiples of 8; what is beyond the end reads as 0 and is not written.
pub trait Memory {
    /// Reads a word, at once, before whatever is read after it.
    fn load(&self, offset: u64) -> u64;
    /// Writes a word, at once, after whatever was written before it.
    fn store(&self, offset: u64, value: u64);
    /// Replaces a word, at once, if it is `old`: whether it was.
    fn swap(&self, offset: u64, old: u64, new: u64) -> bool;
}

/// Per-CPU words.
pub trait Cells {
    /// The sum (wrapping) over all CPUs, offline ones included, of the 64-bit word that this per-CPU pointer says.
    fn sum(&self, pointer: u64) -> u64;
}
