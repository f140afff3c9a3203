//! `kerninst stats`: what can be known of a kernel without running it. How much of its control flow follows from block
//! counts (KernInst's claim), how many counters exact profiles need, and what a counter costs.

mod cost;
mod gather;
mod text;

use clap::Args;
use kerninst_analysis::Analysis;
use kerninst_kernel::Kernel;

use crate::args::Source;
use crate::json::{self, KernelLine};
use crate::names::Names;
use crate::ui::Ui;
use crate::{Fail, source};

/// Arguments of `stats`.
#[derive(Debug, Clone, Default, Args)]
#[command(
    long_about = "Figures about the control flow of a kernel: functions, blocks, edges and loops; the share of edges whose \
        counts follow from block counts alone; the counters that exact block and edge counts need; and the \
        instructions that one counter adds. Nothing is armed; with --image no root is needed.",
    after_help = "Examples:\n  kerninst stats\n  kerninst stats --image /boot/vmlinuz-6.12.0-amd64\n  \
        kerninst stats 'tcp_*' --json"
)]
pub struct StatsArgs {
    /// Patterns of function names; without any, the whole kernel.
    #[arg(value_name = "GLOB")]
    pub patterns: Vec<String>,
    /// Which kernel.
    #[command(flatten)]
    pub source: Source,
    /// As one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `kerninst stats [GLOB…]`.
///
/// # Errors
/// [`Fail::Nothing`] if a pattern matches nothing.
pub fn run(args: &StatsArgs, ui: &mut Ui) -> Result<(), Fail> {
    let kernel = source::open(&args.source)?;
    stats(&kernel, args, ui)
}

/// The same over a kernel that is already open.
///
/// # Errors
/// As [`run`].
pub fn stats(kernel: &Kernel, args: &StatsArgs, ui: &mut Ui) -> Result<(), Fail> {
    let analysis = Analysis::new(kernel);
    let names = Names::new(&analysis, args.source.module.as_deref())?;
    let chosen = names.select(&args.patterns)?;
    let stats = gather::gather(&analysis, &chosen);
    if args.json {
        KernelLine::write(kernel, ui.out)?;
        return json::line(ui.out, "kerninst.stats/1", &stats);
    }
    Ok(text::write(&stats, &source::title(kernel), ui)?)
}
