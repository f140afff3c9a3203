//! Disassembly with counts.

use std::io::{self, Write};

use super::report::{Report, count, share};
use crate::paint::{Paint, Style};
use crate::show::model::{Block, Edge, View};
use crate::show::text;

/// Writes one function: a head, then block by block.
pub fn write(
    report: &Report,
    view: &View,
    kernel: &str,
    out: &mut dyn Write,
    paint: Paint,
) -> io::Result<()> {
    head(report, view, kernel, out, paint)?;
    let widths = Widths::new(view);
    for (n, block) in view.blocks.iter().enumerate() {
        writeln!(out)?;
        block_head(report, view, n, block, out, paint)?;
        insns(block, &widths, out, paint)?;
        for edge in view.edges.iter().filter(|e| e.from == n) {
            way_out(view, block, edge, n, &widths, out, paint)?;
        }
    }
    Ok(())
}

fn head(
    report: &Report,
    view: &View,
    kernel: &str,
    out: &mut dyn Write,
    paint: Paint,
) -> io::Result<()> {
    let p = &report.profile;
    let module = view.module.as_deref();
    let module = module.map_or(String::new(), |m| format!("module {m}, "));
    writeln!(
        out,
        "{}  ({module}{kernel})",
        paint.paint(Style::Bold, &view.id)
    )?;
    let run = p.blocks.iter().filter(|c| c.is_some_and(|n| n > 0)).count();
    writeln!(
        out,
        "  entered {}, left {}, {} inside; {run} of {} blocks ran; {} counters",
        count(p.entered),
        count(p.left),
        p.in_flight,
        p.blocks.len(),
        report.counters,
    )?;
    let exact = match report.is_exact() {
        true => paint.paint(Style::Good, "exact: yes"),
        false => paint.paint(Style::Bad, "exact: no"),
    };
    writeln!(out, "  {exact}")?;
    for text in report.violations() {
        let bad = paint.paint(Style::Bad, "does not add up:");
        writeln!(out, "  {bad} {text}")?;
    }
    for text in &report.missing {
        let warn = paint.paint(Style::Warn, "no counter:");
        writeln!(out, "  {warn} {text}")?;
    }
    Ok(())
}

/// Widths of the columns, over the whole function.
struct Widths {
    count: usize,
    offset: usize,
}

impl Widths {
    fn new(view: &View) -> Widths {
        let blocks = view.blocks.iter().map(|b| count(b.count).len());
        let edges = view.edges.iter().map(|e| count(e.count).len());
        let insns = view.blocks.iter().flat_map(|b| &b.insns);
        Widths {
            count: blocks.chain(edges).max().unwrap_or(1).max(5),
            offset: insns.map(|i| i.offset.len()).max().unwrap_or(0),
        }
    }
}

fn style(n: Option<u64>) -> Style {
    match n {
        None => Style::Bad,
        Some(0) => Style::Dim,
        Some(_) => Style::Bold,
    }
}

fn block_head(
    report: &Report,
    view: &View,
    n: usize,
    block: &Block,
    out: &mut dyn Write,
    paint: Paint,
) -> io::Result<()> {
    let mut remarks = Vec::new();
    if block.inside > 0 {
        remarks.push(format!("{} still inside", count(Some(block.inside))));
    }
    // What is unlikely is told by its count.
    remarks.extend(text::remarks(view, n, block, false));
    let from = view.edges.iter().filter(|e| e.to == Some(n));
    let from = from.map(|e| format!("b{}: {}", e.from, count(e.count)));
    let from: Vec<String> = from.collect();
    if !from.is_empty() {
        remarks.push(format!("from {}", from.join(", ")));
    }
    let share = match share(block.count, report.profile.entered).as_str() {
        "" => String::new(),
        text => format!(" ({text})"),
    };
    let number = match block.count {
        Some(0) => "never ran".to_string(),
        n => count(n),
    };
    write!(
        out,
        "{} {}{}",
        paint.paint(Style::Label, format_args!("b{n}:")),
        paint.paint(style(block.count), number),
        paint.paint(Style::Dim, share),
    )?;
    if !remarks.is_empty() {
        let text = format!("  {}", remarks.join("; "));
        write!(out, "{}", paint.paint(Style::Dim, text))?;
    }
    writeln!(out)
}

fn insns(block: &Block, widths: &Widths, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    let number = match block.count {
        Some(0) => ".".to_string(),
        n => count(n),
    };
    for i in &block.insns {
        let text = format!("{:>1$}  {2}", i.offset, widths.offset, i.text);
        let quiet = match block.count {
            Some(0) => Style::Dim,
            _ => Style::Plain,
        };
        let counted = format!("{number:>0$}", widths.count);
        writeln!(
            out,
            "  {} | {}",
            paint.paint(style(block.count), counted),
            paint.paint(quiet, text),
        )?;
        for note in &i.notes {
            let indent = widths.count + widths.offset + 7;
            let note = format!("^ {note}");
            writeln!(out, "{:indent$}{}", "", paint.paint(Style::Warn, note))?;
        }
    }
    Ok(())
}

fn way_out(
    view: &View,
    block: &Block,
    e: &Edge,
    n: usize,
    widths: &Widths,
    out: &mut dyn Write,
    paint: Paint,
) -> io::Result<()> {
    // The one way on to the next block, taken each time, is what everybody expects.
    let alone = view.edges.iter().filter(|o| o.from == n).count() == 1;
    let on = e.to == Some(n + 1) && e.kind == "fall-through";
    if alone && on && e.count == block.count {
        return Ok(());
    }
    let to = match (&e.to, &e.exit) {
        (Some(b), _) => format!("b{b}"),
        (None, Some(exit)) => exit.clone(),
        (None, None) => "unknown".into(),
    };
    let back = if e.back { " (back edge)" } else { "" };
    let kind = match e.kind {
        "exit" => String::new(),
        kind => format!("{kind}: "),
    };
    let share = match share(e.count, block.count).as_str() {
        "" => String::new(),
        text => format!(" ({text})"),
    };
    let number = format!("{:>1$}", count(e.count), widths.count);
    writeln!(
        out,
        "  {} -> {}{}",
        paint.paint(style(e.count), number),
        paint.paint(Style::Label, format_args!("{kind}{to}{back}")),
        paint.paint(Style::Dim, share),
    )
}
