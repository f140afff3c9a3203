//! Counts as tables: functions, then blocks, most executions first.

use std::io::{self, Write};

use super::report::{Report, count, share};
use crate::paint::{Paint, Style};
use crate::short;
use crate::show::model::View;
use crate::table::{Align, Table};

/// From this many blocks that never ran on, they are not listed unless asked for.
const MANY_ZEROS: usize = 20;

/// Writes both tables.
pub fn write(
    reports: &[(Report, View)],
    zeros: bool,
    out: &mut dyn Write,
    paint: Paint,
) -> io::Result<()> {
    functions(reports, out, paint)?;
    writeln!(out)?;
    blocks(reports, zeros, out, paint)?;
    problems(reports, out, paint)
}

fn functions(reports: &[(Report, View)], out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    let mut table = Table::new(&[
        ("ENTERED", Align::Right),
        ("LEFT", Align::Right),
        ("INSIDE", Align::Right),
        ("BLOCKS RUN", Align::Right),
        ("COUNTERS", Align::Right),
        ("EXACT", Align::Left),
        ("FUNCTION", Align::Left),
    ]);
    let mut order: Vec<&(Report, View)> = reports.iter().collect();
    order.sort_by_key(|(r, _)| std::cmp::Reverse(r.profile.entered));
    for (report, view) in order {
        let p = &report.profile;
        let run = p.blocks.iter().filter(|c| c.is_some_and(|n| n > 0)).count();
        let exact = match report.is_exact() {
            true => ("yes", Style::Good),
            false => ("no", Style::Bad),
        };
        table.row(vec![
            (count(p.entered), Style::Bold),
            (count(p.left), Style::Plain),
            (p.in_flight.to_string(), Style::Plain),
            (format!("{run}/{}", p.blocks.len()), Style::Plain),
            (report.counters.to_string(), Style::Dim),
            (exact.0.into(), exact.1),
            (view.id.clone(), Style::Label),
        ]);
    }
    table.write(out, paint)
}

fn blocks(
    reports: &[(Report, View)],
    zeros: bool,
    out: &mut dyn Write,
    paint: Paint,
) -> io::Result<()> {
    let several = reports.len() > 1;
    let mut columns = vec![
        ("COUNT", Align::Right),
        ("PER CALL", Align::Right),
        ("BLOCK", Align::Left),
        ("AT", Align::Left),
        ("INSNS", Align::Right),
        ("LOOP", Align::Right),
        ("WAYS OUT", Align::Left),
    ];
    if several {
        columns.push(("FUNCTION", Align::Left));
    }
    let mut table = Table::new(&columns);
    let mut rows: Vec<(Option<u64>, usize, usize)> = Vec::new();
    for (f, (report, _)) in reports.iter().enumerate() {
        let counts = report.profile.blocks.iter().enumerate();
        rows.extend(counts.map(|(b, c)| (*c, f, b)));
    }
    let never = rows.iter().filter(|(c, ..)| *c == Some(0)).count();
    let hide = !zeros && never >= MANY_ZEROS;
    // What is not known comes first: it must be seen.
    rows.sort_by_key(|(c, f, b)| (c.is_some(), std::cmp::Reverse(*c), *f, *b));
    for (n, f, b) in rows {
        if hide && n == Some(0) {
            continue;
        }
        let Some((report, view)) = reports.get(f) else {
            continue;
        };
        let Some(block) = view.blocks.get(b) else {
            continue;
        };
        let faint = match n {
            None => Style::Bad,
            Some(0) => Style::Dim,
            Some(_) => Style::Plain,
        };
        let at = block.insns.first().map(|i| i.offset.clone());
        let depth = match block.depth {
            0 => String::new(),
            d => d.to_string(),
        };
        let mut cells = vec![
            (count(n), if n > Some(0) { Style::Bold } else { faint }),
            (share(n, report.profile.entered), Style::Dim),
            (format!("b{b}"), Style::Label),
            (at.unwrap_or_default(), faint),
            (block.insns.len().to_string(), Style::Dim),
            (depth, Style::Dim),
            (ways(view, b), faint),
        ];
        if several {
            cells.push((view.id.clone(), Style::Dim));
        }
        table.row(cells);
    }
    table.write(out, paint)?;
    if hide {
        let blocks = short::number(never, "block");
        writeln!(out, "{blocks} never ran (--zeros lists them)")?;
    }
    Ok(())
}

/// `taken b4 12, goes on b1 3`: the ways out that were taken, or that are not known.
fn ways(view: &View, block: usize) -> String {
    let edges = view.edges.iter().filter(|e| e.from == block);
    let taken = edges.filter(|e| e.count != Some(0));
    let text = taken.map(|e| {
        let to = match (e.to, &e.exit) {
            (Some(b), _) => format!("b{b}"),
            (None, Some(exit)) => exit.clone(),
            (None, None) => "unknown".into(),
        };
        let back = if e.back { "\u{21ba}" } else { "" };
        format!("{back}{to}:{}", count(e.count))
    });
    let mut all: Vec<String> = text.collect();
    let inside = view.blocks.get(block).map_or(0, |b| b.inside);
    if inside > 0 {
        all.push(format!("(inside:{})", count(Some(inside))));
    }
    all.join("  ")
}

/// What does not add up, and what has no counter.
pub fn problems(reports: &[(Report, View)], out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    for (report, view) in reports {
        for text in report.violations() {
            let bad = paint.paint(Style::Bad, "does not add up:");
            writeln!(out, "{bad} {}: {text}", view.id)?;
        }
        for text in &report.missing {
            let warn = paint.paint(Style::Warn, "no counter:");
            writeln!(out, "{warn} {}: {text}", view.id)?;
        }
    }
    Ok(())
}
