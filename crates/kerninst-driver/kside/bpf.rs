// SPDX-License-Identifier: GPL-2.0
//! BPF programs that patches run: whose they are, and the callout that runs one as the kernel's own kprobes do
//! (`trace_call_bpf`, kernel/trace/bpf_trace.c).

use crate::abi::{Program, callout};
use crate::guard::Inside;
use crate::kernel::*;
use crate::owned::{self, Kind};

/// `BPF_PROG_TYPE_KPROBE` (include/uapi/linux/bpf.h): its context is a `struct pt_regs`.
const TYPE_KPROBE: u32 = 2;
/// Results from here on are errors and no pointers (`MAX_ERRNO`, include/linux/err.h).
const FIRST_ERROR: u64 = -4095i64 as u64;

/// `PROGRAM`; under the device lock.
pub unsafe fn take(file: *mut u8, arg: u64) -> isize {
    // SAFETY: process context; user memory only through the copy functions.
    unsafe {
        let mut request = Program { fd: 0, reserved: 0, address: 0 };
        let n = core::mem::size_of::<Program>();
        if _copy_from_user(&raw mut request as *mut u8, arg, n) != 0 {
            return errno::EFAULT;
        }
        if request.reserved != 0 {
            return errno::EINVAL;
        }
        if has_bpf() != 1 {
            return errno::EOPNOTSUPP;
        }
        let piece = owned::prepare();
        if piece.is_null() {
            return errno::ENOMEM;
        }
        let program = bpf_prog_get(request.fd);
        let fault = if program as u64 >= FIRST_ERROR {
            program as isize
        } else if !suits(program) {
            bpf_prog_put(program);
            errno::EINVAL
        } else {
            0
        };
        if fault != 0 {
            owned::discard(piece);
            return fault;
        }
        request.address = program as u64;
        // The file owns the reference even if the answer is lost.
        owned::add(piece, file, Kind::Program, request.address, 0, 0);
        if _copy_to_user(arg, &raw const request as *const u8, n) != 0 {
            return errno::EFAULT;
        }
        0
    }
}

/// May it run at a point? Programs for several kprobes at once find more behind `current->bpf_ctx` than we put there, and
/// those for uprobes may be allowed to sleep.
unsafe fn suits(program: *mut u8) -> bool {
    // SAFETY: a `struct bpf_prog` on which we hold a reference; none of this changes once it is loaded.
    unsafe {
        let word = |offset: usize| (program.add(offset) as *const u32).read_volatile();
        let holder = match sleepable_place() {
            1 => program,
            _ => (program.add(off_prog_aux()) as *const *mut u8).read_volatile(),
        };
        let sleepable = holder.add(off_sleepable()).read_volatile() as usize & mask_sleepable();
        word(off_prog_type()) == TYPE_KPROBE && word(off_prog_attach()) == 0 && sleepable == 0
    }
}

/// Room for a `struct bpf_trace_run_ctx` (include/linux/trace_events.h, 16 bytes): no cookie, no uprobe.
#[repr(C)]
struct RunContext([u64; 4]);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ki_bpf(program: *mut u8, regs: *mut u8) -> i64 {
    // SAFETY: by contract `program` is one of `take`, whose reference outlives every patch, and `regs` a `struct pt_regs`.
    // Preemption is off, so `current` and the CPU stay. An interrupt that comes between leaves `bpf_ctx` and the
    // count of programs as it found them.
    unsafe {
        let Some(_inside) = Inside::enter() else { return callout::RECURSION };
        if !rcu_is_watching() {
            return callout::NONE;
        }
        let active = active_programs();
        let before = active.read_volatile();
        if before != 0 {
            return callout::RECURSION;
        }
        active.write_volatile(1);
        let context = RunContext([0; 4]);
        let slot = current().add(off_task_bpf_ctx()) as *mut *const RunContext;
        let outer = slot.read_volatile();
        slot.write_volatile(&raw const context);
        let result = {
            let _read = ReadSide::new();
            let function = (program.add(off_prog_func()) as *const u64).read_volatile();
            invoke(function, regs, program.add(off_prog_insns()))
        };
        slot.write_volatile(outer);
        active.write_volatile(active.read_volatile() - 1);
        // The kernel's type for it is `unsigned int`.
        (result as u32) as i64
    }
}

/// Calls `function(regs, insns)`.
#[inline(always)]
unsafe fn invoke(function: u64, regs: *mut u8, insns: *mut u8) -> u64 {
    let result: u64;
    // SAFETY: a function of the kernel's JIT or its interpreter, by the C calling convention. It has no use for vector
    // registers. An indirect call of our own would be open to what the kernel's thunk closes.
    unsafe {
        if has_thunk() == 1 {
            core::arch::asm!("call {thunk}", thunk = sym __x86_indirect_thunk_rax,
                inout("rax") function => result, inout("rdi") regs => _, inout("rsi") insns => _,
                out("rcx") _, out("rdx") _, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        } else {
            core::arch::asm!("call rax",
                inout("rax") function => result, inout("rdi") regs => _, inout("rsi") insns => _,
                out("rcx") _, out("rdx") _, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        }
    }
    result
}
