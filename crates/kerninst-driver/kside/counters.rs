// SPDX-License-Identifier: GPL-2.0
//! Per-CPU counter areas. An area lives as long as any patch may write it: areas of a closed file are freed
//! when no batch of that file is left.

use crate::abi::{Alloc, MAX_AREA, MAX_NEAR, Read};
use crate::batch::{self, Batch};
use crate::kernel::*;
use core::ptr::null_mut;

#[repr(C)]
struct Area {
    next: *mut Area,
    /// The file that allocated it; null: closed since.
    file: *mut u8,
    pointer: u64,
    bytes: u32,
}

static mut AREAS: *mut Area = null_mut();

pub unsafe fn alloc(file: *mut u8, arg: u64) -> isize {
    // SAFETY: under the device lock, in process context; user memory only through the copy functions.
    unsafe {
        let mut request = Alloc { bytes: 0, near: 0, pointer: 0 };
        let n = core::mem::size_of::<Alloc>();
        if _copy_from_user(&raw mut request as *mut u8, arg, n) != 0 {
            return errno::EFAULT;
        }
        let most = if request.near != 0 { MAX_NEAR } else { MAX_AREA };
        if request.bytes == 0 || request.bytes > most || request.bytes % 8 != 0 {
            return errno::EINVAL;
        }
        let area = ki_vzalloc(core::mem::size_of::<Area>()) as *mut Area;
        if area.is_null() {
            return errno::ENOMEM;
        }
        let (bytes, gfp) = (request.bytes as usize, gfp_kernel() as u32);
        let pointer = if request.near != 0 {
            ki_alloc_reserved_percpu(bytes, 8, true, gfp)
        } else {
            ki_alloc_percpu(bytes, 8, false, gfp)
        };
        if pointer == 0 {
            vfree(area as *const u8);
            return errno::ENOMEM;
        }
        *area = Area { next: AREAS, file, pointer, bytes: request.bytes };
        AREAS = area;
        request.pointer = pointer;
        // The caller owns the area even if the answer is lost: it is freed with the file.
        if _copy_to_user(arg, &raw const request as *const u8, n) != 0 {
            return errno::EFAULT;
        }
        0
    }
}

pub unsafe fn read(arg: u64) -> isize {
    // SAFETY: as in `alloc`; a possible CPU's copy of a live area is always mapped.
    unsafe {
        let mut request = Read { pointer: 0, out: 0 };
        if _copy_from_user(&raw mut request as *mut u8, arg, core::mem::size_of::<Read>()) != 0 {
            return errno::EFAULT;
        }
        let mut area = AREAS;
        while !area.is_null() && (*area).pointer != request.pointer {
            area = (*area).next;
        }
        if area.is_null() {
            return errno::ENOENT;
        }
        let bytes = (*area).bytes as usize;
        let offsets = &raw const __per_cpu_offset as *const u64;
        let possible = &raw const __cpu_possible_mask as *const u64;
        for cpu in 0..nr_cpu_ids as usize {
            if possible.add(cpu / 64).read() >> (cpu % 64) & 1 == 0 {
                continue;
            }
            let copy = request.pointer.wrapping_add(offsets.add(cpu).read()) as *const u8;
            if _copy_to_user(request.out.wrapping_add((cpu * bytes) as u64), copy, bytes) != 0 {
                return errno::EFAULT;
            }
        }
        0
    }
}

/// The file is closed: its areas are nobody's from now on.
pub unsafe fn disown(file: *mut u8) {
    // SAFETY: under the device lock.
    unsafe {
        let mut area = AREAS;
        while !area.is_null() {
            if (*area).file == file {
                (*area).file = null_mut();
            }
            area = (*area).next;
        }
    }
}

/// Frees the areas that no patch can write any more: nobody's, while no batch of a closed file is left.
pub unsafe fn reap() {
    // SAFETY: under the device lock.
    unsafe {
        let mut at: *mut Batch = batch::NEWEST;
        while !at.is_null() {
            if (*at).file.is_null() {
                return;
            }
            at = (*at).next;
        }
        let mut link = &raw mut AREAS;
        while !(*link).is_null() {
            let area = *link;
            if (*area).file.is_null() {
                *link = (*area).next;
                free_percpu((*area).pointer);
                vfree(area as *const u8);
            } else {
                link = &raw mut (*area).next;
            }
        }
    }
}
