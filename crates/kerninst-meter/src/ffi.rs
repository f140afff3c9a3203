//! The border to QEMU: plugin API version 1 (include/qemu/qemu-plugin.h of QEMU 6.0 to 8.2), and all `unsafe` code.
//!
//! A panic must not cross into QEMU: every function that QEMU calls runs its work in [`guarded`].

use crate::state::{After, Plan, State};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// qemu_plugin_id_t.
type Id = u64;
/// struct qemu_plugin_tb; only handled by pointer.
#[repr(C)]
struct Tb {
    _opaque: [u8; 0],
}
/// struct qemu_plugin_insn; only handled by pointer.
#[repr(C)]
struct Insn {
    _opaque: [u8; 0],
}

/// struct qemu_info_t, as of API version 1.
#[repr(C)]
struct Info {
    target: *const c_char,
    min: c_int,
    cur: c_int,
    system_emulation: bool,
    smp_vcpus: c_int,
    max_vcpus: c_int,
}

/// QEMU_PLUGIN_CB_NO_REGS.
const NO_REGS: c_int = 0;
/// QEMU_PLUGIN_INLINE_ADD_U64.
const ADD_U64: c_int = 0;

// SAFETY: declared as in qemu-plugin.h, API version 1; QEMU checks `qemu_plugin_version` before it calls `install`.
unsafe extern "C" {
    fn qemu_plugin_reset(id: Id, cb: extern "C" fn(Id));
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, cb: extern "C" fn(Id, *mut Tb));
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        cb: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_inline(
        insn: *mut Insn,
        op: c_int,
        place: *mut c_void,
        imm: u64,
    );
    fn qemu_plugin_register_atexit_cb(
        id: Id,
        cb: extern "C" fn(Id, *mut c_void),
        data: *mut c_void,
    );
    fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    fn qemu_plugin_tb_get_insn(tb: *const Tb, index: usize) -> *mut Insn;
    fn qemu_plugin_insn_data(insn: *const Insn) -> *const c_void;
    fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
}

/// The API version that this plugin is written for; QEMU reads it.
// SAFETY: the name is QEMU's; no other symbol has it.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// The plugin's identity and state, between `install` and exit.
static PLUGIN: Mutex<Option<(Id, State)>> = Mutex::new(None);

/// Runs `work` on the plugin's state. A panic ends there and is reported in the output.
fn guarded(work: impl FnOnce(Id, &mut State)) {
    let mut plugin = match PLUGIN.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    };
    if let Some((id, state)) = plugin.as_mut() {
        let id = *id;
        if catch_unwind(AssertUnwindSafe(|| work(id, state))).is_err() {
            state.error("the meter failed inside; its figures cannot be trusted");
        }
    }
}

/// Called by QEMU when it loads the plugin. Arguments: `out=FILE`.
///
/// # Safety
/// As QEMU calls it: `info` points to a `qemu_info_t`, `argv` to `argc` C strings.
// SAFETY: the name is QEMU's; no other symbol has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let mut path = None;
    for n in 0..usize::try_from(argc).unwrap_or(0) {
        // SAFETY: QEMU passes `argc` valid C strings that live through this call.
        let argument = unsafe { CStr::from_ptr(*argv.add(n)) }.to_string_lossy();
        match argument.split_once('=') {
            Some(("out", file)) if !file.is_empty() => path = Some(file.to_string()),
            _ => {
                eprintln!("kerninst-meter: unknown option \"{argument}\"; it takes out=FILE");
                return 1;
            }
        }
    }
    let Some(path) = path else {
        eprintln!("kerninst-meter: say where to write: out=FILE");
        return 1;
    };
    // SAFETY: QEMU passes a qemu_info_t of the API version that we ask for.
    let vcpus = unsafe { (*info.cast::<Info>()).smp_vcpus };
    let file = match std::fs::File::create(&path) {
        Ok(file) => file,
        Err(e) => {
            eprintln!("kerninst-meter: cannot create {path}: {e}");
            return 1;
        }
    };
    let state = State::new(Box::new(file), path, i64::from(vcpus));
    match PLUGIN.lock() {
        Ok(mut plugin) => *plugin = Some((id, state)),
        Err(_) => return 1,
    }
    // SAFETY: `id` is ours; the callbacks are of the declared types and live as long as the program.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        qemu_plugin_register_atexit_cb(id, at_exit, std::ptr::null_mut());
    }
    0
}

/// QEMU has translated a block: says what is to be done at each of its instructions.
extern "C" fn translated(_id: Id, tb: *mut Tb) {
    guarded(|_, state| {
        // SAFETY: QEMU passes a valid block, which lives through this call.
        let count = unsafe { qemu_plugin_tb_n_insns(tb) };
        for n in 0..count {
            // SAFETY: `n` is below the count, so an instruction of that block is returned.
            let insn = unsafe { qemu_plugin_tb_get_insn(tb, n) };
            // SAFETY: the instruction is valid; its data has `size` bytes and lives through this call.
            let (address, code) = unsafe {
                let size = qemu_plugin_insn_size(insn);
                let data = qemu_plugin_insn_data(insn).cast::<u8>();
                (
                    qemu_plugin_insn_vaddr(insn),
                    std::slice::from_raw_parts(data, size),
                )
            };
            match state.translate(address, code) {
                None => {}
                Some(Plan::Marker(payload)) => {
                    let data = std::ptr::without_provenance_mut::<c_void>(usize::from(payload));
                    // SAFETY: the callback takes its data as a number and never follows it.
                    unsafe {
                        qemu_plugin_register_vcpu_insn_exec_cb(insn, marker_reached, NO_REGS, data)
                    };
                }
                Some(Plan::Count(counters)) => {
                    for counter in counters {
                        let place = counter.place().cast::<c_void>();
                        // SAFETY: the place is an aligned u64 that is never freed (`Arena`).
                        unsafe {
                            qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, place, 1)
                        };
                    }
                }
            }
        }
    });
}

/// A guest CPU is about to execute a marker.
extern "C" fn marker_reached(vcpu: c_uint, data: *mut c_void) {
    guarded(|id, state| {
        let payload = u16::try_from(data.addr()).unwrap_or(u16::MAX);
        if state.marker(payload, vcpu) == After::Retranslate {
            // SAFETY: `id` is ours. QEMU calls `reset_done` later, from a context in which no guest CPU runs.
            unsafe { qemu_plugin_reset(id, reset_done) };
        }
    });
}

/// All translated code is gone, and our callbacks with it.
extern "C" fn reset_done(id: Id) {
    guarded(|_, state| state.retranslated());
    // SAFETY: as in `qemu_plugin_install`.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        qemu_plugin_register_atexit_cb(id, at_exit, std::ptr::null_mut());
    }
}

/// QEMU ends.
extern "C" fn at_exit(_id: Id, _data: *mut c_void) {
    guarded(|_, state| state.finish());
}
