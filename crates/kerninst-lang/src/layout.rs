//! Memory that generated code and user space share: where it is, and what its words mean.
//!
//! Nothing here takes a lock or waits for anybody, in any context: an NMI may come between any two instructions, and a task may go
//! to another CPU there. So:
//!
//! - What only grows by addition (`count`, `sum`, `avg`, `stats`, `hist`, `lhist`) is in per-CPU cells, each changed by one
//!   instruction. User space never writes them: clearing remembers what they were.
//! - What is compared or replaced (`min`, `max`, assigned values) is in words that all CPUs share.
//! - Keys are claimed by compare-and-swap, written, and then published. Whoever meets a claimed entry that is not published yet
//!   takes the next one: so one key may have two entries, which readers add up.
//! - Events reserve their bytes by compare-and-swap, and are published by their first word.

use crate::hir::{Map, MapValue, Type};

/// Facts of the running kernel, and of the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// Per-CPU pointer of the running task's `task_struct *`.
    pub current: u64,
    /// Per-CPU pointer of the CPU's number (`int`).
    pub cpu_number: u64,
    /// Offset of `task_struct::pid`.
    pub pid: i32,
    /// Offset of `task_struct::tgid`.
    pub tgid: i32,
    /// Offset of `task_struct::comm` (16 bytes).
    pub comm: i32,
    /// Address of a return of the core kernel, as its mitigations have it; 0: none is known.
    pub returns: u64,
    /// The monotonic clock when the session was armed, ns.
    pub started: u64,
    /// The callouts.
    pub callouts: Callouts,
}

/// Addresses of the driver's functions that generated code may call; 0: this kernel has not what it needs.
/// All may be called in any context, never sleep and never fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Callouts {
    /// `() -> ns` of the monotonic clock, 0 if nested.
    pub time: u64,
    /// `(to, from, len) -> length or < 0`: text; `to` is NUL-padded in any case.
    pub text: u64,
    /// `(to, from, len) -> 0 or < 0`: bytes; `to` is zeroed if they cannot be read.
    pub bytes: u64,
    /// `(table, ip, sp, bp, depth) -> id or < 0`: the kernel's stack.
    pub kernel_stack: u64,
    /// `(table, depth) -> id or < 0`: the stack of the user program.
    pub user_stack: u64,
}

/// What a callout returns instead of a result: see `kerninst_driver::abi`.
pub mod callout {
    /// A callout was called while another one ran on this CPU in the same kind of context.
    pub const NESTED: i64 = -1;
    /// The memory cannot be read.
    pub const FAULT: i64 = -2;
    /// The table of stacks is full.
    pub const FULL: i64 = -3;
    /// An argument makes no sense: a fault of kerninst.
    pub const ARGUMENT: i64 = -4;
    /// There is no such stack here (a kernel thread, or an NMI).
    pub const NONE: i64 = -5;
}

/// What is counted when a program could not do what it says, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// No room in the event buffer.
    Events,
    /// No room for a new key in a map.
    Keys,
    /// No room for a new stack.
    Stacks,
    /// A callout within a callout.
    Nested,
    /// Others were faster, again and again.
    Contended,
    /// Memory that could not be read (0 was taken in its place).
    Unreadable,
}

impl Loss {
    /// All, in the order of their per-CPU counters.
    pub const ALL: [Loss; 6] = [
        Loss::Events,
        Loss::Keys,
        Loss::Stacks,
        Loss::Nested,
        Loss::Contended,
        Loss::Unreadable,
    ];
}

/// Where everything of a session is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// By number of the map.
    pub maps: Vec<MapPlace>,
    /// The event buffers.
    pub ring: RingPlace,
    /// Per-CPU pointers of the counters of losses, in the order of [`Loss::ALL`].
    pub losses: [u64; 6],
    /// Address of the table of stacks; 0: there is none.
    pub stacks: u64,
}

/// Where a map is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MapPlace {
    /// Address of its table, in memory that all CPUs share (0: it has none, being a single cell).
    pub table: u64,
    /// Entries of the table, a power of two (1 of a map without key).
    pub capacity: u32,
    /// Of a map without key that has per-CPU cells: their per-CPU pointer.
    pub cells: u64,
}

/// Words of an entry of a map's table, and of its cells.
///
/// ```text
/// word 0            state: 0 never used; bits 0-1: 1 being written, 2 there, 3 deleted;
///                   bits 2-31: number of times that the entry was taken anew; bits 32-63: high half of the key's hash
/// words 1..         the key's parts, each of Type::size() bytes, NUL- or zero-padded
/// then              either the value: Type::size() bytes, of min and max 8
///                   or one word: the per-CPU pointer of the entry's cells, written by user space before anything is armed
/// ```
/// An entry without key has state 2 from the first write on.
///
/// Of `min` and `max` the value is [`rank`]ed, so that it is the larger the better, and 0 before the first. Their entries, as those
/// of maps with cells, keep their key for ever: state 3 only says that user space cleared them (value first, then state), and
/// the next update makes it 2 again. So an update that was under way can never get into another key's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Words of the key.
    pub key: u32,
    /// Words of the value in the entry; of a map with cells 1: their pointer.
    pub value: u32,
    /// Per-CPU words of each entry; 0: the value is in the entry.
    pub cells: u32,
}

/// Buckets of `hist`: negative, 0, 1, 2-3, 4-7 … up to 2^63 and more.
pub const HIST_BUCKETS: u32 = 66;
/// Most buckets of `lhist`, those for less and more included.
pub const MAX_LHIST: u32 = 1002;

