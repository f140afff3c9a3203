// SPDX-License-Identifier: GPL-2.0
//! Functions that generated code calls: `crate::abi::callout` is their contract. Each is inside of a guard (`guard.rs`),
//! takes no lock, allocates nothing, and calls only what the kernel itself calls in NMIs (perf, BPF): never anything that
//! faults for good or sleeps.

use crate::abi::{Callouts, MAX_FRAMES, MAX_STRING, StackTable, callout};
use crate::device::give;
use crate::guard::{Inside, LEVEL_NMI};
use crate::kernel::*;
use crate::stack_table::{self, Shape};
use core::sync::atomic::{AtomicU64, Ordering};

/// `PAGE_SIZE`.
const PAGE: u64 = 4096;

/// `CALLOUTS`.
pub unsafe fn addresses(arg: u64) -> isize {
    let if_has = |has: usize, address: u64| if has == 1 { address } else { 0 };
    let all = Callouts {
        time: if_has(has_time(), ki_time as *const u8 as u64),
        boot_time: if_has(has_boot_time(), ki_boot_time as *const u8 as u64),
        str: if_has(has_user_copy(), ki_str as *const u8 as u64),
        mem: if_has(has_user_copy(), ki_mem as *const u8 as u64),
        kstack: if_has(has_kernel_stack(), ki_kstack as *const u8 as u64),
        ustack: if_has(has_user_stack(), ki_ustack as *const u8 as u64),
        bpf: if_has(has_bpf(), crate::bpf::ki_bpf as *const u8 as u64),
    };
    // SAFETY: `all` has the stated size.
    unsafe { give(arg, &raw const all as *const u8, core::mem::size_of::<Callouts>()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ki_time() -> u64 {
    // SAFETY: called by generated code; the kernel's function may be called in any context.
    unsafe {
        let Some(_inside) = Inside::enter() else { return 0 };
        ktime_get_mono_fast_ns()
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ki_boot_time() -> u64 {
    // SAFETY: as in `ki_time`.
    unsafe {
        let Some(_inside) = Inside::enter() else { return 0 };
        ktime_get_boot_fast_ns()
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ki_str(to: *mut u8, from: u64, len: u64) -> i64 {
    // SAFETY: by contract `to` has `len` bytes; the source is only read by copies that cannot fault.
    unsafe {
        let Some(_inside) = Inside::enter() else { return callout::RECURSION };
        if len == 0 || len > MAX_STRING {
            return callout::ARGUMENT;
        }
        zero(to, len);
        // The last byte stays zero.
        let most = len - 1;
        let mut done = 0;
        while done < most {
            // What lies behind the string's end may not be there: no copy goes beyond a page.
            let at = from.wrapping_add(done);
            let in_page = PAGE - at % PAGE;
            let n = if in_page < most - done { in_page } else { most - done };
            if !copy(to.add(done as usize), at, n) {
                zero(to, len);
                return callout::FAULT;
            }
            for i in done..done + n {
                if to.add(i as usize).read() == 0 {
                    zero(to.add(i as usize), len - i);
                    return i as i64;
                }
            }
            done += n;
        }
        done as i64
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ki_mem(to: *mut u8, from: u64, len: u64) -> i64 {
    // SAFETY: as in `ki_str`.
    unsafe {
        let Some(_inside) = Inside::enter() else { return callout::RECURSION };
        if len == 0 || len > MAX_STRING {
            return callout::ARGUMENT;
        }
        if copy(to, from, len) {
            return len as i64;
        }
        zero(to, len);
        callout::FAULT
    }
}

/// Copies from kernel memory (the upper half of all addresses) or user memory; false: not all of it is there.
#[inline(always)]
unsafe fn copy(to: *mut u8, from: u64, n: u64) -> bool {
    // The kernel's functions look at where a range starts, not whether it goes round to address 0.
    if from.wrapping_add(n) < from {
        return false;
    }
    // SAFETY: `to` has `n` bytes; both functions may be called in any context and tell what is not readable.
    unsafe {
        if (from as i64) < 0 {
            copy_from_kernel_nofault(to, from as *const u8, n as usize) == 0
        } else {
            copy_from_user_nmi(to, from, n as usize) == 0
        }
    }
}

/// Writes zeros. (The compiler's way would be the kernel's `memset`, called as the loader does not allow.)
#[inline(always)]
unsafe fn zero(to: *mut u8, n: u64) {
    // SAFETY: `to` has `n` bytes; the direction flag is clear by contract.
    unsafe {
        core::arch::asm!("rep stosb", inout("rcx") n => _, inout("rdi") to => _, in("al") 0u8,
            options(nostack, preserves_flags));
    }
}

/// `struct pt_regs`, the same in all of 64-bit Linux (arch/x86/include/asm/ptrace.h).
#[repr(C)]
struct Regs {
    r15_to_r12: [u64; 4],
    bp: u64,
    bx: u64,
    r11_to_r8: [u64; 4],
    ax_to_di: [u64; 5],
    orig_ax: u64,
    ip: u64,
    cs: u64,
    flags: u64,
    sp: u64,
    ss: u64,
}

/// `__KERNEL_CS` (arch/x86/include/asm/segment.h).
const KERNEL_CS: u64 = 0x10;

#[unsafe(no_mangle)]
unsafe extern "C" fn ki_kstack(table: *const StackTable, ip: u64, sp: u64, bp: u64, depth: u64) -> i64 {
    // SAFETY: by contract `table` is a stack table. The unwinder checks every address that it follows: it is made for
    // interrupted code in any state, and perf calls it in NMIs.
    unsafe {
        let Some(inside) = Inside::enter() else { return callout::RECURSION };
        let Some(shape) = shape(table) else { return callout::ARGUMENT };
        // As if the original code had been interrupted: the way by the patch and by this function does not show.
        let mut regs = Regs {
            r15_to_r12: [0; 4],
            bp,
            bx: 0,
            r11_to_r8: [0; 4],
            ax_to_di: [0; 5],
            orig_ax: 0,
            ip,
            cs: KERNEL_CS,
            flags: 0,
            sp,
            ss: 0,
        };
        let frames = inside.frames();
        let count = stack_trace_save_regs(&raw mut regs as *mut u8, frames, most(shape, depth), 0);
        keep(table, shape, frames, count)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ki_ustack(table: *const StackTable, depth: u64) -> i64 {
    // SAFETY: by contract `table` is a stack table. The kernel's function reads user memory with faults switched off.
    unsafe {
        let Some(inside) = Inside::enter() else { return callout::RECURSION };
        // An NMI may come while the task's user memory is not the one in force; the kernel's function does not ask.
        if inside.level() == LEVEL_NMI {
            return callout::NONE;
        }
        let Some(shape) = shape(table) else { return callout::ARGUMENT };
        let frames = inside.frames();
        let count = stack_trace_save_user(frames, most(shape, depth));
        keep(table, shape, frames, count)
    }
}

/// As many frames as are asked for, if the table has room for them.
#[inline(always)]
fn most(shape: Shape, depth: u64) -> u32 {
    if depth < shape.depth as u64 { depth as u32 } else { shape.depth }
}

#[inline(always)]
unsafe fn shape(table: *const StackTable) -> Option<Shape> {
    // SAFETY: the first word is read at once: user space may write it.
    unsafe { Shape::of((*(table as *const AtomicU64)).load(Ordering::Relaxed)) }
}

/// The id of a stack, or why it has none.
#[inline(always)]
unsafe fn keep(table: *const StackTable, shape: Shape, frames: *const u64, count: u32) -> i64 {
    if count == 0 || count > shape.depth || shape.depth > MAX_FRAMES {
        return callout::NONE;
    }
    // SAFETY: a table of that shape, and frames that are this CPU's and context's.
    match unsafe { stack_table::insert(table as *const AtomicU64, shape, frames, count as usize) } {
        Some(id) => id as i64,
        None => callout::NO_SPACE,
    }
}
