//! `kerninst list`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use kerninst_analysis::{Analysis, Function, FunctionId};
use kerninst_kernel::Kernel;
use kerninst_patch::{Boards, Options, Planner, Refusal};
use serde::Serialize;

use crate::args::ListArgs;
use crate::json::{self, Hex, KernelLine};
use crate::names::Names;
use crate::paint::Style;
use crate::progress::Progress;
use crate::table::{Align, Table};
use crate::ui::Ui;
use crate::{Fail, short, show, source};

/// From this many functions on, all are analysed at once and none is kept.
const MANY: usize = 4000;

/// `kerninst list [GLOB…]`.
///
/// # Errors
/// [`Fail::Nothing`] if a pattern matches nothing.
pub fn run(args: &ListArgs, ui: &mut Ui) -> Result<(), Fail> {
    let kernel = source::open(&args.source)?;
    list(&kernel, args, ui)
}

/// The same over a kernel that is already open.
///
/// # Errors
/// As [`run`].
pub fn list(kernel: &Kernel, args: &ListArgs, ui: &mut Ui) -> Result<(), Fail> {
    let analysis = Analysis::new(kernel);
    let names = Names::new(&analysis, args.source.module.as_deref())?;
    let chosen = names.select(&args.patterns)?;
    if args.json {
        KernelLine::write(kernel, ui.out)?;
    }
    if args.points {
        return points(&analysis, &chosen, args, ui);
    }
    if !args.long && !args.refused && !args.json {
        // Names only: nothing has to be decoded.
        for f in &chosen {
            writeln!(ui.out, "{}", f.id)?;
        }
        return Ok(());
    }
    let mut rows = analyse(&analysis, &chosen, |f| row(&analysis, f));
    if args.refused {
        rows.retain(|r| r.refused.is_some());
    }
    functions(rows, args, ui)
}

/// Analyses the chosen functions, on all CPUs, and makes something of each; by address.
pub(crate) fn analyse<T: Send>(
    analysis: &Analysis,
    chosen: &[&FunctionId],
    make: impl Fn(&Function) -> T + Sync,
) -> Vec<T> {
    let progress = Progress::new("analysing functions", chosen.len() as u64);
    let made: Mutex<Vec<(u64, T)>> = Mutex::new(Vec::with_capacity(chosen.len()));
    let add = |f: &Function| {
        let value = make(f);
        progress.step();
        if let Ok(mut list) = made.lock() {
            list.push((f.entry(), value));
        }
    };
    if chosen.len() >= MANY {
        let wanted: BTreeSet<u64> = chosen.iter().map(|f| f.start).collect();
        analysis.all(|f| {
            if wanted.contains(&f.entry()) {
                add(f);
            }
        });
    } else {
        let next = AtomicUsize::new(0);
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        std::thread::scope(|scope| {
            for _ in 0..cpus.min(chosen.len()) {
                scope.spawn(|| {
                    while let Some(id) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // A cold part that was asked for by name is in the list as its function.
                        if let Some(f) = analysis.function_at(id.start) {
                            add(&f);
                        }
                    }
                });
            }
        });
    }
    drop(progress);
    let mut made = made.into_inner().unwrap_or_default();
    made.sort_by_key(|(entry, _)| *entry);
    made.dedup_by_key(|(entry, _)| *entry);
    made.into_iter().map(|(_, value)| value).collect()
}

/// One function of the list: schema `kerninst.function/1`.
#[derive(Serialize)]
struct Row {
    id: String,
    name: String,
    module: Option<String>,
    entry: Hex,
    size: u64,
    instructions: usize,
    blocks: usize,
    complete: bool,
    incomplete: Vec<String>,
    fentry: bool,
    /// Why no instruction of it can be instrumented; none: most can.
    refused: Option<Why>,
}

/// A reason.
#[derive(Clone, Serialize)]
struct Why {
    reason: &'static str,
    text: String,
}

