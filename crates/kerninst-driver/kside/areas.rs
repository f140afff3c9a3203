// SPDX-License-Identifier: GPL-2.0
//! Memory areas that generated code writes and user space maps.

use crate::abi::{AREA_SHIFT, Area, MAX_MAPPED};
use crate::kernel::*;
use crate::owned::{self, Kind};

/// `PAGE_SHIFT` (arch/x86/include/asm/page_types.h).
const PAGE_SHIFT: u32 = 12;
/// `VM_SHARED` and `VM_DONTCOPY` (include/linux/mm.h).
const VM_SHARED: u64 = 0x8;
const VM_DONTCOPY: u64 = 0x2_0000;

/// Number of the next area, under the device lock. Zero is no area's.
static mut NEXT_NUMBER: u64 = 1;

/// `AREA`; under the device lock.
pub unsafe fn alloc(file: *mut u8, arg: u64) -> isize {
    // SAFETY: process context; user memory only through the copy functions.
    unsafe {
        let mut request = Area { bytes: 0, address: 0, number: 0 };
        let n = core::mem::size_of::<Area>();
        if _copy_from_user(&raw mut request as *mut u8, arg, n) != 0 {
            return errno::EFAULT;
        }
        let pages = request.bytes >> PAGE_SHIFT;
        if pages == 0 || request.bytes > MAX_MAPPED || pages << PAGE_SHIFT != request.bytes {
            return errno::EINVAL;
        }
        // As the kernel's own ring buffers ask (kernel/trace/ring_buffer.c): an allocation that cannot end well would have
        // the OOM killer end somebody first. An eighth is left for the others.
        let spare = si_mem_available();
        if spare <= 0 || pages > (spare - spare / 8) as u64 {
            return errno::ENOMEM;
        }
        // Beyond that, an offset does not fit `off_t`.
        if NEXT_NUMBER >= 1 << (63 - AREA_SHIFT) {
            return errno::ENOSPC;
        }
        let piece = owned::prepare();
        if piece.is_null() {
            return errno::ENOMEM;
        }
        let address = ki_vmalloc_user(request.bytes as usize);
        if address.is_null() {
            owned::discard(piece);
            return errno::ENOMEM;
        }
        request.address = address as u64;
        request.number = NEXT_NUMBER;
        NEXT_NUMBER += 1;
        // The file owns the area even if the answer is lost.
        owned::add(piece, file, Kind::Pages, request.address, request.bytes, request.number);
        if _copy_to_user(arg, &raw const request as *const u8, n) != 0 {
            return errno::EFAULT;
        }
        0
    }
}

/// Maps an area of this file, which is open for writing. Called with the process's `mmap_lock` held: must not take the
/// device lock (see `owned.rs`).
pub unsafe fn map(file: *mut u8, vma: *mut u8) -> isize {
    // SAFETY: the VFS passes a new `struct vm_area_struct` that nobody else sees yet, so its flags may be written (later
    // only under more locks).
    unsafe {
        let word = |offset: usize| vma.add(offset) as *mut u64;
        let flags = word(off_vma_flags());
        let offset = word(off_vma_pgoff()).read();
        let bytes = word(off_vma_end()).read().wrapping_sub(word(off_vma_start()).read());
        let shift = AREA_SHIFT - PAGE_SHIFT;
        // A private mapping would show what was there at the first write only.
        if flags.read() & VM_SHARED == 0 || offset & ((1 << shift) - 1) != 0 {
            return errno::EINVAL;
        }
        let Some((address, size)) = owned::pages(file, offset >> shift) else {
            return errno::ENOENT;
        };
        if bytes > size {
            return errno::EINVAL;
        }
        // A mapping keeps the file open, and an open file is armed state: a child must not keep it after its parent.
        flags.write(flags.read() | VM_DONTCOPY);
        remap_vmalloc_range(vma, address as *mut u8, 0) as isize
    }
}
