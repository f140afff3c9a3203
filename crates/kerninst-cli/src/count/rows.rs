//! Counts as a table, and as JSON lines.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use kerninst::{ArmedPoint, Callee, Counts, Point, PointKind};
use kerninst_analysis::ExitKind;
use kerninst_kernel::Kernel;
use kerninst_patch::Tactic;
use serde::Serialize;

use super::Outcome;
use crate::args::CountArgs;
use crate::json::{self, Hex};
use crate::paint::{Paint, Style};
use crate::table::{Align, Table};
use crate::ui::Ui;
use crate::{Fail, short};

/// From this many points without an execution on, they are not listed unless asked for.
const MANY_ZEROS: usize = 20;
/// Rows of the live view where the terminal does not tell its height.
const ROWS: usize = 20;

/// A time since arming.
#[derive(Clone, Copy, Debug)]
pub struct Span(pub Duration);

impl Span {
    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0.as_secs_f64()
    }
}

/// What a point's count means, in a word or two; nothing for a plain instruction.
pub fn what(kernel: &Kernel, point: &Point) -> String {
    let name = |addr: u64| match kernel.symbols().containing(addr) {
        Some((s, 0)) => s.name.to_string(),
        Some((s, offset)) => format!("{}+{offset:#x}", s.name),
        None => format!("{addr:#x}"),
    };
    match point.kind {
        PointKind::Insn => String::new(),
        PointKind::Entry => "entry".into(),
        PointKind::Block(n) => format!("block {n}"),
        PointKind::Edge(from, to) => format!("edge {from}->{to}"),
        PointKind::Call(Callee::Direct(addr)) => format!("call of {}", name(addr)),
        PointKind::Call(Callee::Indirect(_)) => "call through a pointer".into(),
        PointKind::Exit(ExitKind::Return) => "return".into(),
        PointKind::Exit(kind) => crate::show::exit_name(kind, name),
    }
}

/// Colour of a tactic: an `int3` is dear.
pub fn tactic_style(tactic: Tactic) -> Style {
    if tactic == Tactic::Int3 {
        Style::Warn
    } else {
        Style::Good
    }
}

/// One point, as it is shown.
struct Row {
    point: String,
    function: String,
    addr: u64,
    what: String,
    kind: &'static str,
    tactic: Tactic,
    cost: u32,
    probe: String,
}

/// The points of a session, ready to be shown with any counts.
pub struct Display {
    rows: Vec<Row>,
    refused: usize,
    several: bool,
    json: bool,
    zeros: bool,
    last: Vec<u64>,
}

/// A count: schema `kerninst.count/1`.
#[derive(Serialize)]
struct CountLine<'a> {
    point: &'a str,
    function: &'a str,
    addr: Hex,
    kind: &'static str,
    what: &'a str,
    probe: &'a str,
    tactic: &'static str,
    cost: u32,
    count: u64,
    by_cpu: &'a [u64],
    /// Seconds since arming: of an interim count.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<f64>,
    /// More than at the interim count before.
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<u64>,
}

/// The end: schema `kerninst.summary/1`.
#[derive(Serialize)]
struct Summary<'a> {
    points: usize,
    refused: usize,
    total: u64,
    seconds: f64,
    complete: bool,
    notes: &'a [String],
}

impl Display {
    /// For these points; `refused` others are not counted.
    pub fn new(
        kernel: &Kernel,
        points: &[ArmedPoint],
        refused: usize,
        args: &CountArgs,
    ) -> Display {
        let row = |a: &ArmedPoint| Row {
            point: a.point.label(),
            function: a.point.function.clone(),
            addr: a.point.addr,
            what: what(kernel, &a.point),
            kind: kind(&a.point),
            tactic: a.tactic,
            cost: a.cost,
            probe: args.points.get(a.point.probe).cloned().unwrap_or_default(),
        };
        let rows: Vec<Row> = points.iter().map(row).collect();
        Display {
            last: vec![0; rows.len()],
            rows,
            refused,
            several: args.points.len() > 1,
            json: args.json,
            zeros: args.zeros,
        }
    }

    /// Number of points that are counted.
    pub fn points(&self) -> usize {
        self.rows.len()
    }

    /// Rows with their totals, most first.
    fn sorted(&self, counts: &Counts) -> Vec<(u64, usize)> {
        let totals =
            (0..self.rows.len()).map(|n| (counts.counts.get(n).map_or(0, |c| c.total()), n));
        let mut sorted: Vec<(u64, usize)> = totals.collect();
        sorted.sort_by_key(|(count, n)| (std::cmp::Reverse(*count), *n));
        sorted
    }

    fn json_lines(
        &self,
        counts: &Counts,
        at: Option<Span>,
        out: &mut dyn Write,
    ) -> Result<(), Fail> {
        for (count, n) in self.sorted(counts) {
            let Some(row) = self.rows.get(n) else {
                continue;
            };
            let by_cpu = counts
                .counts
                .get(n)
                .map_or(&[][..], |c| c.by_cpu.as_slice());
            let line = CountLine {
                point: &row.point,
                function: &row.function,
                addr: Hex(row.addr),
                kind: row.kind,
                what: &row.what,
                probe: &row.probe,
                tactic: row.tactic.name(),
                cost: row.cost,
                count,
                by_cpu,
                at: at.map(Span::seconds),
                delta: at
                    .and(self.last.get(n))
                    .map(|before| count.wrapping_sub(*before)),
            };
            json::line(out, "kerninst.count/1", &line)?;
        }
        Ok(())
    }

