//! `kerninst show`: one function, in one of four forms.

pub(crate) mod build;
mod disasm;
pub(crate) mod dot;
pub mod model;
mod notes;
pub mod text;
mod words;

use kerninst_analysis::{Analysis, Function};
use kerninst_kernel::Kernel;

use crate::args::ShowArgs;
use crate::json::{self, KernelLine};
use crate::names::Names;
use crate::ui::Ui;
use crate::{Fail, source, svg};

pub(crate) use words::{exit as exit_name, refusal as refusal_name};

/// How to name the point at `addr` of a function.
pub(crate) fn point_name(kernel: &Kernel, function: &Function, addr: u64) -> String {
    disasm::Namer::new(kernel, function).point(addr)
}

/// `kerninst show FUNCTION`.
///
/// # Errors
/// [`Fail`]: no such function, several, or the kernel cannot be read.
pub fn run(args: &ShowArgs, ui: &mut Ui) -> Result<(), Fail> {
    let kernel = source::open(&args.source)?;
    show(&kernel, args, ui)
}

/// The same over a kernel that is already open.
///
/// # Errors
/// As [`run`].
pub fn show(kernel: &Kernel, args: &ShowArgs, ui: &mut Ui) -> Result<(), Fail> {
    let analysis = Analysis::new(kernel);
    let names = Names::new(&analysis, args.source.module.as_deref())?;
    let entry = names.one(&args.function)?;
    let Some(function) = analysis.function_at(entry) else {
        let text = &args.function;
        return Err(Fail::Error(format!(
            "{text} cannot be analysed: its bytes are not known"
        )));
    };
    let view = build::view(&analysis, &function, args.syntax);
    if args.json {
        KernelLine::write(kernel, ui.out)?;
        json::line(ui.out, "kerninst.show/1", &view)
    } else if args.dot {
        Ok(dot::write(&view, ui.out)?)
    } else if args.svg {
        Ok(svg::write(&view, &source::title(kernel), ui.out)?)
    } else {
        Ok(text::write(&view, args, &source::title(kernel), ui)?)
    }
}
