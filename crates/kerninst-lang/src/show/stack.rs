//! Captured stacks: one frame a line, as bpftrace prints them.

use super::{Names, symbol_text};
use crate::layout::callout;

/// A stack of the kernel: a newline, then each frame on a line of its own, indented.
pub(super) fn kernel(id: u64, indent: usize, names: &dyn Names) -> String {
    let frames = names.kernel_stack(id).map(|frames| {
        let texts = frames.iter().map(|&a| symbol_text(a, names));
        texts.collect()
    });
    lines(id, frames, indent)
}

/// A stack of a process, likewise.
pub(super) fn user(id: u64, pid: u64, indent: usize, names: &dyn Names) -> String {
    let frames = names.user_stack(id, pid).map(|frames| {
        let text = |&a: &u64| {
            let known = names.user_symbol(pid, a);
            known.unwrap_or_else(|| format!("{a:#x}"))
        };
        frames.iter().map(text).collect()
    });
    lines(id, frames, indent)
}

fn lines(id: u64, frames: Option<Vec<String>>, indent: usize) -> String {
    let frames = match (id as i64, frames) {
        // A kernel thread asked for its user stack: not a loss.
        (callout::NONE, _) => Vec::new(),
        (id, None) => vec![missing(id).into()],
        (_, Some(frames)) => frames,
    };
    let mut out = String::from("\n");
    for f in frames {
        out.push_str(&" ".repeat(indent));
        out.push_str(&f);
        out.push('\n');
    }
    out
}

/// Stands where a stack would, so that no reader takes a lost stack for an empty one.
fn missing(id: i64) -> &'static str {
    match id {
        callout::FULL => "<lost: the table of stacks is full>",
        callout::NESTED => "<lost: interrupted another capture>",
        callout::FAULT => "<lost: the stack cannot be read>",
        _ => "<unknown stack>",
    }
}