impl Shape {
    /// That of a map.
    pub fn of(map: &Map) -> Shape {
        let key = map.key.iter().map(|t| t.size() / 8).sum();
        let (value, cells) = match &map.value {
            MapValue::Plain(t) => (t.size() / 8, 0),
            MapValue::Min { .. } | MapValue::Max { .. } => (1, 0),
            MapValue::Count | MapValue::Sum { .. } => (1, 1),
            // Count, then sum.
            MapValue::Avg { .. } | MapValue::Stats { .. } => (1, 2),
            MapValue::Hist => (1, HIST_BUCKETS),
            MapValue::LHist { min, max, step } => (1, lhist_buckets(*min, *max, *step)),
        };
        Shape { key, value, cells }
    }

    /// Words of an entry.
    pub fn words(&self) -> u32 {
        1 + self.key + self.value
    }

    /// The entry's word that holds the value, or the pointer of the cells.
    pub fn value_at(&self) -> u32 {
        1 + self.key
    }
}

/// Buckets of `lhist(x, min, max, step)`: less than min, then each step, then max and more.
pub fn lhist_buckets(min: i64, max: i64, step: i64) -> u32 {
    let steps =
        (i128::from(max) - i128::from(min) + i128::from(step.max(1)) - 1) / i128::from(step.max(1));
    u32::try_from(steps.clamp(0, i128::from(MAX_LHIST - 2))).unwrap_or(0) + 2
}

/// What `min` and `max` keep in place of a value: the unsigned number that is the larger the better. Its own inverse.
pub fn rank(value: u64, max: bool, signed: bool) -> u64 {
    value
        ^ match (max, signed) {
            (true, false) => 0,
            (true, true) => 1 << 63,
            (false, false) => u64::MAX,
            (false, true) => u64::MAX >> 1,
        }
}

/// States of an entry, in bits 0 and 1 of its first word.
pub mod state {
    /// Claimed, and being written.
    pub const BUSY: u64 = 1;
    /// Key and value are there.
    pub const THERE: u64 = 2;
    /// Deleted: may be taken for any key.
    pub const DELETED: u64 = 3;
    /// One more time that the entry is taken.
    pub const AGAIN: u64 = 4;
    /// The bits that count these.
    pub const TIMES: u64 = 0xffff_fffc;
}

/// So many entries are looked at for a key before the map counts as full.
pub const TRIES: u32 = 32;

/// The hash of a key's words; bits 32 to 63 are the entry's tag, and the highest ones the number of the first entry that is looked
/// at ([`first_entry`]). Multiplication by an odd constant carries every bit of a word into the highest ones
/// (Knuth, The Art of Computer Programming, vol. 3, 6.4: the golden ratio); before the next word they are carried down again.
pub fn hash(words: impl IntoIterator<Item = u64>) -> u64 {
    words
        .into_iter()
        .fold(0, |h, w| (h ^ h >> 32 ^ w).wrapping_mul(HASH_FACTOR))
}

/// The entry that is looked at first, in a table of so many entries; the others follow it, after the last comes the first.
pub fn first_entry(hash: u64, capacity: u32) -> u64 {
    hash.checked_shr(64 - capacity.checked_ilog2().unwrap_or(0))
        .unwrap_or(0)
}

/// 2^64 divided by the golden ratio.
pub const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The event buffers: one for each CPU, in memory that is shared.
///
/// ```text
/// area              one Cursor (64 bytes) for each CPU, from CPU 0 on
/// area + buffers    for each CPU: `bytes` (a power of two), then MAX_RECORD more, so that a record that begins before the
///                   end needs no wrapping
/// ```
/// Positions only grow; a record begins at `position & (bytes - 1)`. A reader clears what it has read, all of it, and
/// then moves `tail`: so the first word of what is reserved and not yet published is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingPlace {
    /// Address of the area.
    pub area: u64,
    /// Offset of CPU 0's buffer.
    pub buffers: u32,
    /// Bytes of one buffer without the room at its end.
    pub bytes: u32,
    /// CPUs.
    pub cpus: u32,
}

/// Offsets in the 64 bytes of a CPU's positions.
pub mod cursor {
    /// One after what is reserved: 64 bits, moved by `lock cmpxchg` of whoever writes.
    pub const HEAD: u32 = 0;
    /// First byte that was not read: 64 bits, moved by the reader.
    pub const TAIL: u32 = 32;
    /// Bytes of one.
    pub const SIZE: u32 = 64;
}

/// Most bytes of a record.
pub const MAX_RECORD: u32 = 2048;

impl RingPlace {
    /// Offset of a CPU's buffer in the area.
    pub fn buffer(&self, cpu: u32) -> u64 {
        u64::from(self.buffers) + u64::from(cpu) * u64::from(self.bytes + MAX_RECORD)
    }

    /// Bytes of the whole area.
    pub fn size(&self) -> u64 {
        self.buffer(self.cpus)
    }
}

/// A record begins with two words: its head, written last, and the time stamp counter.
pub mod record {
    /// The head: bits 0-15: bytes of the record, these two words included, a multiple of 8; bits 16-31: number of its
    /// [`super::Event`]; bits 32-47: CPU that it was reserved on; bit 63: set.
    pub const PUBLISHED: u64 = 1 << 63;
    /// In place of an event's number: a record that says nothing, because a value of it could not be had (which was counted).
    pub const VOID: u16 = 0xffff;
    /// Bytes of the two words.
    pub const HEADER: u32 = 16;
}

/// What a record of this number says, and the types of what follows the two words, each of [`Type::size`] bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What user space does.
    pub what: What,
    /// Types of its values.
    pub args: Vec<Type>,
}

/// What user space does on an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum What {
    /// Prints by this format.
    Printf(u32),
    /// Prints one value.
    PrintValue,
    PrintMap {
        map: u32,
        top: u32,
        div: u64,
    },
    Clear(u32),
    Zero(u32),
    Time(String),
    Cat(String),
    Exit,
}
