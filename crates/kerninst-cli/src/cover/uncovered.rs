//! Blocks that never ran.

use std::io::{self, Write};

use kerninst_profile::file::{FunctionProfile, ProfileFile};

use super::Entries;
use crate::paint::{Paint, Style};
use crate::short;

/// Blocks in a row that never ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where they start: bytes from the entry.
    pub start: i64,
    /// Where they end.
    pub end: i64,
    /// How many they are.
    pub blocks: usize,
}

/// Those of a function, by address. Blocks of which it is not known are not among them.
pub fn stretches(function: &FunctionProfile) -> Vec<Stretch> {
    let ends = function.starts.iter().zip(&function.ends);
    let mut found: Vec<Stretch> = Vec::new();
    for ((start, end), count) in ends.zip(&function.blocks) {
        if *count != Some(0) {
            continue;
        }
        match found.last_mut() {
            Some(last) if last.end == *start => {
                last.end = *end;
                last.blocks += 1;
            }
            _ => found.push(Stretch {
                start: *start,
                end: *end,
                blocks: 1,
            }),
        }
    }
    found
}

/// `+0x1c`; cold parts may lie before the entry.
pub fn offset(from: i64) -> String {
    let sign = if from < 0 { '-' } else { '+' };
    format!("{sign}{:#x}", from.unsigned_abs())
}

/// Lists them.
pub fn write(
    profile: &ProfileFile,
    entries: &Entries,
    out: &mut dyn Write,
    paint: Paint,
) -> io::Result<()> {
    for function in profile.functions.values() {
        let id = paint.paint(Style::Label, &function.function);
        if function.blocks.iter().all(|c| *c == Some(0)) {
            let blocks = short::number(function.blocks.len(), "block");
            let at = entries.get(&function.function);
            let at = at.map_or_else(String::new, |a| format!(" at {a:#x}"));
            writeln!(out, "{id}{at}: never called ({blocks})")?;
            continue;
        }
        for stretch in stretches(function) {
            let blocks = short::number(stretch.blocks, "block");
            let range = format!("{}..{}", offset(stretch.start), offset(stretch.end));
            let at = entries
                .get(&function.function)
                .map_or_else(String::new, |entry| {
                    let addr = |from: i64| entry.wrapping_add_signed(from);
                    format!(" {:#x}..{:#x}", addr(stretch.start), addr(stretch.end))
                });
            writeln!(out, "{id} {range}{at}: {blocks}")?;
        }
    }
    Ok(())
}
