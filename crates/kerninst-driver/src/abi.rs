//! The ioctl interface of `/dev/kerninst`: plain data, shared word for word by the kernel side and user space.
//!
//! Every struct is `repr(C)` without implicit padding, little endian, 64-bit. A change of any of them raises
//! [`ABI_VERSION`], which both sides compare before anything else.

/// Raised with every change of this file; `INFO` reports the kernel side's.
pub const ABI_VERSION: u32 = 8;

/// Largest number of sites in one `POKE`.
pub const MAX_SITES: u32 = 1 << 16;
/// Largest number of checks in one `POKE`.
pub const MAX_CHECKS: u32 = 1 << 18;
/// Largest number of ranges in one `SCAN`.
pub const MAX_RANGES: u32 = 1 << 16;
/// Largest number of pairs in one `MIGRATE`.
pub const MAX_PAIRS: u32 = 1 << 20;
/// Largest counter area of one `ALLOC`, in bytes: the kernel's own limit for one per-CPU object
/// (`PCPU_MIN_UNIT_SIZE`, include/linux/percpu.h).
pub const MAX_AREA: u32 = 32 << 10;

/// Largest counter area from the reserve for modules, in bytes: a quarter of it (`PERCPU_MODULE_RESERVE`, 8 KiB,
/// include/linux/percpu.h), so that modules can still be loaded meanwhile.
pub const MAX_NEAR: u32 = 2 << 10;

/// Largest area of one `AREA`, in bytes.
pub const MAX_MAPPED: u64 = 1 << 30;
/// Area number n is mapped from file offset `n << AREA_SHIFT` on, in bytes.
pub const AREA_SHIFT: u32 = 32;
/// Most bytes that [`callout`] `str` and `mem` copy.
pub const MAX_STRING: u64 = 1024;
/// Most frames of one stack in a [`StackTable`].
pub const MAX_FRAMES: u32 = 127;
/// Most entries of a [`StackTable`].
pub const MAX_STACKS: u32 = 1 << 20;

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
    /// [`super::Migrate`] in and out.
    pub const MIGRATE: u32 = 0x4b49_000a;
    /// [`super::Area`] in and out.
    pub const AREA: u32 = 0x4b49_000b;
    /// [`super::Callouts`] out. Allowed on a read-only file.
    pub const CALLOUTS: u32 = 0x4b49_000c;
    /// [`super::Program`] in and out.
    pub const PROGRAM: u32 = 0x4b49_000d;
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
    /// A kprobe is on, or within reach of, the site or the check.
    pub const KPROBE: u32 = 2;
    /// The address is not kernel or module text.
    pub const NOT_TEXT: u32 = 3;
    /// Length, kind or order of the request is wrong.
    pub const MALFORMED: u32 = 4;
    /// The patch module, or the module of the site, is not there or is going.
    pub const MODULE: u32 = 5;
}

/// Bytes that must be as they were when the batch was planned, though they are not written: instructions that a patch has
/// a copy of. A kprobe there would be passed by.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Check {
    /// First byte.
    pub addr: u64,
    /// Number of bytes, 1 to 16.
    pub len: u8,
    /// Zero.
    pub reserved: [u8; 7],
    /// What must be there.
    pub bytes: [u8; 16],
}

/// Writes a batch of sites, all or none.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Poke {
    /// User address of `count` [`Site`]s in ascending order of `addr`, not overlapping.
    pub sites: u64,
    /// User address of `check_count` [`Check`]s.
    pub checks: u64,
    /// Number of sites.
    pub count: u32,
    /// Number of checks.
    pub check_count: u32,
    /// Out: one of [`refused`].
    pub refused: u32,
    /// Out: index of the site that was refused; of a check: that plus `count`.
    pub index: u32,
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
    /// Thread id in the initial namespace; the idle task of CPU n, which has none: -1 - n.
    pub tid: i32,
    /// One of [`task`].
    pub seen: u32,
    /// `HIT`: the word.
    pub word: u64,
    /// Start time in ns since boot: tells a reused id.
    pub started: u64,
}

