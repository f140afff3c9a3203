//! Executes marker instructions: code made at run time, since a marker's payload is part of its machine code.

use crate::marker::{encode, op, payload};
use crate::work::Error;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::collections::HashMap;
use std::sync::Mutex;

/// A function that executes one marker and returns.
pub type Emitter = extern "C" fn();

static EMITTERS: Mutex<Option<HashMap<u16, Emitter>>> = Mutex::new(None);

/// The function for a payload; made once, then kept for the life of the program.
pub fn emitter(payload: u16) -> Result<Emitter, Error> {
    let mut guard = EMITTERS.lock().unwrap_or_else(|p| p.into_inner());
    let map = guard.get_or_insert_with(HashMap::new);
    if let Some(emitter) = map.get(&payload) {
        return Ok(*emitter);
    }
    let mut code = encode(payload).to_vec();
    code.push(0xc3); // ret
    let page = 4096;
    // SAFETY: a fresh private mapping at a place of the kernel's choice.
    let place = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            page,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }?;
    // SAFETY: the mapping is writable, ours alone, and longer than the code.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), place.cast::<u8>(), code.len()) };
    // SAFETY: the mapping is ours; nobody writes to it from now on.
    if let Err(e) = unsafe { mprotect(place, page, MprotectFlags::READ | MprotectFlags::EXEC) } {
        // SAFETY: the mapping is ours and nothing points into it.
        let _ = unsafe { munmap(place, page) };
        return Err(e.into());
    }
    // SAFETY: the page holds a function of that type: a NOP and a return. It is never unmapped.
    let emitter: Emitter = unsafe { std::mem::transmute(place) };
    // The first access takes a page fault: not while something is being counted.
    // SAFETY: the page is readable.
    let _ = unsafe { std::ptr::read_volatile(place.cast::<u8>()) };
    map.insert(payload, emitter);
    Ok(emitter)
}

/// Executes one marker.
pub fn emit(payload: u16) -> Result<(), Error> {
    emitter(payload)?();
    Ok(())
}

/// Sends a 64-bit word to the meter, four bits at a time.
pub fn emit_word(word: u64) -> Result<(), Error> {
    for n in 0..16 {
        let nibble = u8::try_from((word >> (4 * n)) & 15).unwrap_or(0);
        emit(payload(op::NIBBLE, nibble))?;
    }
    Ok(())
}
