//! The command line: the one definition from which help, man pages and completions are made.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::attach::AttachArgs;
use crate::blocks::BlocksArgs;
use crate::count::Seconds;
use crate::cover::CoverArgs;
use crate::paint::Color;
use crate::run::RunArgs;
use crate::stats::StatsArgs;

/// Insert counters before any instruction of the running, unmodified Linux kernel, and look at its code.
#[derive(Debug, Parser)]
#[command(
    name = "kerninst",
    version,
    about = "Count executions of any instruction of the running, unmodified Linux kernel",
    long_about = "kerninst inserts code before almost any instruction of a running, unmodified Linux kernel \
        (x86-64), and takes it out again without a trace. It needs no reboot, no headers, no compiler and no \
        debug information.\n\nResults go to stdout, everything else to stderr.",
    after_help = "Exit codes: 0 all well, 1 nothing matched, 2 error, 3 incomplete data (with --strict).",
    arg_required_else_help = true,
    subcommand_required = true,
    infer_subcommands = false,
    max_term_width = 100
)]
pub struct Cli {
    /// When to colour the output.
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        global = true
    )]
    pub color: Color,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List functions, or their instrumentation points.
    List(ListArgs),
    /// Show one function: blocks, disassembly, live registers, and how each instruction would be instrumented.
    Show(ShowArgs),
    /// Count executions before instructions of the running kernel.
    Count(CountArgs),
    /// Run a script: print, count, sum and draw histograms at any point of the running kernel.
    Run(RunArgs),
    /// Run a BPF program before any instruction of the running kernel, with its registers.
    Attach(AttachArgs),
    /// Count every block and every edge of functions of the running kernel, exactly.
    Blocks(BlocksArgs),
    /// Tell which blocks and edges of functions of the running kernel ran.
    Cover(CoverArgs),
    /// Figures about the control flow of a kernel, and what counting in it costs; changes nothing.
    Stats(StatsArgs),
    /// Say what is armed, by whom, and what waits to be freed.
    Status(StatusArgs),
    /// Take back whatever a dead kerninst left in the kernel, and unload the driver.
    Reset(ResetArgs),
    /// Say what works on this machine and what does not, and why; changes nothing.
    Doctor(DoctorArgs),
    /// Write a completion script for a shell to stdout.
    Completions(CompletionsArgs),
    /// Write the manual pages: the main one to stdout, or all of them into a directory.
    Man(ManArgs),
}

/// Where the kernel comes from.
#[derive(Debug, Clone, Default, Args)]
pub struct Source {
    /// Look into this vmlinuz, vmlinux or module (.ko, .ko.xz, .ko.gz, .ko.zst) instead of the running kernel; needs
    /// no root.
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Only this module ("kernel": only the core kernel); a glob.
    #[arg(long, value_name = "MODULE")]
    pub module: Option<String>,
}

/// Arguments of `list`.
#[derive(Debug, Clone, Default, Args)]
#[command(
    long_about = "List functions, one a line, by address. A pattern is a name with the wildcards * and ?, or \
        MODULE:NAME with wildcards in both. Without a pattern all functions are listed.",
    after_help = "Examples:\n  kerninst list 'vfs_*'\n  kerninst list -l 'tcp_v4_*'\n  \
        kerninst list --refused\n  kerninst list --points vfs_read\n  kerninst list --module ext4 --json"
)]
pub struct ListArgs {
    /// Patterns of function names.
    #[arg(value_name = "GLOB")]
    pub patterns: Vec<String>,
    /// Which kernel.
    #[command(flatten)]
    pub source: Source,
    /// Size, instructions, blocks, whether control flow is known and whether it can be instrumented.
    #[arg(long, short)]
    pub long: bool,
    /// List instructions (points) instead of functions, each with the tactic that it would get.
    #[arg(long, short)]
    pub points: bool,
    /// Only what cannot be instrumented, with the reason.
    #[arg(long, short)]
    pub refused: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// How instructions are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Syntax {
    /// AT&T, as the kernel, objdump and perf have it.
    #[default]
    Att,
    /// Intel.
    Intel,
}

