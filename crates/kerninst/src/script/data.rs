//! The memory of a script's programs: tables of maps, per-CPU cells, event buffers, stacks.

use super::words::Words;
use super::{ScriptError, Sizes};
use crate::access::Access;
use crate::error::ArmError;
use kerninst_driver::abi::{MAX_AREA, MAX_NEAR};
use kerninst_driver::{CounterArea, Device, DeviceError, Stacks};
use kerninst_lang::hir::{Builtin, Map, Script};
use kerninst_lang::layout::{Loss, MAX_RECORD, MapPlace, Places, RingPlace, Shape, cursor};
use kerninst_lang::read::{Cells, Memory};

/// Words of one per-CPU allocation.
const PER_AREA: u32 = MAX_AREA / 8;
/// Most per-CPU words of one map: 4 MiB for each CPU.
const MOST_CELLS: u32 = 1 << 19;

/// All memory of a session.
#[derive(Debug, Default)]
pub(crate) struct Data {
    /// Of each map; of one that is cells alone it is empty.
    pub(crate) tables: Vec<Words>,
    pub(crate) ring: Option<Words>,
    pub(crate) stacks: Option<Words>,
    pub(crate) depth: u32,
    areas: Vec<CounterArea>,
}

/// What the script needs besides its maps.
pub(crate) struct Wants {
    /// It sends events.
    pub(crate) events: bool,
    /// It takes stacks, of so many frames at most.
    pub(crate) depth: u32,
}

impl Data {
    /// Allocates it, and says where it is.
    pub(crate) fn new(
        access: &Access,
        script: &Script,
        sizes: &Sizes,
        wants: &Wants,
    ) -> Result<(Data, Places), ScriptError> {
        let mut data = Data::default();
        let mut places = Places::default();
        let device = access.device()?;
        let single = |m: &&Map| m.key.is_empty();
        let singles = script.maps.iter().filter(single);
        let singles: u32 = singles.map(|m| Shape::of(m).cells).sum();
        let mut near = data.near(device, singles + Loss::ALL.len() as u32)?;
        let mut next = |words: u32| {
            let at = near;
            near += 8 * u64::from(words);
            at
        };
        for loss in &mut places.losses {
            *loss = next(1);
        }
        for map in &script.maps {
            let shape = Shape::of(map);
            let mut place = unplaced(map, shape, sizes);
            if map.key.is_empty() && shape.cells > 0 {
                place.cells = next(shape.cells);
                places.maps.push(place);
                data.tables.push(Words::default());
                continue;
            }
            let bytes = place.capacity as usize * shape.words() as usize * 8;
            let table = Words::Shared(access.area(bytes)?);
            if let Words::Shared(area) = &table {
                place.table = area.address();
            }
            if shape.cells > 0 {
                data.cells(device, &table, place, shape)?;
            }
            places.maps.push(place);
            data.tables.push(table);
        }
        if wants.events {
            let cpus = device.info().map_err(ArmError::from)?.cpus;
            let mut ring = RingPlace {
                area: 0,
                buffers: (cpus * cursor::SIZE).next_multiple_of(4096),
                bytes: sizes.buffer.next_power_of_two().max(2 * MAX_RECORD),
                cpus,
            };
            let area = access.area(ring.size() as usize)?;
            ring.area = area.address();
            places.ring = ring;
            data.ring = Some(Words::Shared(area));
        }
        if wants.depth > 0 {
            let capacity = sizes.stacks.next_power_of_two();
            let bytes = Stacks::bytes(capacity, wants.depth)
                .ok_or_else(|| ArmError::Build("a table of stacks that is too large".into()))?;
            let area = access.area(bytes)?;
            Stacks::new(area.words(), capacity, wants.depth)
                .map_err(|e| ArmError::Build(e.to_string()))?;
            places.stacks = area.address();
            data.stacks = Some(Words::Shared(area));
            data.depth = wants.depth;
        }
        Ok((data, places))
    }

    /// For a script of which nothing runs in the kernel: tables of its own.
    pub(crate) fn idle(script: &Script, sizes: &Sizes) -> (Data, Places) {
        let places = example(script, sizes);
        let mut data = Data::default();
        for (map, place) in script.maps.iter().zip(&places.maps) {
            let words = place.capacity as usize * Shape::of(map).words() as usize;
            let table = (0..words).map(|_| Default::default()).collect();
            data.tables.push(Words::Kept(table));
        }
        (data, places)
    }

    /// Per-CPU words in a row, within reach of an instruction without a register if there is room.
    fn near(&mut self, device: &Device, words: u32) -> Result<u64, ScriptError> {
        let near = match words <= MAX_NEAR / 8 {
            true => device.alloc_near(words).ok(),
            false => None,
        };
        let area = match near {
            Some(area) => area,
            None => device.alloc(words).map_err(ArmError::from)?,
        };
        self.areas.push(area);
        Ok(area.pointer)
    }

    /// The cells of all entries of a table, whose entries then point to them.
    fn cells(
        &mut self,
        device: &Device,
        table: &Words,
        place: MapPlace,
        shape: Shape,
    ) -> Result<(), ScriptError> {
        let per_area = (PER_AREA / shape.cells).max(1);
        let mut entry = 0;
        while entry < place.capacity {
            let here = per_area.min(place.capacity - entry);
            let area = device.alloc(here * shape.cells).map_err(ArmError::from)?;
            self.areas.push(area);
            for n in 0..here {
                let pointer = area.pointer + u64::from(n) * u64::from(shape.cells) * 8;
                let word =
                    u64::from(entry + n) * u64::from(shape.words()) + u64::from(shape.value_at());
                table.store(word * 8, pointer);
            }
            entry += here;
        }
        Ok(())
    }

