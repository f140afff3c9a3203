//! Remarks on an instruction from the kernel's site tables.

use kerninst_analysis::{EdgeKind, Function, Insn, InsnKind, Sites};
use kerninst_kernel::Kernel;

use super::disasm::{Namer, read_string};

/// Everything worth knowing about `insn` that its disassembly does not say.
pub fn notes(kernel: &Kernel, function: &Function, insn: &Insn, namer: &Namer) -> Vec<String> {
    let mut notes = Vec::new();
    let tables = kernel.tables();
    let place = |addr: u64| namer.offset(addr).unwrap_or_else(|| namer.name(addr));
    if insn.sites.contains(Sites::JUMP_LABEL)
        && let Some(label) = tables.jump_labels.at(insn.addr)
    {
        let key = namer.name(label.key & !3);
        let jumps = match taken_while(function, insn) {
            Some(EdgeKind::StaticKeyOn) => "while it is on",
            Some(EdgeKind::StaticKeyOff) => "while it is off",
            _ => "depending on it",
        };
        notes.push(format!(
            "static key {key}: jumps to {} {jumps}",
            place(label.target)
        ));
    }
    if insn.sites.contains(Sites::STATIC_CALL)
        && let Some(call) = tables.static_calls.at(insn.addr)
    {
        let key = namer.name(call.key & !3);
        let key = key.strip_prefix("__SCK__").unwrap_or(&key);
        let now = match insn.target {
            Some(t) if insn.kind == InsnKind::Call || insn.kind == InsnKind::TailCall => {
                format!(", now {}", namer.name(t))
            }
            _ => String::new(),
        };
        notes.push(format!("static call of {key}{now}"));
    }
    for entry in tables.extable.all_at(insn.addr) {
        notes.push(format!("may fault: goes on at {} then", place(entry.fixup)));
    }
    if insn.sites.contains(Sites::BUG)
        && let Some(bug) = tables.bugs.at(insn.addr)
    {
        let what = if bug.is_warning() { "WARN" } else { "BUG" };
        notes.push(
            match Some(bug.file)
                .filter(|a| *a != 0)
                .and_then(|a| read_string(kernel, a))
            {
                Some(file) => format!("{what} at {file}:{}", bug.line),
                None => what.into(),
            },
        );
    }
    if insn.sites.contains(Sites::ALTERNATIVE) {
        notes.push("alternative: rewritten at boot".into());
    }
    if insn.sites.contains(Sites::PARAVIRT) {
        notes.push("paravirt call: rewritten at boot".into());
    }
    if insn.kind == InsnKind::Int3 {
        notes.push("somebody's breakpoint".into());
    }
    notes
}

/// While the key is on, or while it is off: which edge of the block that ends with `insn` goes to the label's target.
fn taken_while(function: &Function, insn: &Insn) -> Option<EdgeKind> {
    let block = function.blocks.get(insn.block as usize)?;
    let target = insn.target?;
    let mut edges = function.block_edges(block).iter();
    let edge = edges.find(|e| match e.to {
        kerninst_analysis::EdgeTarget::Block(b) => function
            .blocks
            .get(b as usize)
            .is_some_and(|b| b.start == target),
        kerninst_analysis::EdgeTarget::Exit(_) => false,
    })?;
    Some(edge.kind)
}
