//! The ioctl interface of `/dev/kerninst`: plain data, shared word for word by the kernel side and user space.
//!
//! Every struct is `repr(C)` without implicit padding, little endian, 64-bit. A change of any of them raises
//! [`ABI_VERSION`], which both sides compare before anything else.

/// Raised with every change of this file; `INFO` reports the kernel side's.
pub const ABI_VERSION: u32 = 3;

/// Largest number of sites in one `POKE`.
pub const MAX_SITES: u32 = 1 << 16;
/// Largest number of ranges in one `SCAN`.
pub const MAX_RANGES: u32 = 1 << 16;
/// Largest counter area of one `ALLOC`, in bytes: the kernel's own limit for one per-CPU object
/// (`PCPU_MIN_UNIT_SIZE`, include/linux/percpu.h).
pub const MAX_AREA: u32 = 32 << 10;

/// Largest counter area from the reserve for modules, in bytes: a quarter of it (`PERCPU_MODULE_RESERVE`, 8 KiB,
/// include/linux/percpu.h), so that modules can still be loaded meanwhile.
pub const MAX_NEAR: u32 = 2 << 10;

/// ioctl numbers. They carry no size: both sides are built from this file.
pub mod cmd {
    /// [`super::Info`] out. Allowed on a read-only file.
    pub const INFO: u32 = 0x4b49_0001;
    /// [`super::Poke`] in and out.
    pub const POKE: u32 = 0x4b49_0002;
    /// [`super::Restore`] in and out.
    pub const RESTORE: u32 = 0x4b49_0003;
    /// [`super::Forget`] in.
    pub const FORGET: u32 = 0x4b49_0004;
    /// [`super::List`] in and out; the array is of [`super::Batch`]. Allowed on a read-only file.
    pub const BATCHES: u32 = 0x4b49_0005;
    /// [`super::List`] in and out; the array is of [`super::SiteState`]. Allowed on a read-only file.
    pub const SITES: u32 = 0x4b49_0006;
    /// [`super::Alloc`] in and out.
    pub const ALLOC: u32 = 0x4b49_0007;
    /// [`super::Read`] in.
    pub const READ: u32 = 0x4b49_0008;
    /// [`super::Scan`] in and out. Allowed on a read-only file.
    pub const SCAN: u32 = 0x4b49_0009;
}

/// What the kernel side is and who has it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Info {
    /// [`ABI_VERSION`] of the loaded driver.
    pub abi: u32,
    /// `nr_cpu_ids`: rows of a `READ`.
    pub cpus: u32,
    /// Thread group of the process that has the device open for writing; 0: nobody.
    pub owner: i32,
    /// Batches that are armed or wait to be forgotten.
    pub batches: u32,
}

/// How a site is written and restored.
pub mod site {
    /// Executed code: the kernel's int3 protocol, at most 5 bytes.
    pub const LIVE: u8 = 0;
    /// Bytes that nothing executes while the batch's live sites stand (the rest of an overwritten
    /// instruction): written after them, restored before them.
    pub const TAIL: u8 = 1;
    /// Proven padding that a live site jumps to: written before, restored at `FORGET`, when no task can be on it.
    pub const BOARD: u8 = 2;
    /// One `int3` whose trap the driver redirects to `patch`.
    pub const TRAP: u8 = 3;
}

/// One place of kernel text to overwrite.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Site {
    /// First byte.
    pub addr: u64,
    /// Code that does the work of the old bytes: entered while a removal is under way, and by [`site::TRAP`].
    pub patch: u64,
    /// Number of bytes, 1 to 16 (`LIVE`: 1 to 5, `TRAP`: 1).
    pub len: u8,
    /// One of [`site`].
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 6],
    /// What must be there.
    pub old: [u8; 16],
    /// What is to be there.
    pub new: [u8; 16],
}

/// Why a `POKE` did nothing.
pub mod refused {
    /// Not refused.
    pub const NO: u32 = 0;
    /// The bytes are not the expected ones: someone changed the text meanwhile.
    pub const BYTES: u32 = 1;
    /// A kprobe is on, or within reach of, the site.
    pub const KPROBE: u32 = 2;
    /// The address is not kernel or module text.
    pub const NOT_TEXT: u32 = 3;
    /// Length, kind or order of the request is wrong.
    pub const MALFORMED: u32 = 4;
    /// The patch module, or the module of the site, is not there or is going.
    pub const MODULE: u32 = 5;
}

/// Writes a batch of sites, all or none.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Poke {
    /// User address of `count` [`Site`]s in ascending order of `addr`, not overlapping.
    pub sites: u64,
    /// Number of sites.
    pub count: u32,
    /// Out: one of [`refused`].
    pub refused: u32,
    /// Out: index of the site that was refused.
    pub index: u32,
    /// Zero.
    pub reserved: u32,
    /// Name of the patch module that must stay loaded as long as the batch exists; empty: none.
    pub module: [u8; 56],
    /// Address of the patch module's text: every site's `patch` lies in it.
    pub text: u64,
    /// Its length in bytes.
    pub text_len: u64,
    /// Out: the batch's number.
    pub batch: u64,
}

