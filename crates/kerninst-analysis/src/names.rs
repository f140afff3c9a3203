//! What a symbol's name says about the code there.

bitflags::bitflags! {
    /// Facts about the code at a text symbol.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) struct Class: u16 {
        /// Padding in front of a function (`__pfx_NAME`, `__cfi_NAME`): not a function.
        const PADDING = 1;
        /// The cold part of another function.
        const COLD = 1 << 1;
        /// A function that does not return.
        const NO_RETURN = 1 << 2;
        /// A return thunk: a jump there is a return.
        const RETURN_THUNK = 1 << 3;
        /// An indirect branch thunk (the register is noted apart).
        const INDIRECT_THUNK = 1 << 4;
        /// Called with a convention of its own: everything is live at a call of it.
        const SPECIAL = 1 << 5;
        /// A static call trampoline.
        const TRAMPOLINE = 1 << 6;
        /// It has an fentry site: C code that follows the ABI.
        const FENTRY = 1 << 7;
        /// The symbol is global or weak or local text that starts a function.
        const FUNCTION = 1 << 8;
    }
}

const REGISTERS: [&str; 16] = crate::live::REG_NAMES;

/// tools/objtool/noreturns.h, 6.1 to 6.12, with what inline assembly and older kernels add.
const NO_RETURN: &[&str] = &[
    "__fortify_panic",
    "__ia32_sys_exit",
    "__ia32_sys_exit_group",
    "__invalid_creds",
    "__kunit_abort",
    "__module_put_and_kthread_exit",
    "__reiserfs_panic",
    "__stack_chk_fail",
    "__tdx_hypercall_failed",
    "__ubsan_handle_builtin_unreachable",
    "__x64_sys_exit",
    "__x64_sys_exit_group",
    "arch_cpu_idle_dead",
    "bch2_trans_in_restart_error",
    "bch2_trans_restart_error",
    "bch2_trans_unlocked_error",
    "cpu_bringup_and_idle",
    "cpu_startup_entry",
    "do_exit",
    "do_group_exit",
    "do_task_dead",
    "ex_handler_msr_mce",
    "fortify_panic",
    "hlt_play_dead",
    "hv_ghcb_terminate",
    "kthread_complete_and_exit",
    "kthread_exit",
    "kunit_try_catch_throw",
    "lbug_with_loc",
    "machine_real_restart",
    "make_task_dead",
    "mpt_halt_firmware",
    "nmi_panic_self_stop",
    "panic",
    "panic_smp_self_stop",
    "rest_init",
    "rewind_stack_and_make_dead",
    "rust_begin_unwind",
    "rust_helper_BUG",
    "sev_es_terminate",
    "snp_abort",
    "start_kernel",
    "stop_this_cpu",
    "usercopy_abort",
    "vpanic",
    "x86_64_start_kernel",
    "x86_64_start_reservations",
    "xen_cpu_bringup_again",
    "xen_start_kernel",
];

/// Assembly with calling conventions of its own. Only looked at for functions without an fentry
/// site, so that a C function of a like name is not meant.
const SPECIAL_PREFIXES: &[&str] = &[
    "__get_user_",
    "__put_user_",
    "__sw_hweight",
    "preempt_schedule_thunk",
    "preempt_schedule_notrace_thunk",
    "__raw_callee_save_",
    "clear_page_",
    "copy_user_",
    "__copy_user_nocache",
    "rep_",
    "__clear_user",
    "clear_user_",
    "__fentry__",
    "this_cpu_cmpxchg",
    "cmpxchg",
    "srso_",
    "retbleed",
    "clear_bhb",
    "entry_",
    "error_",
    "paranoid_",
    "sync_regs",
    "write_ibpb",
    "__write_ibpb",
    "vmread_error_tr",
    "xen_hypercall",
    "hypercall_page",
    "__SCT__preempt_schedule",
    "__SCT__xen_hypercall",
];

/// What `name` says, and the register's number if it is an indirect branch thunk.
pub(crate) fn class_of(name: &str) -> (Class, u8) {
    let mut class = Class::FUNCTION;
    let mut register = 0;
    if name.starts_with("__pfx_") || name.starts_with("__cfi_") {
        return (Class::PADDING, 0);
    }
    if NO_RETURN.binary_search(&name).is_ok() {
        class |= Class::NO_RETURN;
    }
    if name.ends_with(".cold") || name.contains(".cold.") {
        class |= Class::COLD;
    }
    if let Some(rest) = name.strip_prefix("__x86_indirect_") {
        let number = rest
            .rsplit_once("thunk_")
            .and_then(|(_, reg)| REGISTERS.iter().position(|r| *r == reg));
        if let Some(n) = number {
            class |= Class::INDIRECT_THUNK;
            register = n as u8;
        }
    }
    if name.ends_with("return_thunk") {
        class |= Class::RETURN_THUNK;
    }
    if name.starts_with("__SCT__") {
        class |= Class::TRAMPOLINE;
    }
    if is_special(name) {
        class |= Class::SPECIAL;
    }
    (class, register)
}

/// Does the name belong to assembly with a calling convention of its own?
pub(crate) fn is_special(name: &str) -> bool {
    // Nearly all names fail on the first letter.
    if !matches!(
        name.as_bytes().first(),
        Some(b'_' | b'p' | b'c' | b'r' | b't' | b's' | b'e' | b'w' | b'v' | b'x' | b'h')
    ) {
        return false;
    }
    SPECIAL_PREFIXES.iter().any(|p| name.starts_with(p))
}

/// Convention of a static call that inline assembly makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyConvention {
    /// A C function.
    C,
    /// Nothing is passed and everything is preserved: `preempt_schedule`, `preempt_schedule_notrace`
    /// (arch/x86/include/asm/preempt.h, entry/thunk.S, 6.12).
    Preserves,
    /// Registers of its own: `xen_hypercall` (arch/x86/include/asm/xen/hypercall.h, 6.12).
    Own,
}

/// The convention of static calls with this key (`__SCK__NAME`).
pub(crate) fn key_convention(name: &str) -> KeyConvention {
    match name.strip_prefix("__SCK__") {
        Some(rest) if rest.starts_with("preempt_schedule") => KeyConvention::Preserves,
        Some(rest) if rest.starts_with("xen_hypercall") => KeyConvention::Own,
        _ => KeyConvention::C,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(NO_RETURN.is_sorted());
    }

    #[test]
    fn classes() {
        for (name, class, reg) in [
            ("vfs_read", Class::FUNCTION, 0),
            ("__pfx_vfs_read", Class::PADDING, 0),
            ("vfs_read.cold", Class::FUNCTION | Class::COLD, 0),
            ("panic", Class::FUNCTION | Class::NO_RETURN, 0),
            (
                "__x86_return_thunk",
                Class::FUNCTION | Class::RETURN_THUNK,
                0,
            ),
            (
                "__x86_indirect_thunk_r10",
                Class::FUNCTION | Class::INDIRECT_THUNK,
                10,
            ),
            (
                "__x86_indirect_its_thunk_rsi",
                Class::FUNCTION | Class::INDIRECT_THUNK,
                6,
            ),
            ("__x86_indirect_thunk_array", Class::FUNCTION, 0),
            ("__SCT__tp_func_x", Class::FUNCTION | Class::TRAMPOLINE, 0),
            ("__get_user_4", Class::FUNCTION | Class::SPECIAL, 0),
        ] {
            assert_eq!(class_of(name), (class, reg), "{name}");
        }
    }
}
