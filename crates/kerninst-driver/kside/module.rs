// SPDX-License-Identifier: GPL-2.0
//! Module plumbing: entry points, and the tables that the kernel reads. Layouts differ between kernels, so the
//! tables are templates: user space moves each pointer to the offset that BTF tells (`complete.rs`).

use crate::{device, guard, kernel::*, poke, trap};
use core::arch::global_asm;

// What the kernel calls through a pointer starts with endbr64 (IBT) and jumps to the Rust function.
global_asm!(
    ".macro ki_entry name, target",
    ".pushsection .text, \"ax\", @progbits",
    ".p2align 4",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    "endbr64",
    "jmp \\target",
    ".size \\name, . - \\name",
    ".popsection",
    ".endm",
    "ki_entry init_module, ki_init",
    "ki_entry cleanup_module, ki_exit",
    "ki_entry ki_entry_open, ki_open",
    "ki_entry ki_entry_release, ki_release",
    "ki_entry ki_entry_ioctl, ki_ioctl",
    "ki_entry ki_entry_mmap, ki_mmap",
    "ki_entry ki_entry_die, ki_die",
    "ki_entry ki_entry_module, ki_module",
    "ki_entry ki_entry_migrate, ki_migrate",
    // schedule_on_each_cpu wants a function; that it ran is all we want.
    ".pushsection .text, \"ax\", @progbits",
    ".p2align 4",
    ".globl ki_nothing",
    ".type ki_nothing, @function",
    "ki_nothing:",
    "endbr64",
    "ret",
    "int3",
    ".size ki_nothing, . - ki_nothing",
    ".popsection",
);

unsafe extern "C" {
    fn init_module();
    fn cleanup_module();
    fn ki_entry_open();
    fn ki_entry_release();
    fn ki_entry_ioctl();
    fn ki_entry_mmap();
    fn ki_entry_die();
    fn ki_entry_module();
    pub fn ki_nothing();
    pub fn ki_entry_migrate();
}

/// A template of `N` pointers and room for the real structure.
#[repr(C, align(64))]
pub struct Template<const N: usize, const ROOM: usize> {
    pointers: [Pointer; N],
    room: [u8; ROOM],
}

/// A pointer in a static.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Pointer(*const u8);
// SAFETY: the kernel reads these tables; nothing writes them after loading.
unsafe impl Sync for Pointer {}
// SAFETY: as above.
unsafe impl<const N: usize, const ROOM: usize> Sync for Template<N, ROOM> {}

#[unsafe(link_section = ".gnu.linkonce.this_module")]
#[used]
pub static mut THIS_MODULE: Template<2, 8176> = Template {
    pointers: [Pointer(init_module as *const u8), Pointer(cleanup_module as *const u8)],
    room: [0; 8176],
};

#[unsafe(link_section = ".data.ki_fops")]
#[used]
static mut FOPS: Template<5, 984> = Template {
    pointers: [
        Pointer(&raw const THIS_MODULE as *const u8),
        Pointer(ki_entry_open as *const u8),
        Pointer(ki_entry_release as *const u8),
        Pointer(ki_entry_ioctl as *const u8),
        Pointer(ki_entry_mmap as *const u8),
    ],
    room: [0; 984],
};

static DEVICE_NAME: [u8; 9] = *b"kerninst\0";

#[unsafe(link_section = ".data.ki_misc")]
#[used]
static mut MISC: Template<2, 496> = Template {
    pointers: [Pointer(&raw const DEVICE_NAME as *const u8), Pointer(&raw const FOPS as *const u8)],
    room: [0; 496],
};

/// `struct notifier_block`, the same in every kernel since 2.6: include/linux/notifier.h.
#[repr(C)]
struct NotifierBlock {
    call: Pointer,
    next: Pointer,
    priority: i32,
}

#[unsafe(link_section = ".data.ki_die")]
static mut DIE: NotifierBlock =
    NotifierBlock { call: Pointer(ki_entry_die as *const u8), next: Pointer(core::ptr::null()), // Before other modules' notifiers, whose code may be instrumented; those of the kernel itself are off limits.
    priority: i32::MAX };

#[unsafe(link_section = ".data.ki_modules")]
static mut MODULES: NotifierBlock =
    NotifierBlock { call: Pointer(ki_entry_module as *const u8), next: Pointer(core::ptr::null()), priority: 0 };

/// Filled by user space: `license=GPL`, name, `vermagic=` ...
#[unsafe(link_section = ".modinfo")]
#[used]
static MODINFO: [u8; 1024] = [0; 1024];

/// Filled by user space with the checksum of `module_layout`, where the kernel was built with CONFIG_MODVERSIONS.
#[unsafe(link_section = "__versions")]
#[used]
static VERSIONS: [u8; 64] = [0; 64];

/// This module's `struct module`.
pub fn this_module() -> *mut u8 {
    &raw mut THIS_MODULE as *mut u8
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ki_init() -> i32 {
    // SAFETY: called once by the module loader, which may sleep; the statics are this module's own and the
    // registered tables live until `ki_exit` has taken them back.
    unsafe {
        device::init();
        let e = guard::init();
        if e != 0 {
            return e;
        }
        let e = register_die_notifier(&raw mut DIE as *mut u8);
        if e != 0 {
            guard::exit();
            return e;
        }
        let e = register_module_notifier(&raw mut MODULES as *mut u8);
        if e != 0 {
            unregister_die_notifier(&raw mut DIE as *mut u8);
            guard::exit();
            return e;
        }
        let e = misc_register(&raw mut MISC as *mut u8);
        if e != 0 {
            unregister_module_notifier(&raw mut MODULES as *mut u8);
            unregister_die_notifier(&raw mut DIE as *mut u8);
            guard::exit();
        }
        e
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ki_exit() {
    // Every batch holds a reference on this module and so does an open file: nothing is armed here.
    // SAFETY: registered in `ki_init`; unregistering waits for readers.
    unsafe {
        misc_deregister(&raw mut MISC as *mut u8);
        unregister_module_notifier(&raw mut MODULES as *mut u8);
        unregister_die_notifier(&raw mut DIE as *mut u8);
        device::exit();
        guard::exit();
    }
}

/// Module notifier: `MODULE_STATE_GOING` is 2 (include/linux/module.h). The text of a module that goes is
/// restored while it still exists, and its sites are never written again.
#[unsafe(no_mangle)]
unsafe extern "C" fn ki_module(_block: *mut u8, event: u64, module: *mut u8) -> i32 {
    const GOING: u64 = 2;
    if event == GOING {
        // SAFETY: notifier context may sleep (a blocking chain) and `module` is valid.
        unsafe {
            let _lock = device::lock();
            poke::module_going(module);
        }
    }
    0
}

/// Die notifier: see `trap.rs`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ki_die(_block: *mut u8, event: u64, args: *mut u8) -> i32 {
    // SAFETY: the kernel passes a `struct die_args` that lives during the call.
    unsafe { trap::handle(event, args) }
}
