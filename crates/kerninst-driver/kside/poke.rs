// SPDX-License-Identifier: GPL-2.0
//! Writing text and putting it back.
//!
//! Both go through the kernel's own poking (arch/x86/kernel/alternative.c) under `text_mutex`, after every
//! site was compared with what must be there. `kprobe_mutex` is held around (kprobes take the two in that order),
//! so that no kprobe can come between the check and the write.

use crate::abi::{Check, MAX_CHECKS, Poke, Site, refused, site, state};
use crate::batch::{self, Batch, Record};
use crate::kernel::*;
use crate::module::this_module;
use core::ptr::null_mut;

/// Longest site.
const MOST: usize = 16;

/// Both locks that guard text, in kprobes' order.
pub struct TextLock {
    _text: Held,
    _kprobes: Option<Held>,
}
impl TextLock {
    unsafe fn new() -> TextLock {
        // SAFETY: both are the kernel's initialised mutexes; process context.
        unsafe {
            let kprobes = if has_kprobes() == 1 { Some(Held::new(&raw mut kprobe_mutex)) } else { None };
            TextLock { _kprobes: kprobes, _text: Held::new(&raw mut text_mutex) }
        }
    }
}

/// Are the `len` bytes at `addr` those at `bytes`?
unsafe fn same(addr: u64, bytes: *const u8, len: u8) -> bool {
    let mut now = [0u8; MOST];
    // SAFETY: the copy cannot fault; `len` is at most MOST, and `bytes` a site's array of MOST.
    unsafe {
        let to = &raw mut now as *mut u8;
        if copy_from_kernel_nofault(to, addr as *const u8, len as usize) != 0 {
            return false;
        }
        for i in 0..len as usize {
            if to.add(i).read() != bytes.add(i).read() {
                return false;
            }
        }
    }
    true
}

fn well_formed(s: &Site, before: u64) -> bool {
    // The kernel's poking dies on anything but the jumps that it knows (`text_poke_loc_init`).
    let right = match s.kind {
        site::LIVE => s.len == 5 && s.new[0] == 0xe9 || s.len == 2 && s.new[0] == 0xeb,
        site::BOARD => s.len == 5 && s.new[0] == 0xe9,
        site::TAIL => s.len >= 1 && s.len as usize <= MOST,
        site::TRAP => s.len == 1 && s.new[0] == 0xcc,
        _ => false,
    };
    right && s.addr >= before && s.addr.wrapping_add(MOST as u64) > s.addr
}

/// A kprobe in `start..end`, enabled or not: it has copied the bytes there and will run, or write back, what it copied.
unsafe fn kprobe_in(start: u64, end: u64) -> bool {
    if has_kprobes() != 1 {
        return false;
    }
    let mut at = start;
    while at < end {
        // SAFETY: `kprobe_mutex` is held, so the table is stable.
        if !unsafe { get_kprobe(at as *const u8) }.is_null() {
            return true;
        }
        at += 1;
    }
    false
}

/// How far before a place a kprobe reaches in, once it is optimised to a jump of 5 bytes.
const REACH: u64 = 4;

/// Why this site cannot be written; [`refused::NO`]: it can.
unsafe fn check(batch: *mut Batch, s: &Site, before: u64) -> u32 {
    // SAFETY: the text lock is held.
    unsafe {
        let leads_in = s.patch.wrapping_sub((*batch).text) < (*batch).text_len;
        if !well_formed(s, before) || !leads_in {
            return refused::MALFORMED;
        }
        if core_kernel_text(s.addr) == 0 {
            // The module may not go away between here and the write: see `hold_modules`.
            let _read = ReadSide::new();
            let module = __module_text_address(s.addr);
            // This driver's own text is nobody's to instrument.
            if module.is_null() || module == this_module() {
                return refused::NOT_TEXT;
            }
        }
        // First, since its bytes are not the expected ones either.
        if kprobe_in(s.addr.wrapping_sub(REACH), s.addr + s.len as u64) {
            return refused::KPROBE;
        }
        if same(s.addr, &raw const s.old as *const u8, s.len) { refused::NO } else { refused::BYTES }
    }
}

/// Why a batch cannot be written though all its sites could.
unsafe fn check_unwritten(c: &Check) -> u32 {
    // SAFETY: the text lock is held; `len` is at most MOST.
    unsafe {
        if c.len == 0 || c.len as usize > MOST || c.addr.wrapping_add(MOST as u64) < c.addr {
            return refused::MALFORMED;
        }
        if kprobe_in(c.addr.wrapping_sub(REACH), c.addr + c.len as u64) {
            return refused::KPROBE;
        }
        if same(c.addr, &raw const c.bytes as *const u8, c.len) { refused::NO } else { refused::BYTES }
    }
}

