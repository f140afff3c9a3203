//! Counter slots and their readings.

use kerninst_driver::abi::{MAX_AREA, MAX_NEAR};
use kerninst_driver::{CounterArea, Device, DeviceError};

/// Counters of a session: the slots of the first area, then of the second, and so on.
#[derive(Debug)]
pub(crate) struct Slots {
    areas: Vec<CounterArea>,
}

const PER_AREA: usize = MAX_AREA as usize / 8;
/// Counters that are within reach of one instruction without a register.
pub(crate) const NEAR: usize = MAX_NEAR as usize / 8;

impl Slots {
    /// Allocates `count` counters. The first few hundred come, if there is room, from where one instruction without any
    /// register reaches them.
    pub(crate) fn new(device: &Device, count: usize) -> Result<Slots, DeviceError> {
        let mut areas = Vec::new();
        let mut left = count;
        // The reserve may be used up by modules; then all counters are far, which costs an instruction each.
        if let Ok(area) = device.alloc_near(left.min(NEAR) as u32) {
            left -= left.min(NEAR);
            areas.push(area);
        }
        while left > 0 {
            let n = left.min(PER_AREA);
            areas.push(device.alloc(n as u32)?);
            left -= n;
        }
        Ok(Slots { areas })
    }

    /// None.
    pub(crate) fn none() -> Slots {
        Slots { areas: Vec::new() }
    }

    /// Per-CPU pointer of a slot.
    pub(crate) fn pointer(&self, slot: usize) -> u64 {
        // All areas but the first, which may be near, and the last have the same size.
        let near = self.areas.first().map_or(0, |a| a.counters as usize);
        let (area, within) = match slot.checked_sub(near) {
            None => (0, slot),
            Some(after) => (1 + after / PER_AREA, after % PER_AREA),
        };
        match self.areas.get(area) {
            Some(a) if within < a.counters as usize => a.pointer + 8 * within as u64,
            _ => 0,
        }
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
