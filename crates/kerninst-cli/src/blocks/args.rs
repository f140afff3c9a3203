//! Arguments of `blocks`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::args::{Source, Syntax};
use crate::count::Seconds;

/// Arguments of `blocks`.
#[derive(Debug, Clone, Default, Args)]
#[command(
    long_about = "Count every block and every edge of functions of the running kernel, exactly. Counters are put on the \
        fewest edges from which all counts follow; one more checks them, and what does not add up is shown.\n\nEnds with \
        the command, after the given time, or with Ctrl-C; the kernel is then as it was.",
    after_help = "Examples:\n  kerninst blocks tcp_rcv_established -d 5\n  \
        kerninst blocks vfs_read --annotate -- cat /etc/passwd\n  \
        kerninst blocks 'pipe_*' -d 1 --svg pictures/ --output pipe.profile\n  \
        kerninst blocks vfs_read --read pipe.profile --svg vfs_read.svg\n  kerninst blocks schedule --plan"
)]
pub struct BlocksArgs {
    /// Functions: names, `name#2`, `module:name`, globs.
    #[arg(value_name = "FUNCTION", required = true)]
    pub functions: Vec<String>,
    /// Which kernel.
    #[command(flatten)]
    pub source: Source,
    /// End after this time: seconds, or 200ms, 2m, 1h.
    #[arg(
        long,
        short,
        value_name = "TIME",
        conflicts_with = "command",
        allow_negative_numbers = true
    )]
    pub duration: Option<Seconds>,
    /// Show where counters would be, and what has none, and stop (works with --image, without root).
    #[arg(long, conflicts_with_all = ["duration", "command", "output", "read"])]
    pub plan: bool,
    /// Disassembly with counts, not the table.
    #[arg(long, short, conflicts_with = "json")]
    pub annotate: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Write a Graphviz graph to this file (of several functions: files into this directory).
    #[arg(long, value_name = "FILE")]
    pub dot: Option<PathBuf>,
    /// Write a picture to this file (of several functions: files into this directory).
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write the profile to this file (JSON lines), for --read and --weights.
    #[arg(long, short, value_name = "FILE", conflicts_with = "read")]
    pub output: Option<PathBuf>,
    /// Count nothing: show the counts of this profile.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["duration", "command"])]
    pub read: Option<PathBuf>,
    /// Place counters where this profile says that they cost least.
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// A counter on every edge: costs more, and every block's balance is checked.
    #[arg(long)]
    pub every_edge: bool,
    /// List blocks that never ran, however many they are.
    #[arg(long)]
    pub zeros: bool,
    /// Exit code 3 if counts are not exact.
    #[arg(long)]
    pub strict: bool,
    /// How instructions are written.
    #[arg(long, value_enum, default_value = "att")]
    pub syntax: Syntax,
    /// Count while this command runs.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
