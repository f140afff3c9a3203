//! The `kerninst` command: verbs, and how their results are shown.
//!
//! One file for each verb. Verbs write results to [`ui::Ui::out`] and messages to [`ui::Ui::err`], and end with
//! `Ok` or a [`Fail`], which knows its exit code.

#[cfg(test)]
extern crate self as kerninst_cli; // The kernel of tests/common speaks of this crate by name.

pub mod args;
mod attach;
pub mod blocks;
mod closed;
pub mod count;
pub mod cover;
mod doctor;
mod ending;
mod fail;
pub mod json;
pub mod layout;
pub mod list;
mod man;
mod memory;
mod names;
mod old_bodies;
pub mod paint;
mod progress;
mod run;
mod short;
pub mod show;
mod source;
pub mod stats;
mod status;
mod suggest;
pub mod svg;
pub mod table;
pub mod ui;

use std::io::{BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Cli, Verb};
pub use fail::Fail;
use paint::{Color, Paint, Style};
use ui::Ui;

/// Parses the command line, does what it says, and gives the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let paint = Paint(cli.color.wanted(&stdout));
    let err_paint = Paint(cli.color.wanted(&stderr));
    let mut out: Box<dyn Write> = if stdout.is_terminal() {
        Box::new(stdout)
    } else {
        Box::new(BufWriter::with_capacity(1 << 16, stdout))
    };
    let mut ui = Ui {
        out: &mut out,
        err: &mut std::io::stderr(),
        paint,
        err_paint,
    };
    let result = if closed::stdout() {
        Err(Fail::Output(std::io::Error::from_raw_os_error(libc::EBADF)))
    } else {
        obey(&cli, &mut ui).and_then(|()| Ok(ui.flush()?))
    };
    let Err(fail) = result else {
        return ExitCode::SUCCESS;
    };
    if !fail.is_silent() {
        // What was found before the failure is still worth having.
        let _ = ui.flush();
        let name = err_paint.paint(Style::Bad, "kerninst:");
        let _ = writeln!(ui.err, "{name} {fail}");
    }
    ExitCode::from(fail.code())
}

/// Does what the command line says.
///
/// # Errors
/// [`Fail`].
pub fn obey(cli: &Cli, ui: &mut Ui) -> Result<(), Fail> {
    match &cli.verb {
        Verb::List(args) => list::run(args, ui),
        Verb::Show(args) => show::run(args, ui),
        Verb::Count(args) => count::run(args, ui),
        Verb::Blocks(args) => blocks::run(args, ui),
        Verb::Cover(args) => cover::run(args, ui),
        Verb::Run(args) => run::run(args, ui),
        Verb::Attach(args) => attach::run(args, ui),
        Verb::Stats(args) => stats::run(args, ui),
        Verb::Status(args) => status::status(args, ui),
        Verb::Reset(args) => status::reset(args, ui),
        Verb::Doctor(args) => doctor::run(args, ui),
        Verb::Completions(args) => man::completions(args, ui),
        Verb::Man(args) => man::man(args, ui),
    }
}

/// Help and version are results; everything else that clap says is an error.
fn usage(e: &clap::Error) -> ExitCode {
    let (text, colour) = (e.render(), Color::Auto);
    match e.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let mut out = std::io::stdout();
            let coloured = colour.wanted(&out);
            let text = if coloured {
                text.ansi().to_string()
            } else {
                text.to_string()
            };
            // A reader that has seen enough of the help is no error.
            let _ = write!(out, "{text}");
            ExitCode::SUCCESS
        }
        kind => {
            let text = text.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            let name = match kind {
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "",
                _ => "kerninst: ",
            };
            let _ = write!(std::io::stderr(), "{name}{text}");
            ExitCode::from(fail::ERROR)
        }
    }
}
