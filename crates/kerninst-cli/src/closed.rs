//! Was standard output closed when the process started (`kerninst list >&-`)?
//!
//! Rust's runtime opens /dev/null in its place before `main`, and all results would go there unseen. So it is looked at
//! earlier, where the loader runs initialisers.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // The raw call: at this moment nothing of the standard library can be relied upon.
    // SAFETY: asks for the flags of a descriptor, which has no effect.
    let flags = unsafe { libc::fcntl(1, libc::F_GETFD) };
    CLOSED.store(flags < 0, Ordering::Relaxed);
}

// SAFETY: the section holds pointers to functions without arguments that the loader calls once, before `main`.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;

/// Nobody can get any output.
pub fn stdout() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
