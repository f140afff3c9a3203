//! Results in the forms that were asked for.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use kerninst_analysis::Analysis;
use kerninst_profile::file::{FunctionProfile, Head, ProfileFile};

use super::args::BlocksArgs;
use super::left_out::{LeftOut, sentences};
use super::lines::{self, Summary};
use super::report::Report;
use super::{annotate, table};
use crate::json::{KernelLine, hex};
use crate::paint::Style;
use crate::show::{dot, model::View};
use crate::ui::Ui;
use crate::{Fail, source, svg};

/// How the counting went.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Functions that could not be counted, and why.
    pub left_out: Vec<LeftOut>,
    /// Time that was counted, in seconds.
    pub seconds: f64,
    /// Nothing was lost.
    pub complete: bool,
    /// Remarks.
    pub notes: Vec<String>,
    /// Marks that were taken out again, having been reached.
    pub taken_out: usize,
}

/// Files that were asked for. They are made before anything is armed: a wrong path costs nothing then.
pub struct Files {
    svg: Option<Pictures>,
    dot: Option<Pictures>,
    profile: Option<(PathBuf, File)>,
}

/// Where pictures go.
enum Pictures {
    One(PathBuf, File),
    Directory(PathBuf),
}

impl Files {
    /// Opens what `args` ask for, for so many functions.
    ///
    /// # Errors
    /// [`Fail::Error`]: a path cannot be written.
    pub fn open(args: &BlocksArgs, functions: usize) -> Result<Files, Fail> {
        let pictures = |path: &Option<PathBuf>| match path {
            None => Ok(None),
            Some(p) => Pictures::open(p, functions).map(Some),
        };
        Ok(Files {
            svg: pictures(&args.svg)?,
            dot: pictures(&args.dot)?,
            profile: match &args.output {
                None => None,
                Some(p) => Some((p.clone(), create(p)?)),
            },
        })
    }
}

impl Pictures {
    fn open(path: &Path, functions: usize) -> Result<Pictures, Fail> {
        let slash = path.as_os_str().to_string_lossy().ends_with('/');
        if functions == 1 && !slash && !path.is_dir() {
            return Ok(Pictures::One(path.into(), create(path)?));
        }
        std::fs::create_dir_all(path).map_err(|e| {
            Fail::Error(format!(
                "cannot make the directory {} for {functions} pictures: {e}",
                path.display()
            ))
        })?;
        Ok(Pictures::Directory(path.into()))
    }

    fn write(
        &self,
        id: &str,
        ending: &str,
        write: &dyn Fn(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Fail> {
        let (path, file) = match self {
            Pictures::One(path, file) => {
                let again = file.try_clone().map_err(|e| cannot_write(path, &e))?;
                (path.clone(), again)
            }
            Pictures::Directory(dir) => {
                let path = dir.join(format!("{}.{ending}", id.replace('/', "_")));
                let file = create(&path)?;
                (path, file)
            }
        };
        let mut out = BufWriter::new(file);
        write(&mut out)
            .and_then(|()| out.flush())
            .map_err(|e| cannot_write(&path, &e))
    }
}

pub(crate) fn create(path: &Path) -> Result<File, Fail> {
    File::create(path).map_err(|e| cannot_write(path, &e))
}

pub(crate) fn cannot_write(path: &Path, e: &io::Error) -> Fail {
    Fail::Error(format!("cannot write {}: {e}", path.display()))
}

/// Writes everything.
///
/// # Errors
/// [`Fail`]: output that cannot be written; with `--strict`, counts that are not exact.
pub fn write(
    analysis: &Analysis,
    reports: Vec<Report>,
    run: &Run,
    args: &BlocksArgs,
    files: Files,
    ui: &mut Ui,
) -> Result<(), Fail> {
    let kernel = analysis.kernel();
    if let Some((path, file)) = &files.profile {
        let profile = profile(analysis, &reports, run, &args.command)?;
        let mut out = BufWriter::new(file);
        profile
            .write(&mut out)
            .map_err(|e| Fail::Error(format!("cannot write {}: {e}", path.display())))?;
    }
    let title = source::title(kernel);
    let reports: Vec<(Report, View)> = reports
        .into_iter()
        .map(|r| {
            let view = r.view(analysis, args.syntax);
            (r, view)
        })
        .collect();
    for (_, view) in &reports {
        if let Some(pictures) = &files.svg {
            pictures.write(&view.id, "svg", &|out| svg::write(view, &title, out))?;
        }
        if let Some(pictures) = &files.dot {
            pictures.write(&view.id, "dot", &|out| dot::write(view, out))?;
        }
    }
    let exact = reports.iter().filter(|(r, _)| r.is_exact()).count();
    if args.json {
        KernelLine::write(kernel, ui.out)?;
        lines::functions(&reports, ui.out)?;
        let summary = Summary {
            functions: reports.len(),
            exact,
            left_out: run.left_out.iter().map(LeftOut::to_string).collect(),
            seconds: run.seconds,
            complete: run.complete,
            notes: &run.notes,
        };
        lines::summary(&summary, ui.out)?;
    } else if args.annotate {
        for (n, (report, view)) in reports.iter().enumerate() {
            if n > 0 {
                writeln!(ui.out)?;
            }
            annotate::write(report, view, &title, ui.out, ui.paint)?;
        }
    } else {
        table::write(&reports, args.zeros, ui.out, ui.paint)?;
    }
    if !args.json {
        last_line(run, reports.len(), exact, ui)?;
    }
    ui.flush()?;
    for text in sentences(&run.left_out) {
        ui.warn(&text);
    }
    for note in &run.notes {
        ui.warn(note);
    }
    if args.strict && (exact < reports.len() || !run.left_out.is_empty() || !run.complete) {
        return Err(Fail::Incomplete("not all counts are exact".into()));
    }
    Ok(())
}

fn last_line(run: &Run, functions: usize, exact: usize, ui: &mut Ui) -> io::Result<()> {
    let word = match exact == functions && run.complete {
        true => ui.paint.paint(Style::Good, "yes").to_string(),
        false => {
            let text = format!("no ({exact} of {functions} functions)");
            ui.paint.paint(Style::Bad, text).to_string()
        }
    };
    writeln!(ui.out, "in {:.3} s; exact: {word}", run.seconds)
}

/// The profile file of these results of a run of `command`.
pub(crate) fn profile(
    analysis: &Analysis,
    reports: &[Report],
    run: &Run,
    command: &[OsString],
) -> Result<ProfileFile, Fail> {
    let kernel = analysis.kernel();
    let words = command.iter().map(|w| w.to_string_lossy());
    let mut file = ProfileFile {
        head: Head {
            build_id: kernel.build_id().map(hex).unwrap_or_default(),
            release: kernel.release().map(str::to_string),
            seconds: run.seconds,
            complete: run.complete,
            runs: 1,
            what: (!command.is_empty()).then(|| words.collect::<Vec<_>>().join(" ")),
            ..Head::default()
        },
        ..ProfileFile::default()
    };
    for report in reports {
        if let Some(module) = &report.function.module
            && !file.head.modules.contains_key(module)
            && let Some(known) = kernel.modules().iter().find(|m| m.name == *module)
            && let Some(build_id) = known.build_id()
        {
            file.head.modules.insert(module.clone(), hex(build_id));
        }
        file.add(FunctionProfile::new(
            kernel,
            &report.function,
            &report.profile,
        ))
        .map_err(|e| Fail::Error(e.to_string()))?;
    }
    Ok(file)
}
