//! Counter slots and their readings.

use kerninst_driver::abi::MAX_AREA;
use kerninst_driver::{CounterArea, Device, DeviceError};

/// Counters of a session: slot `i` lies in area `i / per_area`.
#[derive(Debug)]
pub(crate) struct Slots {
    areas: Vec<CounterArea>,
}

const PER_AREA: usize = MAX_AREA as usize / 8;

impl Slots {
    /// Allocates `count` counters.
    pub(crate) fn new(device: &Device, count: usize) -> Result<Slots, DeviceError> {
        let mut areas = Vec::new();
        let mut left = count;
        while left > 0 {
            let n = left.min(PER_AREA);
            areas.push(device.alloc(n as u32)?);
            left -= n;
        }
        Ok(Slots { areas })
    }

    /// Per-CPU pointer of a slot.
    pub(crate) fn pointer(&self, slot: usize) -> u64 {
        let area = self.areas.get(slot / PER_AREA).map_or(0, |a| a.pointer);
        area + 8 * (slot % PER_AREA) as u64
    }

    /// All slots, each with its counts by CPU.
    pub(crate) fn read(&self, device: &Device) -> Result<Vec<Count>, DeviceError> {
        let mut out = Vec::new();
        for area in &self.areas {
            let rows = device.read(*area)?;
            for slot in 0..area.counters as usize {
                let by_cpu: Vec<u64> = rows
                    .iter()
                    .map(|r| r.get(slot).copied().unwrap_or(0))
                    .collect();
                out.push(Count { by_cpu });
            }
        }
        Ok(out)
    }
}

/// The count of one point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// By CPU number.
    pub by_cpu: Vec<u64>,
}

impl Count {
    /// All CPUs together.
    pub fn total(&self) -> u64 {
        self.by_cpu.iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }
}

/// Counts of all armed points, in the order of the session's points.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// One for each of [`crate::Session::points`].
    pub counts: Vec<Count>,
    /// Nothing was lost: every splice held our bytes all the time.
    pub complete: bool,
    /// Why not, in sentences.
    pub notes: Vec<String>,
}
