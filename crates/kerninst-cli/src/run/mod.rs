//! `kerninst run`: scripts of the probe language.

mod args;
mod clock;
mod dry;
mod scene;
mod script;

use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use kerninst::script::{LeftOut, Placing, Running, ScriptError, Sizes, place};
use kerninst::{ArmOptions, Owners};
use kerninst_analysis::Analysis;
use kerninst_lang::hir::{On, Script};
use kerninst_lang::layout::Loss;
use kerninst_lang::show::{json, losses_text};

pub use args::RunArgs;
use scene::Scene;
use script::Source;

use crate::count::pass_on;
use crate::count::watch::{Signal, Watch};
use crate::json::KernelLine;
use crate::progress::Busy;
use crate::ui::Ui;
use crate::{Fail, ending, memory, old_bodies, short, source};

/// Events are looked for this often: a buffer of the default size fills in no shorter time at a million events a second.
const TICK: Duration = Duration::from_millis(5);
/// So many events are shown before anything else is looked at.
const BATCH: u64 = 1 << 16;

/// `kerninst run -e SCRIPT | FILE`.
///
/// # Errors
/// [`Fail`]. Whatever it is, nothing of ours is armed afterwards.
pub fn run(args: &RunArgs, ui: &mut Ui) -> Result<(), Fail> {
    if args.source.image.is_some() && !args.dry_run {
        return Err(Fail::error(
            "a script runs on the running kernel: leave out --image, or add --dry-run to see what would be done",
        ));
    }
    let text = Source::of(args)?;
    // What is wrong with its syntax is told before the kernel is looked at.
    let tree = text.parse(ui)?;
    if args.dry_run {
        let kernel = source::open(&args.source)?;
        let script = text.check(&tree, &kernel, args, ui)?;
        return dry::run(&kernel, &text, &script, args, ui);
    }
    if let Some(pid) = args.pid
        && !std::path::Path::new("/proc").join(pid.to_string()).exists()
    {
        return Err(Fail::Error(format!("there is no process {pid} (-p)")));
    }
    kerninst::in_use().map_err(|e| Fail::Error(e.to_string()))?;
    // From here on Ctrl-C is ours: whatever is armed is taken out in an orderly way.
    let watch = Watch::start()?;
    let kernel = source::open_still(&args.source)?;
    let script = text.check(&tree, &kernel, args, ui)?;
    let analysis = Analysis::new(&kernel);
    let placing = placed(&analysis, &text, &script, args, ui)?;
    memory::enough_for_points(&kernel, placing.points.len())?;
    let fail = |e: ScriptError, ui: &mut Ui| script_error(&text, &e, ui);
    let running = Running::prepare(&analysis, script, placing, &sizes(args), args.pid)
        .map_err(|e| fail(e, ui))?;
    tell_left_out(running.left_out(), ui);
    let mut scene = Scene::new(running, args.json);
    if args.json {
        KernelLine::write(&kernel, ui.out)?;
    }
    scene.clauses(|on| *on == On::Begin)?;
    flush(&mut scene, ui)?;
    let options = ArmOptions {
        means: args.means.into(),
        ..ArmOptions::default()
    };
    let owners = Owners::live();
    if !scene.exited {
        let busy = Busy::new("arming".into());
        let armed = scene.running.arm(&analysis, &owners, options);
        drop(busy);
        armed.map_err(|e| fail(e, ui))?;
    }
    let refused = scene.running.session().map(ending::refusals);
    let refused = refused.unwrap_or_default();
    ending::tell(&refused, "not armed", "--dry-run", ui);
    if args.strict && !refused.is_empty() {
        return Err(Fail::Incomplete(
            "not all points can be armed: nothing was run (--strict)".into(),
        ));
    }
    scene.start();
    let armed = scene.running.session().map_or(0, |s| s.points().len());
    if args.json {
        scene
            .out
            .extend(json::attached_probes(armed as u64).into_bytes());
    } else if armed > 0 && args.command.is_none() {
        let end = match args.duration {
            Some(_) => "",
            None => "; Ctrl-C ends it",
        };
        ui.note(&format!(
            "running at {}{end}",
            short::number(armed, "point")
        ));
    }
    let status = follow(&mut scene, &watch, args, ui);
    let ended = end(&mut scene, &watch, args, ui);
    let status = status?;
    ended?;
    match status {
        Some(status) if !status.success() => Err(Fail::Command(status)),
        _ => Ok(()),
    }
}

fn sizes(args: &RunArgs) -> Sizes {
    Sizes {
        keys: args.keys.clamp(1, 1 << 20),
        buffer: args.buffer.clamp(4, 1 << 18) * 1024,
        stacks: args.stacks.clamp(1, 1 << 18),
    }
}

/// The points of a script.
fn placed(
    analysis: &Analysis,
    text: &Source,
    script: &Script,
    args: &RunArgs,
    ui: &mut Ui,
) -> Result<Placing, Fail> {
    let placing = place(analysis, script, args.source.module.as_deref())
        .map_err(|e| script_error(text, &e, ui))?;
    tell_left_out(&placing.left_out, ui);
    let wanted = |on: &On| matches!(on, On::Probe { .. });
    let any = script.clauses.iter().any(|c| c.on.iter().any(wanted));
    if any && placing.points.is_empty() {
        return Err(Fail::Nothing("no probe of the script has a point".into()));
    }
    Ok(placing)
}

