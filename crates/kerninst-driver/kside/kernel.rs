// SPDX-License-Identifier: GPL-2.0
//! What the driver uses of the kernel. Every name is an undefined symbol that user space gives an absolute
//! value before loading (`complete.rs`): functions and variables by their address, `OFF_*`/`SIZE_*`/`HAS_*` by
//! the value itself, which the accessors at the end read as the symbol's address.

use core::ffi::c_void;

unsafe extern "C" {
    pub fn ki_mutex_init(lock: *mut u8, name: *const u8, key: *mut u8);
    pub fn mutex_lock(lock: *mut u8);
    pub fn mutex_unlock(lock: *mut u8);
    pub fn ki_vzalloc(size: usize) -> *mut u8;
    pub fn vfree(p: *const u8);
    /// Zeroed pages that may be mapped to user space (mm/vmalloc.c).
    pub fn ki_vmalloc_user(size: usize) -> *mut u8;
    /// Maps all of `vma` to pages from there on (mm/vmalloc.c).
    pub fn remap_vmalloc_range(vma: *mut u8, address: *mut u8, pgoff: u64) -> i32;
    /// Pages that can be had without pushing others out (mm/show_mem.c; 6.1: mm/page_alloc.c).
    pub fn si_mem_available() -> i64;
    pub fn _copy_from_user(to: *mut u8, from: u64, n: usize) -> usize;
    pub fn _copy_to_user(to: u64, from: *const u8, n: usize) -> usize;
    pub fn copy_from_kernel_nofault(to: *mut u8, from: *const u8, n: usize) -> isize;

    /// Copies from user memory in any context, without sleeping; returns how many bytes it did not (arch/x86/lib/usercopy.c).
    /// `copy_from_user_nofault` does not do: with hardened user copies it looks at what it copies to
    /// (`__check_object_size`), by way of a spin lock where that is vmalloc memory, which an NMI must not wait for.
    pub fn copy_from_user_nmi(to: *mut u8, from: u64, n: usize) -> usize;
    /// Nanoseconds of CLOCK_MONOTONIC and CLOCK_BOOTTIME, in any context (kernel/time/timekeeping.c).
    pub fn ktime_get_mono_fast_ns() -> u64;
    pub fn ktime_get_boot_fast_ns() -> u64;
    /// Addresses of this task's calls, from a `struct pt_regs` on; their number (kernel/stacktrace.c).
    pub fn stack_trace_save_regs(regs: *mut u8, store: *mut u64, size: u32, skip: u32) -> u32;
    /// The same of this task's user stack, by frame pointers; none for a kernel thread.
    pub fn stack_trace_save_user(store: *mut u64, size: u32) -> u32;

    /// A reference on the program of a file descriptor, or an error as a pointer; gives one back (kernel/bpf/syscall.c).
    pub fn bpf_prog_get(fd: u32) -> *mut u8;
    pub fn bpf_prog_put(program: *mut u8);
    /// Per-CPU: not 0 while a program runs, or the system call does what none must come into (kernel/bpf/syscall.c).
    static bpf_prog_active: u8;
    /// Does RCU look at this CPU? (kernel/rcu/tree.c)
    pub fn rcu_is_watching() -> bool;
    /// Calls what rax points to, as this kernel's mitigations have it (arch/x86/lib/retpoline.S).
    pub fn __x86_indirect_thunk_rax();

    pub fn text_poke_queue(addr: *mut u8, opcode: *const u8, len: usize, emulate: *const u8);
    pub fn text_poke_finish();
    pub fn text_poke(addr: *mut u8, opcode: *const u8, len: usize) -> *mut u8;
    pub fn text_poke_sync();
    pub static mut text_mutex: u8;
    pub static mut kprobe_mutex: u8;
    pub fn get_kprobe(addr: *const u8) -> *mut c_void;

    pub fn core_kernel_text(addr: u64) -> i32;
    pub fn __module_text_address(addr: u64) -> *mut u8;
    pub static mut module_mutex: u8;
    pub fn find_module(name: *const u8) -> *mut u8;
    pub fn try_module_get(module: *mut u8) -> bool;
    pub fn __module_get(module: *mut u8);
    pub fn module_put(module: *mut u8);

    pub fn __rcu_read_lock();
    pub fn __rcu_read_unlock();
    pub fn __cond_resched() -> i32;
    pub fn synchronize_rcu();
    pub fn ki_synchronize_rcu_tasks();
    pub fn schedule_on_each_cpu(work: unsafe extern "C" fn()) -> i32;

    pub fn register_die_notifier(block: *mut u8) -> i32;
    pub fn unregister_die_notifier(block: *mut u8) -> i32;
    pub fn register_module_notifier(block: *mut u8) -> i32;
    pub fn unregister_module_notifier(block: *mut u8) -> i32;
    pub fn misc_register(device: *mut u8) -> i32;
    pub fn misc_deregister(device: *mut u8);

    /// 6.1: `__alloc_percpu(size, align)`; 6.10 and later: `pcpu_alloc_noprof(size, align, reserved, gfp)`.
    /// The first ignores the last two arguments, so one call serves both.
    pub fn ki_alloc_percpu(size: usize, align: usize, reserved: bool, gfp: u32) -> u64;
    /// The same from the reserve for modules' data; 6.1: `__alloc_reserved_percpu(size, align)`.
    pub fn ki_alloc_reserved_percpu(size: usize, align: usize, reserved: bool, gfp: u32) -> u64;
    pub fn free_percpu(p: u64);
    pub static __per_cpu_offset: [u64; 0];
    pub static nr_cpu_ids: u32;
    pub static __cpu_possible_mask: [u64; 0];

    pub fn find_ge_pid(nr: i32, ns: *mut u8) -> *mut u8;
    pub fn pid_task(pid: *mut u8, kind: u32) -> *mut u8;
    pub fn pid_nr_ns(pid: *mut u8, ns: *mut u8) -> i32;
    pub static mut init_pid_ns: u8;
    /// Runs `func` while the task cannot change between running and not running: under its `pi_lock`, and its run
    /// queue's lock if it is queued (kernel/sched/core.c, since 5.16; livepatch looks at stacks with it).
    pub fn task_call_func(of: *mut u8, func: unsafe extern "C" fn(), arg: *mut u8) -> i32;
    /// Return addresses of a task that does not run, innermost first (kernel/stacktrace.c); negative: not reliable.
    pub fn stack_trace_save_tsk_reliable(of: *mut u8, store: *mut u64, size: u32) -> i32;
    /// Per-CPU: the idle task (kernel/smpboot.c).
    static idle_threads: u8;
    static __cpu_online_mask: [u64; 0];

    /// Per-CPU: what to add to a per-CPU pointer on this CPU (arch/x86/include/asm/percpu.h).
    static this_cpu_off: u8;

    static KI_CURRENT: u8;
    static KI_PREEMPT_COUNT: u8;
    static KI_GFP_KERNEL: u8;
    static KI_HAS_KPROBES: u8;
    static KI_HAS_COND_RESCHED: u8;
    static KI_HAS_RCU_READ_LOCK: u8;
    static KI_STACK_SIZE: u8;
    static KI_HAS_TIME: u8;
    static KI_HAS_BOOT_TIME: u8;
    static KI_HAS_USER_COPY: u8;
    static KI_HAS_KERNEL_STACK: u8;
    static KI_HAS_USER_STACK: u8;
    static KI_HAS_BPF: u8;
    static KI_HAS_THUNK: u8;
    static KI_OFF_PROG_TYPE: u8;
    static KI_OFF_PROG_ATTACH: u8;
    static KI_OFF_PROG_AUX: u8;
    static KI_OFF_PROG_FUNC: u8;
    static KI_OFF_PROG_INSNS: u8;
    static KI_SLEEPABLE_PLACE: u8;
    static KI_OFF_SLEEPABLE: u8;
    static KI_MASK_SLEEPABLE: u8;
    static KI_OFF_TASK_BPF_CTX: u8;
    static KI_OFF_VMA_START: u8;
    static KI_OFF_VMA_END: u8;
    static KI_OFF_VMA_PGOFF: u8;
    static KI_OFF_VMA_FLAGS: u8;
    static KI_OFF_FILE_MODE: u8;
    static KI_OFF_TASK_STACK: u8;
    static KI_OFF_TASK_SP: u8;
    static KI_OFF_TASK_ON_CPU: u8;
    static KI_OFF_TASK_NVCSW: u8;
    static KI_OFF_TASK_NIVCSW: u8;
    static KI_OFF_TASK_TGID: u8;
    static KI_OFF_TASK_START: u8;
    static KI_OFF_TASK_STATE: u8;
    static KI_HAS_IDLE_THREADS: u8;
    static KI_HAS_RELIABLE: u8;
    static KI_HAS_RET_STACK: u8;
    static KI_OFF_TASK_RET_STACK: u8;
    static KI_SIZE_RET_STACK: u8;
    static KI_HAS_RETHOOK: u8;
    static KI_OFF_TASK_RETHOOKS: u8;
    static KI_OFF_RETHOOK_LLIST: u8;
    static KI_OFF_RETHOOK_RET_ADDR: u8;
}

