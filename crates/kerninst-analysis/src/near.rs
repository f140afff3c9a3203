//! The site tables as one function sees them: slices for its own region, full look-ups elsewhere.

use std::ops::Range;

use kerninst_kernel::{
    Alternative, BugEntry, Entry, ExEntry, JumpLabel, ParavirtSite, Site, StaticCall, Table, Tables,
};

/// Table entries in and around one region.
pub(crate) struct Near<'k> {
    pub(crate) region: Range<u64>,
    tables: &'k Tables,
    pub(crate) extable: &'k [ExEntry],
    pub(crate) bugs: &'k [BugEntry],
    pub(crate) jump_labels: &'k [JumpLabel],
    pub(crate) static_calls: &'k [StaticCall],
    pub(crate) fentry: &'k [Site],
    alternatives: &'k [Alternative],
    paravirt: &'k [ParavirtSite],
    bugs_known: bool,
    /// Which low bytes the addresses of the region's entries have: most instructions have no entry.
    marked: [u64; 4],
}

impl<'k> Near<'k> {
    pub(crate) fn new(tables: &'k Tables, region: Range<u64>) -> Self {
        let mut near = Self {
            extable: tables.extable.in_range(region.clone()),
            bugs: tables.bugs.in_range(region.clone()),
            jump_labels: tables.jump_labels.in_range(region.clone()),
            static_calls: tables.static_calls.in_range(region.clone()),
            fentry: tables.fentry.in_range(region.clone()),
            alternatives: tables.alternatives.in_range(region.clone()),
            paravirt: tables.paravirt.in_range(region.clone()),
            bugs_known: !tables.bugs.is_empty(),
            tables,
            region,
            marked: [0; 4],
        };
        near.mark(near.extable);
        near.mark(near.bugs);
        near.mark(near.jump_labels);
        near.mark(near.static_calls);
        near.mark(near.fentry);
        near
    }

    fn mark<T: Entry>(&mut self, entries: &[T]) {
        for entry in entries {
            let (word, bit) = place(entry.addr());
            if let Some(word) = self.marked.get_mut(word) {
                *word |= bit;
            }
        }
    }

    /// May there be an entry about exactly this address of the region?
    #[inline]
    fn may_have(&self, addr: u64) -> bool {
        let (word, bit) = place(addr);
        self.marked.get(word).is_none_or(|w| w & bit != 0)
    }

    #[inline]
    fn find<'t, T: Entry>(&self, slice: &'t [T], table: &'t Table<T>, addr: u64) -> &'t [T] {
        if !self.region.contains(&addr) {
            return table.all_at(addr);
        }
        if slice.is_empty() || !self.may_have(addr) {
            return &[];
        }
        let from = slice.partition_point(|e| e.addr() < addr);
        let to = slice.partition_point(|e| e.addr() <= addr);
        slice.get(from..to).unwrap_or(&[])
    }

    pub(crate) fn fixups(&self, addr: u64) -> &'k [ExEntry] {
        self.find(self.extable, &self.tables.extable, addr)
    }

    pub(crate) fn jump_label(&self, addr: u64) -> Option<&'k JumpLabel> {
        self.find(self.jump_labels, &self.tables.jump_labels, addr)
            .first()
    }

    pub(crate) fn static_call(&self, addr: u64) -> Option<&'k StaticCall> {
        self.find(self.static_calls, &self.tables.static_calls, addr)
            .first()
    }

    pub(crate) fn is_fentry(&self, addr: u64) -> bool {
        !self.find(self.fentry, &self.tables.fentry, addr).is_empty()
    }

    /// Can execution go on after a `ud2` here? After a WARN it does. Where the bug table is not
    /// known it may. (BUG and a `ud2` without an entry kill the thread: lib/bug.c, arch/x86/kernel/traps.c.)
    pub(crate) fn trap_resumes(&self, addr: u64) -> bool {
        !self.bugs_known
            || self
                .find(self.bugs, &self.tables.bugs, addr)
                .iter()
                .any(BugEntry::is_warning)
    }

    /// The alternatives whose original instructions cover `addr`.
    pub(crate) fn alternatives(
        &self,
        addr: u64,
    ) -> impl Iterator<Item = &'k Alternative> + use<'k> {
        let slice = if self.region.contains(&addr) {
            self.alternatives
        } else {
            self.tables
                .alternatives
                .in_range(addr..addr.saturating_add(1))
        };
        covering(slice, addr)
    }

    /// Does a paravirt patch site cover `addr`?
    pub(crate) fn is_paravirt(&self, addr: u64) -> bool {
        let slice = if self.region.contains(&addr) {
            self.paravirt
        } else {
            self.tables.paravirt.in_range(addr..addr.saturating_add(1))
        };
        covering(slice, addr).next().is_some()
    }
}

/// The bit of [`Near::marked`] for an address.
#[inline]
fn place(addr: u64) -> (usize, u64) {
    (addr as usize >> 6 & 3, 1 << (addr & 63))
}

/// The entries of a sorted slice that cover `addr`. Entries cover at most 255 bytes.
fn covering<T: Entry>(slice: &[T], addr: u64) -> impl Iterator<Item = &T> {
    let from = slice.partition_point(|e| e.addr().saturating_add(256) <= addr);
    slice
        .get(from..)
        .unwrap_or(&[])
        .iter()
        .take_while(move |e| e.addr() <= addr)
        .filter(move |e| addr < e.addr().saturating_add(e.span()))
}
