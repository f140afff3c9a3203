//! Events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Memory, decode};
use crate::layout::{MAX_RECORD, RingPlace, cursor, record};
use crate::lower::Events;
use crate::value::Value;

/// An event that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Number of its [`crate::layout::Event`].
    pub event: u16,
    /// CPU that it was sent on.
    pub cpu: u16,
    /// Time stamp counter then.
    pub tsc: u64,
    /// Its values.
    pub values: Vec<Value>,
}

/// The event buffer holds something that no program wrote: kernel memory was overwritten, or kerninst has a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the event buffer of CPU {cpu} is damaged at position {position}: {head:#018x} is no record's head"
)]
pub struct Damaged {
    /// Which buffer.
    pub cpu: u32,
    /// Position of the record.
    pub position: u64,
    /// Its first word.
    pub head: u64,
}

/// Reads events as they come, of all CPUs in the order of their time.
#[derive(Debug, Clone)]
pub struct RingReader {
    place: RingPlace,
}

/// The next record of a CPU.
struct Next {
    cpu: u32,
    tail: u64,
    head: u64,
}

impl RingReader {
    /// Of buffers that are there.
    pub fn new(place: RingPlace) -> RingReader {
        RingReader { place }
    }

    /// Gives all records that are published, at most so many, to `f`, the earliest first, and makes their room free. Behind a record
    /// that is reserved and not published yet, those of the same CPU wait; those of other CPUs do not. Returns how many it gave.
    ///
    /// What comes while this goes on may be earlier than what it has given, if it comes from another CPU: see
    /// [`RingReader::drain_before`].
    pub fn drain(
        &self,
        area: &impl Memory,
        events: &Events,
        most: u64,
        f: impl FnMut(Record),
    ) -> Result<u64, Damaged> {
        self.drain_before(area, events, most, u64::MAX, f)
    }

    /// As [`RingReader::drain`], of records with an earlier time stamp than `before` only. If that is the time of the last call's
    /// beginning, everything earlier is published by now (unless a task was switched out in the middle of it), and all records
    /// come in the order of their time over all calls.
    pub fn drain_before(
        &self,
        area: &impl Memory,
        events: &Events,
        most: u64,
        before: u64,
        mut f: impl FnMut(Record),
    ) -> Result<u64, Damaged> {
        let mut next = BinaryHeap::new();
        for cpu in 0..self.place.cpus {
            let tail = area.load(self.tail(cpu));
            self.peek(area, cpu, tail, &mut next);
        }
        let mut given = 0;
        while given < most
            && let Some(Reverse((tsc, cpu, tail, head))) = next.pop()
            && tsc < before
        {
            let (size, record) = self.record(area, events, Next { cpu, tail, head }, tsc)?;
            let at = self.at(cpu, tail);
            for offset in (0..size).step_by(8) {
                area.store(at + offset, 0);
            }
            let tail = tail.wrapping_add(size);
            area.store(self.tail(cpu), tail);
            self.peek(area, cpu, tail, &mut next);
            if let Some(record) = record {
                given += 1;
                f(record);
            }
        }
        Ok(given)
    }

    fn tail(&self, cpu: u32) -> u64 {
        u64::from(cpu) * u64::from(cursor::SIZE) + u64::from(cursor::TAIL)
    }

    fn at(&self, cpu: u32, position: u64) -> u64 {
        self.place.buffer(cpu) + (position & u64::from(self.place.bytes.saturating_sub(1)))
    }

    fn peek(
        &self,
        area: &impl Memory,
        cpu: u32,
        tail: u64,
        next: &mut BinaryHeap<Reverse<(u64, u32, u64, u64)>>,
    ) {
        let at = self.at(cpu, tail);
        let head = area.load(at);
        if head & record::PUBLISHED != 0 {
            next.push(Reverse((area.load(at + 8), cpu, tail, head)));
        }
    }

    /// A record, its size, and what it says; nothing if it is void.
    fn record(
        &self,
        area: &impl Memory,
        events: &Events,
        next: Next,
        tsc: u64,
    ) -> Result<(u64, Option<Record>), Damaged> {
        let Next { cpu, tail, head } = next;
        let damaged = Damaged {
            cpu,
            position: tail,
            head,
        };
        let size = (head & 0xffff) as u32;
        let number = (head >> 16 & 0xffff) as u16;
        if !(record::HEADER..=MAX_RECORD).contains(&size) || !size.is_multiple_of(8) {
            return Err(damaged);
        }
        if number == record::VOID {
            return Ok((u64::from(size), None));
        }
        let event = events.get(number).ok_or(damaged)?;
        let values: u32 = event.args.iter().map(|ty| ty.size()).sum();
        if values + record::HEADER != size {
            return Err(damaged);
        }
        let at = self.at(cpu, tail) + u64::from(record::HEADER);
        let words: Vec<u64> = (0..u64::from(values / 8))
            .map(|n| area.load(at + n * 8))
            .collect();
        let record = Record {
            event: number,
            cpu: (head >> 32 & 0xffff) as u16,
            tsc,
            values: decode::values(&event.args, &words),
        };
        Ok((u64::from(size), Some(record)))
    }
}
