//! Shared memory, and what was kept of it when the driver was closed.

use kerninst_driver::Area;
use kerninst_lang::read::Memory;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of programs.
#[derive(Debug)]
pub(crate) enum Words {
    /// That which the kernel writes.
    Shared(Area),
    /// A copy of it.
    Kept(Vec<AtomicU64>),
}

impl Default for Words {
    /// None.
    fn default() -> Words {
        Words::Kept(Vec::new())
    }
}

impl Words {
    /// All of it.
    pub(crate) fn all(&self) -> &[AtomicU64] {
        match self {
            Words::Shared(area) => area.words(),
            Words::Kept(words) => words,
        }
    }

    /// Goes on with a copy.
    pub(crate) fn keep(&mut self) {
        let load = |w: &AtomicU64| AtomicU64::new(w.load(Ordering::Acquire));
        let copy = self.all().iter().map(load).collect();
        *self = Words::Kept(copy);
    }

    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.all().get(usize::try_from(offset / 8).ok()?)
    }
}

impl Memory for Words {
    fn load(&self, offset: u64) -> u64 {
        self.word(offset).map_or(0, |w| w.load(Ordering::Acquire))
    }

    fn store(&self, offset: u64, value: u64) {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::Release);
        }
    }

    fn swap(&self, offset: u64, old: u64, new: u64) -> bool {
        let order = Ordering::AcqRel;
        self.word(offset).is_some_and(|w| {
            w.compare_exchange(old, new, order, Ordering::Acquire)
                .is_ok()
        })
    }
}
