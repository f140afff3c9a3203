//! What the analysis of one function needs to know about others, with memory of what was found.

use std::hash::Hash;
use std::sync::{Arc, OnceLock, RwLock};

use kerninst_kernel::Kernel;

use crate::callee::Callee;
use crate::cross::References;
use crate::hash::AddrMap;
use crate::index::Index;
use crate::padding::{Ends, Gaps};

/// The index of starts and the caches; shared by all threads.
pub(crate) struct Shared<'k> {
    pub index: Index<'k>,
    /// Does the function that starts here never return, as far as this many levels of calls tell?
    pub no_return: Memo<(u64, u8), bool>,
    /// Instructions that control reaches within a region from its start (offsets, sorted).
    pub reach: Memo<u64, Arc<[u32]>>,
    /// What functions without an fentry site do to their caller's registers.
    pub callees: Memo<(u64, u8), Callee>,
    /// Where control ends in regions of functions.
    pub ends: Memo<u64, Arc<Ends>>,
    /// Free bytes of regions.
    pub padding: Memo<u64, Arc<Gaps>>,
    references: OnceLock<References>,
    untraced_references: OnceLock<References>,
}

impl<'k> Shared<'k> {
    pub(crate) fn new(kernel: &'k Kernel) -> Self {
        Self {
            index: Index::new(kernel),
            no_return: Memo::default(),
            reach: Memo::default(),
            callees: Memo::default(),
            ends: Memo::default(),
            padding: Memo::default(),
            references: OnceLock::new(),
            untraced_references: OnceLock::new(),
        }
    }

    /// References across functions: a scan of all text, on first use.
    pub(crate) fn references(&self) -> &References {
        self.references
            .get_or_init(|| References::scan(&self.index, false))
    }

    /// References across functions that code without an fentry site makes. (C code refers to the middle
    /// of another function only to reach its own cold part.)
    pub(crate) fn untraced_references(&self) -> &References {
        self.untraced_references
            .get_or_init(|| References::scan(&self.index, true))
    }
}

/// Remembers the results of a pure function. Two threads may compute the same value; both get the same.
pub(crate) struct Memo<K, V>(RwLock<AddrMap<K, V>>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(RwLock::new(AddrMap::default()))
    }
}

impl<K: Eq + Hash + Copy, V: Clone> Memo<K, V> {
    /// The value for `key`. The lock is not held while `compute` runs: it may ask the same memo.
    pub(crate) fn get(&self, key: K, compute: impl FnOnce() -> V) -> V {
        // A poisoned lock: another thread panicked between two statements that cannot leave the map
        // half-changed; its values are good.
        let known = self
            .0
            .read()
            .unwrap_or_else(|e| e.into_inner())
            .get(&key)
            .cloned();
        known.unwrap_or_else(|| {
            let value = compute();
            let mut map = self.0.write().unwrap_or_else(|e| e.into_inner());
            map.entry(key).or_insert(value).clone()
        })
    }
}
