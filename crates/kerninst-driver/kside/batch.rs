// SPDX-License-Identifier: GPL-2.0
//! The log: every batch of sites that was written and is not yet forgotten, newest first.

use crate::abi::{Site, state};
use crate::kernel::*;
use crate::module::this_module;
use crate::trap::{TABLE, Table, Trap};
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

/// A site and what became of it.
#[repr(C)]
pub struct Record {
    pub site: Site,
    pub state: u8,
}

impl Record {
    /// Does the site hold our bytes, or should it?
    pub fn is_up(&self) -> bool {
        self.state == state::ARMED || self.state == state::STUCK
    }
}

/// A batch; `count` records follow, in ascending order of address.
#[repr(C)]
pub struct Batch {
    pub next: *mut Batch,
    pub id: u64,
    /// The file that armed it; null: closed since.
    pub file: *mut u8,
    pub tgid: i32,
    pub count: u32,
    /// Pinned patch module, or null.
    pub module: *mut u8,
    pub name: [u8; 56],
    /// The patch module's text.
    pub text: u64,
    pub text_len: u64,
    pub records: [Record; 0],
}

/// Newest batch. Written under the device lock.
pub static mut NEWEST: *mut Batch = null_mut();
/// Number of the next batch.
pub static mut NEXT_ID: u64 = 1;

impl Batch {
    /// The `i`-th record; `i` is below `count`.
    #[inline(always)]
    pub unsafe fn record(batch: *mut Batch, i: u32) -> *mut Record {
        // SAFETY: the allocation holds `count` records.
        unsafe { ((&raw mut (*batch).records) as *mut Record).add(i as usize) }
    }

    /// Bytes of a batch of `count` records.
    pub fn size(count: u32) -> usize {
        core::mem::size_of::<Batch>() + count as usize * core::mem::size_of::<Record>()
    }

    /// The batch of that number, or null.
    pub unsafe fn find(id: u64) -> *mut Batch {
        // SAFETY: the list is stable under the device lock, which the caller holds.
        unsafe {
            let mut at = NEWEST;
            while !at.is_null() && (*at).id != id {
                at = (*at).next;
            }
            at
        }
    }
}

/// Appends a batch; it holds a reference on this module from now on.
pub unsafe fn link(batch: *mut Batch) {
    // SAFETY: under the device lock; `batch` is fully built.
    unsafe {
        (*batch).id = NEXT_ID;
        NEXT_ID += 1;
        (*batch).next = NEWEST;
        NEWEST = batch;
        __module_get(this_module());
    }
}

/// Takes a batch off the list, drops its references and frees it.
pub unsafe fn unlink(batch: *mut Batch) {
    // SAFETY: under the device lock; the batch is on the list and none of its sites holds our bytes.
    unsafe {
        let mut at = &raw mut NEWEST;
        while !(*at).is_null() {
            if *at == batch {
                *at = (*batch).next;
                break;
            }
            at = &raw mut (**at).next;
        }
        if !(*batch).module.is_null() {
            module_put((*batch).module);
        }
        vfree(batch as *const u8);
        module_put(this_module());
    }
}

/// How many records are in `state`.
pub unsafe fn count(batch: *mut Batch, wanted: u8) -> u32 {
    let mut n = 0;
    // SAFETY: under the device lock; indices are below `count`.
    unsafe {
        for i in 0..(*batch).count {
            n += ((*Batch::record(batch, i)).state == wanted) as u32;
        }
    }
    n
}

/// Publishes a trap table of all trap records that are not gone, those of `extra` too (not linked yet).
/// Returns 0 or -ENOMEM; the old table is freed after a grace period.
pub unsafe fn publish_traps(extra: *mut Batch) -> isize {
    // SAFETY: under the device lock; the new table is complete before it is published.
    unsafe {
        let mut total = 0usize;
        each_trap(extra, &mut |_, _| total += 1);
        let new = if total == 0 {
            null_mut()
        } else {
            let new = ki_vzalloc(core::mem::size_of::<Table>() + total * core::mem::size_of::<Trap>()) as *mut Table;
            if new.is_null() {
                return errno::ENOMEM;
            }
            let traps = (&raw mut (*new).traps) as *mut Trap;
            each_trap(extra, &mut |addr, patch| {
                // Insertion keeps the order; trap sites are few.
                let mut i = (*new).count;
                while i > 0 && (*traps.add(i - 1)).addr > addr {
                    *traps.add(i) = *traps.add(i - 1);
                    i -= 1;
                }
                *traps.add(i) = Trap { addr, patch };
                (*new).count += 1;
            });
            new
        };
        let old = TABLE.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            synchronize_rcu();
            vfree(old as *const u8);
        }
        0
    }
}

/// Takes the traps of a batch that was not written, and will not be, out of the table in force. Needs no memory, so it
/// cannot fail: a trap without a patch is nobody's.
pub unsafe fn retract_traps(batch: *mut Batch) {
    // SAFETY: under the device lock; the table in force is only freed under it.
    unsafe {
        each_trap_of(batch, &mut |addr, patch| crate::trap::retract(TABLE.load(Ordering::Acquire), addr, patch));
    }
}

#[inline(always)]
unsafe fn each_trap(extra: *mut Batch, visit: &mut impl FnMut(u64, u64)) {
    // SAFETY: under the device lock.
    unsafe {
        each_trap_of(extra, visit);
        let mut at = NEWEST;
        while !at.is_null() {
            each_trap_of(at, visit);
            at = (*at).next;
        }
    }
}

#[inline(always)]
unsafe fn each_trap_of(batch: *mut Batch, visit: &mut impl FnMut(u64, u64)) {
    if batch.is_null() {
        return;
    }
    // SAFETY: under the device lock; indices are below `count`.
    unsafe {
        for i in 0..(*batch).count {
            let record = Batch::record(batch, i);
            // A restored one cannot trap any more (the poke that restored it has waited for all CPUs), and a newer batch may
            // have a trap at the same place.
            let up = (*record).state != state::GONE && (*record).state != state::RESTORED;
            if (*record).site.kind == crate::abi::site::TRAP && up {
                visit((*record).site.addr, (*record).site.patch);
            }
        }
    }
}
