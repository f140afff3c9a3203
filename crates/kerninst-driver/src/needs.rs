//! What the kernel side needs of the running kernel, by name: the values that `complete` gives its undefined symbols.

use kerninst_kernel::Kernel;

/// How a symbol of the kernel side gets its value.
pub(crate) enum Need {
    /// Address of the first of these kernel symbols that exists (the first name is today's, the others are older
    /// or newer kernels').
    Address(&'static [&'static str]),
    /// Address of the symbol if it exists; where not, the feature that is asked for by the paired `KI_HAS_` is off
    /// and the value is never used.
    Optional(&'static str),
    /// 1 if the kernel has all these symbols, otherwise 2 (never 0: the compiler takes an address for non-zero).
    Has(&'static [&'static str]),
    /// Offset of a member, from BTF.
    Offset(&'static str, &'static str),
    /// `THREAD_SIZE`.
    StackSize,
    /// `GFP_KERNEL`.
    GfpKernel,
    /// Per-CPU offset of the current task's pointer.
    Current,
}

/// Every undefined symbol of the kernel side that is not simply a kernel symbol of the same name.
pub(crate) const NEEDS: &[(&str, Need)] = &[
    // PREEMPT_RT builds mutexes on rtmutex and initialises them with another function.
    (
        "ki_mutex_init",
        Need::Address(&["__mutex_init", "__mutex_rt_init", "mutex_rt_init_generic"]),
    ),
    ("ki_vzalloc", Need::Address(&["vzalloc", "vzalloc_noprof"])),
    (
        "ki_alloc_reserved_percpu",
        Need::Address(&["pcpu_alloc_noprof", "__alloc_reserved_percpu"]),
    ),
    (
        "ki_alloc_percpu",
        Need::Address(&["pcpu_alloc_noprof", "__alloc_percpu"]),
    ),
    // Without preemption RCU tasks is plain RCU.
    (
        "ki_synchronize_rcu_tasks",
        Need::Address(&["synchronize_rcu_tasks", "synchronize_rcu"]),
    ),
    ("kprobe_mutex", Need::Optional("kprobe_mutex")),
    ("get_kprobe", Need::Optional("get_kprobe")),
    ("__rcu_read_lock", Need::Optional("__rcu_read_lock")),
    ("__rcu_read_unlock", Need::Optional("__rcu_read_unlock")),
    ("KI_HAS_KPROBES", Need::Has(&["kprobe_mutex", "get_kprobe"])),
    (
        "KI_HAS_RCU_READ_LOCK",
        Need::Has(&["__rcu_read_lock", "__rcu_read_unlock"]),
    ),
    ("KI_OFF_FILE_MODE", Need::Offset("file", "f_mode")),
    ("KI_OFF_TASK_STACK", Need::Offset("task_struct", "stack")),
    ("KI_OFF_TASK_SP", Need::Offset("task_struct", "thread.sp")),
    ("KI_OFF_TASK_ON_CPU", Need::Offset("task_struct", "on_cpu")),
    ("KI_OFF_TASK_NVCSW", Need::Offset("task_struct", "nvcsw")),
    ("KI_OFF_TASK_NIVCSW", Need::Offset("task_struct", "nivcsw")),
    ("KI_OFF_TASK_TGID", Need::Offset("task_struct", "tgid")),
    (
        "KI_OFF_TASK_START",
        Need::Offset("task_struct", "start_time"),
    ),
    ("KI_STACK_SIZE", Need::StackSize),
    ("KI_GFP_KERNEL", Need::GfpKernel),
    ("KI_CURRENT", Need::Current),
];

/// The value of an undefined symbol, or what is missing for it.
pub(crate) fn value(kernel: &Kernel, symbol: &str) -> Result<u64, String> {
    let symbols = kernel.symbols();
    let addr = |name: &str| symbols.addr_of(name);
    let Some((_, need)) = NEEDS.iter().find(|(name, _)| *name == symbol) else {
        return addr(symbol).ok_or_else(|| format!("symbol {symbol}"));
    };
    match need {
        Need::Address(names) => names
            .iter()
            .find_map(|n| addr(n))
            .ok_or_else(|| format!("symbol {}", names.join(" or "))),
        // Any kernel address serves: it is never used, but must fit the relocation.
        Need::Optional(name) => addr(name)
            .or_else(|| addr("_stext"))
            .ok_or_else(|| "symbol _stext".to_string()),
        Need::Has(names) => Ok(if names.iter().all(|n| addr(n).is_some()) {
            1
        } else {
            2
        }),
        Need::Offset(structure, member) => offset(kernel, structure, member),
        Need::StackSize => stack_size(kernel),
        Need::GfpKernel => gfp_kernel(kernel),
        Need::Current => current(kernel),
    }
}

/// Offset of a member in bytes, or what is missing.
pub(crate) fn offset(kernel: &Kernel, structure: &str, member: &str) -> Result<u64, String> {
    kernel
        .btf()
        .ok_or_else(|| "BTF (/sys/kernel/btf/vmlinux)".to_string())?
        .offset(structure, member)
        .ok_or_else(|| format!("member {member} of struct {structure} in BTF"))
}

/// `THREAD_SIZE`: the initial task's stack lies between two symbols of the linker script
/// (include/asm-generic/vmlinux.lds.h, `INIT_TASK_DATA`: `__start_init_task`, since 6.10 `__start_init_stack`).
fn stack_size(kernel: &Kernel) -> Result<u64, String> {
    let symbols = kernel.symbols();
    for (start, end) in [
        ("__start_init_stack", "__end_init_stack"),
        ("__start_init_task", "__end_init_task"),
    ] {
        if let (Some(start), Some(end)) = (symbols.addr_of(start), symbols.addr_of(end)) {
            let size = end.wrapping_sub(start);
            // 8 KiB to 64 KiB, a power of two (KASAN doubles the usual 16 KiB).
            if size.is_power_of_two() && (8 << 10..=64 << 10).contains(&size) {
                return Ok(size);
            }
        }
    }
    Err("symbols __start_init_stack and __end_init_stack".into())
}

/// `GFP_KERNEL` = `__GFP_RECLAIM | __GFP_IO | __GFP_FS`. Until 6.9 the bits were macros (include/linux/gfp_types.h);
/// since 6.10 they follow from an enum that BTF may have (`___GFP_DIRECT_RECLAIM_BIT` ...), and the old
/// `__GFP_ATOMIC` bit (0x200) was dropped in 6.3. In all of them: IO 0x40, FS 0x80, DIRECT_RECLAIM 0x400,
/// KSWAPD_RECLAIM 0x800.
fn gfp_kernel(kernel: &Kernel) -> Result<u64, String> {
    match version(kernel.release()) {
        Some(v) if v >= (5, 15) => Ok(0xcc0),
        _ => Err("a kernel of version 5.15 or later".into()),
    }
}

/// Major and minor of a release such as `6.12.117+deb12-amd64`.
pub(crate) fn version(release: Option<&str>) -> Option<(u32, u32)> {
    let mut parts = release?.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Up to 6.1 `current_task` is a per-CPU variable of its own; 6.2 to 6.14 put it first in `pcpu_hot`
/// (arch/x86/include/asm/current.h); 6.15 has `current_task` again.
fn current(kernel: &Kernel) -> Result<u64, String> {
    let symbols = kernel.symbols();
    if let Some(hot) = symbols.addr_of("pcpu_hot") {
        return Ok(hot + offset(kernel, "pcpu_hot", "current_task")?);
    }
    symbols
        .addr_of("current_task")
        .ok_or_else(|| "symbol current_task or pcpu_hot".into())
}