/// Arguments of `show`.
#[derive(Debug, Clone, Default, Args)]
#[command(
    long_about = "Show one function: its blocks with the ways in and out, and for each instruction the disassembly, \
        the tactic by which it would be instrumented as the only point (or the reason why it cannot be), and the \
        registers and flags that are dead and live before it.",
    after_help = "Examples:\n  kerninst show vfs_read\n  kerninst show vfs_read --svg > vfs_read.svg\n  \
        kerninst show 'ext4:ext4_readdir'\n  kerninst show 'name#2'        the second function of that name\n  \
        kerninst show 0xffffffff81234567   the function at an address"
)]
pub struct ShowArgs {
    /// A name, `name#2`, `module:name`, a glob that matches one function, or an address.
    #[arg(value_name = "FUNCTION")]
    pub function: String,
    /// Which kernel.
    #[command(flatten)]
    pub source: Source,
    /// As one JSON object.
    #[arg(long, group = "form")]
    pub json: bool,
    /// As a Graphviz graph.
    #[arg(long, group = "form")]
    pub dot: bool,
    /// As a picture (a self-contained SVG file).
    #[arg(long, group = "form")]
    pub svg: bool,
    /// How instructions are written.
    #[arg(long, value_enum, default_value = "att")]
    pub syntax: Syntax,
    /// With the instructions' bytes.
    #[arg(long, short)]
    pub bytes: bool,
}

/// Arguments of `count`.
#[derive(Debug, Clone, Default, Args)]
#[command(
    long_about = "Count how often points of the running kernel are reached: exactly, on all CPUs, in interrupts too. \
        Ends with the command, after the given time, or with Ctrl-C; then prints the counts and leaves the kernel as \
        it was.\n\nPoints: insn:FUNCTION+0xOFF (or an address), entry:FUNCTION, exit:FUNCTION (every way out), \
        block:FUNCTION/* or block:FUNCTION/N, edge:FUNCTION/N->M, call:FUNCTION->CALLEE (CALLEE * means every call, those \
        through pointers too). FUNCTION is a name, name#2, module:name or a glob.",
    after_help = "Exit code: with COMMAND its own (128 and the signal's number if one ended it), when the counts are \
        shown; otherwise as for all verbs.\n\nExamples:\n  kerninst count entry:vfs_read -d 5\n  kerninst count 'entry:tcp_*' -- curl -s example.org\n  \
        kerninst count 'block:vfs_read/*' --json -d 1\n  kerninst count insn:vfs_read+0x35 --plan\n  \
        kerninst count 'call:vfs_read->*' -d 1"
)]
pub struct CountArgs {
    /// Where to count.
    #[arg(value_name = "POINT", required = true)]
    pub points: Vec<String>,
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
    /// Show interim counts every so often.
    #[arg(long, short, value_name = "TIME", allow_negative_numbers = true)]
    pub interval: Option<Seconds>,
    /// Show the points with their tactics and refusals, and stop before arming (works with --image, without root).
    #[arg(long)]
    pub plan: bool,
    /// How points are reached: one by one by splices, or inline in a new version of their function.
    #[arg(long, value_enum, default_value_t)]
    pub means: MeansArg,
    /// Arm nothing unless all points can be; exit code 3 if counts are not complete.
    #[arg(long)]
    pub strict: bool,
    /// List points that were not executed, however many they are.
    #[arg(long)]
    pub zeros: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Write the counts to this file, not to stdout.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Count while this command runs.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// How points are reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum MeansArg {
    /// A version where a function has many points, or one that no jump fits on; splices otherwise.
    #[default]
    Auto,
    /// Splices only: tasks that are inside a function when counting starts are counted too.
    Splices,
    /// Versions wherever possible: only visits that begin after arming are counted.
    Versions,
}

impl From<MeansArg> for kerninst::Means {
    fn from(m: MeansArg) -> kerninst::Means {
        match m {
            MeansArg::Auto => kerninst::Means::Auto,
            MeansArg::Splices => kerninst::Means::Splices,
            MeansArg::Versions => kerninst::Means::Versions,
        }
    }
}

/// Arguments of `status`.
#[derive(Debug, Clone, Default, Args)]
pub struct StatusArgs {
    /// Every site.
    #[arg(long, short)]
    pub long: bool,
    /// As a JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `reset`.
#[derive(Debug, Clone, Default, Args)]
pub struct ResetArgs {
    /// How long to wait for tasks to leave patches (10 s if not given).
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub wait: Option<Seconds>,
}

/// Arguments of `doctor`.
#[derive(Debug, Clone, Default, Args)]
pub struct DoctorArgs {
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `completions`.
#[derive(Debug, Clone, Args)]
pub struct CompletionsArgs {
    /// Which shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Directory for kerninst.1, kerninst-list.1 and so on.
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