/// Puts the old bytes of a batch back, all but the boards.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Restore {
    /// Number of the batch.
    pub batch: u64,
    /// Out: sites that hold other bytes than ours, and so were left alone.
    pub stuck: u32,
    /// Out: sites whose module was unloaded.
    pub gone: u32,
}

/// Restores the boards, unpins the patch module and drops the batch. Only after a `SCAN` has shown that
/// no task can be on a board or in a patch.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Forget {
    /// Number of the batch.
    pub batch: u64,
}

/// Asks for an array.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct List {
    /// `SITES`: number of the batch.
    pub batch: u64,
    /// User address of the array.
    pub out: u64,
    /// Its capacity, in elements.
    pub capacity: u32,
    /// Out: number of elements that exist (more than `capacity`: the rest was not written).
    pub count: u32,
}

/// One batch as the driver sees it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Batch {
    /// Its number, never used again until the driver is loaded anew.
    pub id: u64,
    /// Thread group that armed it.
    pub owner: i32,
    /// Number of sites.
    pub sites: u32,
    /// Sites that hold our bytes, or should.
    pub armed: u32,
    /// Sites that could not be restored since somebody else had written there.
    pub stuck: u32,
    /// Sites whose module was unloaded.
    pub gone: u32,
    /// Boards not yet restored.
    pub boards: u32,
    /// 1: the file that armed it is still open.
    pub owned: u32,
    /// Zero.
    pub reserved: u32,
    /// Address of its patch module's text.
    pub text: u64,
    /// Length of that.
    pub text_len: u64,
    /// Name of its patch module.
    pub module: [u8; 56],
}

/// State of a site.
pub mod state {
    /// Holds our bytes.
    pub const ARMED: u8 = 1;
    /// Holds the old bytes again.
    pub const RESTORED: u8 = 2;
    /// Was found with foreign bytes at the last attempt to restore it.
    pub const STUCK: u8 = 3;
    /// Its module was unloaded.
    pub const GONE: u8 = 4;
}

/// One site as the driver sees it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SiteState {
    /// First byte.
    pub addr: u64,
    /// Number of bytes.
    pub len: u8,
    /// One of [`site`].
    pub kind: u8,
    /// One of [`state`].
    pub state: u8,
    /// Zero.
    pub reserved: [u8; 5],
}

/// Allocates an area of per-CPU counters, zeroed, for the life of this open file.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Alloc {
    /// Size, a multiple of 8, at most [`MAX_AREA`] (`near`: [`MAX_NEAR`]).
    pub bytes: u32,
    /// 1: from the kernel's small reserve for modules' per-CPU data, whose pointers fit a 32-bit displacement.
    pub near: u32,
    /// Out: the per-CPU pointer; CPU n's copy is at `gs:pointer` there.
    pub pointer: u64,
}

/// Reads an area on every possible CPU.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Read {
    /// What `ALLOC` gave.
    pub pointer: u64,
    /// User address of `cpus` (see [`Info`]) rows of the area's size each; rows of impossible CPUs are zero.
    pub out: u64,
}

/// Looks through the kernel stacks of all tasks for words within ranges.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Scan {
    /// User address of `ranges` pairs {start, end}, ascending, not overlapping.
    pub list: u64,
    /// Number of ranges.
    pub ranges: u32,
    /// Capacity of `out`, in elements.
    pub capacity: u32,
    /// User address of an array of [`Task`].
    pub out: u64,
    /// Out: number of tasks there are (more than `capacity`: scan again with more room).
    pub count: u32,
    /// 1: wait for RCU tasks first, for the sake of tasks that exit: they have no id any more while they run their last
    /// instructions, where a preemptible kernel may preempt them.
    pub settle: u32,
}

/// What a `SCAN` saw of one task.
pub mod task {
    /// Off CPU all the while its stack was read, and no word of it within a range: from that instant it cannot
    /// be in the ranges unless it enters them anew.
    pub const CLEAR: u32 = 0;
    /// Off CPU all the while, and a word of its stack is within a range.
    pub const HIT: u32 = 1;
    /// Was on a CPU or switched meanwhile: nothing is known.
    pub const RUNNING: u32 = 2;
}

/// One task in a `SCAN`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Task {
    /// Thread id in the initial namespace.
    pub tid: i32,
    /// One of [`task`].
    pub seen: u32,
    /// `HIT`: the word.
    pub word: u64,
    /// Start time in ns since boot: tells a reused id.
    pub started: u64,
}
