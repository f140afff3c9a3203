//! `kerninst cover`: which blocks and edges ran.

mod args;
mod compare;
mod figures;
mod lcov;
mod lines;
mod plan;
mod show;
mod table;
mod uncovered;

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use kerninst_analysis::Analysis;
use kerninst_kernel::{Kernel, glob_match};
use kerninst_profile::file::{FunctionProfile, ProfileFile};

pub use args::{CoverArgs, CoverVerb, DiffArgs, MergeArgs, Sort};

use crate::blocks::targets::Target;
use crate::blocks::{CountEdges, Span, arm, on_kernel, output, targets};
use crate::memory::{self, Work};
use crate::names::{Names, id_matches};
use crate::ui::Ui;
use crate::{Fail, short};
use show::{Files, Findings};

/// Addresses of functions' entries by id, where a kernel is at hand.
type Entries = HashMap<String, u64>;

/// `kerninst cover`.
///
/// # Errors
/// [`Fail`]. Whatever it is, nothing of ours is armed afterwards.
pub fn run(args: &CoverArgs, ui: &mut Ui) -> Result<(), Fail> {
    match &args.verb {
        Some(CoverVerb::Merge(args)) => return compare::merge(args, ui),
        Some(CoverVerb::Diff(args)) => return compare::diff(args, ui),
        None => {}
    }
    if let Some(path) = &args.read {
        return read(path, args, ui);
    }
    if args.functions.is_empty() && !args.all && args.source.module.is_none() {
        return Err(Fail::error(
            "which functions? Name some (globs too), or give --module NAME, or --all",
        ));
    }
    if args.source.image.is_some() && !args.plan {
        return Err(Fail::error(
            "counting needs the running kernel: leave out --image, or add --plan to see what would be done",
        ));
    }
    let span = Span {
        duration: args.duration.map(|d| d.0),
        command: &args.command,
    };
    let counts = (!args.plan).then_some(&span);
    on_kernel(&args.source, counts, ui, |kernel, ui, count| {
        cover(kernel, args, ui, count)
    })
}

/// The same over a kernel that is already open, with the counting left to `count`.
///
/// # Errors
/// As [`run`].
pub fn cover(
    kernel: &Kernel,
    args: &CoverArgs,
    ui: &mut Ui,
    count: CountEdges,
) -> Result<(), Fail> {
    let analysis = Analysis::new(kernel);
    let names = Names::new(&analysis, args.source.module.as_deref())?;
    let chosen = names.select(&args.functions)?;
    memory::enough(kernel, &chosen, Work::of(args.plan))?;
    let (mut targets, mut left_out) = targets::targets(&analysis, &chosen, None, false);
    if args.once {
        targets = targets.into_iter().map(Target::once).collect();
    }
    if targets.is_empty() {
        return Err(arm::nothing(&left_out));
    }
    if args.plan {
        let owners = kerninst::Owners::of(kernel);
        let targets = arm::settle(&analysis, targets, &owners, &mut left_out);
        return plan::run(kernel, &targets, &left_out, args, ui);
    }
    let files = Files::open(args, &lcov::images_of(kernel))?;
    let (reports, run) = count(&analysis, targets, ui)?;
    left_out.extend(run.left_out.iter().cloned());
    let mut profile = output::profile(&analysis, &reports, &run, &args.command)?;
    profile.head.once = args.once;
    let entry = |r: &crate::blocks::Report| (r.function.id.clone(), r.function.entry());
    let result = Findings {
        profile,
        entries: reports.iter().map(entry).collect(),
        left_out,
        notes: run.notes,
        kernel: Some(kernel),
    };
    drop(reports);
    show::write(&result, args, files, ui)?;
    if args.once && !args.json {
        let marks = short::number(run.taken_out, "mark");
        ui.note(&format!(
            "{marks} taken out again meanwhile, having been reached"
        ));
    }
    Ok(())
}

/// Shows a profile.
fn read(path: &Path, args: &CoverArgs, ui: &mut Ui) -> Result<(), Fail> {
    let mut profile = open(path)?;
    if let Some(module) = &args.source.module {
        let module = module.replace('-', "_");
        let of = |f: &FunctionProfile| f.module().unwrap_or("kernel").to_string();
        profile.functions.retain(|_, f| glob_match(&module, &of(f)));
    }
    let patterns = &args.functions;
    for pattern in patterns {
        if !profile.functions.keys().any(|id| id_matches(pattern, id)) {
            let path = path.display();
            return Err(Fail::Nothing(format!(
                "no function in {path} matches {pattern}"
            )));
        }
    }
    if !patterns.is_empty() {
        let fits = |id: &String| patterns.iter().any(|p| id_matches(p, id));
        profile.functions.retain(|id, _| fits(id));
    }
    if profile.functions.is_empty() {
        let path = path.display();
        return Err(Fail::Nothing(format!("there is nothing to show in {path}")));
    }
    let files = Files::open(args, &lcov::images_in(&profile.head))?;
    let result = Findings {
        profile,
        ..Findings::default()
    };
    show::write(&result, args, files, ui)
}

/// Opens a profile file.
fn open(path: &Path) -> Result<ProfileFile, Fail> {
    let fail = |e: &dyn std::fmt::Display| Fail::Error(format!("{}: {e}", path.display()));
    let file = File::open(path).map_err(|e| fail(&e))?;
    ProfileFile::read(BufReader::new(file)).map_err(|e| fail(&e))
}
