//! Runs in the lab's guests: arms, kills, storms and checks. Never run it on a machine that matters.
//!
//! Each job prints what it did as one line of JSON and fails with a sentence. All randomness comes from a seed.

mod faults;
mod kill;
mod oracle;
mod random;
mod sleepers;
mod storm;
mod text;
mod timing;

use clap::{Parser, Subcommand};
use kerninst::{ArmOptions, Owners, Point, Probe, Session};
use kerninst_analysis::Analysis;
use kerninst_kernel::Kernel;
use std::process::ExitCode;

/// Tries to break an armed kernel
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    job: Job,
}

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
        /// Shell command
        command: String,
    },
    /// Print how long each step from nothing to armed takes
    Timing,
    /// Print a hash of each image's text, our own modules' left out
    Text,
}

/// A sentence.
type Failure = String;

fn main() -> ExitCode {
    let result = match Cli::parse().job {
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
            command,
        } => oracle::run(points, seed, &command),
        Job::Timing => timing::run(),
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
    Session::arm(analysis, points, &Owners::live(), ArmOptions::default())
        .map_err(|e| e.to_string())
}
