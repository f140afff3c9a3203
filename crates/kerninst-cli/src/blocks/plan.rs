//! `kerninst blocks --plan`: where counters would be.

use kerninst_analysis::Analysis;
use kerninst_patch::Spot;
use kerninst_profile::Node;
use serde::Serialize;

use super::args::BlocksArgs;
use super::left_out::{LeftOut, sentences};
use super::targets::Target;
use crate::Fail;
use crate::json::{self, Hex, KernelLine};
use crate::paint::Style;
use crate::short;
use crate::show::point_name;
use crate::table::{Align, Table};
use crate::ui::Ui;

/// A counter: schema `kerninst.blocks-plan/1`.
#[derive(Serialize)]
struct Line {
    function: String,
    from: String,
    to: String,
    spot: &'static str,
    addr: Hex,
    point: String,
    checks: bool,
    expected: f64,
}

/// The word for a spot.
fn word(spot: Spot) -> &'static str {
    match spot {
        Spot::Enter(_) => "enter",
        Spot::Before(_) => "before",
        Spot::After(_) => "after",
        Spot::Taken(_) => "taken",
        Spot::Fixup(_) => "fixup",
    }
}

/// Shows the plan.
pub fn run(
    analysis: &Analysis,
    targets: Vec<Target>,
    left_out: &[LeftOut],
    args: &BlocksArgs,
    ui: &mut Ui,
) -> Result<(), Fail> {
    if args.json {
        KernelLine::write(analysis.kernel(), ui.out)?;
    }
    for (n, target) in targets.iter().enumerate() {
        let function = &target.function;
        let line = |c: &kerninst_profile::Counter| {
            let edge = target.flow.edges().get(c.edge as usize);
            let name = |node: Option<Node>| node.map_or_else(String::new, |n| n.to_string());
            Line {
                function: function.id.clone(),
                from: name(edge.map(|e| e.from)),
                to: name(edge.map(|e| e.to)),
                spot: word(c.spot),
                addr: Hex(c.spot.addr()),
                point: point_name(analysis.kernel(), function, c.spot.addr()),
                checks: c.redundant,
                // The entry's weight is that of one call.
                expected: target.weights.of(c.edge as usize) as f64
                    / target
                        .flow
                        .enter()
                        .map_or(1, |e| target.weights.of(e).max(1)) as f64,
            }
        };
        let lines: Vec<Line> = target.placement.counters().iter().map(line).collect();
        if args.json {
            for line in &lines {
                json::line(ui.out, "kerninst.blocks-plan/1", line)?;
            }
            continue;
        }
        if n > 0 {
            writeln!(ui.out)?;
        }
        let edges = target.flow.real_edges().count();
        writeln!(
            ui.out,
            "{}: {}, {}; {} give all counts",
            ui.paint.paint(Style::Bold, &function.id),
            short::number(target.flow.blocks(), "block"),
            short::number(edges, "edge"),
            short::number(lines.len(), "counter"),
        )?;
        for text in target.missing(analysis) {
            let warn = ui.paint.paint(Style::Warn, "  no counter:");
            writeln!(ui.out, "{warn} {text}")?;
        }
        let mut table = Table::new(&[
            ("PER CALL", Align::Right),
            ("EDGE", Align::Left),
            ("SPOT", Align::Left),
            ("INSTRUCTION", Align::Left),
            ("", Align::Left),
        ]);
        for l in lines {
            table.row(vec![
                (expected(l.expected), Style::Plain),
                (format!("{} -> {}", l.from, l.to), Style::Label),
                (l.spot.into(), Style::Plain),
                (l.point, Style::Plain),
                (if l.checks { "checks" } else { "" }.into(), Style::Dim),
            ]);
        }
        table.write(ui.out, ui.paint)?;
    }
    ui.flush()?;
    for text in sentences(left_out) {
        ui.warn(&text);
    }
    Ok(())
}

/// A guess: two digits are more than enough.
fn expected(n: f64) -> String {
    match n {
        n if n <= 0.0 => "0".into(),
        n if n < 0.005 => "<0.01".into(),
        n if n < 10.0 => format!("{n:.2}"),
        n => format!("{n:.0}"),
    }
}
