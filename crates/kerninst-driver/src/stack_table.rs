//! A table of stacks that any context may add to at any time, and its reading: shared by the kernel side, which adds, and
//! user space, which reads. Nothing is ever taken out or changed in it.
//!
//! An entry is claimed by its hash (compare and exchange with 0), filled, and published by the number of its frames. Whoever
//! finds an entry that is claimed and not published, or another stack with the same hash, goes on to the next; nobody ever
//! waits. So a stack may be in the table more than once.

use crate::abi::{MAX_FRAMES, MAX_STACKS, StackEntry, StackTable};
use core::sync::atomic::{AtomicU64, Ordering};

/// Words of the header, and of an entry before its frames.
pub const HEADER: usize = size_of::<StackTable>() / 8;
/// Words of an entry before its frames: its hash, and their number.
pub const ENTRY: usize = size_of::<StackEntry>() / 8;
/// How many entries are tried for a stack.
const PROBES: usize = 16;

/// Size of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of entries, a power of two.
    pub capacity: u32,
    /// Most frames of one stack.
    pub depth: u32,
}

impl Shape {
    /// `None`: the capacity is no power of two up to [`MAX_STACKS`], or the depth not 1 to [`MAX_FRAMES`].
    #[inline(always)]
    pub fn new(capacity: u32, depth: u32) -> Option<Shape> {
        let sound = capacity != 0
            && capacity & (capacity - 1) == 0
            && capacity <= MAX_STACKS
            && depth != 0
            && depth <= MAX_FRAMES;
        if sound {
            Some(Shape { capacity, depth })
        } else {
            None
        }
    }

    /// Of a table by its first word: capacity, and depth above it.
    #[inline(always)]
    pub fn of(word: u64) -> Option<Shape> {
        Shape::new(word as u32, (word >> 32) as u32)
    }

    /// Words of one entry.
    #[inline(always)]
    pub fn entry(self) -> usize {
        ENTRY + self.depth as usize
    }
}

/// Never 0, which is an empty entry's.
#[inline(always)]
fn hash(frames: impl Iterator<Item = u64>) -> u64 {
    // 2^64 divided by the golden ratio: mixes into the upper half.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut h = FACTOR;
    for frame in frames {
        h = (h ^ frame).wrapping_mul(FACTOR);
        h ^= h >> 29;
    }
    h | 1
}

/// Finds or adds a stack; its id, from 1 on. `None`: no room near its place.
///
/// # Safety
/// `table` has [`HEADER`] words and `shape.capacity` entries; `frames` has `count` words, 1 to `shape.depth`, that nobody
/// writes meanwhile.
#[inline(always)]
pub unsafe fn insert(
    table: *const AtomicU64,
    shape: Shape,
    frames: *const u64,
    count: usize,
) -> Option<u32> {
    // SAFETY: every index stays within what the caller promises.
    unsafe {
        let h = hash((0..count).map(|i| frames.add(i).read()));
        let mask = shape.capacity as usize - 1;
        let start = (h >> 32) as usize;
        let mut tries = PROBES;
        if tries > shape.capacity as usize {
            tries = shape.capacity as usize;
        }
        for i in 0..tries {
            let index = start.wrapping_add(i) & mask;
            let entry = table.add(HEADER + index * shape.entry());
            let (key, number, body) = (&*entry, &*entry.add(1), entry.add(ENTRY));
            let mut found = key.load(Ordering::Acquire);
            if found == 0 {
                match key.compare_exchange(0, h, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => {
                        for n in 0..count {
                            (*body.add(n)).store(frames.add(n).read(), Ordering::Relaxed);
                        }
                        number.store(count as u64, Ordering::Release);
                        return Some(index as u32 + 1);
                    }
                    Err(other) => found = other,
                }
            }
            if found == h && number.load(Ordering::Acquire) == count as u64 {
                let mut n = 0;
                while n < count && (*body.add(n)).load(Ordering::Relaxed) == frames.add(n).read() {
                    n += 1;
                }
                if n == count {
                    return Some(index as u32 + 1);
                }
            }
        }
        None
    }
}
