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
    // SAFETY: a pid and its task are valid within one read side section; idle tasks are never freed.
    unsafe {
        let mut nr = 1;
        loop {
            let mut seen = Task { tid: 0, seen: task::RUNNING, word: 0, started: 0 };
            let found = {
                let _read = ReadSide::new();
                let of = next_task(&mut nr);
                if of.is_null() {
                    break;
                }
                // The caller itself is here, in this ioctl, and not in any patch.
                let other = of != current();
                if other {
                    seen.tid = nr;
                    seen.started = (of.add(off_task_start()) as *const u64).read_volatile();
                    look(of, list, request.ranges, false, &mut seen);
                }
                other
            };
            cond_resched();
            nr = nr.wrapping_add(1);
            if found {
                let e = tell(request, &seen);
                if e != 0 {
                    return e;
                }
            }
            if nr < 0 {
                break;
            }
        }
        for cpu in 0..nr_cpu_ids as usize {
            let idle = idle_task(cpu);
            if idle.is_null() || idle == current() {
                continue;
            }
            let mut seen = Task { tid: -1 - cpu as i32, seen: task::RUNNING, word: 0, started: 0 };
            // That of a CPU which is offline neither runs nor is switched: all of its stack counts.
            look(idle, list, request.ranges, !is_online(cpu), &mut seen);
            let e = tell(request, &seen);
            if e != 0 {
                return e;
            }
        }
        0
    }
}

unsafe fn tell(request: &mut Scan, seen: &Task) -> isize {
    // SAFETY: user memory only through the copy functions.
    unsafe {
        if request.count < request.capacity {
            let to = request.out.wrapping_add(request.count as u64 * core::mem::size_of::<Task>() as u64);
            if _copy_to_user(to, seen as *const Task as *const u8, core::mem::size_of::<Task>()) != 0 {
                return errno::EFAULT;
            }
        }
        request.count += 1;
        0
    }
}

/// The task of the next pid from `nr` on, which becomes its number; null: there is none.
pub unsafe fn next_task(nr: &mut i32) -> *mut u8 {
    // SAFETY: within the caller's read side section.
    unsafe {
        loop {
            let pid = find_ge_pid(*nr, &raw mut init_pid_ns);
            if pid.is_null() {
                return core::ptr::null_mut();
            }
            *nr = pid_nr_ns(pid, &raw mut init_pid_ns);
            let of = pid_task(pid, PIDTYPE_PID);
            if !of.is_null() || *nr == i32::MAX {
                return of;
            }
            *nr += 1;
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

pub unsafe fn is_on_cpu(of: *mut u8) -> bool {
    // SAFETY: as in `switches`.
    unsafe { (of.add(off_task_on_cpu()) as *const i32).read_volatile() != 0 }
}

/// `stopped`: it is off CPU whatever the counters say, and its saved stack pointer may be old.
unsafe fn look(of: *mut u8, list: *const Range, ranges: u32, stopped: bool, seen: &mut Task) {
    // SAFETY: as in `switches`; memory is read through a copy that cannot fault, for it may be freed meanwhile.
    unsafe {
        let before = switches(of);
        if is_on_cpu(of) && !stopped {
            return;
        }
        let mut hit = 0;
        let lowest = (*list).start;
        let highest = (*list.add(ranges as usize - 1)).end;
        each_word(of, stopped, &mut |_, word, readable| {
            let found = !readable || word >= lowest && word < highest && within(word, list, ranges);
            if found {
                hit = word;
            }
            found
        });
        if (is_on_cpu(of) || switches(of) != before) && !stopped {
            return;
        }
        seen.word = hit;
        seen.seen = if hit != 0 { task::HIT } else { task::CLEAR };
    }
}

/// Calls `see` with the place and value of every word where a return address of the task may be kept, until it says
/// true: on its stack, and where the function graph tracer and return probes keep those that they replaced there. What
/// cannot be read is given as its address and `false`. `whole`: the stack from its very end.
///
/// # Safety
/// The task is valid within the caller's read side section.
pub unsafe fn each_word(of: *mut u8, whole: bool, see: &mut impl FnMut(u64, u64, bool) -> bool) {
    // SAFETY: by the caller's promise; everything else is read through a copy that cannot fault.
    unsafe {
        let stack = (of.add(off_task_stack()) as *const u64).read_volatile();
        let top = stack.wrapping_add(stack_size() as u64);
        let sp = (of.add(off_task_sp()) as *const u64).read_volatile() & !7;
        // A task without a stack has exited; one whose pointer is outside has just been made and has not run.
        if stack != 0 {
            let from = if sp >= stack && sp < top && !whole { sp } else { stack };
            if words(from, top, see) {
                return;
            }
        }
        if has_ret_stack() == 1 {
            let kept = (of.add(off_task_ret_stack()) as *const u64).read_volatile();
            if kept != 0 && words(kept, kept.wrapping_add(size_ret_stack() as u64), see) {
                return;
            }
        }
        if has_rethook() == 1 {
            let mut node = (of.add(off_task_rethooks()) as *const u64).read_volatile();
            let mut left = MOST_HOOKS;
            while node != 0 {
                let at = node.wrapping_sub(off_rethook_llist() as u64).wrapping_add(off_rethook_ret_addr() as u64);
                let mut next = 0u64;
                let unread = copy_from_kernel_nofault(&raw mut next as *mut u8, node as *const u8, 8) != 0;
                if unread || left == 0 {
                    see(node, node, false);
                    return;
                }
                if words(at, at + 8, see) {
                    return;
                }
                node = next;
                left -= 1;
            }
        }
    }
}

/// More return probes are never nested.
const MOST_HOOKS: u32 = 4096;

/// The words of a piece of memory; true: `see` said so.
unsafe fn words(mut at: u64, end: u64, see: &mut impl FnMut(u64, u64, bool) -> bool) -> bool {
    let mut buffer = core::mem::MaybeUninit::<[u64; CHUNK / 8]>::uninit();
    let to = buffer.as_mut_ptr() as *mut u64;
    while at < end {
        let left = (end - at) as usize;
        let n = if left < CHUNK { left } else { CHUNK };
        // SAFETY: the buffer has CHUNK bytes and `n` is at most that; only what was copied is read.
        unsafe {
            if copy_from_kernel_nofault(to as *mut u8, at as *const u8, n) != 0 {
                return see(at, at, false);
            }
            for i in 0..n / 8 {
                if see(at + 8 * i as u64, to.add(i).read(), true) {
                    return true;
                }
            }
        }
        at += n as u64;
    }
    false
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
