// SPDX-License-Identifier: GPL-2.0
//! `/dev/kerninst`: one writer at a time; closing it disarms what it armed. Files open for reading may ask for
//! status.

use crate::abi::{self, ABI_VERSION, Forget, Info, List, Restore, SiteState, cmd, state};
use crate::batch::{self, Batch};
use crate::kernel::*;
use crate::module::ki_nothing;
use crate::{areas, bpf, callouts, counters, migrate, owned, poke, scan};
use core::ptr::null_mut;

static mut LOCK: Mutex = Mutex::NEW;
static LOCK_NAME: [u8; 9] = *b"kerninst\0";

/// The file open for writing.
static mut OWNER: *mut u8 = null_mut();
static mut OWNER_TGID: i32 = 0;

/// `fmode_t` bit, include/linux/fs.h.
const FMODE_WRITE: u32 = 2;

pub unsafe fn init() {
    // SAFETY: before anything can take the lock.
    unsafe {
        Mutex::init(&raw mut LOCK, &raw const LOCK_NAME as *const u8);
        owned::init();
    }
}

pub unsafe fn exit() {
    // SAFETY: nothing else runs in this module any more.
    unsafe { owned::reap() }
}

/// The device lock: guards all of this module's state.
pub unsafe fn lock() -> Held {
    // SAFETY: initialised in `init`; process context.
    unsafe { Held::new(&raw mut LOCK as *mut u8) }
}

unsafe fn tgid() -> i32 {
    // SAFETY: the current task is valid.
    unsafe { (current().add(off_task_tgid()) as *const i32).read() }
}

