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
    /// Offset of a member; where the kernel has none, any value: the paired [`Need::HasMember`] is off.
    OptionalOffset(&'static str, &'static str),
    /// 1 if BTF knows the member, otherwise 2.
    HasMember(&'static str, &'static str),
    /// Bytes that `task_struct::ret_stack` points to.
    RetStack,
    /// 1 if the kernel has all that running a BPF program takes, otherwise 2.
    Bpf,
    /// 1 if [`Need::SleepableOffset`] is one of `bpf_prog`, 2 if of `bpf_prog_aux`.
    SleepablePlace,
    /// Offset of the byte that tells whether a program may sleep.
    SleepableOffset,
    /// Its bits in that byte.
    SleepableMask,
    /// `THREAD_SIZE`.
    StackSize,
    /// `GFP_KERNEL`.
    GfpKernel,
    /// Per-CPU offset of the current task's pointer.
    Current,
    /// Per-CPU offset of the preempt count.
    PreemptCount,
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
        "ki_vmalloc_user",
        Need::Address(&["vmalloc_user", "vmalloc_user_noprof"]),
    ),
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
    ("__cond_resched", Need::Optional("__cond_resched")),
    ("KI_HAS_COND_RESCHED", Need::Has(&["__cond_resched"])),
    ("__rcu_read_lock", Need::Optional("__rcu_read_lock")),
    ("__rcu_read_unlock", Need::Optional("__rcu_read_unlock")),
    ("KI_HAS_KPROBES", Need::Has(&["kprobe_mutex", "get_kprobe"])),
    (
        "KI_HAS_RCU_READ_LOCK",
        Need::Has(&["__rcu_read_lock", "__rcu_read_unlock"]),
    ),
    // A callout whose function is missing is reported as absent.
    (
        "ktime_get_mono_fast_ns",
        Need::Optional("ktime_get_mono_fast_ns"),
    ),
    ("KI_HAS_TIME", Need::Has(&["ktime_get_mono_fast_ns"])),
    (
        "ktime_get_boot_fast_ns",
        Need::Optional("ktime_get_boot_fast_ns"),
    ),
    ("KI_HAS_BOOT_TIME", Need::Has(&["ktime_get_boot_fast_ns"])),
    ("copy_from_user_nmi", Need::Optional("copy_from_user_nmi")),
    ("KI_HAS_USER_COPY", Need::Has(&["copy_from_user_nmi"])),
    (
        "stack_trace_save_regs",
        Need::Optional("stack_trace_save_regs"),
    ),
    ("KI_HAS_KERNEL_STACK", Need::Has(&["stack_trace_save_regs"])),
    (
        "stack_trace_save_user",
        Need::Optional("stack_trace_save_user"),
    ),
    ("KI_HAS_USER_STACK", Need::Has(&["stack_trace_save_user"])),
    (
        "KI_OFF_VMA_START",
        Need::Offset("vm_area_struct", "vm_start"),
    ),
    ("KI_OFF_VMA_END", Need::Offset("vm_area_struct", "vm_end")),
    (
        "KI_OFF_VMA_PGOFF",
        Need::Offset("vm_area_struct", "vm_pgoff"),
    ),
    (
        "KI_OFF_VMA_FLAGS",
        Need::Offset("vm_area_struct", "vm_flags"),
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
    ("KI_OFF_TASK_STATE", Need::Offset("task_struct", "__state")),
    ("idle_threads", Need::Optional("idle_threads")),
    (
        "stack_trace_save_tsk_reliable",
        Need::Optional("stack_trace_save_tsk_reliable"),
    ),
    (
        "KI_HAS_RELIABLE",
        Need::Has(&["stack_trace_save_tsk_reliable"]),
    ),
    ("KI_HAS_IDLE_THREADS", Need::Has(&["idle_threads"])),
    (
        "KI_HAS_RET_STACK",
        Need::HasMember("task_struct", "ret_stack"),
    ),
    (
        "KI_OFF_TASK_RET_STACK",
        Need::OptionalOffset("task_struct", "ret_stack"),
    ),
    ("KI_SIZE_RET_STACK", Need::RetStack),
    (
        "KI_HAS_RETHOOK",
        Need::HasMember("rethook_node", "ret_addr"),
    ),
    (
        "KI_OFF_TASK_RETHOOKS",
        Need::OptionalOffset("task_struct", "rethooks"),
    ),
    (
        "KI_OFF_RETHOOK_LLIST",
        Need::OptionalOffset("rethook_node", "llist"),
    ),
    (
        "KI_OFF_RETHOOK_RET_ADDR",
        Need::OptionalOffset("rethook_node", "ret_addr"),
    ),
    ("bpf_prog_get", Need::Optional("bpf_prog_get")),
    ("bpf_prog_put", Need::Optional("bpf_prog_put")),
    ("bpf_prog_active", Need::Optional("bpf_prog_active")),
    ("rcu_is_watching", Need::Optional("rcu_is_watching")),
    (
        "__x86_indirect_thunk_rax",
        Need::Optional("__x86_indirect_thunk_rax"),
    ),
    ("KI_HAS_THUNK", Need::Has(&["__x86_indirect_thunk_rax"])),
    ("KI_HAS_BPF", Need::Bpf),
    ("KI_OFF_PROG_TYPE", Need::OptionalOffset("bpf_prog", "type")),
    (
        "KI_OFF_PROG_ATTACH",
        Need::OptionalOffset("bpf_prog", "expected_attach_type"),
    ),
    ("KI_OFF_PROG_AUX", Need::OptionalOffset("bpf_prog", "aux")),
    (
        "KI_OFF_PROG_FUNC",
        Need::OptionalOffset("bpf_prog", "bpf_func"),
    ),
    (
        "KI_OFF_PROG_INSNS",
        Need::OptionalOffset("bpf_prog", "insnsi"),
    ),
    (
        "KI_OFF_TASK_BPF_CTX",
        Need::OptionalOffset("task_struct", "bpf_ctx"),
    ),
    ("KI_SLEEPABLE_PLACE", Need::SleepablePlace),
    ("KI_OFF_SLEEPABLE", Need::SleepableOffset),
    ("KI_MASK_SLEEPABLE", Need::SleepableMask),
    ("KI_STACK_SIZE", Need::StackSize),
    ("KI_GFP_KERNEL", Need::GfpKernel),
    ("KI_CURRENT", Need::Current),
    ("KI_PREEMPT_COUNT", Need::PreemptCount),
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
        Need::OptionalOffset(structure, member) => {
            Ok(offset(kernel, structure, member).unwrap_or(UNUSED))
        }
        Need::HasMember(structure, member) => {
            Ok(offset(kernel, structure, member).map_or(2, |_| 1))
        }
        Need::RetStack => Ok(ret_stack(kernel)),
        Need::Bpf => Ok(if has_bpf(kernel) { 1 } else { 2 }),
        Need::SleepablePlace => Ok(sleepable(kernel).map_or(2, |s| s.place)),
        Need::SleepableOffset => Ok(sleepable(kernel).map_or(UNUSED, |s| s.offset)),
        Need::SleepableMask => Ok(sleepable(kernel).map_or(0xff, |s| s.mask)),
        Need::StackSize => stack_size(kernel),
        Need::GfpKernel => gfp_kernel(kernel),
        Need::Current => hot(kernel, "current_task", "current_task"),
        Need::PreemptCount => hot(kernel, "preempt_count", "__preempt_count"),
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

/// In place of an offset that is never used.
const UNUSED: u64 = 8;

/// Does the kernel have all that running a BPF program takes?
fn has_bpf(kernel: &Kernel) -> bool {
    let symbols = kernel.symbols();
    let functions = [
        "bpf_prog_get",
        "bpf_prog_put",
        "bpf_prog_active",
        "rcu_is_watching",
    ];
    let members = [
        ("bpf_prog", "type"),
        ("bpf_prog", "expected_attach_type"),
        ("bpf_prog", "aux"),
        ("bpf_prog", "bpf_func"),
        ("bpf_prog", "insnsi"),
        ("task_struct", "bpf_ctx"),
    ];
    functions.iter().all(|f| symbols.addr_of(f).is_some())
        && members.iter().all(|(s, m)| offset(kernel, s, m).is_ok())
        && sleepable(kernel).is_some()
}

/// Where a BPF program says whether it may sleep.
struct Sleepable {
    place: u64,
    offset: u64,
    mask: u64,
}

/// Since 6.10 a bit of `struct bpf_prog`, before a `bool` of `struct bpf_prog_aux` (include/linux/bpf.h).
fn sleepable(kernel: &Kernel) -> Option<Sleepable> {
    let btf = kernel.btf()?;
    let (place, member) = match btf.member("bpf_prog", "sleepable") {
        Some(member) => (1, member),
        None => (2, btf.member("bpf_prog_aux", "sleepable")?),
    };
    let (offset, first) = (member.bit_offset / 8, member.bit_offset % 8);
    // A member that is no bit field is a whole byte.
    let mask = match member.bits {
        0 => 0xff,
        bits => 1u64.checked_shl(bits)?.checked_sub(1)? << first,
    };
    (mask <= 0xff).then_some(Sleepable {
        place,
        offset,
        mask,
    })
}

/// What the function graph tracer allocates for a task: up to 6.10 an array of `FTRACE_RETFUNC_DEPTH` (50)
/// `struct ftrace_ret_stack` (include/linux/ftrace.h); since 6.11 `SHADOW_STACK_SIZE`, a page of words
/// (kernel/trace/fgraph.c). Where BTF does not tell which, the larger is taken: what cannot be read is not taken for
/// free.
fn ret_stack(kernel: &Kernel) -> u64 {
    const PAGE: u64 = 4096;
    const DEPTH: u64 = 50;
    let new = version(kernel.release()).is_none_or(|v| v >= (6, 11));
    let one = kernel.btf().and_then(|b| b.struct_size("ftrace_ret_stack"));
    match one {
        Some(size) if !new => size.saturating_mul(DEPTH).next_multiple_of(8),
        _ => PAGE,
    }
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

/// Per-CPU pointer of the running task's `task_struct *`.
///
/// # Errors
/// What is missing for it, as a symbol or member.
pub fn current_task(kernel: &Kernel) -> Result<u64, String> {
    hot(kernel, "current_task", "current_task")
}

/// Per-CPU pointer of the CPU's number (`int`).
///
/// # Errors
/// What is missing for it, as a symbol or member.
pub fn cpu_number(kernel: &Kernel) -> Result<u64, String> {
    hot(kernel, "cpu_number", "cpu_number")
}

/// Up to 6.1 the current task and the preempt count are per-CPU variables of their own; 6.2 to 6.14 put both in `pcpu_hot`
/// (arch/x86/include/asm/current.h); 6.15 has the old ones again.
fn hot(kernel: &Kernel, member: &str, variable: &str) -> Result<u64, String> {
    let symbols = kernel.symbols();
    if let Some(hot) = symbols.addr_of("pcpu_hot") {
        return Ok(hot + offset(kernel, "pcpu_hot", member)?);
    }
    symbols
        .addr_of(variable)
        .ok_or_else(|| format!("symbol {variable} or pcpu_hot"))
}
