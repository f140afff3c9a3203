//! A function as text.

use std::io::{self, Write};

use super::model::{Block, Edge, View};
use super::words;
use crate::args::ShowArgs;
use crate::paint::{Paint, Style};
use crate::short;
use crate::ui::Ui;

/// Writes the function: a head, then block by block.
pub fn write(view: &View, args: &ShowArgs, kernel: &str, ui: &mut Ui) -> io::Result<()> {
    let paint = ui.paint;
    head(view, kernel, ui.out, paint)?;
    let widths = Widths::new(view, args.bytes);
    for (n, block) in view.blocks.iter().enumerate() {
        block_head(view, n, block, ui.out, paint)?;
        insns(view, block, args, &widths, ui.out, paint)?;
        ways_out(view, n, ui.out, paint)?;
    }
    Ok(())
}

fn head(view: &View, kernel: &str, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    let module = view
        .module
        .as_deref()
        .map_or(String::new(), |m| format!("module {m}, "));
    writeln!(
        out,
        "{}  ({module}{kernel})",
        paint.paint(Style::Bold, &view.id)
    )?;
    if !view.aliases.is_empty() {
        writeln!(out, "  also called {}", view.aliases.join(", "))?;
    }
    let ranges = view
        .ranges
        .iter()
        .map(|[a, b]| format!("{:x}..{:x}", a.0, b.0));
    let ranges: Vec<_> = ranges.collect();
    writeln!(
        out,
        "  {}; {}, {}, {}, {}",
        ranges.join(" and cold "),
        short::number(view.size as usize, "byte"),
        short::number(view.instructions, "instruction"),
        short::number(view.blocks.len(), "block"),
        short::number(view.loops.len(), "loop"),
    )?;
    let fentry = match (view.fentry, view.abi) {
        (Some(f), _) => format!("fentry site at +{:#x}", f.0.wrapping_sub(view.entry.0)),
        (None, true) => "no fentry site".into(),
        (None, false) => "no fentry site: may not follow the C calling convention".into(),
    };
    writeln!(out, "  {fentry}")?;
    if view.complete {
        writeln!(
            out,
            "  control flow: {}",
            paint.paint(Style::Good, "complete")
        )?;
    }
    for why in &view.incomplete {
        let bad = paint.paint(Style::Bad, "incomplete");
        let why = short::offsets(why, &main_part(view));
        writeln!(out, "  control flow: {bad}: {why}")?;
    }
    match &view.refused {
        Some(r) => writeln!(
            out,
            "  {}: {}",
            paint.paint(Style::Bad, "no instruction can be instrumented"),
            short::offsets(&r.text, &main_part(view))
        ),
        None => writeln!(
            out,
            "  {} of {} can be instrumented",
            view.points,
            short::number(view.instructions, "instruction")
        ),
    }
}

/// The addresses that offsets count in.
fn main_part(view: &View) -> std::ops::Range<u64> {
    view.ranges.first().map_or(0..0, |[a, b]| a.0..b.0)
}

/// What block `n` is: entry, cold (or, if the caller says so, `unlikely`), its place in loops.
pub fn remarks(view: &View, n: usize, block: &Block, unlikely: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    if block.entry {
        remarks.push("entry".to_string());
    } else if block.root {
        remarks.push("entered from elsewhere".into());
    }
    if block.cold {
        remarks.push("cold".into());
    } else if unlikely {
        remarks.push("unlikely".into());
    }
    if let Some(l) = view.loops.iter().position(|l| l.header == n) {
        remarks.push(format!("head of loop {l}"));
    }
    if block.depth > 0 {
        remarks.push(format!("loop depth {}", block.depth));
    }
    remarks
}

fn block_head(
    view: &View,
    n: usize,
    block: &Block,
    out: &mut dyn Write,
    paint: Paint,
) -> io::Result<()> {
    writeln!(out)?;
    write!(out, "{}", paint.paint(Style::Label, format_args!("b{n}")))?;
    let mut remarks = remarks(view, n, block, block.unlikely);
    let from = view.edges.iter().filter(|e| e.to == Some(n));
    let from: Vec<_> = from.map(|e| format!("b{}", e.from)).collect();
    if !from.is_empty() {
        remarks.push(format!("from {}", from.join(" ")));
    }
    if let Some(c) = block.count {
        remarks.push(format!("count {c}"));
    }
    if !remarks.is_empty() {
        write!(out, "  {}", paint.paint(Style::Dim, remarks.join("; ")))?;
    }
    writeln!(out)
}

