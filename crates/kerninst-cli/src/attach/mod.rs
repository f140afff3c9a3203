//! `kerninst attach`: a BPF program before points, until a command, a time or the user ends it.

mod args;
mod load;

use std::process::{Command, ExitStatus};
use std::time::Instant;

use kerninst::{ArmOptions, Attached, Owners, Probe, Session};
use kerninst_analysis::Analysis;
use serde::Serialize;

pub use args::AttachArgs;
use load::{Loaded, MapId};

use crate::count::watch::{Signal, Watch};
use crate::count::{pass_on, plan, planned};
use crate::json::{self, KernelLine};
use crate::progress::Busy;
use crate::ui::Ui;
use crate::{Fail, ending, memory, old_bodies, short, source};

/// What is attached: schema `kerninst.attached/1`.
#[derive(Serialize)]
struct AttachedLine<'a> {
    program: &'a str,
    id: u32,
    maps: &'a [MapId],
    points: usize,
    refused: usize,
}

/// How it ended: schema `kerninst.attach/1`.
#[derive(Serialize)]
struct EndLine<'a> {
    program: &'a str,
    ran: u64,
    skipped: u64,
    complete: bool,
}

/// `kerninst attach OBJECT[:PROGRAM] POINT… [-d SECONDS | -- COMMAND…]`.
///
/// # Errors
/// [`Fail`]. Whatever it is, nothing of ours is armed afterwards.
pub fn run(args: &AttachArgs, ui: &mut Ui) -> Result<(), Fail> {
    let as_count = args.as_count();
    if args.plan {
        let kernel = source::open(&args.source)?;
        return planned(&kernel, &as_count, ui);
    }
    if args.source.image.is_some() {
        return Err(Fail::error(
            "a program is attached to the running kernel: leave out --image, or add --plan to see what would be done",
        ));
    }
    let probes = args.points.iter().map(|p| p.parse::<Probe>());
    let probes: Vec<Probe> = probes
        .collect::<Result<_, _>>()
        .map_err(|e| Fail::Error(e.to_string()))?;
    kerninst::in_use().map_err(|e| Fail::Error(e.to_string()))?;
    // From here on Ctrl-C is ours: whatever is armed is taken out in an orderly way.
    let watch = Watch::start()?;
    let kernel = source::open_still(&args.source)?;
    let analysis = Analysis::new(&kernel);
    let points = plan::resolve(&analysis, &probes, &as_count, ui)?;
    memory::enough_for_points(&kernel, points.len())?;
    let owners = Owners::live();
    if args.strict {
        plan::all_or_nothing(&analysis, &points, &owners, &as_count)?;
    }
    let loaded = Loaded::new(&args.program, ui)?;
    let options = ArmOptions {
        means: args.means.into(),
        ..ArmOptions::default()
    };
    let busy = Busy::new(format!("arming {}", short::number(points.len(), "point")));
    let attached = Attached::arm(&analysis, &points, &owners, options, loaded.fd()?);
    drop(busy);
    let attached =
        attached.map_err(|e| plan::arm_error(&analysis, &points, &owners, &as_count, &e))?;
    let refused = ending::refusals(attached.session());
    ending::tell(&refused, "not attached", "--plan", ui);
    if args.json {
        KernelLine::write(&kernel, ui.out)?;
    }
    tell_attached(&loaded, attached.session(), args, ui)?;
    let status = wait(&watch, args);
    end(attached, &loaded, args, ui)?;
    match status? {
        Some(status) if !status.success() => Err(Fail::Command(status)),
        _ => Ok(()),
    }
}

/// Says what is where, before anything is waited for: maps are read meanwhile.
fn tell_attached(
    loaded: &Loaded,
    session: &Session,
    args: &AttachArgs,
    ui: &mut Ui,
) -> Result<(), Fail> {
    let points = session.points().len();
    if args.json {
        let line = AttachedLine {
            program: &loaded.name,
            id: loaded.id,
            maps: &loaded.maps,
            points,
            refused: session.refused().len() + session.conflicts().len(),
        };
        json::line(ui.out, "kerninst.attached/1", &line)?;
        return ui.flush().map_err(Fail::from);
    }
    let end = match args.duration.is_some() || !args.command.is_empty() {
        true => "",
        false => "; Ctrl-C ends it",
    };
    ui.note(&format!(
        "program {} (id {}) is attached at {}{end}",
        loaded.name,
        loaded.id,
        short::number(points, "point")
    ));
    for map in &loaded.maps {
        ui.note(&format!("map {}: bpftool map dump id {}", map.name, map.id));
    }
    Ok(())
}

/// Until the command has ended (its status), the time is over, or the user has had enough.
fn wait(watch: &Watch, args: &AttachArgs) -> Result<Option<ExitStatus>, Fail> {
    let started = Instant::now();
    let deadline = args.duration.and_then(|d| started.checked_add(d.0));
    let mut child = None;
    if let Some((program, rest)) = args.command.split_first() {
        let spawned = Command::new(program).args(rest).spawn();
        child =
            Some(spawned.map_err(|e| {
                Fail::Error(format!("cannot run {}: {e}", program.to_string_lossy()))
            })?);
    }
    loop {
        let signal = watch.wait(deadline);
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
        if deadline.is_some_and(|d| d <= Instant::now()) {
            return Ok(None);
        }
    }
}

/// Takes it out, and shows how often it ran.
fn end(attached: Attached, loaded: &Loaded, args: &AttachArgs, ui: &mut Ui) -> Result<(), Fail> {
    if let Some(remark) = old_bodies::remark(&attached.session().old_bodies()) {
        ui.note(&remark);
    }
    let busy = Busy::new("disarming".into());
    let finished = attached.finish();
    drop(busy);
    let (runs, complete, report) = finished.map_err(|e| Fail::Error(ending::failure(&e)))?;
    ending::tell_waiting(&report, ui);
    if args.json {
        let line = EndLine {
            program: &loaded.name,
            ran: runs.ran,
            skipped: runs.skipped,
            complete,
        };
        json::line(ui.out, "kerninst.attach/1", &line)?;
    } else {
        writeln!(
            ui.out,
            "{} ran {} times, skipped {}",
            loaded.name, runs.ran, runs.skipped
        )?;
    }
    ui.flush()?;
    if runs.skipped > 0 {
        ui.warn(&format!(
            "{} skipped: a BPF program was at work on that CPU already, or RCU did not look at it",
            short::number(runs.skipped as usize, "visit")
        ));
    }
    if args.strict && (runs.skipped > 0 || !complete) {
        return Err(Fail::Incomplete("not every visit ran the program".into()));
    }
    Ok(())
}
