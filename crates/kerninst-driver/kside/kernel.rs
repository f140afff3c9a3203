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
    pub fn _copy_from_user(to: *mut u8, from: u64, n: usize) -> usize;
    pub fn _copy_to_user(to: u64, from: *const u8, n: usize) -> usize;
    pub fn copy_from_kernel_nofault(to: *mut u8, from: *const u8, n: usize) -> isize;

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

    static KI_CURRENT: u8;
    static KI_GFP_KERNEL: u8;
    static KI_HAS_KPROBES: u8;
    static KI_HAS_RCU_READ_LOCK: u8;
    static KI_STACK_SIZE: u8;
    static KI_OFF_FILE_MODE: u8;
    static KI_OFF_TASK_STACK: u8;
    static KI_OFF_TASK_SP: u8;
    static KI_OFF_TASK_ON_CPU: u8;
    static KI_OFF_TASK_NVCSW: u8;
    static KI_OFF_TASK_NIVCSW: u8;
    static KI_OFF_TASK_TGID: u8;
    static KI_OFF_TASK_START: u8;
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
    /// `THREAD_SIZE`, in bytes.
    stack_size = KI_STACK_SIZE;
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
    pub const EILSEQ: isize = -84;
}
