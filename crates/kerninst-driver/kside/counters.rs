// SPDX-License-Identifier: GPL-2.0
//! Per-CPU counter areas.

use crate::abi::{Alloc, MAX_AREA, MAX_NEAR, Read};
use crate::kernel::*;
use crate::owned::{self, Kind};

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
        let piece = owned::prepare();
        if piece.is_null() {
            return errno::ENOMEM;
        }
        let (bytes, gfp) = (request.bytes as usize, gfp_kernel() as u32);
        let pointer = if request.near != 0 {
            ki_alloc_reserved_percpu(bytes, 8, true, gfp)
        } else {
            ki_alloc_percpu(bytes, 8, false, gfp)
        };
        if pointer == 0 {
            owned::discard(piece);
            return errno::ENOMEM;
        }
        owned::add(piece, file, Kind::PerCpu, pointer, request.bytes as u64, 0);
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
        let area = owned::per_cpu(request.pointer);
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
