//! `cargo xtask sweep`: every instruction of every function of a kernel is instrumented once, in guests under load.
//!
//! The work itself is `kerninst-torture sweep`. Here guests are booted one after the other, what they print is kept in a
//! file below the target directory, and a later run goes on where that file ends. A guest that crashes or hangs costs the
//! batch that it was at: which one is in the file, the function that did it is searched for, and the sweep goes on
//! after it.

mod find;
mod table;

use crate::cargo::work_dir;
use crate::programs::{self, Programs};
use crate::{Failure, say, setup};
use kerninst_lab::{KernelImage, Lab, Outcome, PortName};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest that one guest works: a new one has its kernel and modules elsewhere.
const GUEST: Duration = Duration::from_secs(400);
/// What a guest takes besides: booting, reading the kernel, the last batch.
const AROUND: Duration = Duration::from_secs(150);
/// The module that the load inserts and removes: it makes a network device.
const MODULE: &str = "dummy";

/// Kernel parameters: five minutes until a stall, two minutes until a lockup is told
/// (Documentation/admin-guide/kernel-parameters.txt).
const PATIENCE: &str = "rcupdate.rcu_cpu_stall_timeout=300 watchdog_thresh=60";

/// Arguments of the sweep.
#[derive(clap::Args, Clone)]
pub struct Args {
    /// Kernel
    #[arg(long, default_value = "6.12")]
    pub kernel: String,
    /// Seed of the order of functions
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Functions that are armed at a time
    #[arg(long, default_value_t = 500)]
    pub batch: usize,
    /// Only functions whose id matches
    #[arg(long, value_name = "GLOB")]
    pub functions: Option<String>,
    /// How points are served: auto, versions or splices
    #[arg(long, default_value = "auto", value_parser = ["auto", "versions", "splices"])]
    pub means: String,
    /// No guest is begun, and no batch, after so many seconds
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 600)]
    pub seconds: u64,
    /// At most so many batches
    #[arg(long)]
    pub batches: Option<usize>,
    /// Begin anew, whatever was done before
    #[arg(long)]
    pub fresh: bool,
    /// Do not search for the function that made a guest crash
    #[arg(long)]
    pub no_search: bool,
    /// Do nothing but print the table of what was done before
    #[arg(long)]
    pub table: bool,
    /// Print the table as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs it; 1 if anything is not as it must be.
pub fn run(args: &Args) -> Result<i32, Failure> {
    let image = Lab::named(&args.kernel)
        .map_err(|e| e.to_string())?
        .kernel()
        .clone();
    let mut log = Log::open(args, &image)?;
    if !args.table {
        setup::run()?;
        let programs = programs::build()?;
        sweep(args, &image, &programs, &mut log)?;
    }
    let table = table::Table::of(&image.release, args, &log.lines);
    if args.json {
        println!("{}", table.json());
    } else {
        print!("{table}");
    }
    Ok(i32::from(!table.is_good()))
}

fn sweep(
    args: &Args,
    image: &KernelImage,
    programs: &Programs,
    log: &mut Log,
) -> Result<(), Failure> {
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let begin = log.next();
    if begin > 0 {
        say(&format!(
            "going on at batch {begin} ({})",
            log.path.display()
        ));
    }
    loop {
        let next = log.next();
        let left = until.saturating_duration_since(Instant::now());
        let done = args.batches.is_some_and(|most| next - begin >= most);
        if log.is_whole() || done || left.is_zero() {
            return Ok(());
        }
        let job = Job {
            from: next,
            batches: args.batches.map(|most| most - (next - begin)),
            slice: None,
            time: left.min(GUEST),
        };
        let outcome = guest(args, image, programs, &job, &mut |line| log.keep(line))?;
        let Some(at) = log.broken_at(&outcome) else {
            if !outcome.is_success() && !log.has_violations() {
                return Err(format!("{}{}", outcome.stderr, outcome.report()));
            }
            if log.next() == next {
                return Err(format!(
                    "the guest did no batch\n{}{}",
                    outcome.stderr,
                    outcome.report()
                ));
            }
            continue;
        };
        let why = reason(&outcome);
        say(&format!("batch {at}: {why}"));
        let mut line = json!({"sweep": "crash", "batch": at, "why": why, "functions": log.begun()});
        if !args.no_search {
            let left = until.saturating_duration_since(Instant::now());
            let hung = outcome.timed_out && outcome.crash.is_none();
            let names = log.begun();
            line["function"] = find::culprit(args, image, programs, at, hung, left, &names);
        }
        log.keep(&line)?;
    }
}

/// What one guest is to do.
struct Job {
    from: usize,
    batches: Option<usize>,
    slice: Option<(usize, usize)>,
    time: Duration,
}

