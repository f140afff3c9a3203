//! The figures as text.

use std::io;

use super::cost::{Costs, MOST};
use super::gather::Stats;
use crate::paint::Style;
use crate::short;
use crate::ui::Ui;

/// Writes them.
pub fn write(stats: &Stats, kernel: &str, ui: &mut Ui) -> io::Result<()> {
    let s = stats;
    let mut w = Writer { ui };
    w.head(&format!("Control flow  ({kernel})"))?;
    w.part("functions", s.functions, "")?;
    w.part(
        "  control flow known",
        s.complete,
        &share(s.complete, s.functions),
    )?;
    w.part(
        "  nothing may be inserted",
        s.off_limits,
        &share(s.off_limits, s.functions),
    )?;
    w.part("instructions", s.instructions, "")?;
    w.part("calls", s.calls, "")?;
    w.part("through pointers, with tail calls", s.indirect, "")?;
    w.part("blocks", s.blocks, "")?;
    if let Some(name) = &s.largest {
        w.part("  in the largest function", s.largest_blocks, name)?;
    }
    w.part("edges", s.edges, "ways in and out are edges too")?;
    w.part(
        "loops",
        s.loops,
        &format!(
            "in {}, at most {} deep",
            short::number(s.looping as usize, "function"),
            s.deepest
        ),
    )?;
    w.part("blocks entered from elsewhere", s.foreign, "")?;
    w.head("Edges whose counts follow from block counts alone (KernInst's way)")?;
    w.part(
        "edges",
        s.derivable_edges,
        &share(s.derivable_edges, s.edges),
    )?;
    w.part(
        "functions, all edges",
        s.derivable_functions,
        &share(s.derivable_functions, s.complete),
    )?;
    let c = &s.counters;
    w.head("Counters for exact profiles")?;
    w.part("one for each block", c.blocks, "give blocks only")?;
    w.part("one for each edge", c.edges, "")?;
    let per = match c.blocks {
        0 => String::new(),
        n => format!(
            "{:.2} for each block: give all blocks and edges, checked",
            c.exact as f64 / n as f64
        ),
    };
    w.part("spanning tree", c.exact, &per)?;
    if c.unknown > 0 {
        w.part("edges that stay unknown", c.unknown, "")?;
    }
    w.costs(
        "Instructions that one counter adds, on edges of the spanning tree",
        &s.edge_cost,
    )?;
    w.costs(
        "Instructions that one counter adds, at the start of a block",
        &s.block_cost,
    )
}

struct Writer<'a, 'b> {
    ui: &'a mut Ui<'b>,
}

impl Writer<'_, '_> {
    fn head(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.ui.out, "{}", self.ui.paint.paint(Style::Bold, text))
    }

    fn part(&mut self, name: &str, n: u64, note: &str) -> io::Result<()> {
        let note = if note.is_empty() {
            String::new()
        } else {
            format!("  {note}")
        };
        writeln!(
            self.ui.out,
            "  {name:<34} {n:>9}{}",
            self.ui.paint.paint(Style::Dim, note)
        )
    }

    fn costs(&mut self, title: &str, costs: &Costs) -> io::Result<()> {
        self.head(title)?;
        writeln!(
            self.ui.out,
            "  {:<14} {:>9} {:>7}   {:>9}",
            "instructions", "near", "", "far"
        )?;
        let all = |list: &[u64; MOST]| list.iter().sum::<u64>();
        let (near, far) = (all(&costs.near), all(&costs.far));
        for (n, (a, b)) in costs.near.iter().zip(&costs.far).enumerate() {
            if *a > 0 || *b > 0 {
                writeln!(
                    self.ui.out,
                    "  {n:<14} {a:>9} {:>7}   {b:>9} {:>7}",
                    share(*a, near),
                    share(*b, far)
                )?;
            }
        }
        let mean = |list: &[u64; MOST], all: u64| match all {
            0 => String::new(),
            _ => {
                let sum: u64 = list.iter().enumerate().map(|(n, c)| n as u64 * c).sum();
                format!("{:.3}", sum as f64 / all as f64)
            }
        };
        let (near, far) = (mean(&costs.near, near), mean(&costs.far, far));
        writeln!(
            self.ui.out,
            "  {:<14} {near:>9} {:>7}   {far:>9}",
            "on average", ""
        )
    }
}

/// `97.3 %`; what is not all is never 100 %, what is not nothing never 0 %.
fn share(part: u64, whole: u64) -> String {
    let percent = part as f64 * 100.0 / whole.max(1) as f64;
    match (part, whole) {
        (_, 0) => "-".into(),
        (p, w) if p < w && percent >= 99.95 => ">99.9 %".into(),
        (p, _) if p > 0 && percent < 0.05 => "<0.1 %".into(),
        _ => format!("{percent:.1} %"),
    }
}
