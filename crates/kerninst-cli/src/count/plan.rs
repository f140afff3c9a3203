//! Before anything is armed: the points, how each would be instrumented, and why not.

use kerninst::{ArmError, Owners, PlannedSession, Point, PointKind, Probe, ResolveError, plan};
use kerninst_analysis::Analysis;
use serde::Serialize;

use super::rows;
use crate::args::CountArgs;
use crate::json::{self, Hex, KernelLine};
use crate::paint::Style;
use crate::table::{Align, Table};
use crate::ui::Ui;
use crate::{Fail, short, show, suggest};

/// Most things left out that are told one by one.
const TOLD: usize = 5;

/// The points of the probes; says what globs left out.
pub fn resolve(
    analysis: &Analysis,
    probes: &[Probe],
    args: &CountArgs,
    ui: &mut Ui,
) -> Result<Vec<Point>, Fail> {
    let resolved = kerninst::resolve(analysis, probes, args.source.module.as_deref());
    let resolved = resolved.map_err(|e| resolve_error(analysis, &e))?;
    let told = if args.plan { usize::MAX } else { TOLD };
    for text in resolved.left_out.iter().take(told) {
        ui.warn(&format!("left out: {text}"));
    }
    if let Some(more) = resolved.left_out.len().checked_sub(told).filter(|n| *n > 0) {
        ui.warn(&format!("left out: {more} more; --plan lists them"));
    }
    if resolved.points.is_empty() {
        return Err(Fail::Nothing("there is no point to count at".into()));
    }
    Ok(resolved.points)
}

/// What a probe names wrongly, and what it could name.
fn resolve_error(analysis: &Analysis, error: &ResolveError) -> Fail {
    match error {
        ResolveError::Unknown { name, similar, .. } if similar.is_empty() => {
            let functions = analysis.functions();
            let near = suggest::nearest(name, functions.iter().map(|f| f.name.as_str()));
            let hint = match near.as_slice() {
                [] => format!("; `kerninst list '*{name}*'` lists names that contain it"),
                many => format!("; did you mean {}?", many.join(" or ")),
            };
            Fail::Nothing(format!("{error}{hint}"))
        }
        ResolveError::Unknown { .. }
        | ResolveError::NoMatch { .. }
        | ResolveError::Module { .. }
        | ResolveError::NoFunction { .. } => Fail::Nothing(error.to_string()),
        _ => Fail::Error(error.to_string()),
    }
}

/// `--strict`: every point must be possible, or nothing is armed.
pub fn all_or_nothing(
    analysis: &Analysis,
    points: &[Point],
    owners: &Owners,
    args: &CountArgs,
) -> Result<(), Fail> {
    let planned = plan(analysis, points, owners, args.means.into());
    let reasons = planned.refused.iter().map(|(p, r)| refusal_text(p, r));
    let mut reasons = reasons.chain(planned.conflicts.iter().map(ToString::to_string));
    match reasons.next() {
        None => Ok(()),
        Some(first) => {
            let more = match reasons.count() {
                0 => String::new(),
                n => format!(" (and {n} more points)"),
            };
            Err(Fail::Incomplete(format!(
                "--strict, so nothing was armed: {first}{more}"
            )))
        }
    }
}

/// Why nothing was armed, with the reasons of single points where that is why.
pub fn arm_error(
    analysis: &Analysis,
    points: &[Point],
    owners: &Owners,
    args: &CountArgs,
    error: &ArmError,
) -> Fail {
    if !matches!(error, ArmError::Nothing) {
        return Fail::Error(error.to_string());
    }
    let planned = plan(analysis, points, owners, args.means.into());
    Fail::Error(nothing_works(&planned))
}

/// Refusals as sentences; those of one function with one and the same reason in one.
pub fn refusal_texts(refused: &[(Point, kerninst_patch::Refused)]) -> Vec<String> {
    let mut groups: Vec<(u64, String, Vec<usize>)> = Vec::new();
    for (n, (point, r)) in refused.iter().enumerate() {
        let why = r.why.to_string();
        match groups.iter_mut().find(|g| g.0 == point.entry && g.1 == why) {
            Some(group) => group.2.push(n),
            None => groups.push((point.entry, why, vec![n])),
        }
    }
    let text = |(_, why, members): (u64, String, Vec<usize>)| match members.as_slice() {
        [one] => refused.get(*one).map(|(p, r)| refusal_text(p, r)),
        all => {
            let (first, _) = refused.get(*all.first()?)?;
            let places: Vec<String> = all
                .iter()
                .filter_map(|n| Some(refused.get(*n)?.0.addr.wrapping_sub(first.entry)))
                .take(4)
                .map(|offset| format!("+{offset:#x}"))
                .collect();
            let more = if all.len() > places.len() {
                ", ..."
            } else {
                ""
            };
            Some(format!(
                "{} ({} points: {}{more}): {}",
                first.function,
                all.len(),
                places.join(", "),
                short::offsets(&why, &(first.entry..first.entry.saturating_add(1 << 20)))
            ))
        }
    };
    groups.into_iter().filter_map(text).collect()
}

fn nothing_works(planned: &PlannedSession) -> String {
    let first = refusal_texts(&planned.refused).into_iter().next();
    let first = first.or_else(|| planned.conflicts.first().map(ToString::to_string));
    let all = planned.refused.len() + planned.conflicts.len();
    match (first, all) {
        (Some(first), 0 | 1) => first,
        (Some(first), n) => format!("none of {n} points can be instrumented; the first: {first}"),
        (None, _) => "none of the points can be instrumented".into(),
    }
}

