//! `kerninst cover --plan`: what would be counted.

use kerninst_kernel::Kernel;
use serde::Serialize;

use super::args::CoverArgs;
use super::lines;
use crate::blocks::{LeftOut, Target, sentences};
use crate::json::{self, Hex, KernelLine};
use crate::paint::Style;
use crate::svg::thousands;
use crate::table::{Align, Table};
use crate::ui::Ui;
use crate::{Fail, short};

/// More functions than this are listed only if asked for.
const MANY: usize = 200;

/// A function: schema `kerninst.cover-plan/1`.
#[derive(Serialize)]
struct Line<'a> {
    function: &'a str,
    entry: Hex,
    blocks: usize,
    edges: usize,
    counters: usize,
    unknown: usize,
}

impl Line<'_> {
    fn of(target: &Target) -> Line<'_> {
        Line {
            function: &target.function.id,
            entry: Hex(target.function.entry()),
            blocks: target.flow.blocks(),
            edges: target.flow.own_edges().len(),
            counters: target.placement.counters().len(),
            unknown: target.placement.missing().len(),
        }
    }
}

/// Shows the plan.
pub fn run(
    kernel: &Kernel,
    targets: &[Target],
    left_out: &[LeftOut],
    args: &CoverArgs,
    ui: &mut Ui,
) -> Result<(), Fail> {
    if args.json {
        KernelLine::write(kernel, ui.out)?;
        for target in targets {
            json::line(ui.out, "kerninst.cover-plan/1", &Line::of(target))?;
        }
        lines::left_out(left_out, ui.out)?;
        return Ok(());
    }
    let hide = targets.len() > MANY && !args.each;
    let mut table = Table::new(&[
        ("BLOCKS", Align::Right),
        ("EDGES", Align::Right),
        ("COUNTERS", Align::Right),
        ("NOT KNOWN", Align::Right),
        ("FUNCTION", Align::Left),
    ]);
    let (mut blocks, mut edges, mut counters, mut unknown) = (0, 0, 0, 0);
    for target in targets {
        let line = Line::of(target);
        blocks += line.blocks;
        edges += line.edges;
        counters += line.counters;
        unknown += line.unknown;
        if hide {
            continue;
        }
        let number = |n: usize| (thousands(n as u64), Style::Plain);
        let missing = match line.unknown {
            0 => (String::new(), Style::Plain),
            n => (thousands(n as u64), Style::Bad),
        };
        table.row(vec![
            number(line.blocks),
            number(line.edges),
            number(line.counters),
            missing,
            (line.function.to_string(), Style::Label),
        ]);
    }
    table.write(ui.out, ui.paint)?;
    let number = |n: usize| thousands(n as u64);
    writeln!(
        ui.out,
        "{}, {} blocks, {} edges: {} counters give all counts but {}",
        short::number(targets.len(), "function"),
        number(blocks),
        number(edges),
        number(counters),
        number(unknown),
    )?;
    if hide {
        writeln!(ui.out, "(--each lists them)")?;
    }
    ui.flush()?;
    for text in sentences(left_out) {
        ui.warn(&text);
    }
    match args.strict && (unknown > 0 || !left_out.is_empty()) {
        true => Err(Fail::Incomplete("not everything can be counted".into())),
        false => Ok(()),
    }
}
