//! `kerninst blocks`: exact counts of every block and every edge of functions.

mod annotate;
mod args;
pub(crate) mod arm;
mod left_out;
mod lines;
pub(crate) mod output;
mod plan;
mod report;
mod table;
pub(crate) mod targets;
mod wait;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use kerninst_analysis::Analysis;
use kerninst_kernel::Kernel;
use kerninst_profile::file::ProfileFile;

pub use args::BlocksArgs;
pub use left_out::{LeftOut, sentences};
pub use output::Run;
pub use report::{Report, count};
pub use targets::Target;

use crate::args::Source;
use crate::count::watch::Watch;
use crate::json::hex;
use crate::memory::{self, Work};
use crate::names::Names;
use crate::ui::Ui;
use crate::{Fail, source};
use output::Files;
pub(crate) use wait::Span;

/// Is the jump label at `addr` a jump at present? None: its bytes are not known.
/// (`JMP.d8` and `JMP.d32`; arch/x86/include/asm/jump_label.h, 6.12.)
pub(crate) fn jumps_now(kernel: &Kernel, addr: u64) -> Option<bool> {
    let opcode = kernel.bytes(addr, 1)?.first()?;
    Some(matches!(opcode, 0xeb | 0xe9))
}

/// `kerninst blocks FUNCTION…`.
///
/// # Errors
/// [`Fail`]. Whatever it is, nothing of ours is armed afterwards.
pub fn run(args: &BlocksArgs, ui: &mut Ui) -> Result<(), Fail> {
    if args.source.image.is_some() && !args.plan && args.read.is_none() {
        return Err(Fail::error(
            "counting needs the running kernel: leave out --image, or add --plan to see what would be done",
        ));
    }
    let span = Span {
        duration: args.duration.map(|d| d.0),
        command: &args.command,
    };
    let counts = !args.plan && args.read.is_none();
    on_kernel(
        &args.source,
        counts.then_some(&span),
        ui,
        |kernel, ui, count| blocks(kernel, args, ui, count),
    )
}

/// Opens the kernel and does `work` with it, which may count once, while `span` lasts (none: not at all). Passes on how the
/// command of the span ended.
pub(crate) fn on_kernel(
    source: &Source,
    span: Option<&Span>,
    ui: &mut Ui,
    work: impl FnOnce(&Kernel, &mut Ui, CountEdges) -> Result<(), Fail>,
) -> Result<(), Fail> {
    if span.is_some() {
        kerninst::in_use().map_err(|e| Fail::Error(e.to_string()))?;
    }
    // From here on Ctrl-C is ours: whatever is armed is taken out in an orderly way.
    let watch = span.map(|_| Watch::start()).transpose()?;
    let kernel = source::open_still(source)?;
    let mut status = None;
    work(&kernel, ui, &mut |analysis, targets, ui| {
        let Some((watch, span)) = watch.as_ref().zip(span) else {
            return Err(Fail::error("nothing was to be counted"));
        };
        let (reports, run, ended) = arm::count(analysis, targets, span, watch, ui)?;
        status = ended;
        if watch.pressed_again() {
            return Err(Fail::Interrupted);
        }
        Ok((reports, run))
    })?;
    match status {
        Some(status) if !status.success() => Err(Fail::Command(status)),
        _ => Ok(()),
    }
}

/// Arms the counters of targets, waits, and gives a report for each.
pub type CountEdges<'a> =
    &'a mut dyn FnMut(&Analysis, Vec<Target>, &mut Ui) -> Result<(Vec<Report>, Run), Fail>;

/// The same over a kernel that is already open, with the counting left to `count`.
///
/// # Errors
/// As [`run`].
pub fn blocks(
    kernel: &Kernel,
    args: &BlocksArgs,
    ui: &mut Ui,
    count: CountEdges,
) -> Result<(), Fail> {
    let analysis = Analysis::new(kernel);
    let names = Names::new(&analysis, args.source.module.as_deref())?;
    let chosen = names.select(&args.functions)?;
    memory::enough(kernel, &chosen, Work::of(args.plan))?;
    let weights = args.weights.as_deref();
    let weights = weights.map(|p| profile_of(kernel, p)).transpose()?;
    let (mut targets, mut left_out) =
        targets::targets(&analysis, &chosen, weights.as_ref(), args.every_edge);
    if targets.is_empty() {
        return Err(arm::nothing(&left_out));
    }
    if args.plan {
        let owners = kerninst::Owners::of(kernel);
        targets = arm::settle(&analysis, targets, &owners, &mut left_out);
        return plan::run(&analysis, targets, &left_out, args, ui);
    }
    if let Some(path) = &args.read {
        let file = profile_of(kernel, path)?;
        return read(&analysis, targets, left_out, &file, args, ui);
    }
    let files = Files::open(args, targets.len())?;
    let (reports, mut run) = count(&analysis, targets, ui)?;
    run.notes.extend(arm::not_called(&reports));
    run.left_out.splice(0..0, left_out);
    output::write(&analysis, reports, &run, args, files, ui)
}

/// Shows the counts of a profile file.
fn read(
    analysis: &Analysis,
    targets: Vec<Target>,
    mut left_out: Vec<LeftOut>,
    file: &ProfileFile,
    args: &BlocksArgs,
    ui: &mut Ui,
) -> Result<(), Fail> {
    let mut reports = Vec::new();
    for target in targets {
        let id = target.function.id.clone();
        let Some(counted) = file.functions.get(&id) else {
            let why = "it is not in the profile";
            left_out.push(LeftOut::because(&id, "not-in-profile", why));
            continue;
        };
        match counted.profile(&target.function, &target.flow) {
            Ok(profile) => reports.push(target.with(analysis, profile)),
            Err(e) => left_out.push(LeftOut::because(&id, "other-code", e.to_string())),
        }
    }
    if reports.is_empty() {
        let why = left_out.first().map(LeftOut::to_string).unwrap_or_default();
        return Err(Fail::Nothing(format!("there is nothing to show: {why}")));
    }
    let files = Files::open(args, reports.len())?;
    let run = Run {
        left_out,
        seconds: file.head.seconds,
        complete: file.head.complete,
        notes: Vec::new(),
        ..Run::default()
    };
    output::write(analysis, reports, &run, args, files, ui)
}

/// A profile file of this kernel.
fn profile_of(kernel: &Kernel, path: &Path) -> Result<ProfileFile, Fail> {
    let fail = |e: &dyn std::fmt::Display| Fail::Error(format!("{}: {e}", path.display()));
    let file = File::open(path).map_err(|e| fail(&e))?;
    let profile = ProfileFile::read(BufReader::new(file)).map_err(|e| fail(&e))?;
    let ours = kernel.build_id().map(hex).unwrap_or_default();
    if profile.head.build_id != ours {
        let of = profile.head.release.as_deref().unwrap_or("another kernel");
        return Err(fail(&format!(
            "this profile is of {of} (build id {}), not of this kernel ({ours})",
            profile.head.build_id
        )));
    }
    Ok(profile)
}
