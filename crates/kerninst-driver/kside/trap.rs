// SPDX-License-Identifier: GPL-2.0
//! `int3` sites: a trap at one of them continues in its patch.
//!
//! Runs in any context (NMI too) before the patch: it takes no lock, calls nothing, and reads one table, of
//! which nothing changes but that a trap may lose its patch. A new table is published before its sites are written; an old one is freed after a grace period
//! (the kernel runs die notifiers within an RCU read side section: kernel/notifier.c,
//! `atomic_notifier_call_chain`).

use core::sync::atomic::{AtomicPtr, Ordering};

/// One trap site.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Trap {
    pub addr: u64,
    pub patch: u64,
}

/// Header of a table; `count` traps follow, in ascending order of `addr`.
#[repr(C)]
pub struct Table {
    pub count: usize,
    pub traps: [Trap; 0],
}

/// The table in force; null: no trap site.
pub static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());

/// `enum die_val`, arch/x86/include/asm/kdebug.h.
const DIE_INT3: u64 = 2;
const NOTIFY_DONE: i32 = 0;
/// `NOTIFY_OK | NOTIFY_STOP_MASK`, include/linux/notifier.h.
const NOTIFY_STOP: i32 = 0x8001;
/// `struct pt_regs`, arch/x86/include/asm/ptrace.h: 15 registers and orig_ax before ip, then cs.
const REGS_IP: usize = 128;
const REGS_CS: usize = 136;

/// Redirects the trap if it is one of ours.
///
/// # Safety
/// `args` points to a `struct die_args`, whose first member is the `struct pt_regs *` of the trap.
pub unsafe fn handle(event: u64, args: *mut u8) -> i32 {
    if event != DIE_INT3 {
        return NOTIFY_DONE;
    }
    // SAFETY: by the caller's promise; the table is immutable and freed only after a grace period.
    unsafe {
        let regs = (args as *const *mut u8).read();
        if (regs.add(REGS_CS) as *const u64).read() & 3 != 0 {
            return NOTIFY_DONE;
        }
        let ip = regs.add(REGS_IP) as *mut u64;
        let patch = find(TABLE.load(Ordering::Acquire), ip.read().wrapping_sub(1));
        if patch == 0 {
            return NOTIFY_DONE;
        }
        ip.write(patch);
        NOTIFY_STOP
    }
}

/// Takes one trap out of a published table: from now on `find` gives 0 for it.
///
/// # Safety
/// `table` is null or the table in force, which the caller keeps from being freed.
pub unsafe fn retract(table: *mut Table, addr: u64, patch: u64) {
    if table.is_null() {
        return;
    }
    // SAFETY: by the caller's promise; one aligned word is written at once, which readers see whole.
    unsafe {
        let traps = (&raw mut (*table).traps) as *mut Trap;
        for i in 0..(*table).count {
            let trap = traps.add(i);
            if (*trap).addr == addr && (*trap).patch == patch {
                (&raw mut (*trap).patch).write_volatile(0);
            }
        }
    }
}

/// The patch of the trap at `addr`, or 0.
///
/// # Safety
/// `table` is null or a published table.
#[inline(always)]
unsafe fn find(table: *const Table, addr: u64) -> u64 {
    if table.is_null() {
        return 0;
    }
    // SAFETY: by the caller's promise; indices stay below `count`.
    unsafe {
        let traps = (&raw const (*table).traps) as *const Trap;
        let (mut low, mut high) = (0, (*table).count);
        while low < high {
            let middle = low + (high - low) / 2;
            let trap = traps.add(middle);
            if (*trap).addr == addr {
                return (&raw const (*trap).patch).read_volatile();
            }
            if (*trap).addr < addr {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
    }
    0
}
