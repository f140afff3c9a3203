// SPDX-License-Identifier: GPL-2.0
//! Lets tasks that sleep below a call of a version return to the original function.
//!
//! A version runs the same instructions on the same frames as its original, and nothing of an inserted snippet lives
//! across a call. So a saved return address in a version may be replaced by the one of the same call in the original,
//! as long as the task does not run: the scheduler's own `task_call_func` holds it, as livepatch does. What merely
//! looks like such an address is either dead or somebody's note of a caller, for which the original is right too.

use crate::abi::{MAX_PAIRS, Migrate, Pair};
use crate::batch::Batch;
use crate::kernel::*;
use crate::module::{ki_entry_migrate, this_module};
use crate::{poke, scan};

/// `TASK_DEAD` (include/linux/sched.h): never runs again, and its stack may go at any time.
const TASK_DEAD: u32 = 0x80;

#[repr(C)]
struct Work {
    pairs: *mut Pair,
    count: usize,
    moved: u32,
    unsure: u32,
}

/// Frames of one stack; under the device lock.
const FRAMES: usize = 256;
static mut STORE: [u64; FRAMES] = [0; FRAMES];

/// `MIGRATE`; under the device lock.
pub unsafe fn migrate(arg: u64) -> isize {
    // SAFETY: process context; user memory only through the copy functions; the list is a kernel copy.
    unsafe {
        let mut request = Migrate { batch: 0, list: 0, pairs: 0, moved: 0, unsure: 0, reserved: 0 };
        let n = core::mem::size_of::<Migrate>();
        if _copy_from_user(&raw mut request as *mut u8, arg, n) != 0 {
            return errno::EFAULT;
        }
        if request.pairs == 0 || request.pairs > MAX_PAIRS {
            return errno::EINVAL;
        }
        let batch = Batch::find(request.batch);
        if batch.is_null() {
            return errno::ENOENT;
        }
        if !poke::is_down(batch) {
            return errno::EBUSY;
        }
        let bytes = request.pairs as usize * core::mem::size_of::<Pair>();
        let pairs = ki_vzalloc(bytes) as *mut Pair;
        if pairs.is_null() {
            return errno::ENOMEM;
        }
        let mut result = errno::EFAULT;
        if _copy_from_user(pairs as *mut u8, request.list, bytes) == 0 {
            let mut work = Work { pairs, count: request.pairs as usize, moved: 0, unsure: 0 };
            result = errno::EINVAL;
            if is_sound(batch, &work) {
                every_task(&mut work);
                request.moved = work.moved;
                request.unsure = work.unsure;
                let lost = _copy_to_user(request.list, pairs as *const u8, bytes) != 0
                    || _copy_to_user(arg, &raw const request as *const u8, n) != 0;
                result = if lost { errno::EFAULT } else { 0 };
            }
        }
        vfree(pairs as *const u8);
        result
    }
}

/// From the batch's own patch module, ascending. Where the original is gone with its module nobody can be below it: that
/// pair is passed over.
unsafe fn is_sound(batch: *mut Batch, work: &Work) -> bool {
    // SAFETY: indices stay below the count.
    unsafe {
        let (start, end) = ((*batch).text, (*batch).text.wrapping_add((*batch).text_len));
        let mut last = 0;
        for i in 0..work.count {
            let p = work.pairs.add(i);
            let from = (*p).from;
            if from <= last || from < start || from > end {
                return false;
            }
            last = from;
            if core_kernel_text((*p).to) == 0 {
                let _read = ReadSide::new();
                let module = __module_text_address((*p).to);
                if module.is_null() || module == this_module() {
                    (*p).to = 0;
                }
            }
        }
        true
    }
}

unsafe fn every_task(work: &mut Work) {
    // SAFETY: a task is valid within one read side section; idle tasks are never freed.
    unsafe {
        let mut nr = 1;
        while nr > 0 {
            let _read = ReadSide::new();
            let of = scan::next_task(&mut nr);
            if of.is_null() {
                break;
            }
            if of != current() {
                task_call_func(of, ki_entry_migrate, work as *mut Work as *mut u8);
            }
            nr = nr.wrapping_add(1);
        }
        for cpu in 0..nr_cpu_ids as usize {
            let idle = idle_task(cpu);
            if !idle.is_null() && idle != current() && is_online(cpu) {
                task_call_func(idle, ki_entry_migrate, work as *mut Work as *mut u8);
            }
        }
    }
}

/// The task cannot begin to run, or stop running, while this runs.
#[unsafe(no_mangle)]
unsafe extern "C" fn ki_migrate(of: *mut u8, work: *mut Work) -> i32 {
    // SAFETY: called by `task_call_func` with what `every_task` gave. A task that is off CPU and not dead keeps its
    // stack and its records of return addresses, and does not read or write them meanwhile.
    unsafe {
        let state = (of.add(off_task_state()) as *const u32).read_volatile();
        if scan::is_on_cpu(of) || state & TASK_DEAD != 0 {
            return 0;
        }
        let work = &mut *work;
        let mut any = false;
        scan::each_word(of, false, &mut |_, word, readable| {
            any = readable && !find(work, word).is_null();
            any || !readable
        });
        if any {
            note_visits(of, work);
            scan::each_word(of, false, &mut |at, word, readable| {
                let p = if readable { find(work, word) } else { core::ptr::null_mut() };
                if !p.is_null() {
                    (at as *mut u64).write_volatile((*p).to);
                    (*p).moved += 1;
                    work.moved += 1;
                }
                !readable
            });
        }
        0
    }
}

/// Calls that are under way, before their addresses are changed.
unsafe fn note_visits(of: *mut u8, work: &mut Work) {
    // SAFETY: the task does not run; at most FRAMES addresses are written and read.
    unsafe {
        let store = &raw mut STORE as *mut u64;
        let frames = if has_reliable() == 1 {
            stack_trace_save_tsk_reliable(of, store, FRAMES as u32)
        } else {
            -1
        };
        if frames < 0 {
            work.unsure += 1;
            return;
        }
        for i in 0..frames as usize {
            let p = find(work, store.add(i).read());
            if !p.is_null() {
                (*p).visits += 1;
            }
        }
    }
}

/// The pair with this `from`; null: there is none.
unsafe fn find(work: &Work, word: u64) -> *mut Pair {
    // SAFETY: indices stay below the count.
    unsafe {
        if word < (*work.pairs).from || word > (*work.pairs.add(work.count - 1)).from {
            return core::ptr::null_mut();
        }
        let (mut low, mut high) = (0, work.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let p = work.pairs.add(middle);
            if (*p).from == word {
                return if (*p).to != 0 { p } else { core::ptr::null_mut() };
            }
            if (*p).from < word {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        core::ptr::null_mut()
    }
}
