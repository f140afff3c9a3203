//! Reading the stacks that callouts put into a table ([`abi::StackTable`](crate::abi::StackTable)).

use crate::stack_table::{ENTRY, HEADER, Shape};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a table cannot be made. A fault of this program, not of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StacksError {
    /// Its size is not within the limits of `abi`.
    #[error("a table of {capacity} stacks of {depth} frames is not possible")]
    Shape {
        /// Number of stacks.
        capacity: u32,
        /// Most frames of one.
        depth: u32,
    },
    /// The memory is too small for it.
    #[error("a table of stacks takes {needed} bytes, and there are {there}")]
    Room {
        /// Bytes that it takes.
        needed: usize,
        /// Bytes there are.
        there: usize,
    },
}

/// A table of stacks in memory that the kernel shares.
#[derive(Debug, Clone, Copy)]
pub struct Stacks<'a> {
    words: &'a [AtomicU64],
    shape: Shape,
}

impl<'a> Stacks<'a> {
    /// Bytes of a table of `capacity` stacks (a power of two) of at most `depth` frames; `None`: not possible.
    #[must_use]
    pub fn bytes(capacity: u32, depth: u32) -> Option<usize> {
        Some(words(Shape::new(capacity, depth)?) * 8)
    }

    /// Writes the header of a table into zeroed words, of which it takes the first [`Stacks::bytes`].
    ///
    /// # Errors
    /// [`StacksError`].
    pub fn new(
        memory: &'a [AtomicU64],
        capacity: u32,
        depth: u32,
    ) -> Result<Stacks<'a>, StacksError> {
        let shape = Shape::new(capacity, depth).ok_or(StacksError::Shape { capacity, depth })?;
        let room = StacksError::Room {
            needed: words(shape) * 8,
            there: memory.len() * 8,
        };
        let words = memory.get(..words(shape)).ok_or(room)?;
        let head = words.first().ok_or(room)?;
        head.store(
            u64::from(depth) << 32 | u64::from(capacity),
            Ordering::Release,
        );
        Ok(Stacks { words, shape })
    }

    /// The frames of a stack by the id that a callout gave, innermost first; `None`: there is none (yet).
    #[must_use]
    pub fn get(&self, id: u64) -> Option<Vec<u64>> {
        let index = id
            .checked_sub(1)
            .filter(|i| *i < u64::from(self.shape.capacity))?;
        let at = HEADER + usize::try_from(index).ok()? * self.shape.entry();
        let entry = self.words.get(at..at + self.shape.entry())?;
        let count = usize::try_from(entry.get(1)?.load(Ordering::Acquire)).ok()?;
        if count == 0 {
            return None;
        }
        let frames = entry.get(ENTRY..ENTRY.checked_add(count)?)?;
        Some(frames.iter().map(|f| f.load(Ordering::Relaxed)).collect())
    }

    /// How many entries are taken.
    #[must_use]
    pub fn used(&self) -> usize {
        let entries = self.words.get(HEADER..).unwrap_or_default();
        let keys = entries
            .chunks(self.shape.entry())
            .filter_map(<[AtomicU64]>::first);
        keys.filter(|k| k.load(Ordering::Relaxed) != 0).count()
    }
}