/// Runs a guest; `keep` gets its lines as they come.
fn guest(
    args: &Args,
    image: &KernelImage,
    programs: &Programs,
    job: &Job,
    keep: &mut dyn FnMut(&Value) -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    let mut command = format!(
        "exec kerninst-torture sweep --seed {} --batch {} --from {} --means {} --seconds {} --module {MODULE}",
        args.seed,
        args.batch,
        job.from,
        args.means,
        job.time.as_secs().max(1),
    );
    if let Some(glob) = &args.functions {
        command.push_str(&format!(" --functions '{}'", glob.replace('\'', "")));
    }
    if let Some(batches) = job.batches {
        command.push_str(&format!(" --batches {batches}"));
    }
    if let Some((first, end)) = job.slice {
        command.push_str(&format!(" --slice {first}-{end}"));
    }
    let mut text = Vec::new();
    let mut failed = None;
    let mut sink = |port: PortName, bytes: &[u8]| {
        if port != PortName::Out {
            return;
        }
        text.extend_from_slice(bytes);
        while let Some(end) = text.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            if let Ok(line) = serde_json::from_slice::<Value>(&line) {
                failed = keep(&line).err().or(failed.take());
            }
        }
    };
    let outcome = Lab::new(image.clone())
        .files(programs.guest_files())
        .carry_module(MODULE)
        // On a busy machine a guest may stand still for long, which its kernel would take for its own fault. One that
        // really hangs does not end in time.
        .append(PATIENCE)
        .smp(2)
        .mem(2048)
        .timeout(job.time + AROUND)
        .run_words(&[command], &mut sink)
        .map_err(|e| e.to_string())?;
    match failed {
        Some(failure) => Err(failure),
        None => Ok(outcome),
    }
}

/// What became of a guest that did not end well, in one line.
fn reason(outcome: &Outcome) -> String {
    match &outcome.crash {
        Some(crash) => crash.to_string(),
        None if outcome.timed_out => "the guest did not end in time".into(),
        None => {
            let last = outcome.stderr.lines().last().unwrap_or_default();
            format!("the job ended with {:?}: {last}", outcome.status)
        }
    }
}

/// All lines of a sweep so far, in memory and in its file.
struct Log {
    path: PathBuf,
    file: File,
    lines: Vec<Value>,
}

impl Log {
    fn open(args: &Args, image: &KernelImage) -> Result<Log, Failure> {
        let dir = work_dir().join("sweep");
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let of = args.functions.as_ref().map_or(String::new(), |glob| {
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            format!("-{}", glob.chars().map(plain).collect::<String>())
        });
        let name = format!(
            "{}-{}-seed{}-batch{}{of}.jsonl",
            image.release, args.means, args.seed, args.batch
        );
        let path = dir.join(name);
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        let text = match args.fresh {
            true => String::new(),
            false => std::fs::read_to_string(&path).unwrap_or_default(),
        };
        // A line that was not written to its end is not one: that batch is done again.
        let lines: Vec<Value> = text
            .lines()
            .filter_map(|l| serde_json::from_str(l).ok())
            .collect();
        let mut file = File::create(&path).map_err(failed)?;
        for line in &lines {
            writeln!(file, "{line}").map_err(failed)?;
        }
        Ok(Log { path, file, lines })
    }

    fn keep(&mut self, line: &Value) -> Result<(), Failure> {
        let failed = |e: std::io::Error| format!("{}: {e}", self.path.display());
        writeln!(self.file, "{line}").map_err(failed)?;
        match line["sweep"].as_str() {
            Some("batch") => say(&format!(
                "batch {}: {} points of {} functions armed, {} executed, {} ms; {} violations",
                line["batch"],
                line["armed"],
                line["functions"],
                line["executed"],
                line["ms"],
                line["violation_count"]
            )),
            Some("end") => {
                // The order is the same at every boot only if there are as many functions.
                let count = |l: &Value| l["functions"].as_u64();
                let before = self.lines.iter().find(|l| l["sweep"] == "end");
                if before.is_some_and(|b| count(b) != count(line)) {
                    return Err(
                        "this guest's kernel has other functions than the one before".into(),
                    );
                }
            }
            _ => {}
        }
        self.lines.push(line.clone());
        Ok(())
    }

    fn of<'a>(&'a self, kind: &'a str) -> impl DoubleEndedIterator<Item = &'a Value> {
        self.lines.iter().filter(move |l| l["sweep"] == kind)
    }

    /// The first batch that nobody did, or crashed in.
    fn next(&self) -> usize {
        let done = self.of("batch").chain(self.of("crash"));
        done.filter_map(|l| l["batch"].as_u64())
            .max()
            .map_or(0, |n| n as usize + 1)
    }

    fn is_whole(&self) -> bool {
        self.of("end")
            .filter_map(|l| l["batches"].as_u64())
            .any(|all| self.next() as u64 >= all)
    }

    fn has_violations(&self) -> bool {
        self.of("batch").any(|l| l["violation_count"] != 0)
    }

    /// The functions of the batch that was begun last.
    fn begun(&self) -> Vec<String> {
        let last = self.of("begin").next_back();
        let ids = last.and_then(|l| l["functions"].as_array());
        ids.into_iter()
            .flatten()
            .filter_map(|id| id.as_str().map(str::to_string))
            .collect()
    }

    /// The batch in which the guest ended, if it was in one, or its kernel is not well after it.
    fn broken_at(&self, outcome: &Outcome) -> Option<usize> {
        let begun = self.of("begin").next_back()?["batch"].as_u64()? as usize;
        (self.next() <= begun || outcome.crash.is_some()).then_some(begun)
    }
}

#[cfg(test)]
mod unit;
