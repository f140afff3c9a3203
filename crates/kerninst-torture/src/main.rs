//! Runs in the lab's guests: arms, kills, storms and checks. Never run it on a machine that matters.
//!
//! Each job prints what it did as one line of JSON and fails with a sentence. All randomness comes from a seed.

mod areas;
mod below;
mod bpf;
mod bpf_object;
mod callouts;
mod faults;
mod fuzz;
mod impostor;
mod kill;
mod late;
mod livepatch;
mod module;
mod nested;
mod oracle;
mod oracle_blocks;
mod random;
mod sleepers;
mod storm;
mod sweep;
mod text;
mod timing;
mod warn;

use clap::{Parser, Subcommand};
use kerninst::{ArmOptions, Means, Owners, Point, Probe, Session};
use kerninst_analysis::Analysis;
use kerninst_kernel::Kernel;
use std::process::ExitCode;

/// Tries to break an armed kernel
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// How points are reached
    #[arg(long, value_enum, default_value_t = By::Auto)]
    means: By,
    #[command(subcommand)]
    job: Job,
}

/// How points are reached.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// As `kerninst count` chooses.
    Auto,
    /// Splices only.
    Splices,
    /// Versions wherever possible.
    Versions,
}

/// What `--means` says, for every session of this process.
static MEANS: std::sync::OnceLock<Means> = std::sync::OnceLock::new();

#[derive(Subcommand)]
enum Job {
    /// Kill a process that arms and disarms at N random moments; each time the text must be as before
    Kill {
        /// How often
        #[arg(long, default_value_t = 200)]
        times: u32,
        /// Seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// What it arms
        #[arg(required = true)]
        probes: Vec<Probe>,
    },
    /// Arm and disarm random subsets for a while, and check the exact count of a known number of calls each time
    Storm {
        /// How long, in seconds
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// What is armed
        #[arg(required = true)]
        probes: Vec<Probe>,
    },
    /// Disarm while threads sleep in the instrumented functions
    Sleepers,
    /// Make every instruction with an exception fixup a point, and pass bad pointers to system calls
    Faults,
    /// Arm points drawn by seed over the whole kernel, run a command, and print for each point its final count and
    /// the address whose executions an emulator must have counted equally
    Oracle {
        /// How many points
        #[arg(long, default_value_t = 2000)]
        points: usize,
        /// Seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only points that get this tactic alone (in-place, edges, after-call ..), served by splices
        #[arg(long)]
        tactic: Option<String>,
        /// Shell command
        command: String,
    },
    /// Arm all blocks of many functions, run a command, and print final counts and addresses for an emulator's
    OracleBlocks(oracle_blocks::Args),
    /// Make, map and lose the driver's areas of memory
    Areas,
    /// Call the driver's callouts from a module, and check what they do
    Callouts,
    /// Take patches out while threads sleep in calls that the patches made
    Below,
    /// Run a command with a BPF program attached, and print that program's own count
    Bpf {
        /// How
        attach: bpf::Attach,
        /// FUNCTION, or for a kprobe FUNCTION+0xOFFSET
        place: String,
        /// A program that does nothing
        #[arg(long)]
        empty: bool,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Write object files with BPF programs into a directory
    BpfObjects {
        /// The directory
        to: std::path::PathBuf,
    },
    /// Print what is in the newest BPF map of the kernel
    BpfMap,
    /// Arm a point whose displaced code got a kprobe since the kernel was looked at: must be refused
    Late,
    /// Load or unload a module that only has the driver's name
    Impostor {
        /// load or unload
        what: impostor::What,
    },
    /// Run a command while the function of getppid(2) is livepatched (it returns 4242)
    Livepatch {
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Make every instruction of every function a point, in batches, under load, and compare counts within blocks
    Sweep(sweep::Args),
    /// Run random scripts of the probe language under load; whatever they say, nothing may break
    Fuzz(fuzz::Args),
    /// Print how long each step from nothing to armed takes
    Timing,
    /// Make functions of the kernel WARN so many times, called by a module's init
    Warn {
        /// How often each
        times: u32,
    },
    /// Print a hash of each image's text, our own modules' left out
    Text,
}

/// A sentence.
type Failure = String;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let _ = MEANS.set(match cli.means {
        By::Auto => Means::Auto,
        By::Splices => Means::Splices,
        By::Versions => Means::Versions,
    });
    let result = match cli.job {
        Job::Kill {
            times,
            seed,
            probes,
        } => kill::run(times, seed, &probes),
        Job::Storm {
            seconds,
            seed,
            probes,
        } => storm::run(seconds, seed, &probes),
        Job::Sleepers => sleepers::run(),
        Job::Faults => faults::run(),
        Job::Oracle {
            points,
            seed,
            tactic,
            command,
        } => oracle::run(points, seed, tactic.as_deref(), &command),
        Job::OracleBlocks(args) => oracle_blocks::run(&args),
        Job::Areas => areas::run(),
        Job::Callouts => callouts::run(),
        Job::Below => below::run(),
        Job::Bpf {
            attach,
            place,
            empty,
            command,
        } => bpf::run(attach, &place, empty, &command),
        Job::BpfObjects { to } => bpf_object::write(&to),
        Job::BpfMap => bpf_object::print_map(),
        Job::Late => late::run(),
        Job::Impostor { what } => impostor::run(what),
        Job::Livepatch { command } => livepatch::run(&command),
        Job::Sweep(args) => sweep::run(&args),
        Job::Fuzz(args) => fuzz::run(&args),
        Job::Timing => timing::run(),
        Job::Warn { times } => warn::run(times),
        Job::Text => text::print(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("kerninst-torture: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// A picture of the running kernel.
fn live() -> Result<Kernel, Failure> {
    Kernel::live().map_err(|e| e.to_string())
}

/// The points of the probes.
fn points(analysis: &Analysis<'_>, probes: &[Probe]) -> Result<Vec<Point>, Failure> {
    let resolved = kerninst::resolve(analysis, probes, None).map_err(|e| e.to_string())?;
    if resolved.points.is_empty() {
        return Err("no points".into());
    }
    Ok(resolved.points)
}

/// Arms with the usual options.
fn arm<'k>(analysis: &Analysis<'k>, points: &[Point]) -> Result<Session<'k>, Failure> {
    let options = ArmOptions {
        means: MEANS.get().copied().unwrap_or_default(),
        ..ArmOptions::default()
    };
    Session::arm(analysis, points, &Owners::live(), options).map_err(|e| e.to_string())
}
