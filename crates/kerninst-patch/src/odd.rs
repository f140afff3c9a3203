//! Instructions that must run where they are, and code in which no counter may run.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// What is odd about an instruction or a function. `Display` completes "because it ..." or "no code may run here: ...".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Odd {
    /// `iret`, `sysret`, `sysexit`, `rsm` and relatives: they leave the kernel or the exception.
    #[error("it returns from an exception or to user space")]
    ExceptionReturn,
    /// A far jump, call or return.
    #[error("it is a far transfer")]
    Far,
    /// `int`, `int1`, `int3`, `syscall`: someone's breakpoint, or an entry into a handler that looks at its address.
    #[error("it is a software interrupt or someone's breakpoint")]
    Interrupt,
    /// A load of `ss`: it holds off interrupts for one instruction.
    #[error("it loads ss, which holds off interrupts for the next instruction")]
    StackSegment,
    /// `sti` before `hlt` or `mwait`, or that `hlt` or `mwait`: the pair must not be split, or a wake-up is lost.
    #[error("it is half of an sti;hlt or sti;mwait pair, which must not be split")]
    StiShadow,
    /// `vmlaunch`, `vmresume`, `vmrun` and relatives: they transfer control to a guest or another mode.
    #[error("it enters a virtual machine")]
    Virtual,
    /// `xbegin`: its abort address is relative to the instruction.
    #[error("it begins a transaction")]
    Transaction,
    /// `call` to the next instruction: the code wants to know where it is.
    #[error("it reads its own address (a call to the next instruction)")]
    OwnAddress,
    /// The function changes the base of gs: per-CPU memory may be unreachable.
    #[error("the function changes the gs segment, so per-CPU memory may be out of reach")]
    UserGs,
    /// The kernel copies this code elsewhere, or rewrites calls in it: what is spliced in would be copied too.
    #[error("the kernel makes copies of this code or rewrites it")]
    Copied,
}

/// What is odd about this instruction, if anything. Everything else may be displaced.
///
/// Allowed on purpose: `mov %cr3` (the module area is mapped wherever kernel text is: both share the top PGD entry),
/// `lgdt`, `lidt`, `ltr`, `wrmsr`, `mov %cr0/4`, `invlpg`, `rdtsc`, `rdpmc`, `pushf`, `popf`, `cli`, `cpuid`, `stac`
/// and `clac`: none of them depends on its own address.
pub(crate) fn odd(i: &Instruction) -> Option<Odd> {
    match i.flow_control() {
        FlowControl::Interrupt => return Some(Odd::Interrupt),
        FlowControl::XbeginXabortXend if i.mnemonic() == Mnemonic::Xbegin => {
            return Some(Odd::Transaction);
        }
        _ => {}
    }
    match i.mnemonic() {
        Mnemonic::Iret
        | Mnemonic::Iretd
        | Mnemonic::Iretq
        | Mnemonic::Sysret
        | Mnemonic::Sysretq
        | Mnemonic::Sysexit
        | Mnemonic::Sysexitq
        | Mnemonic::Uiret
        | Mnemonic::Eretu
        | Mnemonic::Erets
        | Mnemonic::Rsm => return Some(Odd::ExceptionReturn),
        Mnemonic::Syscall
        | Mnemonic::Sysenter
        | Mnemonic::Int
        | Mnemonic::Int1
        | Mnemonic::Int3 => {
            return Some(Odd::Interrupt);
        }
        Mnemonic::Vmlaunch
        | Mnemonic::Vmresume
        | Mnemonic::Vmrun
        | Mnemonic::Skinit
        | Mnemonic::Seamret
        | Mnemonic::Seamcall => return Some(Odd::Virtual),
        Mnemonic::Retf | Mnemonic::Lss => {
            return Some(if i.mnemonic() == Mnemonic::Lss {
                Odd::StackSegment
            } else {
                Odd::Far
            });
        }
        _ => {}
    }
    if i.is_jmp_far() || i.is_call_far() || i.is_jmp_far_indirect() || i.is_call_far_indirect() {
        return Some(Odd::Far);
    }
    if writes_segment(i, Register::SS) {
        return Some(Odd::StackSegment);
    }
    if changes_gs(i) {
        return Some(Odd::UserGs);
    }
    if i.is_call_near() && i.near_branch_target() == i.next_ip() {
        return Some(Odd::OwnAddress);
    }
    None
}

fn writes_segment(i: &Instruction, segment: Register) -> bool {
    matches!(i.mnemonic(), Mnemonic::Mov | Mnemonic::Pop)
        && i.op_count() > 0
        && i.op0_kind() == OpKind::Register
        && i.op0_register() == segment
}

/// Whether the instruction changes the gs selector or base.
pub(crate) fn changes_gs(i: &Instruction) -> bool {
    matches!(
        i.mnemonic(),
        Mnemonic::Swapgs | Mnemonic::Wrgsbase | Mnemonic::Lgs
    ) || writes_segment(i, Register::GS)
}

/// `mov $MSR_GS_BASE, %ecx`: what comes before a `wrmsr` that changes the base of gs
/// (arch/x86/include/asm/msr-index.h).
pub(crate) fn names_gs_base(i: &Instruction) -> bool {
    const MSR_GS_BASE: u32 = 0xc000_0101;
    matches!(i.code(), Code::Mov_r32_imm32 | Code::Mov_rm32_imm32)
        && i.op0_register() == Register::ECX
        && i.immediate32() == MSR_GS_BASE
}

/// Whether this may wait for an interrupt that the `sti` before it lets in.
pub(crate) fn waits(i: &Instruction) -> bool {
    matches!(
        i.mnemonic(),
        Mnemonic::Hlt | Mnemonic::Mwait | Mnemonic::Mwaitx
    )
}

/// Functions that run, in part, before the per-CPU base is set up again after a suspend: a counter there would write
/// to a wrong address (arch/x86/kernel/acpi/wakeup_64.S, arch/x86/power/cpu.c).
const WITHOUT_GS: [&str; 4] = [
    "do_suspend_lowlevel",
    "wakeup_long64",
    "restore_processor_state",
    "__restore_processor_state",
];

/// Code that the kernel copies and runs elsewhere: ftrace's trampolines (arch/x86/kernel/ftrace_64.S; the call in the
/// original is also rewritten), kexec's control code (relocate_kernel_64.S), memory encryption (mem_encrypt_boot.S),
/// call depth tracking (callthunks.c).
const COPIED: [&str; 7] = [
    "relocate_kernel",
    "identity_mapped",
    "virtual_mapped",
    "swap_pages",
    "sme_encrypt_execute",
    "__enc_copy",
    "skl_call_thunk_template",
];
const COPIED_PREFIXES: [&str; 4] = [
    "ftrace_caller",
    "ftrace_regs_call",
    "ftrace_call",
    "ftrace_epilogue",
];

/// Whether no snippet may run in the function of this name.
pub(crate) fn odd_name(name: &str) -> Option<Odd> {
    if WITHOUT_GS.contains(&name) {
        Some(Odd::UserGs)
    } else if COPIED.contains(&name) || COPIED_PREFIXES.iter().any(|p| name.starts_with(p)) {
        Some(Odd::Copied)
    } else {
        None
    }
}