/// Two places of the same function where a call returns to, with equal frames: in its version and in the original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Pair {
    /// Return address in the version: in the text of the batch's patch module.
    pub from: u64,
    /// Return address in the original; 0 out: there is no text any more.
    pub to: u64,
    /// In and out: words that were changed are added to it.
    pub moved: u32,
    /// In and out: calls that were under way there are added to it, as the kernel's unwinder sees them. (A changed word
    /// may be an old one that nobody will use.)
    pub visits: u32,
}

/// Lets tasks that sleep below a call of a version return to the original instead: every saved return address `from`
/// of a task that is off CPU becomes `to`. Only of a batch that is restored, so that no task enters a version anew.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Migrate {
    /// Number of the batch.
    pub batch: u64,
    /// User address of the [`Pair`]s, ascending by `from`.
    pub list: u64,
    /// Number of pairs.
    pub pairs: u32,
    /// Out: words that were changed.
    pub moved: u32,
    /// Out: tasks with such words whose stack the kernel's unwinder could not read reliably: their visits are not counted.
    pub unsure: u32,
    /// Zero.
    pub reserved: u32,
}

/// Allocates an area of memory, zeroed, for the life of this open file (and until no batch of a closed file is left, whose
/// patches might write it). Generated code writes it at `address`; user space maps it, shared, by `mmap(2)` of this file from
/// offset `number << AREA_SHIFT` on, as a whole or from its start. A mapping keeps the file open; a forked child has none.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Area {
    /// Size, a multiple of the page size (4096), at most [`MAX_MAPPED`]. `ENOMEM`: not so much memory is available.
    pub bytes: u64,
    /// Out: its address in the kernel.
    pub address: u64,
    /// Out: its number, from 1 on.
    pub number: u64,
}

/// Takes a reference on a loaded BPF program, for the life of this open file (and until no batch of a closed file is left,
/// whose patches might run it). Only of type `BPF_PROG_TYPE_KPROBE`, without an expected attach type, and not sleepable:
/// `EINVAL` otherwise. `EBADF`: that is no BPF program. `EOPNOTSUPP`: this kernel has no BPF, or none that we know.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Program {
    /// Its file descriptor.
    pub fd: u32,
    /// Zero.
    pub reserved: u32,
    /// Out: what [`callout`] `bpf` takes.
    pub address: u64,
}

/// Addresses of the functions of [`callout`]; 0: this kernel lacks what the function needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Callouts {
    /// `u64 time(void)`.
    pub time: u64,
    /// `u64 boot_time(void)`.
    pub boot_time: u64,
    /// `i64 str(void *to, u64 from, u64 len)`.
    pub str: u64,
    /// `i64 mem(void *to, u64 from, u64 len)`.
    pub mem: u64,
    /// `i64 kstack(StackTable *table, u64 ip, u64 sp, u64 bp, u64 depth)`.
    pub kstack: u64,
    /// `i64 ustack(StackTable *table, u64 depth)`.
    pub ustack: u64,
    /// `i64 bpf(u64 program, struct pt_regs *regs)`.
    pub bpf: u64,
}

