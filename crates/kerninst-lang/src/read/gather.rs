//! The used entries of a map's table.

use super::{Cells, Memory};
use crate::layout::{MapPlace, Shape, state};

/// So often an entry is looked at again that is being written: whoever writes it has a few instructions to go, unless a task was
/// switched out in the middle of them.
pub(super) const PATIENCE: u32 = 1000;

/// An entry as it is in the table.
pub(super) struct Raw {
    /// Offset of its state.
    pub offset: u64,
    /// Its state.
    pub state: u64,
    /// Words of its key.
    pub key: Vec<u64>,
    /// Its value, or the pointer of its cells.
    pub value: Vec<u64>,
}

/// The entries that are there; and how many were being written all the time.
pub(super) fn there(table: &impl Memory, place: MapPlace, shape: Shape) -> (Vec<Raw>, u64) {
    let (mut all, mut unread) = (Vec::new(), 0);
    for n in 0..u64::from(place.capacity) {
        let offset = n * u64::from(shape.words()) * 8;
        match entry(table, offset, shape) {
            Ok(Some(raw)) => all.push(raw),
            Ok(None) => {}
            Err(()) => unread += 1,
        }
    }
    (all, unread)
}

/// An entry, if it is there; an error if it was being written all the time.
pub(super) fn entry(table: &impl Memory, offset: u64, shape: Shape) -> Result<Option<Raw>, ()> {
    let words = |first: u32, n: u32| -> Vec<u64> {
        let at = (first..first + n).map(|w| offset + u64::from(w) * 8);
        at.map(|o| table.load(o)).collect()
    };
    for _ in 0..PATIENCE {
        let s = table.load(offset);
        match s & 3 {
            state::THERE => {}
            state::BUSY => continue,
            _ => return Ok(None),
        }
        let raw = Raw {
            offset,
            state: s,
            key: words(1, shape.key),
            value: words(shape.value_at(), shape.value),
        };
        if table.load(offset) == s {
            return Ok(Some(raw));
        }
    }
    Err(())
}

/// The sums of an entry's cells over all CPUs.
pub(super) fn sums(cells: &impl Cells, pointer: u64, shape: Shape) -> Vec<u64> {
    let pointers = (0..u64::from(shape.cells)).map(|n| pointer.wrapping_add(n * 8));
    pointers.map(|p| cells.sum(p)).collect()
}
