//! Counting in the running kernel.

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kerninst::{
    ArmError, ArmOptions, Conflict, Means, Owner, Owners, PlannedSession, Point, PointKind,
    Records, Session, UnderWay, plan_revised,
};
use kerninst_analysis::{Analysis, EdgeTarget, ExitKind, Function};
use kerninst_patch::{Refused, Spot};
use rustc_hash::{FxHashMap, FxHashSet};

use super::left_out::LeftOut;
use super::output::Run;
use super::report::Report;
use super::targets::Target;
use super::wait::{self, Chore, Span};
use crate::count::watch::Watch;
use crate::progress::Busy;
use crate::ui::Ui;
use crate::{Fail, ending, old_bodies, short};

/// Most functions that are told by name.
const TOLD: usize = 5;

/// The points of a target's counters.
fn points(n: usize, target: &Target) -> impl Iterator<Item = Point> {
    target.spots().map(move |spot| Point {
        at: spot,
        kind: match spot {
            Spot::Enter(_) => PointKind::Entry,
            _ => PointKind::Insn,
        },
        ..Point::insn(n, &target.function, spot.addr())
    })
}

/// What a plan says of one function's points.
#[derive(Default)]
struct Verdict {
    /// Spots that have a counter.
    armed: FxHashSet<Spot>,
    /// Why others have none.
    refused: FxHashMap<Spot, Refused>,
    /// Who else is in the function.
    conflict: Option<Conflict>,
}

impl Verdict {
    /// What the plan of one function says.
    fn of(planned: &PlannedSession) -> Verdict {
        Verdict {
            armed: planned.points.iter().map(|p| p.point.at).collect(),
            refused: planned
                .refused
                .iter()
                .map(|(p, why)| (p.at, why.clone()))
                .collect(),
            conflict: planned.conflicts.first().cloned(),
        }
    }

    /// Whether the plan was for this spot too.
    fn was_asked(&self, spot: Spot) -> bool {
        self.armed.contains(&spot) || self.refused.contains_key(&spot)
    }

    /// Those of all functions, by entry.
    fn all<'p>(
        armed: impl Iterator<Item = &'p Point>,
        refused: &[(Point, Refused)],
        conflicts: &[Conflict],
        targets: &[Target],
    ) -> FxHashMap<u64, Verdict> {
        let mut all: FxHashMap<u64, Verdict> = FxHashMap::default();
        for point in armed {
            all.entry(point.entry).or_default().armed.insert(point.at);
        }
        for (point, why) in refused {
            let verdict = all.entry(point.entry).or_default();
            verdict.refused.insert(point.at, why.clone());
        }
        if !conflicts.is_empty() {
            let functions = targets.iter().map(|t| &t.function);
            let entries: FxHashMap<&str, u64> =
                functions.map(|f| (f.id.as_str(), f.entry())).collect();
            for conflict in conflicts {
                // A place is a function, or an offset in one.
                let place = conflict.place.as_str();
                let offset = place.rsplit_once("+0x").or(place.rsplit_once("-0x"));
                let function = offset.map_or(place, |(function, _)| function);
                if let Some(entry) = entries.get(place).or(entries.get(function)) {
                    let verdict = all.entry(*entry).or_default();
                    verdict.conflict.get_or_insert_with(|| conflict.clone());
                }
            }
        }
        all
    }

    /// Why this spot has no counter.
    fn why(&self, spot: Spot) -> String {
        let refused = self.refused.get(&spot).map(|r| r.why.to_string());
        let conflict = || self.conflict.as_ref().map(Conflict::to_string);
        refused
            .or_else(conflict)
            .unwrap_or_else(|| "no counter fits".into())
    }

    /// Why the function has no counter at all.
    fn left_out(&self, target: &Target) -> LeftOut {
        let id = &target.function.id;
        let first = target.spots().next();
        match (first.and_then(|s| self.refused.get(&s)), &self.conflict) {
            (Some(refused), _) => LeftOut::refused(id, &refused.why),
            (None, Some(conflict)) => {
                let word = match conflict.owner {
                    Owner::Kprobe { .. } => "kprobe",
                    Owner::Livepatch(_) => "livepatch",
                };
                // The sentence starts with the place.
                let text = conflict.to_string();
                let why = text.strip_prefix(&format!("{}: ", conflict.place));
                LeftOut::because(id, word, why.unwrap_or(&text))
            }
            (None, None) => LeftOut::because(id, "no-tactic", "no counter fits"),
        }
    }
}

/// The points of all counters.
fn all_points(targets: &[Target]) -> Vec<Point> {
    let all = targets.iter().enumerate();
    all.flat_map(|(n, t)| points(n, t)).collect()
}

/// What the points of targets record: all the same.
fn records(targets: &[Target]) -> Records {
    targets.first().map_or(Records::Counts, Target::records)
}

