// SPDX-License-Identifier: GPL-2.0
//! What every callout is inside of: preemption off, and at most one callout at a time on each CPU in each context (task,
//! softirq, hard interrupt, NMI). What a callout calls may be instrumented itself, and must not lead to a callout again.
//!
//! As the kernel's tracers tell contexts (`trace_get_context_bit`, include/linux/trace_recursion.h). Just after an interrupt
//! has come its context is not in the preempt count yet: a callout from there is taken for one of the context below, and
//! not done if that is in one. On PREEMPT_RT softirqs run in tasks and count as such.

use crate::abi::MAX_FRAMES;
use crate::kernel::*;
use core::sync::atomic::{Ordering, compiler_fence};

/// Bits of the preempt count (include/linux/preempt.h): NMIs, hard interrupts, and "serving a softirq" (more than one bit is
/// for softirqs that are merely off).
const NMI: u32 = 0x00f0_0000;
const HARD: u32 = 0x000f_0000;
const SOFT: u32 = 0x0000_0100;
/// `X86_EFLAGS_AC` (arch/x86/include/uapi/asm/processor-flags.h).
const AC: u64 = 1 << 18;

/// Number of contexts.
const LEVELS: usize = 4;
/// The topmost.
pub const LEVEL_NMI: usize = 3;

/// One frame buffer.
#[repr(C)]
struct Frames([u64; MAX_FRAMES as usize + 1]);

/// What each CPU has for callouts.
#[repr(C)]
struct PerCpu {
    /// By context: not 0 while a callout runs.
    busy: [u8; 8],
    /// By context: the frames of a stack while it is taken. They are too many for the stack of whom they are taken from.
    frames: [Frames; LEVELS],
}

/// Per-CPU pointer to [`PerCpu`].
static mut PER_CPU: u64 = 0;

pub unsafe fn init() -> i32 {
    // SAFETY: before anything can call out; may sleep.
    unsafe {
        PER_CPU = ki_alloc_percpu(core::mem::size_of::<PerCpu>(), 8, false, gfp_kernel() as u32);
        if PER_CPU == 0 { errno::ENOMEM as i32 } else { 0 }
    }
}

pub unsafe fn exit() {
    // SAFETY: no patch is left that could call out: each pins this module.
    unsafe { free_percpu(PER_CPU) }
}

/// In a callout; left when dropped.
pub struct Inside {
    here: *mut PerCpu,
    level: usize,
    flags: u64,
}

impl Inside {
    /// Enters one; `None`: this CPU is in one already, in this context.
    ///
    /// # Safety
    /// Called by generated code, in any context in which the kernel's per-CPU memory is accessible.
    #[inline(always)]
    pub unsafe fn enter() -> Option<Inside> {
        let flags: u64;
        // SAFETY: nothing but this CPU's own state is touched, and an interrupt that comes between leaves it as it found it.
        // `level` is below LEVELS.
        unsafe {
            core::arch::asm!("pushfq", "pop {}", out(reg) flags, options(preserves_flags));
            let count = preempt_off();
            let level = (count & (NMI | HARD | SOFT) != 0) as usize
                + (count & (NMI | HARD) != 0) as usize
                + (count & NMI != 0) as usize;
            let here = this_cpu(PER_CPU) as *mut PerCpu;
            let busy = (&raw mut (*here).busy as *mut u8).add(level);
            if busy.read_volatile() != 0 {
                preempt_on();
                return None;
            }
            busy.write_volatile(1);
            compiler_fence(Ordering::SeqCst);
            Some(Inside { here, level, flags })
        }
    }

    /// 0 to [`LEVEL_NMI`].
    #[inline(always)]
    pub fn level(&self) -> usize {
        self.level
    }

    /// Room for [`MAX_FRAMES`] frames, this CPU's and context's.
    #[inline(always)]
    pub fn frames(&self) -> *mut u64 {
        // SAFETY: `level` is below LEVELS.
        unsafe { (&raw mut (*self.here).frames as *mut Frames).add(self.level) as *mut u64 }
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: still on the CPU of `enter`.
        unsafe {
            compiler_fence(Ordering::SeqCst);
            (&raw mut (*self.here).busy as *mut u8).add(self.level).write_volatile(0);
            preempt_on();
            // A point may lie between `stac` and `clac`, where the kernel accesses user memory; what was called here may have
            // executed `clac`. The interrupt flag is written with the value that it has.
            if self.flags & AC != 0 {
                core::arch::asm!("push {}", "popfq", in(reg) self.flags);
            }
        }
    }
}
