//! `kerninst run --dry-run`: what would be armed.

use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter};
use kerninst::script::{Placing, Programs, dry_programs};
use kerninst::{Owners, Point, plan_snippets};
use kerninst_analysis::Analysis;
use kerninst_kernel::Kernel;
use kerninst_lang::hir::Script;
use kerninst_snippet::{Code, Features, Free, Snippet, compile, ir};

use super::args::RunArgs;
use super::script::Source;
use super::{placed, script_error, sizes, tell_left_out};
use crate::count::{refusal_texts, tactic_style};
use crate::paint::Style;
use crate::table::{Align, Table};
use crate::ui::Ui;
use crate::{Fail, short};

/// Shows the points with their tactics and costs, and changes nothing.
pub(super) fn run(
    kernel: &Kernel,
    text: &Source,
    script: &Script,
    args: &RunArgs,
    ui: &mut Ui,
) -> Result<(), Fail> {
    let analysis = Analysis::new(kernel);
    let placing = placed(&analysis, text, script, args, ui)?;
    let made = dry_programs(&analysis, script, &placing, &sizes(args), args.pid)
        .map_err(|e| script_error(text, &e, ui))?;
    tell_left_out(&made.left_out, ui);
    if args.verbose {
        write!(ui.out, "{script}")?;
    }
    if placing.points.is_empty() {
        return Ok(());
    }
    let program = |p: &Point| made.list.get(p.probe).cloned().flatten();
    let points: Vec<Point> = placing
        .points
        .iter()
        .map(|p| p.point.clone())
        .filter(|p| program(p).is_some())
        .collect();
    let snippets = |p: &Point| program(p).map(Snippet::Program).into_iter().collect();
    let owners = Owners::of(kernel);
    let planned = plan_snippets(&analysis, &points, &owners, args.means.into(), snippets);
    let mut table = Table::new(&[
        ("PROBE", Align::Left),
        ("POINT", Align::Left),
        ("TACTIC", Align::Left),
        ("BYTES", Align::Right),
        ("COST", Align::Right),
        ("FILTERED", Align::Right),
    ]);
    for a in &planned.points {
        let code = program(&a.point).map(|p| code_at(&analysis, &a.point, &p));
        let (bytes, filtered) = code.as_ref().map_or((0, 0), |c| {
            // What a visit costs that the filter turns away: the jumps stay.
            (
                c.bytes.len(),
                a.cost.saturating_sub(c.cost) + c.cost_filtered,
            )
        });
        table.row(vec![
            (probe(&placing, &a.point), Style::Dim),
            (a.point.label(), Style::Plain),
            (a.tactic.name().to_string(), tactic_style(a.tactic)),
            (bytes.to_string(), Style::Plain),
            (format!("+{}", a.cost), Style::Plain),
            (format!("+{filtered}"), Style::Plain),
        ]);
    }
    table.write(ui.out, ui.paint)?;
    if args.verbose {
        for a in &planned.points {
            show(&analysis, &placing, &made, &a.point, ui)?;
        }
    }
    ui.flush()?;
    let refused = refusal_texts(&planned.refused);
    let conflicts = planned.conflicts.iter().map(ToString::to_string);
    let lines: Vec<String> = refused.into_iter().chain(conflicts).collect();
    for line in &lines {
        ui.warn(&format!("not armed: {line}"));
    }
    let code: usize = planned.splices.iter().map(|s| s.patch.bytes.len()).sum();
    ui.note(&format!(
        "{} in {}, {} of code; cost: instructions of a visit on the straight way, filtered: when the filter does not hold",
        short::number(planned.points.len(), "point"),
        match planned.splices.len() {
            1 => "1 patch".to_string(),
            n => format!("{n} patches"),
        },
        short::number(code, "byte"),
    ));
    if planned.points.is_empty() {
        return Err(Fail::error("none of the points can be instrumented"));
    }
    if args.strict && !lines.is_empty() {
        return Err(Fail::Incomplete("not all points can be armed".into()));
    }
    Ok(())
}

fn probe(placing: &Placing, point: &Point) -> String {
    let placed = placing.points.get(point.probe);
    placed.map_or(String::new(), |p| p.probe.clone())
}

/// The program's code where it is to run, as far as it does not depend on what else is there.
fn code_at(analysis: &Analysis, point: &Point, program: &Arc<ir::Program>) -> Code {
    let function = analysis.function_at(point.entry);
    let insn = function.as_ref().and_then(|f| f.insn_at(point.addr));
    let free = insn.map_or(Free::NOTHING, |i| Free::from(i.live));
    let snippet = Snippet::Program(Arc::clone(program));
    compile(
        &[snippet],
        free.without(program.reads()),
        Features::default(),
    )
}

fn show(
    analysis: &Analysis,
    placing: &Placing,
    made: &Programs,
    point: &Point,
    ui: &mut Ui,
) -> Result<(), Fail> {
    let Some(program) = made.list.get(point.probe).cloned().flatten() else {
        return Ok(());
    };
    let title = format!("{} at {}", probe(placing, point), point.label());
    writeln!(ui.out, "\n{}", ui.paint.paint(Style::Good, &title))?;
    write!(ui.out, "{program}")?;
    let code = code_at(analysis, point, &program);
    writeln!(ui.out, "code")?;
    let mut decoder = Decoder::with_ip(64, &code.bytes, 0, DecoderOptions::NONE);
    let mut formatter = GasFormatter::new();
    for insn in &mut decoder {
        let mut text = String::new();
        formatter.format(&insn, &mut text);
        let at = insn.ip() as u32;
        let called = code
            .calls
            .iter()
            .find(|c| (at..at + insn.len() as u32).contains(&c.offset));
        match called {
            Some(c) => writeln!(ui.out, "  {at:4x}  {:<8} {:#x}", word(&text), c.target)?,
            None => writeln!(ui.out, "  {at:4x}  {text}")?,
        }
    }
    Ok(())
}

fn word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or(text)
}