/// How often points that were executed are taken out.
const TAKE_OUT: Duration = Duration::from_millis(500);

/// Targets whose counters move away from where none can be, while they are planned.
struct Settling {
    /// By entry; a target's place here is its points' probe.
    targets: BTreeMap<u64, (usize, Mutex<Target>)>,
}

impl Settling {
    fn new(targets: Vec<Target>) -> Settling {
        let all = targets.into_iter().enumerate();
        let cell = |(n, t): (usize, Target)| (t.function.entry(), (n, Mutex::new(t)));
        Settling {
            targets: all.map(cell).collect(),
        }
    }

    /// What [`kerninst::plan_revised`] asks: other points for the function at `entry`, if some of its counters cannot be.
    fn revise(&self, entry: u64, planned: &PlannedSession) -> Option<Vec<Point>> {
        let (n, cell) = self.targets.get(&entry)?;
        let mut target = cell.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = Verdict::of(planned);
        if verdict.armed.is_empty() {
            return None;
        }
        let refused = target.spots().filter(|s| !verdict.armed.contains(s));
        // Some may be from an earlier attempt at the whole plan.
        let refused = refused.filter(|s| verdict.was_asked(*s));
        let refused: Vec<_> = refused.map(|s| (s, verdict.why(s))).collect();
        target.refuse(refused);
        let settled = target.spots().all(|s| verdict.was_asked(s));
        (!settled).then(|| points(*n, &target).collect())
    }

    fn targets(self) -> Vec<Target> {
        let cells = self.targets.into_values();
        let inner = |c: Mutex<Target>| c.into_inner().unwrap_or_else(PoisonError::into_inner);
        cells.map(|(_, cell)| inner(cell)).collect()
    }
}

/// Keeps those of `targets` that have counters, with what the others are left out for, and lets each work with the counters
/// that it has.
fn keep_counted(
    targets: &mut Vec<Target>,
    verdicts: &FxHashMap<u64, Verdict>,
    left_out: &mut Vec<LeftOut>,
) {
    targets.retain_mut(|target| {
        let Some(verdict) = verdicts.get(&target.function.entry()) else {
            left_out.push(Verdict::default().left_out(target));
            return false;
        };
        if verdict.armed.is_empty() {
            left_out.push(verdict.left_out(target));
            return false;
        }
        if target.spots().any(|s| !verdict.armed.contains(&s)) {
            target.restrict(&verdict.armed, |s| verdict.why(s));
        }
        true
    });
}

/// Moves counters away from where none can be. Gives the targets that can be counted; the others are told in `left_out`.
pub fn settle(
    analysis: &Analysis,
    targets: Vec<Target>,
    owners: &Owners,
    left_out: &mut Vec<LeftOut>,
) -> Vec<Target> {
    let all = all_points(&targets);
    let records = records(&targets);
    let settling = Settling::new(targets);
    let revise = |entry, planned: &PlannedSession| settling.revise(entry, planned);
    let means = Means::Versions;
    let planned = plan_revised(analysis, &all, owners, means, records, revise);
    let mut targets = settling.targets();
    let armed = planned.points.iter().map(|p| &p.point);
    let verdicts = Verdict::all(armed, &planned.refused, &planned.conflicts, &targets);
    keep_counted(&mut targets, &verdicts, left_out);
    targets
}

/// The error when there is nothing left to count.
pub fn nothing(left_out: &[LeftOut]) -> Fail {
    let why = left_out.first().map(LeftOut::to_string).unwrap_or_default();
    Fail::Error(format!("nothing can be counted: {why}"))
}