macro_rules! value {
    ($($(#[$doc:meta])* $name:ident = $symbol:ident;)*) => {
        $($(#[$doc])* #[inline(always)] pub fn $name() -> usize { &raw const $symbol as usize })*
    };
}
value! {
    /// `GFP_KERNEL` (its bits changed in 6.10).
    gfp_kernel = KI_GFP_KERNEL;
    /// 1: kprobes are built in; 2: not (the compiler takes the address of a static for non-zero).
    has_kprobes = KI_HAS_KPROBES;
    /// 1: `__rcu_read_lock` exists; 2: not, and then no code of this driver is preemptible and the lock is nothing.
    has_rcu_read_lock = KI_HAS_RCU_READ_LOCK;
    /// 1: `__cond_resched` exists; 2: not, and then the kernel preempts wherever it likes.
    has_cond_resched = KI_HAS_COND_RESCHED;
    /// `THREAD_SIZE`, in bytes.
    stack_size = KI_STACK_SIZE;
    /// 1: `ktime_get_mono_fast_ns` exists.
    has_time = KI_HAS_TIME;
    /// 1: `ktime_get_boot_fast_ns` exists.
    has_boot_time = KI_HAS_BOOT_TIME;
    /// 1: `copy_from_user_nmi` exists.
    has_user_copy = KI_HAS_USER_COPY;
    /// 1: `stack_trace_save_regs` exists.
    has_kernel_stack = KI_HAS_KERNEL_STACK;
    /// 1: `stack_trace_save_user` exists.
    has_user_stack = KI_HAS_USER_STACK;
    /// 1: the kernel has BPF, and all that running a program takes is known.
    has_bpf = KI_HAS_BPF;
    /// 1: `__x86_indirect_thunk_rax` exists; 2: the kernel was built without retpolines.
    has_thunk = KI_HAS_THUNK;
    /// Offset of `bpf_prog::type`.
    off_prog_type = KI_OFF_PROG_TYPE;
    /// Offset of `bpf_prog::expected_attach_type`.
    off_prog_attach = KI_OFF_PROG_ATTACH;
    /// Offset of `bpf_prog::aux`.
    off_prog_aux = KI_OFF_PROG_AUX;
    /// Offset of `bpf_prog::bpf_func`.
    off_prog_func = KI_OFF_PROG_FUNC;
    /// Offset of `bpf_prog::insnsi`.
    off_prog_insns = KI_OFF_PROG_INSNS;
    /// 1: whether a program may sleep is told by a bit of `bpf_prog` (since 6.10); 2: by a member of `bpf_prog_aux`.
    sleepable_place = KI_SLEEPABLE_PLACE;
    /// Offset of the byte with it.
    off_sleepable = KI_OFF_SLEEPABLE;
    /// Which bits of that byte.
    mask_sleepable = KI_MASK_SLEEPABLE;
    /// Offset of `task_struct::bpf_ctx`.
    off_task_bpf_ctx = KI_OFF_TASK_BPF_CTX;
    /// Offset of `vm_area_struct::vm_start`.
    off_vma_start = KI_OFF_VMA_START;
    /// Offset of `vm_area_struct::vm_end`.
    off_vma_end = KI_OFF_VMA_END;
    /// Offset of `vm_area_struct::vm_pgoff`.
    off_vma_pgoff = KI_OFF_VMA_PGOFF;
    /// Offset of `vm_area_struct::vm_flags`.
    off_vma_flags = KI_OFF_VMA_FLAGS;
    /// Offset of `file::f_mode`.
    off_file_mode = KI_OFF_FILE_MODE;
    /// Offset of `task_struct::stack`.
    off_task_stack = KI_OFF_TASK_STACK;
    /// Offset of `task_struct::thread.sp`.
    off_task_sp = KI_OFF_TASK_SP;
    /// Offset of `task_struct::on_cpu`.
    off_task_on_cpu = KI_OFF_TASK_ON_CPU;
    /// Offset of `task_struct::nvcsw`.
    off_task_nvcsw = KI_OFF_TASK_NVCSW;
    /// Offset of `task_struct::nivcsw`.
    off_task_nivcsw = KI_OFF_TASK_NIVCSW;
    /// Offset of `task_struct::tgid`.
    off_task_tgid = KI_OFF_TASK_TGID;
    /// Offset of `task_struct::start_time`.
    off_task_start = KI_OFF_TASK_START;
    /// Offset of `task_struct::__state`.
    off_task_state = KI_OFF_TASK_STATE;
    /// 1: idle tasks are found by `idle_threads`; 2: this kernel is for one CPU and has no such table.
    has_idle_threads = KI_HAS_IDLE_THREADS;
    /// 1: the kernel's unwinder says when it is sure.
    has_reliable = KI_HAS_RELIABLE;
    /// 1: the function graph tracer exists, and keeps return addresses of its own.
    has_ret_stack = KI_HAS_RET_STACK;
    /// Offset of `task_struct::ret_stack`.
    off_task_ret_stack = KI_OFF_TASK_RET_STACK;
    /// Bytes of what that points to.
    size_ret_stack = KI_SIZE_RET_STACK;
    /// 1: return probes keep return addresses in `struct rethook_node`s.
    has_rethook = KI_HAS_RETHOOK;
    /// Offset of `task_struct::rethooks`.
    off_task_rethooks = KI_OFF_TASK_RETHOOKS;
    /// Offset of `rethook_node::llist`.
    off_rethook_llist = KI_OFF_RETHOOK_LLIST;
    /// Offset of `rethook_node::ret_addr`.
    off_rethook_ret_addr = KI_OFF_RETHOOK_RET_ADDR;
}

/// Lets others run, in a long loop in process context, with no lock that spins and in no RCU section.
#[inline(always)]
pub fn cond_resched() {
    if has_cond_resched() == 1 {
        // SAFETY: takes no argument; the caller may sleep.
        unsafe { __cond_resched() };
    }
}

/// The running task.
#[inline(always)]
pub fn current() -> *mut u8 {
    let task: u64;
    // SAFETY: KI_CURRENT is the per-CPU offset of the current task's pointer (`current_task`, or
    // `pcpu_hot.current_task`, its first member); reading it through gs has no side effect.
    unsafe {
        core::arch::asm!("mov {}, qword ptr gs:[{}]", out(reg) task, in(reg) &raw const KI_CURRENT,
            options(nostack, preserves_flags, readonly));
    }
    task as *mut u8
}

/// This CPU's copy of a per-CPU object.
///
/// # Safety
/// Preemption is off, and stays so while the copy is used.
#[inline(always)]
pub unsafe fn this_cpu(pointer: u64) -> u64 {
    let offset: u64;
    // SAFETY: reads a per-CPU variable of the kernel.
    unsafe {
        core::arch::asm!("mov {}, qword ptr gs:[{}]", out(reg) offset, in(reg) &raw const this_cpu_off,
            options(nostack, preserves_flags, readonly));
    }
    pointer.wrapping_add(offset)
}

/// This CPU's `bpf_prog_active`.
///
/// # Safety
/// As for [`this_cpu`]; only if [`has_bpf`] is 1.
#[inline(always)]
pub unsafe fn active_programs() -> *mut i32 {
    // SAFETY: by the caller's promise.
    unsafe { this_cpu(&raw const bpf_prog_active as u64) as *mut i32 }
}

/// Switches preemption off on this CPU; returns what the preempt count is then (include/linux/preempt.h), but for its
/// topmost bit, in which x86 notes that no other task waits.
///
/// # Safety
/// [`preempt_on`] follows on this CPU, in this context.
#[inline(always)]
pub unsafe fn preempt_off() -> u32 {
    let count: u32;
    // SAFETY: one instruction on this CPU's count, as `preempt_disable` does; by the default of `asm!` nothing is moved
    // across it.
    unsafe {
        core::arch::asm!("inc dword ptr gs:[{at}]", "mov {count:e}, dword ptr gs:[{at}]",
            at = in(reg) &raw const KI_PREEMPT_COUNT, count = out(reg) count, options(nostack));
    }
    count
}

/// Takes [`preempt_off`] back. It does not look whether another task waits, as `preempt_enable` does: the caller may be in
/// the scheduler itself, or hold its locks. A task that was woken meanwhile, by an interrupt that found preemption off,
/// runs at the next point that does look: the end of the next interrupt at the latest.
///
/// # Safety
/// After [`preempt_off`].
#[inline(always)]
pub unsafe fn preempt_on() {
    // SAFETY: as in `preempt_off`.
    unsafe {
        core::arch::asm!("dec dword ptr gs:[{at}]", at = in(reg) &raw const KI_PREEMPT_COUNT, options(nostack));
    }
}

/// The idle task of a CPU, if that CPU can exist.
///
/// # Safety
/// `cpu` is below `nr_cpu_ids`.
#[inline(always)]
pub unsafe fn idle_task(cpu: usize) -> *mut u8 {
    // SAFETY: the offset of a possible CPU leads to its mapped per-CPU memory.
    unsafe {
        let possible = &raw const __cpu_possible_mask as *const u64;
        if has_idle_threads() != 1 || possible.add(cpu / 64).read() >> (cpu % 64) & 1 == 0 {
            return core::ptr::null_mut();
        }
        let offset = (&raw const __per_cpu_offset as *const u64).add(cpu).read();
        let at = (&raw const idle_threads as u64).wrapping_add(offset) as *const *mut u8;
        at.read_volatile()
    }
}

/// Is the CPU online now?
///
/// # Safety
/// As for [`idle_task`].
#[inline(always)]
pub unsafe fn is_online(cpu: usize) -> bool {
    // SAFETY: the mask has a bit for every CPU below `nr_cpu_ids`.
    unsafe { (&raw const __cpu_online_mask as *const u64).add(cpu / 64).read_volatile() >> (cpu % 64) & 1 == 1 }
}

/// Room for a `struct mutex` of any kernel configuration (user space checks its real size), and for a
/// `struct lock_class_key`, unused without lockdep.
#[repr(C, align(64))]
pub struct Mutex {
    lock: [u8; 256],
    key: [u8; 64],
}
impl Mutex {
    /// Not initialised.
    pub const NEW: Mutex = Mutex { lock: [0; 256], key: [0; 64] };

    /// Initialises it.
    ///
    /// # Safety
    /// Nobody has taken it yet; both live as long as the module.
    pub unsafe fn init(this: *mut Mutex, name: *const u8) {
        // SAFETY: by the caller's promise.
        unsafe { ki_mutex_init(&raw mut (*this).lock as *mut u8, name, &raw mut (*this).key as *mut u8) }
    }
}

/// A kernel mutex held; released when dropped.
pub struct Held(*mut u8);
impl Held {
    /// Locks.
    ///
    /// # Safety
    /// `lock` is an initialised `struct mutex`; the caller may sleep.
    #[inline(always)]
    pub unsafe fn new(lock: *mut u8) -> Held {
        // SAFETY: by the caller's promise.
        unsafe { mutex_lock(lock) };
        Held(lock)
    }
}
impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: locked in `new` by this task.
        unsafe { mutex_unlock(self.0) }
    }
}

/// An RCU read side section; ends when dropped.
pub struct ReadSide;
impl ReadSide {
    #[inline(always)]
    pub fn new() -> ReadSide {
        if has_rcu_read_lock() == 1 {
            // SAFETY: takes no argument and may be called in any context.
            unsafe { __rcu_read_lock() }
        }
        ReadSide
    }
}
impl Drop for ReadSide {
    #[inline(always)]
    fn drop(&mut self) {
        if has_rcu_read_lock() == 1 {
            // SAFETY: pairs with `new`.
            unsafe { __rcu_read_unlock() }
        }
    }
}

/// `-EPERM` and so on (include/uapi/asm-generic/errno-base.h).
pub mod errno {
    pub const EPERM: isize = -1;
    pub const ENOENT: isize = -2;
    pub const ENOMEM: isize = -12;
    pub const EFAULT: isize = -14;
    pub const EBUSY: isize = -16;
    pub const EINVAL: isize = -22;
    pub const ENOTTY: isize = -25;
    pub const ENOSPC: isize = -28;
    pub const EILSEQ: isize = -84;
    pub const EOPNOTSUPP: isize = -95;
}