/// Widths of the columns, over the whole function.
struct Widths {
    offset: usize,
    bytes: usize,
    text: usize,
    tactic: usize,
    dead: usize,
}

impl Widths {
    fn new(view: &View, bytes: bool) -> Widths {
        // An odd long line must not push all others to the right.
        const MOST: usize = 48;
        let insns = || view.blocks.iter().flat_map(|b| &b.insns);
        let widest = |f: &dyn Fn(&super::model::Insn) -> usize| insns().map(f).max().unwrap_or(0);
        Widths {
            offset: widest(&|i| i.offset.len()),
            bytes: if bytes { widest(&|i| i.bytes.len()) } else { 0 },
            text: widest(&|i| i.text.chars().count()).min(MOST),
            tactic: widest(&|i| i.tactic.map_or("refused".len(), str::len)),
            dead: widest(&|i| words::register_list(&i.dead).len()).min(MOST),
        }
    }
}

fn insns(
    view: &View,
    block: &Block,
    args: &ShowArgs,
    widths: &Widths,
    out: &mut dyn Write,
    paint: Paint,
) -> io::Result<()> {
    for i in &block.insns {
        write!(out, "  {:>1$}  ", i.offset, widths.offset)?;
        if args.bytes {
            let bytes = format!("{:<1$}", i.bytes, widths.bytes);
            write!(out, "{}  ", paint.paint(Style::Dim, bytes))?;
        }
        write!(out, "{:<1$}  ", i.text, widths.text)?;
        let (style, tactic) = match i.tactic {
            Some("int3") => (Style::Warn, "int3"),
            Some(t) => (Style::Good, t),
            None if view.refused.is_some() => (Style::Dim, "-"),
            None => (Style::Bad, "refused"),
        };
        write!(
            out,
            "{}  ",
            paint.paint(style, format_args!("{tactic:<0$}", widths.tactic))
        )?;
        let dead = format!("{:<1$}", words::register_list(&i.dead), widths.dead);
        let live = words::register_list(&i.live);
        let registers = format!("dead {dead}  live {live}");
        writeln!(out, "{}", paint.paint(Style::Dim, registers))?;
        let indent = widths.offset + 4;
        for note in &i.notes {
            writeln!(
                out,
                "{:indent$}{}",
                "",
                paint.paint(Style::Warn, format_args!("^ {note}"))
            )?;
        }
        if let (Some(r), None) = (&i.refused, &view.refused) {
            // The fentry site's reason names what works already.
            let near = r
                .nearest
                .filter(|_| r.reason != "fentry")
                .map_or(String::new(), |a| {
                    format!("; nearest that works: {}", near_name(view, a.0))
                });
            let why = short::offsets(&r.text, &main_part(view));
            let text = format!("^ refused ({}): {why}{near}", r.reason);
            writeln!(out, "{:indent$}{}", "", paint.paint(Style::Bad, text))?;
        }
    }
    Ok(())
}

/// The offset of an instruction.
fn near_name(view: &View, addr: u64) -> String {
    let insns = view.blocks.iter().flat_map(|b| &b.insns);
    let found = insns.into_iter().find(|i| i.addr.0 == addr);
    found.map_or_else(|| format!("{addr:#x}"), |i| i.offset.clone())
}

fn ways_out(view: &View, n: usize, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    let edges: Vec<&Edge> = view.edges.iter().filter(|e| e.from == n).collect();
    // One way on to the next block is what everybody expects.
    if let [e] = edges.as_slice()
        && e.to == Some(n + 1)
        && e.kind == "fall-through"
        && e.count.is_none()
    {
        return Ok(());
    }
    for e in edges {
        let to = match (&e.to, &e.exit) {
            (Some(b), _) => format!("b{b}"),
            (None, Some(exit)) => exit.clone(),
            (None, None) => "unknown".into(),
        };
        let back = if e.back { " (back edge)" } else { "" };
        let count = e.count.map_or(String::new(), |c| format!(", count {c}"));
        let kind = if e.kind == "exit" {
            String::new()
        } else {
            format!("{}: ", e.kind)
        };
        let text = format!("-> {kind}{to}{back}{count}");
        writeln!(out, "    {}", paint.paint(Style::Label, text))?;
    }
    Ok(())
}