fn words(shape: Shape) -> usize {
    HEADER + shape.capacity as usize * shape.entry()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack_table::insert;
    use proptest::prelude::*;

    fn memory(capacity: u32, depth: u32) -> Vec<AtomicU64> {
        let words = Stacks::bytes(capacity, depth).expect("a shape") / 8;
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    /// As the driver does.
    fn add(stacks: &Stacks<'_>, frames: &[u64]) -> Option<u32> {
        assert!(!frames.is_empty() && frames.len() <= stacks.shape.depth as usize);
        // SAFETY: `Stacks::new` has checked the size; the frames are as many.
        unsafe {
            insert(
                stacks.words.as_ptr(),
                stacks.shape,
                frames.as_ptr(),
                frames.len(),
            )
        }
    }

    proptest! {
        /// Would catch a stack that is read other than it was added, that two share an id, or that one stack gets two without
        /// need; and a write behind the end of the table.
        #[test]
        fn what_is_added_is_read(
            power in 0u32..7,
            depth in 1u32..9,
            all in proptest::collection::vec(proptest::collection::vec(0u64..4, 1..9), 1..80),
        ) {
            let mut memory = memory(1 << power, depth);
            let behind = memory.len();
            memory.extend((0..64).map(|_| AtomicU64::new(7)));
            let stacks = Stacks::new(&memory, 1 << power, depth).expect("there is room");
            let mut ids = std::collections::HashMap::new();
            for frames in &all {
                let frames: Vec<u64> = frames.iter().copied().take(depth as usize).collect();
                if let Some(id) = add(&stacks, &frames) {
                    prop_assert_eq!(stacks.get(id.into()), Some(frames.clone()));
                    prop_assert_eq!(*ids.entry(frames).or_insert(id), id);
                }
            }
            prop_assert_eq!(stacks.used(), ids.len());
            for (frames, id) in &ids {
                prop_assert_eq!(stacks.get((*id).into()), Some(frames.clone()));
            }
            prop_assert!(memory.iter().skip(behind).all(|w| w.load(Ordering::Relaxed) == 7));
        }

        /// Would catch an id or a header, written by whomever, that leads outside.
        #[test]
        fn any_words_are_read(words in proptest::collection::vec(any::<u64>(), 40), id in any::<u64>(), low in 0u64..40) {
            let memory: Vec<_> = words.into_iter().map(AtomicU64::new).collect();
            let stacks = Stacks::new(&memory, 4, 3).expect("there is room");
            let _ = (stacks.get(id), stacks.get(low), stacks.used());
        }
    }

    /// Would catch an entry that is claimed by somebody who was interrupted, and then filled by two or waited for.
    #[test]
    fn a_claimed_entry_is_passed_by() {
        let memory = memory(4, 2);
        let stacks = Stacks::new(&memory, 4, 2).expect("there is room");
        let first = add(&stacks, &[1, 2]).expect("room");
        let at = HEADER + (first as usize - 1) * stacks.shape.entry();
        memory[at + 1].store(0, Ordering::Relaxed);
        assert_eq!(stacks.get(first.into()), None);
        let second = add(&stacks, &[1, 2]).expect("room");
        assert_ne!(first, second);
        assert_eq!(stacks.get(second.into()), Some(vec![1, 2]));
        assert_eq!(add(&stacks, &[1, 2]), Some(second));
    }

    /// Would catch a full table that loops or overwrites.
    #[test]
    fn a_full_table_says_so() {
        let memory = memory(4, 1);
        let stacks = Stacks::new(&memory, 4, 1).expect("there is room");
        let ids: Vec<_> = (10..14).map(|f| add(&stacks, &[f])).collect();
        assert!(ids.iter().all(Option::is_some));
        assert_eq!(add(&stacks, &[99]), None);
        assert_eq!(stacks.used(), 4);
        assert_eq!(add(&stacks, &[12]), ids[2]);
    }

    /// Would catch two threads that fill the same entry, or read one that is half full.
    #[test]
    fn many_add_at_once() {
        let memory = memory(256, 4);
        let stacks = Stacks::new(&memory, 256, 4).expect("there is room");
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    for n in 0..20_000u64 {
                        let k = (n * 7 + thread) % 100;
                        let frames = [k, k + 1, k + 2, k + 3];
                        let id = add(&stacks, &frames).expect("room");
                        assert_eq!(stacks.get(id.into()).as_deref(), Some(&frames[..]));
                    }
                });
            }
        });
        assert!(stacks.used() >= 100);
    }

    #[test]
    fn impossible_shapes() {
        for (capacity, depth) in [(0, 1), (3, 1), (1 << 21, 1), (4, 0), (4, 128)] {
            assert_eq!(
                Stacks::bytes(capacity, depth),
                None,
                "{capacity} of {depth}"
            );
            assert!(Stacks::new(&[], capacity, depth).is_err());
        }
        assert_eq!(Stacks::bytes(1, 1), Some(64 + 24));
        let error = Stacks::new(&[], 1, 1).expect_err("no room");
        assert_eq!(
            error.to_string(),
            "a table of stacks takes 88 bytes, and there are 0"
        );
    }
}
