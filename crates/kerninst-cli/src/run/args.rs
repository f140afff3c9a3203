//! Arguments of `run`.

use clap::Args;

use crate::args::{MeansArg, Source};
use crate::count::Seconds;

/// Arguments of `run`.
#[derive(Debug, Clone, Default, Args)]
#[command(
    long_about = "Run a script of the probe language: at any instruction, block, edge, call, entry or exit of the running \
        kernel, with bpftrace's syntax. Its maps are printed at the end, which is the command's, the given time's, exit()'s or \
        Ctrl-C.\n\nThe language is described in docs/language.md; tools/ has examples.",
    after_help = "Exit codes: 0 all well, 1 nothing matched, 2 error, 3 something was lost (with --strict); with -c the \
        command's own, if it fails.\n\nExamples:\n  \
        kerninst run -e 'entry:vfs_read { @[comm] = count(); }'\n  \
        kerninst run -e 'exit:vfs_read /retval < 0/ { @[retval, kstack] = count(); }' -d 10\n  \
        kerninst run -e 'call:vfs_read->* { @[callee] = count(); }' -c 'cat /etc/passwd'\n  \
        kerninst run tools/opens.ki\n  \
        kerninst run -e 'block:tcp_rcv_established/3 /pid == $1/ { printf(\"%s\\n\", comm); }' --dry-run -v 1234"
)]
pub struct RunArgs {
    /// The script's text.
    #[arg(long, short, value_name = "SCRIPT")]
    pub e: Option<String>,
    /// The script's file (`-`: stdin), unless -e gives it; then what $1, $2 … stand for.
    #[arg(value_name = "FILE|ARGUMENT")]
    pub rest: Vec<String>,
    /// Which kernel (--image only with --dry-run).
    #[command(flatten)]
    pub source: Source,
    /// End with this command, which a shell runs when everything is armed.
    #[arg(long, short, value_name = "COMMAND")]
    pub command: Option<String>,
    /// Only visits of this process (its thread group's id).
    #[arg(long, short, value_name = "PID")]
    pub pid: Option<u32>,
    /// End after this time: seconds, or 200ms, 2m, 1h.
    #[arg(
        long,
        short,
        value_name = "TIME",
        conflicts_with = "command",
        allow_negative_numbers = true
    )]
    pub duration: Option<Seconds>,
    /// Show what would be armed, and stop (works with --image, without root).
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: what was understood, and each point's machine code.
    #[arg(long, short)]
    pub verbose: bool,
    /// Let the script change registers and kernel memory, and skip functions and instructions. It can crash the kernel then.
    #[arg(long = "unsafe")]
    pub allow_unsafe: bool,
    /// How points are reached: one by one by splices, or inline in a new version of their function.
    #[arg(long, value_enum, default_value_t)]
    pub means: MeansArg,
    /// Keys that each map has room for.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub keys: u32,
    /// Size of each CPU's event buffer, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = 1024)]
    pub buffer: u32,
    /// Different stacks that there is room for.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub stacks: u32,
    /// Arm nothing unless all points can be; exit code 3 if anything was lost.
    #[arg(long)]
    pub strict: bool,
    /// One JSON object a line, in the shape of bpftrace's.
    #[arg(long)]
    pub json: bool,
}