    /// The final result.
    pub fn last(&self, result: &Outcome, out: &mut dyn Write, paint: Paint) -> Result<(), Fail> {
        let counts = &result.counts;
        let sorted = self.sorted(counts);
        // Points that share an instruction share its counter, and are each shown with it; the total is of the rows.
        let total = sorted
            .iter()
            .fold(0u64, |sum, (count, _)| sum.wrapping_add(*count));
        if self.json {
            self.json_lines(counts, None, out)?;
            let summary = Summary {
                points: self.rows.len(),
                refused: self.refused,
                total,
                seconds: result.span.seconds(),
                complete: counts.complete,
                notes: &counts.notes,
            };
            return json::line(out, "kerninst.summary/1", &summary);
        }
        let zeros = sorted.iter().filter(|(count, _)| *count == 0).count();
        let hide = !self.zeros && zeros >= MANY_ZEROS;
        let mut table = self.table(false);
        for (count, n) in sorted {
            if !(hide && count == 0)
                && let Some(row) = self.rows.get(n)
            {
                table.row(self.cells(row, count, None));
            }
        }
        table.write(out, paint)?;
        if hide {
            writeln!(out, "{zeros} points were not executed (--zeros lists them)")?;
        }
        let complete = if counts.complete {
            paint.paint(Style::Good, "yes")
        } else {
            paint.paint(Style::Bad, "no")
        };
        let refused = match self.refused {
            0 => String::new(),
            n => format!(" ({n} more refused)"),
        };
        let seconds = result.span.seconds();
        writeln!(
            out,
            "total {total} at {}{refused} in {seconds:.3} s; complete: {complete}",
            short::number(self.rows.len(), "point")
        )?;
        Ok(())
    }

    /// Interim counts: what is most in motion, on a terminal in place; otherwise everything that moved.
    pub fn interval(&mut self, counts: &Counts, at: Span, ui: &mut Ui) -> Result<(), Fail> {
        if self.json {
            self.json_lines(counts, Some(at), ui.out)?;
        } else {
            let mut moved: Vec<(u64, u64, usize)> = self
                .sorted(counts)
                .into_iter()
                .map(|(count, n)| {
                    (
                        count.wrapping_sub(self.last.get(n).copied().unwrap_or(0)),
                        count,
                        n,
                    )
                })
                .filter(|(delta, _, _)| *delta > 0)
                .collect();
            moved.sort_by_key(|(delta, count, n)| (std::cmp::Reverse((*delta, *count)), *n));
            let terminal = io::stdout().is_terminal();
            if terminal {
                write!(ui.out, "\x1b[H\x1b[J")?;
                moved.truncate(rows_that_fit());
            }
            writeln!(
                ui.out,
                "{}",
                ui.paint
                    .paint(Style::Dim, format_args!("after {:.1} s", at.seconds()))
            )?;
            let mut table = self.table(true);
            for (delta, count, n) in moved {
                if let Some(row) = self.rows.get(n) {
                    table.row(self.cells(row, count, Some(delta)));
                }
            }
            table.write(ui.out, ui.paint)?;
            if !terminal {
                writeln!(ui.out)?;
            }
        }
        for (n, last) in self.last.iter_mut().enumerate() {
            *last = counts.counts.get(n).map_or(*last, |c| c.total());
        }
        ui.flush()?;
        Ok(())
    }

    fn table(&self, interim: bool) -> Table {
        let mut columns = vec![("COUNT", Align::Right)];
        if interim {
            columns.push(("NEW", Align::Right));
        }
        columns.extend([("POINT", Align::Left), ("WHAT", Align::Left)]);
        if self.several {
            columns.push(("PROBE", Align::Left));
        }
        columns.push(("TACTIC", Align::Left));
        Table::new(&columns)
    }

    fn cells(&self, row: &Row, count: u64, new: Option<u64>) -> Vec<(String, Style)> {
        let mut cells = vec![(count.to_string(), Style::Bold)];
        if let Some(new) = new {
            cells.push((format!("+{new}"), Style::Plain));
        }
        cells.push((row.point.clone(), Style::Plain));
        cells.push((row.what.clone(), Style::Dim));
        if self.several {
            cells.push((row.probe.clone(), Style::Dim));
        }
        cells.push((row.tactic.name().to_string(), tactic_style(row.tactic)));
        cells
    }
}

/// The kind of probe that a point comes from.
fn kind(point: &Point) -> &'static str {
    match point.kind {
        PointKind::Insn => "insn",
        PointKind::Entry => "entry",
        PointKind::Exit(_) => "exit",
        PointKind::Block(_) => "block",
        PointKind::Edge(..) => "edge",
        PointKind::Call(_) => "call",
    }
}

/// Rows of the live view: the terminal's height without headings.
fn rows_that_fit() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let rows = size.map(|s| usize::from(s.ws_row)).filter(|r| *r > 0);
    rows.map_or(ROWS, |r| r.saturating_sub(3).max(1))
}