/// Takes (or, with `hold` false, drops) a reference on the module of every site that lies in one, so that none
/// goes while text is written. Returns the index of the first site whose module is going, or `count`.
unsafe fn hold_modules(batch: *mut Batch, count: u32, hold: bool) -> u32 {
    // SAFETY: under the device lock; indices are below the batch's count.
    unsafe {
        for i in 0..count {
            let addr = (*Batch::record(batch, i)).site.addr;
            if core_kernel_text(addr) != 0 {
                continue;
            }
            let _read = ReadSide::new();
            let module = __module_text_address(addr);
            if !hold {
                module_put(module);
            } else if module.is_null() || !try_module_get(module) {
                return i;
            }
        }
        count
    }
}

/// Writes bytes that nothing executes.
unsafe fn write_still(addr: u64, bytes: *const u8, len: u8) {
    // SAFETY: the text lock is held and the address is text; text_poke handles a page boundary.
    unsafe {
        text_poke(addr as *mut u8, bytes, len as usize);
    }
}

/// `POKE`.
pub unsafe fn poke(file: *mut u8, tgid: i32, arg: u64) -> isize {
    // SAFETY: under the device lock, in process context; user memory only through the copy functions.
    unsafe {
        let mut request = Poke {
            sites: 0,
            checks: 0,
            count: 0,
            check_count: 0,
            refused: 0,
            index: 0,
            module: [0; 56],
            text: 0,
            text_len: 0,
            batch: 0,
        };
        let n = core::mem::size_of::<Poke>();
        if _copy_from_user(&raw mut request as *mut u8, arg, n) != 0 {
            return errno::EFAULT;
        }
        if request.count == 0 || request.count > crate::abi::MAX_SITES || request.check_count > MAX_CHECKS {
            return errno::EINVAL;
        }
        let mut checks: *mut Check = null_mut();
        if request.check_count != 0 {
            let bytes = request.check_count as usize * core::mem::size_of::<Check>();
            checks = ki_vzalloc(bytes) as *mut Check;
            if checks.is_null() {
                return errno::ENOMEM;
            }
            if _copy_from_user(checks as *mut u8, request.checks, bytes) != 0 {
                vfree(checks as *const u8);
                return errno::EFAULT;
            }
        }
        let result = poke_checked(file, tgid, &mut request, checks);
        if !checks.is_null() {
            vfree(checks as *const u8);
        }
        if _copy_to_user(arg, &raw const request as *const u8, n) != 0 && result == 0 {
            // Armed, but the caller does not know its number: closing the file restores it.
            return errno::EFAULT;
        }
        result
    }
}

unsafe fn poke_checked(file: *mut u8, tgid: i32, request: &mut Poke, checks: *const Check) -> isize {
    // SAFETY: as in `poke`; `checks` has `check_count` elements.
    unsafe {
        let batch = ki_vzalloc(Batch::size(request.count)) as *mut Batch;
        if batch.is_null() {
            return errno::ENOMEM;
        }
        (*batch).file = file;
        (*batch).tgid = tgid;
        (*batch).count = request.count;
        (*batch).name = request.module;
        (*batch).text = request.text;
        (*batch).text_len = request.text_len;
        (*batch).name[55] = 0;
        for i in 0..request.count {
            let record = Batch::record(batch, i);
            let from = request.sites.wrapping_add(i as u64 * core::mem::size_of::<Site>() as u64);
            let to = &raw mut (*record).site as *mut u8;
            if _copy_from_user(to, from, core::mem::size_of::<Site>()) != 0 {
                vfree(batch as *const u8);
                return errno::EFAULT;
            }
        }
        let result = arm(batch, request, checks);
        if result == 0 {
            batch::link(batch);
            request.batch = (*batch).id;
        } else {
            if !(*batch).module.is_null() {
                module_put((*batch).module);
            }
            vfree(batch as *const u8);
        }
        result
    }
}

unsafe fn arm(batch: *mut Batch, request: &mut Poke, checks: *const Check) -> isize {
    // SAFETY: as in `poke`.
    unsafe {
        let count = (*batch).count;
        if (*batch).name[0] != 0 {
            let _modules = Held::new(&raw mut module_mutex);
            let module = find_module(&raw const (*batch).name as *const u8);
            if module.is_null() || !try_module_get(module) {
                request.refused = refused::MODULE;
                request.index = count;
                return errno::EBUSY;
            }
            (*batch).module = module;
        }
        let held = hold_modules(batch, count, true);
        if held < count {
            hold_modules(batch, held, false);
            request.refused = refused::MODULE;
            request.index = held;
            return errno::EBUSY;
        }
        let result = arm_held(batch, request, checks);
        hold_modules(batch, count, false);
        result
    }
}

