//! What clauses that run in user space do to maps: the same protocols as generated code, while that may be running.

use super::gather::{PATIENCE, Raw, entry};
use super::map::{Base, MapReader};
use super::{Cells, Memory, decode};
use crate::hir::MapValue;
use crate::layout::{TRIES, first_entry, hash, rank, state};
use crate::value::Value;

/// Why a map could not be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unchanged {
    /// There is no room for the key.
    #[error("the map is full")]
    Full,
    /// Somebody else wrote it all the time.
    #[error("the entry is being written by somebody else")]
    Contended,
    /// The map is of another kind.
    #[error("the map cannot be changed in this way")]
    Kind,
}

/// What is found for a key.
enum Found {
    There(Raw),
    /// Not there; the first entry that may be taken, with its state.
    Free(u64, u64),
    Full,
    Busy,
}

impl MapReader {
    fn words(&self, key: &[Value]) -> Vec<u64> {
        let parts = self.map.key.iter().zip(key);
        parts.flat_map(|(ty, v)| decode::words(ty, v)).collect()
    }

    /// Offsets of the entries that are looked at for a hash.
    fn tries(&self, hash: u64) -> impl Iterator<Item = u64> + use<> {
        let (capacity, bytes) = (self.place.capacity, u64::from(self.shape.words()) * 8);
        let mask = u64::from(capacity.saturating_sub(1));
        let first = first_entry(hash, capacity);
        (0..u64::from(TRIES.min(capacity))).map(move |n| (first.wrapping_add(n) & mask) * bytes)
    }

    /// `@x[key] = value` of a plain map.
    pub fn assign(
        &self,
        table: &impl Memory,
        key: &[Value],
        value: &Value,
    ) -> Result<(), Unchanged> {
        let MapValue::Plain(ty) = &self.map.value else {
            return Err(Unchanged::Kind);
        };
        let value = decode::words(ty, value);
        let key = self.words(key);
        let h = self.hash(&key);
        let tag = h >> 32 << 32;
        let mut mine: Option<(u64, u64)> = None;
        let publish = |offset: u64, times: u64| {
            for (n, w) in (0..).zip(&value) {
                table.store(offset + (u64::from(self.shape.value_at()) + n) * 8, *w);
            }
            let times = times.wrapping_add(state::AGAIN) & state::TIMES;
            table.store(offset, tag | times | state::THERE);
        };
        let give_back = |mine: &mut Option<(u64, u64)>| {
            if let Some((offset, times)) = mine.take() {
                table.store(offset, tag | times | state::DELETED);
            }
        };
        for _ in 0..PATIENCE {
            match (self.find(table, &key, h, mine.map(|m| m.0)), mine) {
                (Found::There(raw), _) => {
                    give_back(&mut mine);
                    if table.swap(raw.offset, raw.state, raw.state ^ 3) {
                        publish(raw.offset, raw.state & state::TIMES);
                        return Ok(());
                    }
                }
                (Found::Busy, _) => give_back(&mut mine),
                (_, Some((offset, times))) => {
                    for (n, w) in (1..).zip(&key) {
                        table.store(offset + n * 8, *w);
                    }
                    publish(offset, times);
                    return Ok(());
                }
                (Found::Full, None) => return Err(Unchanged::Full),
                (Found::Free(offset, s), None) => {
                    let times = s & state::TIMES;
                    if table.swap(offset, s, tag | times | state::BUSY) {
                        mine = Some((offset, times));
                    }
                }
            }
        }
        give_back(&mut mine);
        Err(Unchanged::Contended)
    }

    /// Looks for a key, leaving out an entry that is claimed for it already.
    fn find(&self, table: &impl Memory, key: &[u64], hash: u64, mine: Option<u64>) -> Found {
        let mut free = Found::Full;
        for offset in self.tries(hash) {
            let s = table.load(offset);
            let unused = s == 0 || s & 3 == state::DELETED;
            if unused && matches!(free, Found::Full) {
                free = Found::Free(offset, s);
            }
            if s == 0 {
                break;
            }
            if unused || mine == Some(offset) || s >> 32 != hash >> 32 {
                continue;
            }
            match entry(table, offset, self.shape) {
                Ok(Some(raw)) if raw.key == key => return Found::There(raw),
                Ok(_) => {}
                Err(()) => return Found::Busy,
            }
        }
        free
    }

