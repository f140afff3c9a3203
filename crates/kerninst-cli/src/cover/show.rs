//! Coverage in the forms that were asked for.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use kerninst_kernel::Kernel;
use kerninst_profile::file::ProfileFile;

use super::args::CoverArgs;
use super::lcov::{self, Images, Sources, Tree};
use super::{Entries, lines, table, uncovered};
use crate::blocks::{LeftOut, output, sentences};
use crate::paint::Style;
use crate::ui::Ui;
use crate::{Fail, short};

/// What was found.
#[derive(Default)]
pub struct Findings<'k> {
    /// All counts.
    pub profile: ProfileFile,
    /// Addresses of entries.
    pub entries: Entries,
    /// Functions that were not counted.
    pub left_out: Vec<LeftOut>,
    /// Remarks.
    pub notes: Vec<String>,
    /// The kernel, unless this comes from a file.
    pub kernel: Option<&'k Kernel>,
}

impl Findings<'_> {
    /// Functions with counts that are not exact.
    pub fn inexact(&self) -> usize {
        let all = self.profile.functions.values();
        all.filter(|f| !f.is_exact()).count()
    }
}

/// Files that were asked for. They are made before anything is armed: a wrong path costs nothing then.
pub struct Files {
    profile: Option<(PathBuf, File)>,
    lcov: Option<(PathBuf, File)>,
    sources: Sources,
}

impl Files {
    /// Opens what `args` ask for.
    ///
    /// # Errors
    /// [`Fail::Error`]: a path cannot be written, debug information is not of one of `images`.
    pub fn open(args: &CoverArgs, images: &Images) -> Result<Files, Fail> {
        let create = |path: &Option<PathBuf>| match path {
            None => Ok(None),
            Some(p) => output::create(p).map(|f| Some((p.clone(), f))),
        };
        let sources = Sources::open(&args.vmlinux, images)?;
        Ok(Files {
            sources,
            lcov: create(&args.lcov)?,
            profile: create(&args.output)?,
        })
    }
}

/// What the trace file does not have.
fn lcov_notes(tree: &Tree) -> Vec<String> {
    let mut notes = Vec::new();
    if tree.without > 0 {
        let functions = short::number(tree.without, "function");
        notes.push(format!(
            "not in the lcov file: {functions} of which no --vmlinux file has the source"
        ));
    }
    if tree.unknown > 0 {
        let lines = short::number(tree.unknown, "count");
        notes.push(format!(
            "not in the lcov file: {lines} of lines and branches that are not known"
        ));
    }
    notes
}

/// Writes a profile file.
pub fn write_profile(
    profile: &ProfileFile,
    path: &std::path::Path,
    file: File,
) -> Result<(), Fail> {
    let mut out = BufWriter::new(file);
    profile
        .write(&mut out)
        .map_err(|e| Fail::Error(format!("cannot write {}: {e}", path.display())))
}

/// Writes everything.
///
/// # Errors
/// [`Fail`]: output that cannot be written; with `--strict`, whatever is missing.
pub fn write(findings: &Findings, args: &CoverArgs, files: Files, ui: &mut Ui) -> Result<(), Fail> {
    let profile = &findings.profile;
    if let Some((path, file)) = files.profile {
        write_profile(profile, &path, file)?;
    }
    let mut notes = findings.notes.clone();
    if let Some((path, file)) = files.lcov {
        let tree = files.sources.collect(profile);
        lcov::write(&tree, &mut BufWriter::new(file))
            .map_err(|e| output::cannot_write(&path, &e))?;
        notes.extend(lcov_notes(&tree));
    }
    let inexact = findings.inexact();
    let complete = profile.head.complete;
    if args.json {
        lines::write(findings, ui.out)?;
    } else {
        if args.uncovered {
            uncovered::write(profile, &findings.entries, ui.out, ui.paint)?;
            writeln!(ui.out)?;
        }
        table::write(profile, args.sort, args.each, ui.out, ui.paint)?;
        let word = match inexact == 0 && complete {
            true => ui.paint.paint(Style::Good, "yes").to_string(),
            false => {
                let exact = profile.functions.len() - inexact;
                let text = format!("no ({exact} of {} functions)", profile.functions.len());
                ui.paint.paint(Style::Bad, text).to_string()
            }
        };
        let seconds = profile.head.seconds;
        writeln!(ui.out, "in {seconds:.3} s; exact: {word}")?;
    }
    ui.flush()?;
    for text in sentences(&findings.left_out) {
        ui.warn(&text);
    }
    for note in &notes {
        ui.warn(note);
    }
    if args.strict && (inexact > 0 || !findings.left_out.is_empty() || !complete) {
        return Err(Fail::Incomplete("not everything is covered exactly".into()));
    }
    Ok(())
}
