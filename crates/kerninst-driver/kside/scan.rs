// SPDX-License-Identifier: GPL-2.0
//! Looks through kernel stacks for words within ranges, to prove that no task is in, or will return to, code
//! that is to be freed or rewritten.
//!
//! Conservative and without an unwinder: every aligned word between the saved stack pointer and the stack's top
//! counts. It is a proof only for a task that was off CPU all the while, which the switch counters tell: its
//! registers are then on that very stack (a preempted task's `pt_regs` too). A running task is reported as such
//! and user space asks again, from that task's CPU if need be.

use crate::abi::{MAX_RANGES, Scan, Task, task};
use crate::kernel::*;

/// Bytes of stack read at a time.
const CHUNK: usize = 512;
/// `PIDTYPE_PID`, include/linux/pid.h.
const PIDTYPE_PID: u32 = 0;

#[repr(C)]
struct Range {
    start: u64,
    end: u64,
}

pub unsafe fn scan(arg: u64) -> isize {
    // SAFETY: process context; user memory only through the copy functions; the list is a kernel copy.
    unsafe {
        let mut request = Scan { list: 0, ranges: 0, capacity: 0, out: 0, count: 0, settle: 0 };
        let n = core::mem::size_of::<Scan>();
        if _copy_from_user(&raw mut request as *mut u8, arg, n) != 0 {
            return errno::EFAULT;
        }
        if request.settle != 0 {
            ki_synchronize_rcu_tasks();
        }
        if request.ranges == 0 || request.ranges > MAX_RANGES {
            return errno::EINVAL;
        }
        let bytes = request.ranges as usize * core::mem::size_of::<Range>();
        let list = ki_vzalloc(bytes) as *mut Range;
        if list.is_null() {
            return errno::ENOMEM;
        }
        let mut result = errno::EFAULT;
        if _copy_from_user(list as *mut u8, request.list, bytes) == 0 {
            result = each_task(&mut request, list);
            if result == 0 && _copy_to_user(arg, &raw const request as *const u8, n) != 0 {
                result = errno::EFAULT;
            }
        }
        vfree(list as *const u8);
        result
    }
}

unsafe fn each_task(request: &mut Scan, list: *const Range) -> isize {
    // SAFETY: a pid and its task are valid within one read side section.
    unsafe {
        let mut nr = 1;
        loop {
            let mut seen = Task { tid: 0, seen: task::RUNNING, word: 0, started: 0 };
            let found = {
                let _read = ReadSide::new();
                let pid = find_ge_pid(nr, &raw mut init_pid_ns);
                if pid.is_null() {
                    return 0;
                }
                nr = pid_nr_ns(pid, &raw mut init_pid_ns);
                let of = pid_task(pid, PIDTYPE_PID);
                // The caller itself is here, in this ioctl, and not in any patch.
                let other = !of.is_null() && of != current();
                if other {
                    seen.tid = nr;
                    seen.started = (of.add(off_task_start()) as *const u64).read_volatile();
                    look(of, list, request.ranges, &mut seen);
                }
                other
            };
            if nr == i32::MAX {
                return 0;
            }
            nr += 1;
            if found {
                if request.count < request.capacity {
                    let to = request.out.wrapping_add(request.count as u64 * core::mem::size_of::<Task>() as u64);
                    if _copy_to_user(to, &raw const seen as *const u8, core::mem::size_of::<Task>()) != 0 {
                        return errno::EFAULT;
                    }
                }
                request.count += 1;
            }
        }
    }
}

/// Switches of a task so far. Before a look they are read before [`is_on_cpu`], after it behind it: only then do equal
/// numbers and "off CPU" at both ends mean that it was off CPU all the while.
unsafe fn switches(of: *mut u8) -> u64 {
    // SAFETY: the task is valid within the caller's read side section.
    unsafe {
        let voluntary = (of.add(off_task_nvcsw()) as *const u64).read_volatile();
        let involuntary = (of.add(off_task_nivcsw()) as *const u64).read_volatile();
        voluntary.wrapping_add(involuntary)
    }
}

unsafe fn is_on_cpu(of: *mut u8) -> bool {
    // SAFETY: as in `switches`.
    unsafe { (of.add(off_task_on_cpu()) as *const i32).read_volatile() != 0 }
}

unsafe fn look(of: *mut u8, list: *const Range, ranges: u32, seen: &mut Task) {
    // SAFETY: as in `switches`; the stack is read through a copy that cannot fault, for it may be freed meanwhile.
    unsafe {
        let before = switches(of);
        if is_on_cpu(of) {
            return;
        }
        let stack = (of.add(off_task_stack()) as *const u64).read_volatile();
        let top = stack.wrapping_add(stack_size() as u64);
        let sp = (of.add(off_task_sp()) as *const u64).read_volatile() & !7;
        let mut hit = 0;
        // A task without a stack has exited; one whose pointer is outside has just been made and has not run.
        if stack != 0 {
            let mut at = if sp >= stack && sp < top { sp } else { stack };
            while at < top && hit == 0 {
                let left = (top - at) as usize;
                let n = if left < CHUNK { left } else { CHUNK };
                hit = look_at(at, n, list, ranges);
                at += n as u64;
            }
        }
        if is_on_cpu(of) || switches(of) != before {
            return;
        }
        seen.word = hit;
        seen.seen = if hit != 0 { task::HIT } else { task::CLEAR };
    }
}

/// The first word of `n` bytes of stack that is within a range; 0: none. An unreadable piece counts as a hit.
unsafe fn look_at(at: u64, n: usize, list: *const Range, ranges: u32) -> u64 {
    let mut words = core::mem::MaybeUninit::<[u64; CHUNK / 8]>::uninit();
    // SAFETY: the buffer has CHUNK bytes and `n` is at most that, only what was copied is read; `list` has
    // `ranges` elements.
    unsafe {
        let to = words.as_mut_ptr() as *mut u64;
        if copy_from_kernel_nofault(to as *mut u8, at as *const u8, n) != 0 {
            return at;
        }
        let lowest = (*list).start;
        let highest = (*list.add(ranges as usize - 1)).end;
        for i in 0..n / 8 {
            let word = to.add(i).read();
            if word >= lowest && word < highest && within(word, list, ranges) {
                return word;
            }
        }
        0
    }
}

unsafe fn within(word: u64, list: *const Range, ranges: u32) -> bool {
    // SAFETY: indices stay below `ranges`.
    unsafe {
        let (mut low, mut high) = (0usize, ranges as usize);
        while low < high {
            let middle = low + (high - low) / 2;
            let r = list.add(middle);
            if word < (*r).start {
                high = middle;
            } else if word >= (*r).end {
                low = middle + 1;
            } else {
                return true;
            }
        }
        false
    }
}
