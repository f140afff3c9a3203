// SPDX-License-Identifier: GPL-2.0
//! Memory that patches may write, BPF programs that they may run, and whose they are. A piece lives as long as any patch may
//! use it: pieces of a closed file are freed when no batch of a closed file is left.

use crate::batch::{self, Batch};
use crate::kernel::*;
use core::ptr::null_mut;

/// How a piece was allocated.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Per-CPU; `address` is the per-CPU pointer.
    PerCpu,
    /// Pages that may be mapped to user space.
    Pages,
    /// A reference on a BPF program; `address` is the program's.
    Program,
}

/// One piece.
#[repr(C)]
pub struct Piece {
    next: *mut Piece,
    /// The file that allocated it; null: closed since.
    file: *mut u8,
    pub address: u64,
    pub bytes: u64,
    /// `Pages`: its number.
    pub number: u64,
    pub kind: Kind,
}

/// All pieces. Changed under the device lock and this list's; read under either of them.
static mut PIECES: *mut Piece = null_mut();
/// The list's own lock, for `mmap`: it is called with the process's `mmap_lock` held, which a holder of the device lock may
/// want (its copies to and from user memory may fault). So under this one nothing touches user memory.
static mut LIST: Mutex = Mutex::NEW;
static LIST_NAME: [u8; 14] = *b"kerninst_list\0";

pub unsafe fn init() {
    // SAFETY: before anything can take the lock.
    unsafe { Mutex::init(&raw mut LIST, &raw const LIST_NAME as *const u8) }
}

/// Memory for a piece that is not on the list yet; null: there is none.
pub unsafe fn prepare() -> *mut Piece {
    // SAFETY: process context.
    unsafe { ki_vzalloc(core::mem::size_of::<Piece>()) as *mut Piece }
}

/// Frees what `prepare` gave, if there was no memory for the rest.
pub unsafe fn discard(piece: *mut Piece) {
    // SAFETY: not on the list.
    unsafe { vfree(piece as *const u8) }
}

/// Puts a prepared piece on the list: it is the file's from now on. Under the device lock.
pub unsafe fn add(piece: *mut Piece, file: *mut u8, kind: Kind, address: u64, bytes: u64, number: u64) {
    // SAFETY: the piece is `prepare`'s.
    unsafe {
        let _list = Held::new(&raw mut LIST as *mut u8);
        *piece = Piece { next: PIECES, file, address, bytes, number, kind };
        PIECES = piece;
    }
}

/// The per-CPU piece with this pointer, or null. Under the device lock.
pub unsafe fn per_cpu(pointer: u64) -> *mut Piece {
    // SAFETY: the list does not change under the device lock.
    unsafe {
        let mut at = PIECES;
        while !at.is_null() && ((*at).kind != Kind::PerCpu || (*at).address != pointer) {
            at = (*at).next;
        }
        at
    }
}

/// Address and size of the file's pages of this number. They stay as long as the file is open. Without the device lock.
pub unsafe fn pages(file: *mut u8, number: u64) -> Option<(u64, u64)> {
    // SAFETY: the list does not change under its lock.
    unsafe {
        let _list = Held::new(&raw mut LIST as *mut u8);
        let mut at = PIECES;
        while !at.is_null() {
            if (*at).kind == Kind::Pages && (*at).number == number && (*at).file == file {
                return Some(((*at).address, (*at).bytes));
            }
            at = (*at).next;
        }
        None
    }
}

/// The file is closed: its pieces are nobody's from now on. Under the device lock.
pub unsafe fn disown(file: *mut u8) {
    // SAFETY: under both locks.
    unsafe {
        let _list = Held::new(&raw mut LIST as *mut u8);
        let mut at = PIECES;
        while !at.is_null() {
            if (*at).file == file {
                (*at).file = null_mut();
            }
            at = (*at).next;
        }
    }
}

/// Frees the pieces that no patch can write any more: nobody's, while no batch of a closed file is left. Under the device
/// lock.
pub unsafe fn reap() {
    // SAFETY: under the device lock; what is freed is off the list, and nobody's: no `mmap` looks at it.
    unsafe {
        let mut at: *mut Batch = batch::NEWEST;
        while !at.is_null() {
            if (*at).file.is_null() {
                return;
            }
            at = (*at).next;
        }
        let mut free = take_unowned();
        while !free.is_null() {
            let piece = free;
            free = (*piece).next;
            match (*piece).kind {
                Kind::PerCpu => free_percpu((*piece).address),
                // Pages that are still mapped somewhere have a reference of their own.
                Kind::Pages => vfree((*piece).address as *const u8),
                Kind::Program => bpf_prog_put((*piece).address as *mut u8),
            }
            vfree(piece as *const u8);
        }
    }
}

/// Takes nobody's pieces off the list; they are linked to each other.
unsafe fn take_unowned() -> *mut Piece {
    // SAFETY: under both locks.
    unsafe {
        let _list = Held::new(&raw mut LIST as *mut u8);
        let mut taken = null_mut();
        let mut link = &raw mut PIECES;
        while !(*link).is_null() {
            let piece = *link;
            if (*piece).file.is_null() {
                *link = (*piece).next;
                (*piece).next = taken;
                taken = piece;
            } else {
                link = &raw mut (*piece).next;
            }
        }
        taken
    }
}
