//! Manual pages and completions, from the definition of the command line.

use clap::CommandFactory;

use crate::Fail;
use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::ui::Ui;

/// `kerninst completions SHELL`.
///
/// # Errors
/// [`Fail::Output`].
pub fn completions(args: &CompletionsArgs, ui: &mut Ui) -> Result<(), Fail> {
    // Into memory first: the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kerninst", &mut script);
    ui.out.write_all(&script)?;
    Ok(())
}

/// `kerninst man [DIR]`.
///
/// # Errors
/// [`Fail::Output`], or [`Fail::Error`] naming the directory that cannot be written to.
pub fn man(args: &ManArgs, ui: &mut Ui) -> Result<(), Fail> {
    let command = Cli::command();
    match &args.dir {
        None => clap_mangen::Man::new(command).render(ui.out)?,
        Some(dir) => clap_mangen::generate_to(command, dir).map_err(|e| {
            let dir = dir.display();
            Fail::Error(format!(
                "cannot write manual pages to {dir}: {e}; name a directory that is there"
            ))
        })?,
    }
    Ok(())
}
