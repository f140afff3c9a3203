//! A site table: entries that name text addresses, sorted, with the look-ups every table offers.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

/// One entry of a site table.
pub trait Entry: Clone + Send + Sync + 'static {
    /// The text address it is about (its first byte).
    fn addr(&self) -> u64;
    /// Bytes of text that it covers from `addr` on; 1 where the table does not say.
    fn span(&self) -> u64 {
        1
    }
    /// A second text address that it names (fixup, jump target): control may arrive there.
    fn target(&self) -> Option<u64> {
        None
    }
    /// One line of [`Table::dump`].
    fn line(&self) -> String;
}

type Load<T> = Box<dyn FnOnce() -> Vec<T> + Send>;

/// The entries of one kind for the core kernel and all modules, sorted by address. Decoded on first use.
pub struct Table<T: Entry> {
    entries: LazyLock<Vec<T>, Load<T>>,
    by_target: OnceLock<Vec<(u64, u32)>>,
}

impl<T: Entry> Default for Table<T> {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl<T: Entry> Table<T> {
    /// A table of these entries, in any order.
    #[must_use]
    pub fn new(entries: Vec<T>) -> Self {
        Self::lazy(move || entries)
    }
    /// A table that is decoded when first asked; the entries may come in any order.
    #[must_use]
    pub fn lazy(load: impl FnOnce() -> Vec<T> + Send + 'static) -> Self {
        let load: Load<T> = Box::new(move || {
            let mut entries = load();
            if !entries.is_sorted_by_key(Entry::addr) {
                entries.sort_by_key(Entry::addr);
            }
            entries
        });
        Self {
            entries: LazyLock::new(load),
            by_target: OnceLock::new(),
        }
    }
    /// All entries by address.
    #[must_use]
    pub fn entries(&self) -> &[T] {
        &self.entries
    }
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// No entries?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    /// The (first) entry about exactly this address.
    #[must_use]
    pub fn at(&self, addr: u64) -> Option<&T> {
        self.all_at(addr).first()
    }
    /// All entries about exactly this address (alternatives can have several).
    #[must_use]
    pub fn all_at(&self, addr: u64) -> &[T] {
        let all = self.entries();
        let from = all.partition_point(|e| e.addr() < addr);
        let to = all.partition_point(|e| e.addr() <= addr);
        all.get(from..to).unwrap_or(&[])
    }
    /// The entries that touch `range`: empty says that none does. Every returned entry but perhaps some between
    /// two that do touch it overlaps the range.
    #[must_use]
    pub fn in_range(&self, range: Range<u64>) -> &[T] {
        let all = self.entries();
        let to = all.partition_point(|e| e.addr() < range.end);
        let mut from = all.partition_point(|e| e.addr() < range.start);
        // Entries cover at most 255 bytes (a length byte): look back that far for one that reaches in.
        let mut i = from;
        while let Some(e) = i.checked_sub(1).and_then(|j| all.get(j)) {
            if e.addr().saturating_add(256) < range.start {
                break;
            }
            i -= 1;
            if e.addr().saturating_add(e.span()) > range.start {
                from = i;
            }
        }
        all.get(from..to).unwrap_or(&[])
    }
    /// The entries whose second address ([`Entry::target`]) lies in `range`, by that address.
    pub fn targets_in(&self, range: Range<u64>) -> impl Iterator<Item = &T> {
        let all = self.entries();
        let index = self.by_target.get_or_init(|| {
            let mut index: Vec<_> = all
                .iter()
                .enumerate()
                .filter_map(|(i, e)| Some((e.target()?, u32::try_from(i).ok()?)))
                .collect();
            index.sort_unstable();
            index
        });
        let from = index.partition_point(|&(t, _)| t < range.start);
        let to = index.partition_point(|&(t, _)| t < range.end).max(from);
        index
            .get(from..to)
            .unwrap_or(&[])
            .iter()
            .filter_map(|&(_, i)| all.get(i as usize))
    }
    /// One line for each entry.
    #[must_use]
    pub fn dump(&self) -> String {
        let mut out = String::new();
        for e in self.entries() {
            let _ = writeln!(out, "{}", e.line());
        }
        out
    }
}
