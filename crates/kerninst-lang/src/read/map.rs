//! Maps.

use std::collections::BTreeMap;

use super::gather::{self, Raw};
use super::{Cells, Memory, decode, order};
use crate::hir::{Map, MapValue};
use crate::layout::{MapPlace, Shape, rank, state};
use crate::value::{Cell, Entry};

/// What is in a map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries {
    /// One for each key, in the order in which they are shown.
    pub list: Vec<Entry>,
    /// So many more could not be read: they were being written all the time.
    pub unread: u64,
}

/// Reads a map, and remembers what was in it when it was cleared.
#[derive(Debug, Clone)]
pub struct MapReader {
    pub(super) map: Map,
    pub(super) place: MapPlace,
    pub(super) shape: Shape,
    /// By key: what counts as nothing.
    pub(super) bases: BTreeMap<Vec<u64>, Base>,
}

/// The sums of cells when they were cleared, less what user space added itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Base {
    pub cells: Vec<u64>,
    /// The entry is only shown if something was added since.
    pub gone: bool,
}

impl MapReader {
    /// Of a map that is there.
    pub fn new(map: &Map, place: MapPlace) -> MapReader {
        MapReader {
            map: map.clone(),
            place,
            shape: Shape::of(map),
            bases: BTreeMap::new(),
        }
    }

    /// What is in it. `table` is the map's table, `cells` the per-CPU memory.
    pub fn entries(&self, table: &impl Memory, cells: &impl Cells) -> Entries {
        let (mut list, unread) = if self.shape.cells > 0 {
            (self.sums_shown(table, cells), 0)
        } else {
            self.values(table)
        };
        order::sort(&mut list);
        Entries { list, unread }
    }

    /// `clear(@x)`: nothing is there any more.
    pub fn clear(&mut self, table: &impl Memory, cells: &impl Cells) {
        if self.shape.cells > 0 {
            self.rebase(table, cells, true);
        } else {
            self.clear_values(table, None);
        }
    }

    /// Deletes the entries that are there, or that of one key.
    pub(super) fn clear_values(&self, table: &impl Memory, key: Option<&[u64]>) {
        let all = gather::there(table, self.place, self.shape).0;
        for raw in all {
            if key.is_some_and(|k| k != raw.key) {
                continue;
            }
            if !matches!(self.map.value, MapValue::Plain(_)) {
                table.store(self.value_of(&raw), 0);
            }
            let mut s = raw.state;
            // Whoever took it meanwhile wrote after this.
            while s & 3 == state::THERE
                && same_owner(s, raw.state)
                && !table.swap(raw.offset, s, s | state::DELETED)
            {
                s = table.load(raw.offset);
            }
        }
    }

    /// `zero(@x)`: all values are 0.
    pub fn zero(&mut self, table: &impl Memory, cells: &impl Cells) {
        if self.shape.cells > 0 {
            self.rebase(table, cells, false);
            return;
        }
        for raw in gather::there(table, self.place, self.shape).0 {
            match self.map.value {
                MapValue::Min { signed } => {
                    table.store(self.value_of(&raw), rank(0, false, signed))
                }
                MapValue::Max { signed } => table.store(self.value_of(&raw), rank(0, true, signed)),
                // Somebody else writes it at this moment: that is after this.
                _ if !table.swap(raw.offset, raw.state, raw.state ^ 3) => {}
                _ => {
                    for n in 0..u64::from(self.shape.value) {
                        table.store(self.value_of(&raw) + n * 8, 0);
                    }
                    let times = raw.state.wrapping_add(state::AGAIN) & state::TIMES;
                    table.store(raw.offset, raw.state & !state::TIMES | times);
                }
            }
        }
    }

    fn value_of(&self, raw: &Raw) -> u64 {
        raw.offset + u64::from(self.shape.value_at()) * 8
    }