unsafe fn writable(file: *mut u8) -> bool {
    // SAFETY: a valid `struct file`.
    unsafe { (file.add(off_file_mode()) as *const u32).read_volatile() & FMODE_WRITE != 0 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ki_open(_inode: *mut u8, file: *mut u8) -> isize {
    // SAFETY: called by the VFS with a valid file.
    unsafe {
        if !writable(file) {
            return 0;
        }
        let _lock = lock();
        if !OWNER.is_null() {
            return errno::EBUSY;
        }
        OWNER = file;
        OWNER_TGID = tgid();
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ki_release(_inode: *mut u8, file: *mut u8) -> isize {
    // SAFETY: called by the VFS once, when the last reference to the file is gone; process context.
    unsafe {
        if !writable(file) {
            return 0;
        }
        let boards = {
            let _lock = lock();
            let mut boards = false;
            // Newest first: a later batch may stand on an earlier one's site (a trap that became a jump).
            let mut at = batch::NEWEST;
            while !at.is_null() {
                if (*at).file == file {
                    poke::restore(at);
                    boards |= has_boards(at);
                }
                at = (*at).next;
            }
            boards
        };
        let mut settled = true;
        if boards {
            // A task may be preempted, or a CPU interrupted, between the short jump and the board's jump. RCU tasks
            // waits for the former, a pass of work over all CPUs for the latter and for idle tasks. A board is one
            // instruction that cannot sleep, so this is proof enough.
            ki_synchronize_rcu_tasks();
            settled = schedule_on_each_cpu(ki_nothing) == 0;
        }
        let _lock = lock();
        let mut at = batch::NEWEST;
        while !at.is_null() {
            if (*at).file == file {
                if settled && poke::is_down(at) {
                    poke::restore_boards(at);
                }
                // The batch stays, and pins its patch module: somebody may sleep in the patch. The next client
                // proves that nobody does, and forgets it.
                (*at).file = null_mut();
            }
            at = (*at).next;
        }
        owned::disown(file);
        owned::reap();
        OWNER = null_mut();
        OWNER_TGID = 0;
        0
    }
}

unsafe fn has_boards(at: *mut Batch) -> bool {
    // SAFETY: under the device lock.
    unsafe {
        for i in 0..(*at).count {
            let record = Batch::record(at, i);
            if (*record).site.kind == abi::site::BOARD && (*record).state == state::ARMED {
                return true;
            }
        }
        false
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ki_ioctl(file: *mut u8, command: u32, arg: u64) -> isize {
    // SAFETY: called by the VFS with a valid file, in process context.
    unsafe {
        match command {
            cmd::INFO => info(arg),
            cmd::BATCHES => batches(arg),
            cmd::SITES => sites(arg),
            cmd::SCAN => scan::scan(arg),
            cmd::CALLOUTS => callouts::addresses(arg),
            _ if !writable(file) => errno::EPERM,
            cmd::POKE => {
                let _lock = lock();
                poke::poke(file, tgid(), arg)
            }
            cmd::RESTORE => restore(arg),
            cmd::FORGET => forget(arg),
            cmd::MIGRATE => {
                let _lock = lock();
                migrate::migrate(arg)
            }
            cmd::ALLOC => {
                let _lock = lock();
                counters::alloc(file, arg)
            }
            cmd::READ => {
                let _lock = lock();
                counters::read(arg)
            }
            cmd::AREA => {
                let _lock = lock();
                areas::alloc(file, arg)
            }
            cmd::PROGRAM => {
                let _lock = lock();
                bpf::take(file, arg)
            }
            _ => errno::ENOTTY,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ki_mmap(file: *mut u8, vma: *mut u8) -> isize {
    // SAFETY: called by the VFS with a valid file and a mapping of it that is being made.
    unsafe { if writable(file) { areas::map(file, vma) } else { errno::EPERM } }
}

unsafe fn info(arg: u64) -> isize {
    // SAFETY: user memory only through the copy functions.
    unsafe {
        let _lock = lock();
        let mut info = Info { abi: ABI_VERSION, cpus: nr_cpu_ids, owner: OWNER_TGID, batches: 0 };
        let mut at = batch::NEWEST;
        while !at.is_null() {
            info.batches += 1;
            at = (*at).next;
        }
        give(arg, &raw const info as *const u8, core::mem::size_of::<Info>())
    }
}

/// Copies an answer to user space.
pub unsafe fn give(to: u64, from: *const u8, n: usize) -> isize {
    // SAFETY: `from` has `n` bytes; the copy checks the user address.
    unsafe { if _copy_to_user(to, from, n) != 0 { errno::EFAULT } else { 0 } }
}

unsafe fn restore(arg: u64) -> isize {
    // SAFETY: user memory only through the copy functions; the rest under the device lock.
    unsafe {
        let mut request = Restore { batch: 0, stuck: 0, gone: 0 };
        if _copy_from_user(&raw mut request as *mut u8, arg, core::mem::size_of::<Restore>()) != 0 {
            return errno::EFAULT;
        }
        let _lock = lock();
        let batch = Batch::find(request.batch);
        if batch.is_null() {
            return errno::ENOENT;
        }
        poke::restore(batch);
        request.stuck = batch::count(batch, state::STUCK);
        request.gone = batch::count(batch, state::GONE);
        give(arg, &raw const request as *const u8, core::mem::size_of::<Restore>())
    }
}

unsafe fn forget(arg: u64) -> isize {
    // SAFETY: as in `restore`.
    unsafe {
        let mut request = Forget { batch: 0 };
        if _copy_from_user(&raw mut request as *mut u8, arg, core::mem::size_of::<Forget>()) != 0 {
            return errno::EFAULT;
        }
        let _lock = lock();
        let batch = Batch::find(request.batch);
        if batch.is_null() {
            return errno::ENOENT;
        }
        if !poke::is_down(batch) {
            return errno::EBUSY;
        }
        poke::restore_boards(batch);
        if batch::count(batch, state::ARMED) != 0 || batch::count(batch, state::STUCK) != 0 {
            return errno::EBUSY;
        }
        // None of its traps is up: the new table is without them. First, since it may fail.
        let e = batch::publish_traps(null_mut());
        if e != 0 {
            return e;
        }
        batch::unlink(batch);
        owned::reap();
        0
    }
}

unsafe fn batches(arg: u64) -> isize {
    // SAFETY: as in `restore`.
    unsafe {
        let mut request = List { batch: 0, out: 0, capacity: 0, count: 0 };
        if _copy_from_user(&raw mut request as *mut u8, arg, core::mem::size_of::<List>()) != 0 {
            return errno::EFAULT;
        }
        request.count = 0;
        let _lock = lock();
        let mut at = batch::NEWEST;
        while !at.is_null() {
            if request.count < request.capacity {
                let mut row = abi::Batch {
                    id: (*at).id,
                    owner: (*at).tgid,
                    sites: (*at).count,
                    armed: batch::count(at, state::ARMED),
                    stuck: batch::count(at, state::STUCK),
                    gone: batch::count(at, state::GONE),
                    boards: 0,
                    owned: !(*at).file.is_null() as u32,
                    reserved: 0,
                    text: (*at).text,
                    text_len: (*at).text_len,
                    module: (*at).name,
                };
                for i in 0..(*at).count {
                    let record = Batch::record(at, i);
                    row.boards += ((*record).site.kind == abi::site::BOARD && (*record).state == state::ARMED) as u32;
                }
                let n = core::mem::size_of::<abi::Batch>();
                let to = request.out.wrapping_add(request.count as u64 * n as u64);
                if _copy_to_user(to, &raw const row as *const u8, n) != 0 {
                    return errno::EFAULT;
                }
            }
            request.count += 1;
            at = (*at).next;
        }
        give(arg, &raw const request as *const u8, core::mem::size_of::<List>())
    }
}

unsafe fn sites(arg: u64) -> isize {
    // SAFETY: as in `restore`.
    unsafe {
        let mut request = List { batch: 0, out: 0, capacity: 0, count: 0 };
        if _copy_from_user(&raw mut request as *mut u8, arg, core::mem::size_of::<List>()) != 0 {
            return errno::EFAULT;
        }
        let _lock = lock();
        let batch = Batch::find(request.batch);
        if batch.is_null() {
            return errno::ENOENT;
        }
        request.count = (*batch).count;
        let n = core::mem::size_of::<SiteState>();
        for i in 0..(*batch).count {
            if i >= request.capacity {
                break;
            }
            let record = Batch::record(batch, i);
            let row = SiteState {
                addr: (*record).site.addr,
                len: (*record).site.len,
                kind: (*record).site.kind,
                state: (*record).state,
                reserved: [0; 5],
            };
            if _copy_to_user(request.out.wrapping_add(i as u64 * n as u64), &raw const row as *const u8, n) != 0 {
                return errno::EFAULT;
            }
        }
        give(arg, &raw const request as *const u8, core::mem::size_of::<List>())
    }
}
