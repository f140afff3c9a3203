//! The words for kinds of instructions, edges, exits, sites and refusals: in text and in JSON.

use kerninst_analysis::{EdgeKind, ExitKind, InsnKind, Live, REG_NAMES, Sites};
use kerninst_patch::Refusal;

/// Kind of an instruction.
pub fn insn(kind: InsnKind) -> &'static str {
    match kind {
        InsnKind::Plain => "plain",
        InsnKind::Nop => "nop",
        InsnKind::Jcc => "jcc",
        InsnKind::JumpLabel => "jump-label",
        InsnKind::Loop => "loop",
        InsnKind::Jmp => "jmp",
        InsnKind::TailCall => "tail-call",
        InsnKind::IndirectJmp => "indirect-jmp",
        InsnKind::Call => "call",
        InsnKind::IndirectCall => "indirect-call",
        InsnKind::Return => "return",
        InsnKind::Trap => "trap",
        InsnKind::Int3 => "int3",
        InsnKind::Special => "special",
        _ => "other",
    }
}

/// Kind of an edge.
pub fn edge(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::FallThrough => "fall-through",
        EdgeKind::Taken => "taken",
        EdgeKind::Jump => "jump",
        EdgeKind::StaticKeyOn => "key-on",
        EdgeKind::StaticKeyOff => "key-off",
        EdgeKind::Fixup => "fixup",
        EdgeKind::CallReturn => "call-return",
        EdgeKind::TrapResume => "trap-resume",
        EdgeKind::Exit => "exit",
    }
}

/// How a function is left; `name` gives the name of an address.
pub fn exit(kind: ExitKind, name: impl Fn(u64) -> String) -> String {
    match kind {
        ExitKind::Return => "return".into(),
        ExitKind::TailCall(addr) => format!("tail call {}", name(addr)),
        ExitKind::IndirectTailCall => "indirect tail call".into(),
        ExitKind::JumpInto(addr) => format!("jump into {}", name(addr)),
        ExitKind::NoReturn => "no return".into(),
        ExitKind::Trap => "trap".into(),
        ExitKind::Special => "special".into(),
        ExitKind::Unknown => "unknown".into(),
    }
}

/// What the kernel's tables say of an instruction: `jump-label`, `extable` …
pub fn sites(sites: Sites) -> Vec<String> {
    let names = sites.iter_names();
    names
        .map(|(name, _)| name.to_lowercase().replace('_', "-"))
        .collect()
}

/// Short name of a refusal's reason.
pub fn refusal(why: &Refusal) -> &'static str {
    match why {
        Refusal::NoFunction { .. } => "no-function",
        Refusal::NotAnInstruction { .. } => "not-an-instruction",
        Refusal::Unreached { .. } => "unreached",
        Refusal::OffLimits(_) => "off-limits",
        Refusal::Fentry { .. } => "fentry",
        Refusal::ManagedSite(_) => "managed-site",
        Refusal::Incomplete(_) => "incomplete",
        Refusal::Unrelocatable(_) => "unrelocatable",
        Refusal::Unsafe(_) => "unsafe",
        Refusal::Taken { .. } => "taken",
        Refusal::NoSuchEdge(_) => "no-such-edge",
        Refusal::NeedsVersion(_) => "needs-version",
        Refusal::NoTactic => "no-tactic",
        _ => "other",
    }
}

const FLAG_NAMES: [&str; 6] = ["CF", "PF", "AF", "ZF", "SF", "OF"];

/// Registers (rsp, never dead, left out) and flags in or out of the set.
pub fn registers(live: Live, wanted_live: bool) -> Vec<&'static str> {
    let regs = REG_NAMES.iter().enumerate().filter(|(n, _)| *n != 4);
    let regs = regs.filter(|(n, _)| live.reg(*n as u8) == wanted_live);
    let flags = FLAG_NAMES.iter().enumerate();
    let flags = flags.filter(|(n, _)| (live.0 >> (16 + n) & 1 != 0) == wanted_live);
    regs.chain(flags).map(|(_, name)| *name).collect()
}

/// The same on a line, runs shortened: `rax r8-r11 flags`.
pub fn register_list(names: &[&'static str]) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut names = names.iter().peekable();
    let number = |name: &str| name.strip_prefix('r')?.parse::<u8>().ok();
    let mut flags: Vec<&str> = Vec::new();
    while let Some(name) = names.next() {
        if FLAG_NAMES.contains(name) {
            flags.push(name);
            continue;
        }
        let mut last = number(name);
        let first = last;
        while let (Some(l), Some(next)) = (last, names.peek())
            && number(next) == Some(l + 1)
        {
            last = Some(l + 1);
            names.next();
        }
        match (first, last) {
            (Some(a), Some(b)) if b > a => out.push(format!("r{a}-r{b}")),
            _ => out.push((*name).to_string()),
        }
    }
    if flags.len() == FLAG_NAMES.len() {
        out.push("flags".into());
    } else {
        out.extend(flags.iter().map(|f| (*f).to_string()));
    }
    if out.is_empty() {
        "-".into()
    } else {
        out.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_lists() {
        let live = Live::REGS.union(Live::FLAGS);
        assert_eq!(register_list(&registers(live, false)), "-");
        assert_eq!(
            register_list(&registers(live, true)),
            "rax rcx rdx rbx rbp rsi rdi r8-r15 flags"
        );
        let some = Live(1 | 1 << 4 | 1 << 9 | 1 << 12).union(Live::ZF);
        assert_eq!(register_list(&registers(some, true)), "rax r9 r12 ZF");
        assert_eq!(
            register_list(&registers(some, false)),
            "rcx rdx rbx rbp rsi rdi r8 r10-r11 r13-r15 CF PF AF SF OF"
        );
    }
}