    /// The sums of all cells now.
    pub(crate) fn sums(&self, device: &Device) -> Result<Sums, DeviceError> {
        let mut areas = Vec::with_capacity(self.areas.len());
        for area in &self.areas {
            let mut sums = vec![0u64; area.counters as usize];
            for row in device.read(*area)? {
                for (sum, n) in sums.iter_mut().zip(row) {
                    *sum = sum.wrapping_add(n);
                }
            }
            areas.push((area.pointer, sums));
        }
        areas.sort_unstable_by_key(|a| a.0);
        Ok(Sums { areas })
    }

    /// Goes on with copies: nothing is shared with the kernel any more.
    pub(crate) fn keep(&mut self) {
        let tables = self.tables.iter_mut();
        for words in tables.chain(&mut self.ring).chain(&mut self.stacks) {
            words.keep();
        }
    }
}

/// Places as a machine could give them, for looking at programs.
pub(crate) fn example(script: &Script, sizes: &Sizes) -> Places {
    const NEAR: u64 = 0x3_0000;
    const TABLES: u64 = 0xffff_c900_0010_0000;
    let mut places = Places {
        losses: std::array::from_fn(|n| NEAR + 8 * n as u64),
        ring: RingPlace {
            area: TABLES - 0x8_0000,
            buffers: 4096,
            bytes: sizes.buffer.next_power_of_two(),
            cpus: 1,
        },
        stacks: TABLES - 0x4_0000,
        ..Places::default()
    };
    let mut near = NEAR + 8 * places.losses.len() as u64;
    let mut table = TABLES;
    for map in &script.maps {
        let shape = Shape::of(map);
        let mut place = unplaced(map, shape, sizes);
        if map.key.is_empty() && shape.cells > 0 {
            place.cells = near;
            near += 8 * u64::from(shape.cells);
        } else {
            place.table = table;
            let bytes = u64::from(place.capacity) * u64::from(shape.words()) * 8;
            table += bytes.next_multiple_of(4096);
        }
        places.maps.push(place);
    }
    places
}

/// A map with its number of entries, and no memory yet.
fn unplaced(map: &Map, shape: Shape, sizes: &Sizes) -> MapPlace {
    let capacity = match map.key.is_empty() {
        true => 1,
        false => capacity(shape, sizes.keys),
    };
    MapPlace {
        capacity,
        ..MapPlace::default()
    }
}

/// Entries of a keyed map.
fn capacity(shape: Shape, wanted: u32) -> u32 {
    let most = MOST_CELLS / shape.cells.max(1);
    let wanted = wanted.clamp(1, 1 << 20).next_power_of_two();
    match wanted <= most {
        true => wanted,
        // The largest power of two that is not above it.
        false => 1 << (31 - most.max(1).leading_zeros()),
    }
}

/// The sums of per-CPU cells over all CPUs, at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sums {
    /// Pointer of the first of each row, and the row.
    areas: Vec<(u64, Vec<u64>)>,
}

impl Cells for Sums {
    fn sum(&self, pointer: u64) -> u64 {
        let after = self.areas.partition_point(|a| a.0 <= pointer);
        let area = after.checked_sub(1).and_then(|n| self.areas.get(n));
        let word = |(start, sums): &(u64, Vec<u64>)| {
            let n = usize::try_from((pointer - start) / 8).ok()?;
            sums.get(n).copied()
        };
        area.and_then(word).unwrap_or(0)
    }
}

/// What a script needs, from its clauses.
pub(crate) fn wants(script: &Script) -> Wants {
    let mut wants = Wants {
        events: false,
        depth: 0,
    };
    super::walk::clauses(script, |seen| match seen {
        super::walk::Seen::Event => wants.events = true,
        super::walk::Seen::Builtin(Builtin::KernelStack(n) | Builtin::UserStack(n)) => {
            wants.depth = wants.depth.max(u32::from(n));
        }
        super::walk::Seen::Builtin(_) => {}
    });
    wants
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch tables whose size is no power of two, or cells that need more memory than one map may have.
    #[test]
    fn capacities() {
        let shape = |cells| Shape {
            key: 1,
            value: 1,
            cells,
        };
        assert_eq!(capacity(shape(0), 4096), 4096);
        assert_eq!(capacity(shape(1), 5000), 8192);
        assert_eq!(capacity(shape(66), 4096), 4096);
        assert_eq!(capacity(shape(1002), 4096), 512);
        assert_eq!(capacity(shape(1), 0), 1);
        assert_eq!(capacity(shape(1), u32::MAX), 1 << 19);
    }

    #[test]
    fn sums_are_found_by_pointer() {
        let sums = Sums {
            areas: vec![(0x100, vec![1, 2]), (0x200, vec![3])],
        };
        let got = [0xf8, 0x100, 0x108, 0x110, 0x200, 0x208].map(|p| sums.sum(p));
        assert_eq!(got, [0, 1, 2, 0, 3, 0]);
    }
}
