//! Runs in the lab's guests: workloads with a known number of kernel calls, and markers for the meter.
//!
//! ```text
//! kerninst-guest --hist 1 getppid 10000      # the histogram of exactly that workload goes to file number 1
//! kerninst-guest --region 2 tcp 4            # instructions of sending 4 MiB over loopback
//! kerninst-guest --samples 3 getppid 2000    # the instructions of each call, one by one
//! ```
//!
//! Each workload prints one line of JSON on standard output: its name and how often it did its work. Without the meter the
//! markers do nothing.

mod emit;
mod load;
#[path = "../../kerninst-meter/src/marker.rs"]
#[allow(dead_code)]
mod marker;
mod work;

use clap::{Parser, Subcommand};
use emit::{emit, emit_word, emitter};
use marker::{op, payload};
use std::process::ExitCode;

/// Workloads with a known number of kernel calls, and markers for the meter
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Have the meter count before the workload starts (--hist does so too)
    #[arg(long)]
    arm: bool,
    /// Count the workload as this region
    #[arg(long, value_name = "ID")]
    region: Option<u8>,
    /// Write the histogram of the workload as this number
    #[arg(long, value_name = "ID")]
    hist: Option<u8>,
    /// Count each event of the workload alone, as this series
    #[arg(long, value_name = "ID")]
    samples: Option<u8>,
    /// An address range to be counted apart, in hexadecimal (may be given again)
    #[arg(long, value_name = "START-END", value_parser = range)]
    range: Vec<(u64, u64)>,
    #[command(subcommand)]
    job: Job,
}

/// What to do.
#[derive(Subcommand, Clone)]
enum Job {
    /// Emit one marker
    Mark {
        /// Its 16-bit payload, decimal or 0x hexadecimal
        #[arg(value_parser = number)]
        payload: u16,
    },
    /// Have the meter count from now on (and wait until it does)
    Arm {
        /// The histogram too
        #[arg(long)]
        hist: bool,
    },
    /// N getppid system calls
    Getppid {
        /// How often
        count: u64,
    },
    /// N getppid system calls, spread evenly over all CPUs by pinned threads that start together
    GetppidAllCpus {
        /// How often, in all
        count: u64,
    },
    /// N bytes through a pipe, back and forth between two threads: N writes and N reads of one byte each way
    Pipe {
        /// How many round trips
        count: u64,
    },
    /// N times fork, exit in the child, wait
    Fork {
        /// How often
        count: u64,
    },
    /// N MiB over a TCP connection on the loopback interface, in writes of 64 KiB
    Tcp {
        /// How much
        mib: u64,
    },
    /// N times: create a file, write, stat, read, unlink (in /tmp)
    Files {
        /// How often
        count: u64,
    },
    /// N sleeps of 100 µs
    Timers {
        /// How often
        count: u64,
    },
    /// Everything at once on all CPUs for S seconds: processes, programs, files, pipes, TCP, timers, page faults, signals
    Load {
        /// How long
        seconds: u64,
        /// Insert and remove this module all the while too
        #[arg(long, value_name = "NAME")]
        module: Option<String>,
    },
    /// Does nothing: what the markers around a workload cost
    Nothing,
}

fn number(text: &str) -> Result<u16, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|e| format!("\"{text}\": {e}"))
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let (start, end) = text
        .split_once('-')
        .ok_or_else(|| format!("\"{text}\" is not START-END"))?;
    let parse = |t: &str| {
        let digits = t.trim_start_matches("0x");
        u64::from_str_radix(digits, 16).map_err(|e| format!("\"{t}\": {e}"))
    };
    let (start, end) = (parse(start)?, parse(end)?);
    if start >= end {
        return Err(format!("\"{text}\" is empty"));
    }
    Ok((start, end))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match execute(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kerninst-guest: {error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(cli: &Cli) -> Result<(), work::Error> {
    match cli.job {
        Job::Mark { payload } => {
            emit(payload)?;
            return Ok(());
        }
        Job::Arm { hist } => return arm(hist),
        _ => {}
    }
    // All that takes its first page fault or allocation does so before counting starts: the markers' code too.
    let mut prepared = work::prepare(cli.job.clone(), cli.samples)?;
    let marker = |id: Option<u8>, op: u8| id.map(|id| emitter(payload(op, id))).transpose();
    let before = [
        marker(cli.hist.map(|_| 0), op::ZERO)?,
        marker(cli.region, op::BEGIN)?,
    ];
    let after = [
        marker(cli.region, op::END)?,
        marker(cli.hist, op::DUMP)?,
        marker(cli.samples, op::SAMPLE_REPORT)?,
    ];
    for (start, end) in &cli.range {
        emit_word(*start)?;
        emit_word(*end)?;
        emit(payload(op::RANGE, 0))?;
    }
    let counting = cli.arm || after.iter().any(Option::is_some);
    if counting {
        arm(cli.hist.is_some())?;
    }
    before.iter().flatten().for_each(|emit| emit());
    let done = prepared.run();
    after.iter().flatten().for_each(|emit| emit());
    if counting {
        emit(payload(op::DISARM, 0))?;
    }
    let done = done?;
    println!("{{\"workload\":\"{}\",\"count\":{done}}}", prepared.name());
    Ok(())
}

/// Starts counting. It takes effect when every CPU has left the code that it is in, so sleep a little.
fn arm(hist: bool) -> Result<(), work::Error> {
    emit(payload(op::ARM, u8::from(hist)))?;
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Ok(())
}