fn row(analysis: &Analysis, f: &Function) -> Row {
    let off_limits = analysis
        .kernel()
        .off_limits()
        .at(f.entry())
        .map(Refusal::OffLimits);
    let incomplete = f.incomplete.first().cloned().map(Refusal::Incomplete);
    Row {
        id: f.id.clone(),
        name: f.name.clone(),
        module: f.module.clone(),
        entry: Hex(f.entry()),
        size: f.ranges.iter().map(|r| r.end.saturating_sub(r.start)).sum(),
        instructions: f.insns.len(),
        blocks: f.blocks.len(),
        complete: f.is_complete(),
        incomplete: f.incomplete.iter().map(ToString::to_string).collect(),
        fentry: f.fentry.is_some(),
        refused: off_limits.or(incomplete).map(|why| Why {
            reason: show::refusal_name(&why),
            text: why.to_string(),
        }),
    }
}

fn functions(rows: Vec<Row>, args: &ListArgs, ui: &mut Ui) -> Result<(), Fail> {
    if rows.is_empty() {
        return Err(Fail::Nothing(
            "all of these functions can be instrumented".into(),
        ));
    }
    if args.json {
        for row in &rows {
            json::line(ui.out, "kerninst.function/1", row)?;
        }
        return Ok(());
    }
    let mut table = Table::new(&[
        ("FUNCTION", Align::Left),
        ("SIZE", Align::Right),
        ("INSNS", Align::Right),
        ("BLOCKS", Align::Right),
        ("FLOW", Align::Left),
        ("INSTRUMENTABLE", Align::Left),
    ]);
    for r in rows {
        let flow = match r.complete {
            true => ("complete".into(), Style::Good),
            false => ("incomplete".into(), Style::Bad),
        };
        let can = match r.refused {
            None => ("yes".into(), Style::Good),
            Some(why) => (format!("no: {}", why.text), Style::Bad),
        };
        let number = |n: usize| (n.to_string(), Style::Plain);
        table.row(vec![
            (r.id, Style::Bold),
            number(r.size as usize),
            number(r.instructions),
            number(r.blocks),
            flow,
            can,
        ]);
    }
    table.write(ui.out, ui.paint)?;
    Ok(())
}

/// One point of the list: schema `kerninst.point/1`.
#[derive(Serialize)]
struct Point {
    point: String,
    function: String,
    module: Option<String>,
    addr: Hex,
    tactic: Option<&'static str>,
    refused: Option<Why>,
    /// The function's main part.
    #[serde(skip)]
    main: Range<u64>,
}

fn points(
    analysis: &Analysis,
    chosen: &[&FunctionId],
    args: &ListArgs,
    ui: &mut Ui,
) -> Result<(), Fail> {
    let planner = Planner::new(analysis, Options::default());
    let of_function = |f: &Function| {
        let survey = planner.survey(f, &Boards::new());
        let name = |addr: u64| show::point_name(analysis.kernel(), f, addr);
        let points = f.insns.iter().zip(survey);
        let points = points.filter(|(_, r)| !args.refused || r.is_err());
        let points = points.map(|(i, r)| Point {
            point: format!("insn:{}", name(i.addr)),
            function: f.id.clone(),
            module: f.module.clone(),
            addr: Hex(i.addr),
            main: f.ranges.first().cloned().unwrap_or_default(),
            tactic: r.as_ref().ok().map(|t| t.name()),
            refused: r.err().map(|why| Why {
                reason: show::refusal_name(&why),
                text: why.to_string(),
            }),
        });
        points.collect::<Vec<_>>()
    };
    let mut any = false;
    // In portions: the points of a whole kernel need not be in memory at once.
    for portion in chosen.chunks(MANY - 1) {
        for p in analyse(analysis, portion, of_function)
            .into_iter()
            .flatten()
        {
            any = true;
            if args.json {
                json::line(ui.out, "kerninst.point/1", &p)?;
                continue;
            }
            match (&p.tactic, &p.refused) {
                (Some(t), _) => {
                    writeln!(ui.out, "{}  {}", p.point, ui.paint.paint(Style::Good, t))?
                }
                (None, Some(why)) => {
                    let text = short::offsets(&why.text, &p.main);
                    let text = format!("refused ({}): {text}", why.reason);
                    writeln!(ui.out, "{}  {}", p.point, ui.paint.paint(Style::Bad, text))?;
                }
                (None, None) => {}
            }
        }
    }
    if any {
        return Ok(());
    }
    Err(Fail::Nothing(
        "every instruction of these functions can be instrumented".into(),
    ))
}