/// An error about a place in the source is shown there.
fn script_error(text: &Source, e: &ScriptError, ui: &mut Ui) -> Fail {
    match e.span() {
        Some(span) => text.fail_at(span, &e.to_string(), ui),
        None => Fail::Error(e.to_string()),
    }
}

/// Tells what was left out.
fn tell_left_out(lines: &[LeftOut], ui: &mut Ui) {
    let lines: Vec<String> = lines.iter().map(|l| l.0.clone()).collect();
    ending::tell(&lines, "left out", "--dry-run", ui);
}

fn flush(scene: &mut Scene, ui: &mut Ui) -> Result<(), Fail> {
    if !scene.out.is_empty() {
        ui.out.write_all(&scene.out)?;
        ui.flush()?;
        scene.out.clear();
    }
    Ok(())
}

/// A clause that runs again and again.
struct Beat {
    clause: usize,
    every: Duration,
    next: Instant,
}

/// Shows events as they come, until the command has ended, the time is over, the script or the user has had enough.
fn follow(
    scene: &mut Scene,
    watch: &Watch,
    args: &RunArgs,
    ui: &mut Ui,
) -> Result<Option<ExitStatus>, Fail> {
    let started = Instant::now();
    let deadline = args.duration.and_then(|d| started.checked_add(d.0));
    let script = scene.running.script().clone();
    let mut beats: Vec<Beat> = Vec::new();
    for (clause, c) in script.clauses.iter().enumerate() {
        for on in &c.on {
            if let On::Interval(ns) = on {
                let every = Duration::from_nanos((*ns).max(1_000_000));
                beats.push(Beat {
                    clause,
                    every,
                    next: started + every,
                });
            }
        }
    }
    let nothing_to_wait_for = scene.running.session().is_none() && beats.is_empty();
    if nothing_to_wait_for && args.command.is_none() && deadline.is_none() {
        return Ok(None);
    }
    let mut child: Option<Child> = None;
    if let Some(command) = args.command.as_ref().filter(|_| !scene.exited) {
        let spawned = Command::new("/bin/sh").arg("-c").arg(command).spawn();
        child = Some(spawned.map_err(|e| Fail::Error(format!("cannot run {command}: {e}")))?);
    }
    let sends = scene.running.session().is_some() && !scene.running.events().all().is_empty();
    loop {
        if scene.exited {
            if let Some(running) = &mut child {
                pass_on(running, signal_hook::consts::SIGTERM);
                let _ = running.wait();
            }
            return Ok(None);
        }
        let now = Instant::now();
        let tick = sends.then_some(now + TICK);
        let beat = beats.iter().map(|b| b.next).min();
        let until = [deadline, tick, beat].into_iter().flatten().min();
        let signal = watch.wait(until);
        if sends {
            while scene.events(BATCH)? == BATCH && !scene.exited {
                flush(scene, ui)?;
            }
        }
        let now = Instant::now();
        for beat in &mut beats {
            if beat.next > now || scene.exited {
                continue;
            }
            if let Some(clause) = script.clauses.get(beat.clause) {
                scene.clause(clause)?;
            }
            // Keep the rhythm, and leave out what was missed.
            while beat.next <= now {
                beat.next += beat.every;
            }
        }
        flush(scene, ui)?;
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
        if deadline.is_some_and(|d| d <= now) {
            return Ok(None);
        }
    }
}

/// Takes everything out, and shows what is left to show.
fn end(scene: &mut Scene, watch: &Watch, args: &RunArgs, ui: &mut Ui) -> Result<(), Fail> {
    if let Some(session) = scene.running.session()
        && let Some(remark) = old_bodies::remark(&session.old_bodies())
    {
        ui.note(&remark);
    }
    let mut records = Vec::new();
    let busy = Busy::new("disarming".into());
    let finished = scene.running.finish(|r| records.push(r));
    drop(busy);
    let finished = finished.map_err(|e| Fail::Error(ending::failure(&e)))?;
    if watch.pressed_again() {
        return Err(Fail::Interrupted);
    }
    // What was asked for before `exit()` is shown, and END runs even so.
    if !scene.exited {
        scene.show(records)?;
    }
    scene.exited = false;
    scene.clauses(|on| *on == On::End)?;
    scene.maps()?;
    let lost = scene.running.lost();
    let lost = lost.map_err(|e| Fail::Error(e.to_string()))?;
    if args.json {
        scene.out.extend(json::lost_events(&lost).into_bytes());
    }
    flush(scene, ui)?;
    for line in losses_text(&lost).lines() {
        ui.warn(line);
    }
    ending::tell_waiting(&finished.report, ui);
    let serious = Loss::ALL.iter().zip(&lost);
    let serious: u64 = serious
        .filter(|(loss, _)| **loss != Loss::Unreadable)
        .map(|(_, n)| *n)
        .sum();
    if args.strict && serious > 0 {
        return Err(Fail::Incomplete(format!(
            "something was lost, {}",
            short::number(serious as usize, "time")
        )));
    }
    Ok(())
}
