//! `kerninst count`: counters before points, until a command, a time or the user ends it.

pub(crate) mod plan;
mod rows;
pub(crate) mod watch;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use kerninst::{ArmOptions, Counts, DisarmReport, Owners, Probe, Session};
use kerninst_analysis::Analysis;
use kerninst_kernel::Kernel;

use crate::args::CountArgs;
use crate::json::KernelLine;
use crate::paint::Paint;
use crate::progress::Busy;
use crate::ui::Ui;
use crate::{Fail, ending, memory, old_bodies, short, source};
pub(crate) use plan::refusal_texts;
pub(crate) use rows::tactic_style;
use rows::{Display, Span};
use watch::{Signal, Watch};

/// `kerninst count POINT… [-d SECONDS | -- COMMAND…]`.
///
/// # Errors
/// [`Fail`]. Whatever it is, nothing of ours is armed afterwards.
pub fn run(args: &CountArgs, ui: &mut Ui) -> Result<(), Fail> {
    if args.source.image.is_some() && !args.plan {
        return Err(Fail::error(
            "counting needs the running kernel: leave out --image, or add --plan to see what would be done",
        ));
    }
    if args.plan {
        let kernel = source::open(&args.source)?;
        return planned(&kernel, args, ui);
    }
    let args = &distinct(args);
    let probes = parse(args)?;
    kerninst::in_use().map_err(|e| Fail::Error(e.to_string()))?;
    // Before anything is armed: a wrong path costs nothing then.
    let file = match &args.output {
        None => None,
        Some(path) => {
            let file = File::create(path).map_err(|e| cannot_write(path, &e))?;
            Some((path, BufWriter::new(file)))
        }
    };
    // From here on Ctrl-C is ours: whatever is armed is taken out in an orderly way.
    let watch = Watch::start()?;
    let kernel = source::open_still(&args.source)?;
    let analysis = Analysis::new(&kernel);
    let points = plan::resolve(&analysis, &probes, args, ui)?;
    memory::enough_for_points(&kernel, points.len())?;
    let owners = Owners::live();
    if args.strict {
        plan::all_or_nothing(&analysis, &points, &owners, args)?;
    }
    let options = ArmOptions {
        means: args.means.into(),
        ..ArmOptions::default()
    };
    let busy = Busy::new(format!("arming {}", short::number(points.len(), "point")));
    let session = Session::arm(&analysis, &points, &owners, options);
    drop(busy);
    let session = session.map_err(|e| plan::arm_error(&analysis, &points, &owners, args, &e))?;
    let refused = session.refused().len() + session.conflicts().len();
    let mut count = Counting {
        display: Display::new(&kernel, session.points(), refused, args),
        session: Some(session),
        armed: Instant::now(),
    };
    count.tell_refused(ui);
    if args.json && args.output.is_none() {
        KernelLine::write(&kernel, ui.out)?;
    }
    let ended = count.wait(&watch, args, ui);
    let result = count.end(ui)?;
    // A reason to stop early is told when the kernel is as it was. There is nothing to show then.
    let status = ended?;
    let span = result.span;
    if watch.pressed_again() {
        return Err(Fail::Interrupted);
    }
    match file {
        None => count.display.last(&result, ui.out, ui.paint)?,
        Some((path, mut file)) => {
            if args.json {
                KernelLine::write(&kernel, &mut file)?;
            }
            count.display.last(&result, &mut file, Paint(false))?;
            file.flush().map_err(|e| cannot_write(path, &e))?;
        }
    }
    ui.flush()?;
    for note in &result.counts.notes {
        ui.warn(note);
    }
    if args.strict && !result.counts.complete {
        let seconds = span.seconds();
        return Err(Fail::Incomplete(format!(
            "the counts of these {seconds:.1} s are not complete"
        )));
    }
    match status {
        Some(status) if !status.success() => Err(Fail::Command(status)),
        _ => Ok(()),
    }
}

/// `kerninst count --plan` over a kernel that is already open.
///
/// # Errors
/// [`Fail`]: nothing matches, or nothing can be instrumented.
pub fn planned(kernel: &Kernel, args: &CountArgs, ui: &mut Ui) -> Result<(), Fail> {
    let args = &distinct(args);
    let probes = parse(args)?;
    let analysis = Analysis::new(kernel);
    let points = plan::resolve(&analysis, &probes, args, ui)?;
    plan::run(&analysis, &points, &Owners::of(kernel), args, ui)
}

/// Without probes that are given twice.
fn distinct(args: &CountArgs) -> CountArgs {
    let mut args = args.clone();
    let mut seen = std::collections::HashSet::new();
    args.points.retain(|p| seen.insert(p.trim().to_string()));
    args
}

fn cannot_write(path: &Path, e: &std::io::Error) -> Fail {
    Fail::Error(format!("cannot write {}: {e}", path.display()))
}

fn parse(args: &CountArgs) -> Result<Vec<Probe>, Fail> {
    let probes = args.points.iter().map(|p| p.parse::<Probe>());
    probes
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| Fail::Error(e.to_string()))
}

/// What was counted in the end.
pub struct Outcome {
    counts: Counts,
    span: Span,
}

/// An armed session.
struct Counting<'k> {
    session: Option<Session<'k>>,
    display: Display,
    armed: Instant,
}