unsafe fn arm_held(batch: *mut Batch, request: &mut Poke, checks: *const Check) -> isize {
    // SAFETY: as in `poke`; the sites' modules cannot go.
    unsafe {
        let count = (*batch).count;
        let mut traps = false;
        for i in 0..count {
            traps |= (*Batch::record(batch, i)).site.kind == site::TRAP;
        }
        if traps {
            let e = batch::publish_traps(batch);
            if e != 0 {
                return e;
            }
        }
        let text = TextLock::new();
        let mut before = 0;
        let mut verdict = refused::NO;
        for i in 0..count {
            let s = &raw const (*Batch::record(batch, i)).site;
            verdict = check(batch, &*s, before);
            if verdict != refused::NO {
                request.refused = verdict;
                request.index = i;
                break;
            }
            before = (*s).addr + (*s).len as u64;
        }
        let mut i = 0;
        while verdict == refused::NO && i < request.check_count {
            verdict = check_unwritten(&*checks.add(i as usize));
            if verdict != refused::NO {
                request.refused = verdict;
                request.index = count + i;
            }
            i += 1;
        }
        if verdict == refused::NO {
            write(batch);
        }
        drop(text);
        if verdict != refused::NO {
            if traps {
                batch::retract_traps(batch);
            }
            return errno::EILSEQ;
        }
        0
    }
}

/// Boards first, then what leads to them, then what is dead by then.
unsafe fn write(batch: *mut Batch) {
    // SAFETY: the text lock is held and every site was checked.
    unsafe {
        write_kind(batch, site::BOARD);
        for i in 0..(*batch).count {
            let record = Batch::record(batch, i);
            let s = &raw const (*record).site;
            if (*s).kind == site::LIVE || (*s).kind == site::TRAP {
                text_poke_queue((*s).addr as *mut u8, &raw const (*s).new as *const u8, (*s).len as usize, core::ptr::null());
                (*record).state = state::ARMED;
            }
        }
        text_poke_finish();
        write_kind(batch, site::TAIL);
    }
}

unsafe fn write_kind(batch: *mut Batch, kind: u8) {
    // SAFETY: as in `write`.
    unsafe {
        let mut any = false;
        for i in 0..(*batch).count {
            let record = Batch::record(batch, i);
            let s = &raw const (*record).site;
            if (*s).kind == kind {
                write_still((*s).addr, &raw const (*s).new as *const u8, (*s).len);
                (*record).state = state::ARMED;
                any = true;
            }
        }
        if any {
            text_poke_sync();
        }
    }
}