    /// `delete(@x[key])`. Of an aggregation: the entry counts from 0 again, and is not shown until then.
    pub fn delete(
        &mut self,
        table: &impl Memory,
        cells: &impl Cells,
        key: &[Value],
    ) -> Result<(), Unchanged> {
        let key = self.words(key);
        match self.map.value {
            MapValue::Plain(_) => {
                for _ in 0..PATIENCE {
                    let h = self.hash(&key);
                    match self.find(table, &key, h, None) {
                        Found::Busy => {}
                        Found::There(raw) => {
                            if table.swap(raw.offset, raw.state, raw.state | state::DELETED) {
                                return Ok(());
                            }
                        }
                        Found::Free(..) | Found::Full => return Ok(()),
                    }
                }
                Err(Unchanged::Contended)
            }
            MapValue::Min { .. } | MapValue::Max { .. } => {
                self.clear_values(table, Some(&key));
                Ok(())
            }
            _ => {
                if let Some(now) = self.sums(table, cells).remove(&key) {
                    let base = Base {
                        cells: now,
                        gone: true,
                    };
                    self.bases.insert(key, base);
                }
                Ok(())
            }
        }
    }

    fn hash(&self, key: &[u64]) -> u64 {
        if key.is_empty() {
            0
        } else {
            hash(key.iter().copied())
        }
    }

    /// `@x[key] = count()` and so on, with the argument's 64 bits (of `count`: 1). What user space adds to cells it remembers
    /// beside them.
    pub fn update(
        &mut self,
        table: &impl Memory,
        key: &[Value],
        value: u64,
        signed: bool,
    ) -> Result<(), Unchanged> {
        let key = self.words(key);
        let last = self.shape.cells.saturating_sub(1);
        let number = value as i64;
        let adds: Vec<(u32, u64)> = match self.map.value {
            MapValue::Plain(_) => return Err(Unchanged::Kind),
            MapValue::Min { signed } => return self.raise(table, &key, rank(value, false, signed)),
            MapValue::Max { signed } => return self.raise(table, &key, rank(value, true, signed)),
            MapValue::Count | MapValue::Sum { .. } => vec![(0, value)],
            MapValue::Avg { .. } | MapValue::Stats { .. } => vec![(0, 1), (1, value)],
            MapValue::Hist if signed && number < 0 => vec![(0, 1)],
            MapValue::Hist => vec![(value.checked_ilog2().map_or(1, |high| high + 2), 1)],
            MapValue::LHist { .. } if !signed && number < 0 => vec![(last, 1)],
            MapValue::LHist { min, .. } if number < min => vec![(0, 1)],
            MapValue::LHist { max, .. } if number >= max => vec![(last, 1)],
            MapValue::LHist { min, step, .. } => {
                let above = i128::from(number) - i128::from(min);
                let bucket = 1 + above / i128::from(step.max(1));
                vec![(u32::try_from(bucket).unwrap_or(last).min(last), 1)]
            }
        };
        let base = self.bases.entry(key).or_default();
        base.cells.resize(self.shape.cells as usize, 0);
        base.gone = false;
        for (n, add) in adds {
            if let Some(cell) = base.cells.get_mut(n as usize) {
                *cell = cell.wrapping_sub(add);
            }
        }
        Ok(())
    }

    /// `min` and `max`: makes an entry's ranked value the larger of it and this one.
    fn raise(&self, table: &impl Memory, key: &[u64], ranked: u64) -> Result<(), Unchanged> {
        let offset = self.entry_to_keep(table, key)?;
        let at = offset + u64::from(self.shape.value_at()) * 8;
        for _ in 0..PATIENCE {
            let have = table.load(at);
            if have < ranked && !table.swap(at, have, ranked) {
                continue;
            }
            let s = table.load(offset);
            if s & 3 != state::THERE && s & 3 != state::BUSY {
                table.swap(offset, s, s & !3 | state::THERE);
            }
            return Ok(());
        }
        Err(Unchanged::Contended)
    }

    fn entry_to_keep(&self, table: &impl Memory, key: &[u64]) -> Result<u64, Unchanged> {
        if key.is_empty() {
            return Ok(0);
        }
        let h = self.hash(key);
        let tag = h >> 32 << 32;
        for offset in self.tries(h) {
            let free = table.load(offset) == 0;
            if free && table.swap(offset, 0, tag | state::BUSY) {
                for (n, w) in (1..).zip(key) {
                    table.store(offset + n * 8, *w);
                }
                table.store(offset, tag | state::THERE);
                return Ok(offset);
            }
            let s = table.load(offset);
            let own = |(n, w): (u64, &u64)| table.load(offset + n * 8) == *w;
            if s | 1 == tag | 3 && (1..).zip(key).all(own) {
                return Ok(offset);
            }
        }
        Err(Unchanged::Full)
    }
}
