//! Coverage as tables.

use std::cmp::Reverse;
use std::io::{self, Write};

use kerninst_profile::file::{FunctionProfile, ProfileFile};

use super::args::Sort;
use super::figures::{Figures, Totals};
use crate::blocks::count;
use crate::paint::{Paint, Style};
use crate::short;
use crate::table::{Align, Table};

/// More functions than this are listed only if asked for.
const MANY: usize = 200;
/// Counts that do not add up are told for so many functions.
const TOLD: usize = 10;

/// Writes the table of functions, then of modules, then what does not add up.
pub fn write(
    profile: &ProfileFile,
    sort: Sort,
    each: bool,
    out: &mut dyn Write,
    paint: Paint,
) -> io::Result<()> {
    let totals = Totals::of(profile);
    let hide = profile.functions.len() > MANY && !each;
    if !hide {
        let calls = if profile.head.once { "CALLED" } else { "CALLS" };
        functions(profile, calls, sort, out, paint)?;
        writeln!(out)?;
    }
    modules(&totals, out, paint)?;
    if hide {
        let number = short::number(profile.functions.len(), "function");
        writeln!(out, "{number} (--each lists them)")?;
    }
    problems(profile, out, paint)
}

/// The functions in this order.
pub fn sorted(profile: &ProfileFile, sort: Sort) -> Vec<(&FunctionProfile, Figures)> {
    let all = profile.functions.values().map(|f| (f, Figures::of(f)));
    // By name already.
    let mut all: Vec<(&FunctionProfile, Figures)> = all.collect();
    match sort {
        Sort::Name => {}
        Sort::Calls => all.sort_by_key(|(f, _)| Reverse(f.entered)),
        Sort::Worst => all.sort_by(|(_, a), (_, b)| {
            let missing = |f: &Figures| Reverse(f.blocks.all.saturating_sub(f.blocks.hit));
            let share = a.blocks.compare(&b.blocks);
            share.then_with(|| missing(a).cmp(&missing(b)))
        }),
    }
    all
}

fn functions(
    profile: &ProfileFile,
    calls: &'static str,
    sort: Sort,
    out: &mut dyn Write,
    paint: Paint,
) -> io::Result<()> {
    let mut table = Table::new(&[
        (calls, Align::Right),
        ("BLOCKS", Align::Right),
        ("", Align::Right),
        ("EDGES", Align::Right),
        ("", Align::Right),
        ("EXACT", Align::Left),
        ("FUNCTION", Align::Left),
    ]);
    for (function, figures) in sorted(profile, sort) {
        let exact = match figures.inexact {
            0 => ("yes", Style::Good),
            _ => ("no", Style::Bad),
        };
        table.row(vec![
            (count(function.entered), Style::Bold),
            (figures.blocks.text(), Style::Plain),
            (figures.blocks.percent(), Style::Dim),
            (figures.edges.text(), Style::Plain),
            (figures.edges.percent(), Style::Dim),
            (exact.0.into(), exact.1),
            (function.function.clone(), Style::Label),
        ]);
    }
    table.write(out, paint)
}

fn modules(totals: &Totals, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    let mut table = Table::new(&[
        ("CALLED", Align::Right),
        ("", Align::Right),
        ("BLOCKS", Align::Right),
        ("", Align::Right),
        ("EDGES", Align::Right),
        ("", Align::Right),
        ("MODULE", Align::Left),
    ]);
    let mut row = |name: &str, f: &Figures, style: Style| {
        let mut cells = Vec::new();
        for share in [&f.functions, &f.blocks, &f.edges] {
            cells.push((share.text(), style));
            cells.push((share.percent(), Style::Dim));
        }
        cells.push((name.to_string(), Style::Label));
        table.row(cells);
    };
    for (module, figures) in &totals.modules {
        row(module, figures, Style::Plain);
    }
    if totals.modules.len() > 1 {
        row("(all)", &totals.total, Style::Bold);
    }
    table.write(out, paint)
}

/// What does not add up.
fn problems(profile: &ProfileFile, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    let inexact: Vec<&FunctionProfile> = profile
        .functions
        .values()
        .filter(|f| !f.is_exact())
        .collect();
    for function in inexact.iter().take(TOLD) {
        let id = &function.function;
        for violation in &function.violations {
            let bad = paint.paint(Style::Bad, "does not add up:");
            writeln!(out, "{bad} {id}: {violation}")?;
        }
        let unknown = Figures::of(function).edges.unknown;
        if unknown > 0 {
            let warn = paint.paint(Style::Warn, "not known:");
            let edges = short::number(unknown as usize, "edge");
            writeln!(out, "{warn} {id}: the counts of {edges}")?;
        }
    }
    if let Some(more) = inexact.len().checked_sub(TOLD).filter(|n| *n > 0) {
        let functions = short::number(more, "more function");
        writeln!(
            out,
            "{functions} with counts that are not exact (--json tells)"
        )?;
    }
    Ok(())
}