/// Functions of the driver that generated code calls, in any context in which it runs: NMI, interrupt, with interrupts off,
/// in the scheduler, in a page fault. They neither sleep nor fault nor wait.
///
/// The caller calls directly (`call rel32`; they have no `endbr64`), by the C calling convention (System V): arguments in
/// rdi, rsi, rdx, rcx, r8; the result in rax; rax, rcx, rdx, rsi, rdi, r8 to r11 and the arithmetic flags are lost, so it saves
/// those that are live. Vector registers are not touched. The direction flag is clear, and the stack pointer a multiple of 8
/// (as in the kernel's own code; nothing here has a larger alignment). The alignment check flag (between the kernel's `stac` and `clac`) and the interrupt flag are as before.
/// They take up to 300 bytes of stack, and the kernel's functions below them some hundred more (`kstack`: the unwinder's state;
/// `bpf`: up to 512 of the program's own for each of its functions, and what its helpers take).
///
/// Preemption is off inside. Per CPU and context (task, softirq, interrupt, NMI) only one is inside: a second one, from what
/// the first calls if that is instrumented, does nothing and says [`RECURSION`]. So does one from the first instructions of an
/// interrupt that came while one was inside, before the kernel has counted the interrupt: the caller counts what it misses.
///
/// - `time`: nanoseconds of `CLOCK_MONOTONIC`, `boot_time`: of `CLOCK_BOOTTIME`; 0: recursion. Read without a lock, as in NMIs:
///   while the clock's rate is being adjusted one CPU's time may be slightly before another's.
/// - `str` copies the string at `from` and its NUL, from kernel memory (`from` in the upper half of all addresses) or from user
///   memory of this task, to `to`, which has `len` bytes (1 to [`super::MAX_STRING`]). All bytes behind the string are zero; a
///   longer string is cut off, so that the last byte is zero in any case. Gives its length without the NUL.
///   [`FAULT`]: not all of it is in memory (which may be so of a page that is swapped out or was never touched); then all `len`
///   bytes are zero. They are left alone after [`RECURSION`] and [`ARGUMENT`].
/// - `mem` copies `len` bytes, likewise, all or none, and gives `len`.
/// - `kstack` takes this task's (or interrupt's) kernel stack as if the code at `ip` had been interrupted with stack pointer
///   `sp` and rbp `bp`, so that `ip` is the first frame, `depth` frames at most (and no more than the table's), and gives the stack's id in `table`, from 1 on. A function that keeps
///   its frame in another register than rsp and rbp ends the stack.
/// - `ustack` does the same with the user stack of this task, by frame pointers, for 64-bit code built with them. [`NONE`]: a kernel
///   thread, or an NMI. In the scheduler, between the change of memory and that of tasks, the frames behind the first are read
///   from the next task's memory.
///
/// - `bpf` runs a program that [`super::Program`] gave, with `regs` as its context, and gives its result, which is never negative. Like the
///   kernel's own probes it does not where this CPU is in the BPF code that instrumentation must not enter
///   (`bpf_prog_active`): [`RECURSION`]; nor where RCU does not look, as in the idle loop: [`NONE`].
///
/// `to` and `table` must be kernel memory that can be written (an [`super::Area`], per-CPU memory); they are not checked.
pub mod callout {
    /// This CPU is in a callout already, in this context; nothing was done.
    pub const RECURSION: i64 = -1;
    /// The source is not (all) in memory.
    pub const FAULT: i64 = -2;
    /// There is no room in the table near where this stack belongs.
    pub const NO_SPACE: i64 = -3;
    /// A length, or the header of a table, is not within its limits: a fault of the caller.
    pub const ARGUMENT: i64 = -4;
    /// There is no such stack; no program can run here.
    pub const NONE: i64 = -5;
}

/// Header of a table of stacks; `capacity` entries follow, each of 16 bytes ([`StackEntry`]) and `depth` frames of 8 bytes.
/// Id n is the n-th entry, from 1 on. A stack may be in it more than once. User space writes the header before it gives the
/// table away, and never again; everything else is zero then.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct StackTable {
    /// Number of entries: a power of two, at most [`MAX_STACKS`].
    pub capacity: u32,
    /// Most frames of one stack, 1 to [`MAX_FRAMES`]. A stack with as many may go on.
    pub depth: u32,
    /// Zero.
    pub reserved: [u64; 7],
}

/// An entry of a [`StackTable`]; its frames follow, innermost first.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct StackEntry {
    /// 0: free. Otherwise claimed by a stack with this hash.
    pub hash: u64,
    /// Number of frames; 0: they are not complete yet. Written last, with release order.
    pub frames: u64,
}
