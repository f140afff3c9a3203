//! Arguments of `cover`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::args::Source;
use crate::count::Seconds;

/// Arguments of `cover`.
#[derive(Debug, Clone, Default, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    long_about = "Tell which blocks and edges of functions of the running kernel ran, and how often. All counts are exact, \
        as those of `kerninst blocks`.\n\nEnds with the command, after the given time, or with Ctrl-C; the kernel is then as it \
        was.",
    after_help = "Examples:\n  kerninst cover 'pipe_*' -- sh -c 'ls | cat'\n  \
        kerninst cover --module ext4 -d 60 --output ext4.profile\n  \
        kerninst cover --all -d 10 --uncovered\n  \
        kerninst cover --all --once -d 60\n  \
        kerninst cover --read a.profile --vmlinux vmlinux --lcov a.info && genhtml a.info -o html/\n  \
        kerninst cover merge a.profile b.profile -o all.profile\n  kerninst cover diff old.profile new.profile"
)]
pub struct CoverArgs {
    /// Compare and add up profiles.
    #[command(subcommand)]
    pub verb: Option<CoverVerb>,
    /// Functions: names, `name#2`, `module:name`, globs.
    #[arg(value_name = "GLOB")]
    pub functions: Vec<String>,
    /// Which kernel.
    #[command(flatten)]
    pub source: Source,
    /// Every function of the kernel and its modules.
    #[arg(long, conflicts_with = "functions")]
    pub all: bool,
    /// Record only what ran, not how often: one instruction, which is taken out again once it was reached, so that what runs
    /// often costs next to nothing.
    #[arg(long, conflicts_with = "read")]
    pub once: bool,
    /// End after this time: seconds, or 200ms, 2m, 1h.
    #[arg(
        long,
        short,
        value_name = "TIME",
        conflicts_with = "command",
        allow_negative_numbers = true
    )]
    pub duration: Option<Seconds>,
    /// Show what would be counted and what cannot be, and stop (works with --image, without root).
    #[arg(long, conflicts_with_all = ["duration", "command", "output", "read", "lcov", "uncovered"])]
    pub plan: bool,
    /// Count nothing: show this profile.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["duration", "command", "image"])]
    pub read: Option<PathBuf>,
    /// How functions are sorted.
    #[arg(long, value_enum, default_value_t)]
    pub sort: Sort,
    /// List every function, however many they are.
    #[arg(long)]
    pub each: bool,
    /// List blocks that never ran.
    #[arg(long, short)]
    pub uncovered: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Write the profile to this file (JSON lines), for --read, merge and diff.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write lines, functions and branches to this file, in the format of lcov (for genhtml).
    #[arg(long, value_name = "FILE", requires = "vmlinux")]
    pub lcov: Option<PathBuf>,
    /// Files with debug information: this kernel's vmlinux, modules' .ko.debug; they must match by build id.
    #[arg(long, value_name = "FILE")]
    pub vmlinux: Vec<PathBuf>,
    /// Exit code 3 if anything was left out or counts are not exact.
    #[arg(long)]
    pub strict: bool,
    /// Count while this command runs.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The order of functions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Those of which least ran first.
    #[default]
    Worst,
    /// By name.
    Name,
    /// Most calls first.
    Calls,
}

/// What is done with profiles.
#[derive(Debug, Clone, Subcommand)]
pub enum CoverVerb {
    /// Add up profiles of one kernel.
    Merge(MergeArgs),
    /// Tell what the second profile covers and the first does not, and the other way round.
    Diff(DiffArgs),
}

/// Arguments of `cover merge`.
#[derive(Debug, Clone, Default, Args)]
pub struct MergeArgs {
    /// Profiles.
    #[arg(value_name = "PROFILE", required = true)]
    pub profiles: Vec<PathBuf>,
    /// Write the sum to this file.
    #[arg(long, short, value_name = "FILE", required = true)]
    pub output: PathBuf,
}

/// Arguments of `cover diff`.
#[derive(Debug, Clone, Default, Args)]
pub struct DiffArgs {
    /// The profile before.
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// The profile after.
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}
