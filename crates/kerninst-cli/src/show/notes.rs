//! Remarks on an instruction from the kernel's site tables.

use kerninst_analysis::{EdgeKind, Function, Insn, InsnKind, Sites};
use kerninst_kernel::Kernel;

use super::disasm::Namer;

/// Longest source file name that is read.
const NAME: usize = 256;

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
        notes.push(match file_name(kernel, bug.file) {
            Some(file) => format!("{what} at {file}:{}", bug.line),
            None => what.into(),
        });
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

/// The C string at `addr`.
fn file_name(kernel: &Kernel, addr: u64) -> Option<String> {
    if addr == 0 {
        return None;
    }
    // The string may be the last thing in its section: take less and less.
    let sizes = std::iter::successors(Some(NAME), |n| Some(n / 2).filter(|n| *n > 0));
    let mut found = sizes.filter_map(|len| kernel.read(addr, len).ok());
    let bytes = found.next()?;
    let end = bytes.iter().position(|b| *b == 0)?;
    let text = bytes.get(..end)?;
    let printable = !text.is_empty() && text.iter().all(u8::is_ascii_graphic);
    printable.then(|| String::from_utf8_lossy(text).into_owned())
}