/// One point's refusal, with what would work.
pub fn refusal_text(point: &Point, refused: &kerninst_patch::Refused) -> String {
    // The fentry site's reason names what works already.
    let fentry = matches!(refused.why, kerninst_patch::Refusal::Fentry { .. });
    let near = refused
        .nearest
        .filter(|_| !fentry)
        .map_or(String::new(), |a| {
            format!(
                "; the nearest instruction that works is insn:{}",
                near_name(point, a)
            )
        });
    // No function is larger than this; cold parts keep their addresses.
    let function = point.entry..point.entry.saturating_add(1 << 20);
    let why = short::offsets(&refused.why.to_string(), &function);
    format!("{}: {why}{near}", point.label())
}

fn near_name(point: &Point, addr: u64) -> String {
    match addr.checked_sub(point.entry) {
        Some(offset) => format!("{}+{offset:#x}", point.function),
        None => format!("{addr:#x}"),
    }
}

/// A planned point: schema `kerninst.plan/1`.
#[derive(Serialize)]
struct PlanLine<'a> {
    point: String,
    function: &'a str,
    addr: Hex,
    kind: String,
    probe: &'a str,
    tactic: Option<&'static str>,
    cost: Option<u32>,
    site: Option<Hex>,
    refused: Option<Refusal>,
}

/// Why not.
#[derive(Serialize)]
struct Refusal {
    reason: &'static str,
    text: String,
    nearest: Option<Hex>,
}

/// `--plan`: shows the points with their tactics and refusals, and arms nothing.
pub fn run(
    analysis: &Analysis,
    points: &[Point],
    owners: &Owners,
    args: &CountArgs,
    ui: &mut Ui,
) -> Result<(), Fail> {
    let planned = plan(analysis, points, owners, args.means.into());
    let probe = |p: &Point| args.points.get(p.probe).map_or("", String::as_str);
    if args.json {
        KernelLine::write(analysis.kernel(), ui.out)?;
        let line = |p: &Point| (p.label(), kind_text(analysis, p));
        for a in &planned.points {
            let (point, kind) = line(&a.point);
            let line = PlanLine {
                point,
                function: &a.point.function,
                addr: Hex(a.point.addr),
                kind,
                probe: probe(&a.point),
                tactic: Some(a.tactic.name()),
                cost: Some(a.cost),
                site: Some(Hex(a.site)),
                refused: None,
            };
            json::line(ui.out, "kerninst.plan/1", &line)?;
        }
        for (p, r) in &planned.refused {
            let (point, kind) = line(p);
            let line = PlanLine {
                point,
                function: &p.function,
                addr: Hex(p.addr),
                kind,
                probe: probe(p),
                tactic: None,
                cost: None,
                site: None,
                refused: Some(Refusal {
                    reason: show::refusal_name(&r.why),
                    text: r.why.to_string(),
                    nearest: r.nearest.map(Hex),
                }),
            };
            json::line(ui.out, "kerninst.plan/1", &line)?;
        }
    } else {
        table(analysis, &planned, args, ui)?;
        // The only one is told by the error message already.
        let told = planned.points.is_empty() && planned.refused.len() == 1;
        for text in refusal_texts(&planned.refused).iter().filter(|_| !told) {
            writeln!(ui.out, "{}: {text}", ui.paint.paint(Style::Bad, "refused"))?;
        }
    }
    for c in &planned.conflicts {
        ui.warn(&format!("cannot be armed: {c}"));
    }
    let bad = planned.refused.len() + planned.conflicts.len();
    if planned.points.is_empty() {
        return Err(Fail::Error(nothing_works(&planned)));
    }
    if args.strict && bad > 0 {
        return Err(Fail::Incomplete(format!(
            "{bad} points cannot be instrumented"
        )));
    }
    Ok(())
}

fn kind_text(analysis: &Analysis, point: &Point) -> String {
    match point.kind {
        PointKind::Insn => "insn".into(),
        _ => rows::what(analysis.kernel(), point),
    }
}

fn table(
    analysis: &Analysis,
    planned: &PlannedSession,
    args: &CountArgs,
    ui: &mut Ui,
) -> Result<(), Fail> {
    if planned.points.is_empty() {
        return Ok(());
    }
    let mut columns = vec![
        ("POINT", Align::Left),
        ("WHAT", Align::Left),
        ("TACTIC", Align::Left),
        ("COST", Align::Right),
    ];
    let several = args.points.len() > 1;
    if several {
        columns.push(("PROBE", Align::Left));
    }
    let mut table = Table::new(&columns);
    for a in &planned.points {
        let style = rows::tactic_style(a.tactic);
        let mut cells = vec![
            (a.point.label(), Style::Plain),
            (rows::what(analysis.kernel(), &a.point), Style::Dim),
            (a.tactic.name().to_string(), style),
            (format!("+{}", a.cost), Style::Plain),
        ];
        if several {
            let probe = args.points.get(a.point.probe).cloned();
            cells.push((probe.unwrap_or_default(), Style::Dim));
        }
        table.row(cells);
    }
    table.write(ui.out, ui.paint)?;
    let versions = planned.versions.len();
    let (points, splices) = (planned.points.len(), planned.splices.len() - versions);
    let refused = planned.refused.len() + planned.conflicts.len();
    let bytes: usize = planned.splices.iter().map(|s| s.patch.bytes.len()).sum();
    let mut by = Vec::new();
    if splices > 0 {
        by.push(short::number(splices, "splice"));
    }
    if versions > 0 {
        by.push(short::number(versions, "version"));
    }
    writeln!(
        ui.out,
        "{} in {}, {} of code, {refused} refused; cost: instructions per execution",
        short::number(points, "point"),
        by.join(" and "),
        short::number(bytes, "byte"),
    )?;
    for (function, why) in &planned.no_version {
        writeln!(ui.out, "no version of {function}: {why}")?;
    }
    Ok(())
}