/// Does a newer batch hold these bytes? Then they are its to restore first, whatever they look like: a site that
/// began as an `int3` and became a jump may show somebody's `int3` now, which is not the one of the older record.
unsafe fn is_covered(batch: *mut Batch, record: *mut Record) -> bool {
    // SAFETY: under the device lock, the list is stable; indices are below each batch's count.
    unsafe {
        let start = (*record).site.addr;
        let end = start + (*record).site.len as u64;
        let mut newer = batch::NEWEST;
        while !newer.is_null() && newer != batch {
            // The first record that ends behind our start; records are sorted and do not overlap.
            let (mut low, mut high) = (0, (*newer).count);
            while low < high {
                let middle = low + (high - low) / 2;
                let s = &raw const (*Batch::record(newer, middle)).site;
                if (*s).addr + (*s).len as u64 <= start {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            if low < (*newer).count {
                let other = Batch::record(newer, low);
                if (*other).is_up() && (*other).site.addr < end {
                    return true;
                }
            }
            newer = (*newer).next;
        }
        false
    }
}

/// May this record be restored now? Marks it stuck where its bytes are not ours.
unsafe fn ours(batch: *mut Batch, record: *mut Record) -> bool {
    // SAFETY: the text lock is held; a record that is not gone lies in mapped text.
    unsafe {
        if !(*record).is_up() {
            return false;
        }
        let s = &raw const (*record).site;
        let ours = !is_covered(batch, record)
            && !kprobe_in((*s).addr, (*s).addr + (*s).len as u64)
            && same((*s).addr, &raw const (*s).new as *const u8, (*s).len);
        (*record).state = if ours { state::ARMED } else { state::STUCK };
        ours
    }
}

/// Puts back tails and live sites (not boards: something may still be on them). What holds foreign bytes is left,
/// marked stuck, and tried again at the next call.
pub unsafe fn restore(batch: *mut Batch) {
    // SAFETY: under the device lock, in process context.
    unsafe {
        let _text = TextLock::new();
        // A tail must be whole before its live site is: if somebody has the live site, both stay.
        let mut any = false;
        for i in 0..(*batch).count {
            let record = Batch::record(batch, i);
            if (*record).site.kind == site::TAIL && (i == 0 || head_is_ours(batch, i)) && ours(batch, record) {
                let s = &raw const (*record).site;
                write_still((*s).addr, &raw const (*s).old as *const u8, (*s).len);
                (*record).state = state::RESTORED;
                any = true;
            }
        }
        if any {
            text_poke_sync();
        }
        for i in 0..(*batch).count {
            let record = Batch::record(batch, i);
            let s = &raw const (*record).site;
            if (*s).kind != site::LIVE && (*s).kind != site::TRAP || !ours(batch, record) {
                continue;
            }
            if tail_is_up(batch, i) {
                (*record).state = state::STUCK;
                continue;
            }
            let jump = jump_to((*s).patch, (*s).addr + (*s).len as u64);
            text_poke_queue((*s).addr as *mut u8, &raw const (*s).old as *const u8, (*s).len as usize, &raw const jump as *const u8);
            (*record).state = state::RESTORED;
        }
        text_poke_finish();
    }
}

/// Is the tail behind the live site `i` still ours, so that restoring the site would make a torn instruction?
unsafe fn tail_is_up(batch: *mut Batch, i: u32) -> bool {
    // SAFETY: `i` is below `count`; the text lock is held.
    unsafe {
        if i + 1 >= (*batch).count {
            return false;
        }
        let s = &raw const (*Batch::record(batch, i)).site;
        let tail = Batch::record(batch, i + 1);
        (*tail).site.kind == site::TAIL
            && (*tail).site.addr == (*s).addr + (*s).len as u64
            && (*tail).is_up()
    }
}

/// Is the live site before the tail `i` one that can be restored now?
unsafe fn head_is_ours(batch: *mut Batch, i: u32) -> bool {
    // SAFETY: `i` is at least 1 and below `count`; the text lock is held.
    unsafe {
        let head = Batch::record(batch, i - 1);
        let s = &raw const (*head).site;
        (*s).addr + (*s).len as u64 != (*Batch::record(batch, i)).site.addr || ours(batch, head)
    }
}

/// `jmp rel32` whose displacement counts from `from`: what `text_poke_bp` emulates while a site is in transition.
fn jump_to(to: u64, from: u64) -> [u8; 8] {
    let d = to.wrapping_sub(from) as u32;
    [0xe9, d as u8, (d >> 8) as u8, (d >> 16) as u8, (d >> 24) as u8, 0xcc, 0xcc, 0xcc]
}

/// Restores the boards. Nothing can be on them: the caller has made sure.
pub unsafe fn restore_boards(batch: *mut Batch) {
    // SAFETY: under the device lock, in process context.
    unsafe {
        let _text = TextLock::new();
        let mut any = false;
        for i in 0..(*batch).count {
            let record = Batch::record(batch, i);
            if (*record).site.kind == site::BOARD && ours(batch, record) {
                let s = &raw const (*record).site;
                write_still((*s).addr, &raw const (*s).old as *const u8, (*s).len);
                (*record).state = state::RESTORED;
                any = true;
            }
        }
        if any {
            text_poke_sync();
        }
    }
}

/// Are all sites but the boards restored or gone?
pub unsafe fn is_down(batch: *mut Batch) -> bool {
    // SAFETY: under the device lock.
    unsafe {
        for i in 0..(*batch).count {
            let record = Batch::record(batch, i);
            if (*record).is_up() && (*record).site.kind != site::BOARD {
                return false;
            }
        }
    }
    true
}

/// The module goes: its text is restored a last time, then its sites are never touched again.
pub unsafe fn module_going(module: *mut u8) {
    // SAFETY: under the device lock; the module's text is mapped until the notifier returns.
    unsafe {
        let mut at = batch::NEWEST;
        while !at.is_null() {
            let mut any = false;
            for i in 0..(*at).count {
                any |= in_module(Batch::record(at, i), module);
            }
            if any {
                going(at, module);
            }
            at = (*at).next;
        }
    }
}

unsafe fn in_module(record: *mut Record, module: *mut u8) -> bool {
    // SAFETY: a look-up by address only.
    unsafe {
        (*record).state != state::GONE && core_kernel_text((*record).site.addr) == 0 && {
            let _read = ReadSide::new();
            __module_text_address((*record).site.addr) == module
        }
    }
}

unsafe fn going(batch: *mut Batch, module: *mut u8) {
    // SAFETY: as in `module_going`. The module's exit function has returned: nothing runs its code any more, so
    // tails, boards and live sites can be written in any order.
    unsafe {
        let _text = TextLock::new();
        for i in 0..(*batch).count {
            let record = Batch::record(batch, i);
            if in_module(record, module) {
                if ours(batch, record) {
                    let s = &raw const (*record).site;
                    write_still((*s).addr, &raw const (*s).old as *const u8, (*s).len);
                }
                (*record).state = state::GONE;
            }
        }
        text_poke_sync();
    }
}