impl Counting<'_> {
    /// Says which points are not counted.
    fn tell_refused(&self, ui: &mut Ui) {
        let Some(session) = &self.session else { return };
        ending::tell(&ending::refusals(session), "not counted", "--plan", ui);
    }

    /// Until the command has ended, the time is over, or the user has had enough.
    /// Gives the command's status, if it ended.
    fn wait(
        &mut self,
        watch: &Watch,
        args: &CountArgs,
        ui: &mut Ui,
    ) -> Result<Option<ExitStatus>, Fail> {
        let mut child = None;
        let deadline = args.duration.and_then(|d| self.armed.checked_add(d.0));
        if let Some((program, rest)) = args.command.split_first() {
            let spawned = Command::new(program).args(rest).spawn();
            child = Some(spawned.map_err(|e| {
                Fail::Error(format!("cannot run {}: {e}", program.to_string_lossy()))
            })?);
        } else {
            let points = short::number(self.display.points(), "point");
            let end = match deadline {
                Some(_) => "",
                None => "; Ctrl-C ends it and shows the counts",
            };
            ui.note(&format!("counting at {points}{end}"));
        }
        let mut next = args.interval.and_then(|i| Instant::now().checked_add(i.0));
        loop {
            let until = [deadline, next].into_iter().flatten().min();
            let signal = watch.wait(until);
            if let Some(running) = &mut child {
                if let Some(status) = running.try_wait()? {
                    return Ok(Some(status));
                }
                if let Some(Signal::Stop(number)) = signal {
                    pass_on(running, number);
                }
            }
            if let Some(Signal::Stop(_)) = signal {
                return Ok(None);
            }
            let now = Instant::now();
            if deadline.is_some_and(|d| d <= now) {
                return Ok(None);
            }
            if let (Some(at), Some(every)) = (next, args.interval)
                && at <= now
            {
                self.interval(ui)?;
                // Keep the rhythm, and leave out what was missed.
                let mut following = at;
                while following <= now {
                    following = match following.checked_add(every.0) {
                        Some(t) => t,
                        None => break,
                    };
                }
                next = Some(following);
            }
        }
    }

    fn interval(&mut self, ui: &mut Ui) -> Result<(), Fail> {
        let Some(session) = &self.session else {
            return Ok(());
        };
        let counts = session.read().map_err(|e| Fail::Error(e.to_string()))?;
        self.display
            .interval(&counts, Span(self.armed.elapsed()), ui)?;
        Ok(())
    }

    /// Takes the counters out and gives the last counts.
    fn end(&mut self, ui: &mut Ui) -> Result<Outcome, Fail> {
        let Some(session) = self.session.take() else {
            return Err(Fail::error("the session has ended already"));
        };
        let read = session.read();
        let span = Span(self.armed.elapsed());
        if let Some(remark) = old_bodies::remark(&session.old_bodies()) {
            ui.note(&remark);
        }
        let busy = Busy::new("disarming".into());
        let finished = session.finish();
        drop(busy);
        let mut counts = read.map_err(|e| Fail::Error(e.to_string()))?;
        match finished {
            Ok((last, report)) => {
                if let Some(last) = last {
                    counts.counts = last.counts;
                }
                tell_report(&report, &mut counts, ui);
            }
            // The counts were read before: they are not lost.
            Err(e) => ui.warn(&ending::failure(&e)),
        }
        Ok(Outcome { counts, span })
    }
}

fn tell_report(report: &DisarmReport, counts: &mut Counts, ui: &mut Ui) {
    if report.gone > 0 {
        counts.notes.push(format!(
            "the module of {} was unloaded meanwhile: counted until then",
            short::number(report.gone as usize, "site")
        ));
    }
    ending::tell_waiting(report, ui);
}

/// A signal that reached only us goes to the command too. (Ctrl-C reaches both.)
pub(crate) fn pass_on(child: &Child, number: i32) {
    if number == signal_hook::consts::SIGINT {
        return;
    }
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended in this moment: so much the better.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// A time span on the command line, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Duration);

impl std::str::FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seconds, String> {
        let (digits, unit) = match text.trim() {
            t if t.ends_with("ms") => (t.trim_end_matches("ms"), 0.001),
            t if t.ends_with('s') => (t.trim_end_matches('s'), 1.0),
            t if t.ends_with('m') => (t.trim_end_matches('m'), 60.0),
            t if t.ends_with('h') => (t.trim_end_matches('h'), 3600.0),
            t => (t, 1.0),
        };
        let wrong =
            || format!("{text:?} is no time: write seconds such as 5 or 0.5, or 200ms, 2m, 1h");
        let number: f64 = digits.trim().parse().map_err(|_| wrong())?;
        if number.is_nan() || number <= 0.0 {
            return Err("the time must be above 0".into());
        }
        let time = Duration::try_from_secs_f64(number * unit).map_err(|_| wrong())?;
        Ok(Seconds(time))
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod times {
    use super::*;

    #[test]
    fn times() {
        for (text, want) in [
            ("5", Some(5000)),
            ("0.5", Some(500)),
            ("5s", Some(5000)),
            ("200ms", Some(200)),
            ("2m", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("0", None),
            ("-1", None),
            ("-1s", None),
            ("nan", None),
            ("1e300", None),
            ("", None),
            ("five", None),
        ] {
            let got = text.parse::<Seconds>().ok().map(|s| s.0.as_millis());
            assert_eq!(got, want, "{text:?}");
        }
    }
}