    /// Of maps with cells: the sums of each key, duplicates added up.
    pub(super) fn sums(
        &self,
        table: &impl Memory,
        cells: &impl Cells,
    ) -> BTreeMap<Vec<u64>, Vec<u64>> {
        // Keys that only user space has are keys too.
        let nothing = |key: &Vec<u64>| (key.clone(), vec![0; self.shape.cells as usize]);
        let mut all: BTreeMap<_, _> = self.bases.keys().map(nothing).collect();
        if self.shape.key == 0 {
            let own = gather::sums(cells, self.place.cells, self.shape);
            all.insert(Vec::new(), own);
            return all;
        }
        for raw in gather::there(table, self.place, self.shape).0 {
            let pointer = raw.value.first().copied().unwrap_or(0);
            let own = gather::sums(cells, pointer, self.shape);
            let sum = all.entry(raw.key).or_insert_with(|| vec![0; own.len()]);
            for (sum, own) in sum.iter_mut().zip(own) {
                *sum = sum.wrapping_add(own);
            }
        }
        all
    }

    fn sums_shown(&self, table: &impl Memory, cells: &impl Cells) -> Vec<Entry> {
        let mut list = Vec::new();
        for (key, mut sums) in self.sums(table, cells) {
            let base = self.bases.get(&key);
            for (sum, base) in sums.iter_mut().zip(base.into_iter().flat_map(|b| &b.cells)) {
                *sum = sum.wrapping_sub(*base);
            }
            // Of an entry that was just made nothing may have been added yet. Of sums, 0 may be the sum.
            let may_be_zero = match base {
                Some(base) => !base.gone,
                None => matches!(self.map.value, MapValue::Sum { .. }) && !key.is_empty(),
            };
            if may_be_zero || sums.iter().any(|n| *n != 0) {
                list.push(self.entry(&key, self.cell(&sums)));
            }
        }
        list
    }

    fn rebase(&mut self, table: &impl Memory, cells: &impl Cells, gone: bool) {
        for (key, cells) in self.sums(table, cells) {
            // What was cleared and got nothing since stays away.
            let before = self.bases.get(&key);
            let empty = before.map_or(cells.iter().all(|n| *n == 0), |b| {
                b.gone && b.cells == cells
            });
            let gone = gone || empty;
            self.bases.insert(key, Base { cells, gone });
        }
    }

    /// Of maps whose values are in their entries.
    fn values(&self, table: &impl Memory) -> (Vec<Entry>, u64) {
        let (raw, unread) = gather::there(table, self.place, self.shape);
        let (max, signed) = match &self.map.value {
            MapValue::Min { signed } => (false, *signed),
            MapValue::Max { signed } => (true, *signed),
            MapValue::Plain(ty) => {
                let plain = |r: Raw| self.entry(&r.key, Cell::Plain(decode::value(ty, &r.value)));
                return (raw.into_iter().map(plain).collect(), unread);
            }
            _ => return (Vec::new(), unread),
        };
        let mut best: BTreeMap<Vec<u64>, u64> = BTreeMap::new();
        for r in raw {
            let value = r.value.first().copied().unwrap_or(0);
            let best = best.entry(r.key).or_default();
            *best = value.max(*best);
        }
        let number = |(key, ranked): (Vec<u64>, u64)| {
            let value = signed_number(rank(ranked, max, signed), signed);
            self.entry(&key, Cell::Number { value })
        };
        (best.into_iter().map(number).collect(), unread)
    }

    fn entry(&self, key: &[u64], cell: Cell) -> Entry {
        let key = decode::values(&self.map.key, key);
        Entry { key, cell }
    }

    fn cell(&self, sums: &[u64]) -> Cell {
        let at = |n: usize| sums.get(n).copied().unwrap_or(0);
        match self.map.value {
            MapValue::Sum { signed } => Cell::Number {
                value: signed_number(at(0), signed),
            },
            MapValue::Avg { signed } => Cell::Average {
                count: at(0),
                sum: signed_number(at(1), signed),
            },
            MapValue::Stats { signed } => Cell::Stats {
                count: at(0),
                sum: signed_number(at(1), signed),
            },
            MapValue::Hist => Cell::Hist(sums.to_vec()),
            MapValue::LHist { .. } => Cell::LHist(sums.to_vec()),
            _ => Cell::Number {
                value: i128::from(at(0)),
            },
        }
    }
}

/// Whether an entry is still the one of the same key: it was not deleted and taken again, only assigned to or nothing at all.
fn same_owner(now: u64, then: u64) -> bool {
    now >> 32 == then >> 32
}

fn signed_number(value: u64, signed: bool) -> i128 {
    if signed {
        i128::from(value as i64)
    } else {
        i128::from(value)
    }
}