/// Arms counters, waits, takes them out, and works out all counts. Gives the status of the command too.
///
/// # Errors
/// [`Fail`]; nothing is armed afterwards.
pub fn count(
    analysis: &Analysis,
    targets: Vec<Target>,
    span: &Span,
    watch: &Watch,
    ui: &mut Ui,
) -> Result<(Vec<Report>, Run, Option<ExitStatus>), Fail> {
    let owners = Owners::live();
    let mut run = Run::default();
    let all = all_points(&targets);
    if all.is_empty() {
        return Err(nothing(&run.left_out));
    }
    let records = records(&targets);
    let word = match records {
        Records::Counts => "counter",
        Records::Hits => "mark",
    };
    let functions = short::number(targets.len(), "function");
    let counters = short::number(all.len(), word);
    let busy = Busy::new(format!("arming {counters} in {functions}"));
    let options = ArmOptions {
        means: Means::Versions,
        records,
        ..ArmOptions::default()
    };
    let settling = Settling::new(targets);
    let revise = |entry, planned: &PlannedSession| settling.revise(entry, planned);
    let session = Session::arm_revised(analysis, &all, &owners, options, revise);
    drop(busy);
    drop(all);
    let mut targets = settling.targets();
    let mut session = match session {
        Ok(session) => session,
        Err(ArmError::Nothing) => {
            settle(analysis, targets, &owners, &mut run.left_out);
            return Err(nothing(&run.left_out));
        }
        Err(e) => return Err(Fail::Error(e.to_string())),
    };
    let no_version = session.no_version();
    for (function, why) in no_version.iter().take(TOLD) {
        run.notes.push(format!(
            "{function} has no version of its own ({why}): visits that were inside when counting began or ended may \
             show as counts that do not add up"
        ));
    }
    if let Some(more) = no_version.len().checked_sub(TOLD).filter(|n| *n > 0) {
        let functions = short::number(more, "more function");
        run.notes.push(format!("so it is with {functions}"));
    }
    // Functions may stand in each other's way, or somebody may be there already: what has no counter is not known.
    let armed = session.points().iter().map(|p| &p.point);
    let verdicts = Verdict::all(armed, session.refused(), session.conflicts(), &targets);
    keep_counted(&mut targets, &verdicts, &mut run.left_out);
    drop(verdicts);
    let started = Instant::now();
    let what = format!("{functions} by {counters}");
    let mut out = 0;
    let mut take_out = || {
        let hit = session.take_out_hit();
        out += hit.map_err(|e| Fail::Error(e.to_string()))?.0;
        Ok(())
    };
    let chore = (records == Records::Hits).then_some(Chore {
        every: TAKE_OUT,
        work: &mut take_out,
    });
    let ended = wait::wait(watch, span, &what, chore, ui);
    run.seconds = started.elapsed().as_secs_f64();
    run.taken_out = out;
    let spots: Vec<(u64, Spot)> = session
        .points()
        .iter()
        .map(|p| (p.point.entry, p.point.at))
        .collect();
    let read = session.read();
    run.notes.extend(old_bodies::remark(&session.old_bodies()));
    let busy = Busy::new("disarming".into());
    let finished = session.finish();
    drop(busy);
    let status = ended?;
    let counts = read.map_err(|e| Fail::Error(e.to_string()))?;
    run.complete = counts.complete;
    run.notes.extend(counts.notes);
    let (last, under_way) = match finished {
        Ok((last, report)) => {
            if report.gone > 0 {
                run.complete = false;
                run.notes.push(format!(
                    "the module of {} was unloaded meanwhile: counted until then",
                    short::number(report.gone as usize, "site")
                ));
            }
            ending::tell_waiting(&report, ui);
            (last, report.under_way)
        }
        Err(e) => {
            ui.warn(&ending::failure(&e));
            (None, UnderWay::default())
        }
    };
    if last.is_none() {
        run.notes.push(
            "some task stayed inside, so the counters were read while they still counted: counts may not add up".into(),
        );
    }
    if under_way.unsure > 0 {
        run.notes.push(format!(
            "{} under way at the end could not be looked at: counts may not add up",
            short::number(under_way.unsure as usize, "task")
        ));
    }
    let counts = last.map_or(counts.counts, |l| l.counts);
    let totals = counts.iter().map(|c| c.total());
    let totals: FxHashMap<(u64, Spot), u64> = spots.into_iter().zip(totals).collect();
    let mut reports = Vec::with_capacity(targets.len());
    for target in targets {
        let entry = target.function.entry();
        let inside = in_flight(&target.function, &under_way);
        let of = |spot: Spot| totals.get(&(entry, spot)).copied().unwrap_or(0);
        let report = target.report(analysis, of, &inside);
        reports.push(report.map_err(|e| Fail::Error(e.to_string()))?);
    }
    Ok((reports, run, status))
}

/// A remark on functions that nobody called.
pub fn not_called(reports: &[Report]) -> Option<String> {
    let idle = reports.iter().filter(|r| r.profile.entered == Some(0));
    let names: Vec<&str> = idle.map(|r| r.function.id.as_str()).collect();
    let listed: Vec<&str> = names.iter().take(TOLD).copied().collect();
    let more = match names.len() - listed.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    (!names.is_empty()).then(|| format!("not called meanwhile: {}{more}", listed.join(", ")))
}

/// Visits under way in blocks of `function`: a return address belongs to the call before it. Who is in a call that does not
/// return has left already: that way out is counted before the call.
fn in_flight(function: &Function, under_way: &UnderWay) -> Vec<(u32, u64)> {
    let calls = under_way.calls.iter();
    let block = |(to, visits): &(u64, u64)| {
        let insn = function.insn_containing(to.checked_sub(1)?)?;
        let block = function.blocks.get(insn.block as usize)?;
        let mut ways = function.block_edges(block).iter();
        let gone =
            block.end == *to && ways.any(|e| matches!(e.to, EdgeTarget::Exit(ExitKind::NoReturn)));
        (!gone).then_some((insn.block, *visits))
    };
    calls.filter_map(block).collect()
}
