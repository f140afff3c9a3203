//! Every instruction of every function is made a point once, in batches, while the machine is busy; each one's count is
//! compared with what its block says it must be, everything is taken out, and the text compared.
//!
//! Functions come in an order drawn by seed from their names, which is the same at every boot: a batch number, a size and
//! a seed say which functions a batch has, whatever their addresses are this time.

mod check;
mod load;
mod reason;

use crate::random::Random;
use crate::text::Snapshot;
use crate::{Failure, live};
use check::{Checked, Reads};
use kerninst::{ArmError, ArmOptions, Means, Owners, Point, Session, plan};
use kerninst_analysis::{Analysis, Function};
use kerninst_kernel::{Kernel, glob_match};
use load::Load;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Violations that are told of one batch.
const TOLD: usize = 20;

/// What is swept.
#[derive(clap::Args)]
pub struct Args {
    /// Seed of the order of functions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Functions of one batch
    #[arg(long, default_value_t = 300)]
    batch: usize,
    /// Number of the first batch
    #[arg(long, default_value_t = 0)]
    from: usize,
    /// Most batches
    #[arg(long)]
    batches: Option<usize>,
    /// Only functions whose id matches
    #[arg(long)]
    functions: Option<String>,
    /// Only functions FIRST-END of each batch, counted from 0: to find the one that breaks
    #[arg(long, value_parser = slice)]
    slice: Option<(usize, usize)>,
    /// auto, versions or splices
    #[arg(long, default_value = "auto")]
    means: String,
    /// Each batch is armed so many times, each time every so-manieth instruction and the first one of each block
    /// [default: 1; 8 for splices, which then have less to share]
    #[arg(long)]
    rounds: Option<usize>,
    /// No batch begins later than this many seconds after the start
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How long each round stays armed under load, in milliseconds
    #[arg(long, default_value_t = 500)]
    span: u64,
    /// A module that the load inserts and removes
    #[arg(long)]
    module: Option<String>,
}

fn slice(text: &str) -> Result<(usize, usize), String> {
    let (first, end) = text.split_once('-').ok_or("it is not FIRST-END")?;
    let number = |t: &str| t.parse::<usize>().map_err(|e| format!("{t}: {e}"));
    Ok((number(first)?, number(end)?))
}

/// Ids and addresses of all functions that are asked for, in the order of the sweep. Those of module `but` are not among
/// them: it comes and goes.
pub fn order(
    analysis: &Analysis<'_>,
    seed: u64,
    glob: Option<&str>,
    but: Option<&str>,
) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = analysis
        .functions()
        .into_iter()
        .filter(|f| f.module.is_none() || f.module.as_deref() != but)
        .map(|f| (f.id, f.start))
        .filter(|(id, _)| glob.is_none_or(|g| glob_match(g, id)))
        .collect();
    all.sort();
    let mut random = Random::new(seed);
    for n in (1..all.len()).rev() {
        all.swap(n, random.below(n as u64 + 1) as usize);
    }
    all
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let started = Instant::now();
    let means = match args.means.as_str() {
        "auto" => Means::Auto,
        "versions" => Means::Versions,
        "splices" => Means::Splices,
        other => return Err(format!("means {other}: not auto, versions or splices")),
    };
    let rounds = args.rounds.unwrap_or(match means {
        Means::Splices => 8,
        _ => 1,
    });
    let kernel = live()?;
    let analysis = Analysis::new(&kernel);
    let all = order(
        &analysis,
        args.seed,
        args.functions.as_deref(),
        args.module.as_deref(),
    );
    if all.is_empty() {
        return Err("no function matches".into());
    }
    let batches = all.len().div_ceil(args.batch.max(1));
    let before = Snapshot::take(&kernel)?;
    let load = Load::start(args.module.as_deref())?;
    let mut violations = 0;
    let mut next = args.from;
    while next < batches
        && started.elapsed() < Duration::from_secs(args.seconds)
        && args.batches.is_none_or(|most| next - args.from < most)
    {
        let first = next * args.batch.max(1);
        let end = (first + args.batch.max(1)).min(all.len());
        let mut names = all.get(first..end).unwrap_or(&[]);
        if let Some((a, b)) = args.slice {
            names = names.get(a..b.min(names.len())).unwrap_or(&[]);
        }
        // Said before anything is armed, so that whoever watches knows it if the machine dies.
        let ids: Vec<&str> = names.iter().map(|(id, _)| id.as_str()).collect();
        print(&json!({"sweep": "begin", "batch": next, "functions": ids}))?;
        let batch = Batch {
            kernel: &kernel,
            analysis: &analysis,
            before: &before,
            load: &load,
            means,
            rounds: rounds.max(1),
            span: Duration::from_millis(args.span),
        };
        let line = batch.run(next, names)?;
        violations += line["violation_count"].as_u64().unwrap_or(0);
        print(&line)?;
        next += 1;
    }
    load.stop()?;
    kerninst::reset(None, Duration::from_secs(10)).map_err(|e| e.to_string())?;
    let left = crate::kill::nothing_left().err();
    let text = before.check(&kernel).err();
    print(&json!({
        "sweep": "end", "next": next, "batches": batches, "functions": all.len(), "left": left, "text": text,
        "seconds": started.elapsed().as_secs_f64(),
    }))?;
    match (violations, left, text) {
        (0, None, None) => Ok(()),
        (_, left, text) => Err(format!(
            "{violations} violations; left behind: {left:?}; text: {text:?}"
        )),
    }
}

/// A line that has left this machine before what follows can break it.
fn print(line: &serde_json::Value) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|e| e.to_string())?;
    // SAFETY: waits until the terminal has sent all; on a pipe it fails, and there is nothing to wait for.
    unsafe { libc::tcdrain(1) };
    Ok(())
}

struct Batch<'b, 'k> {
    kernel: &'k Kernel,
    analysis: &'b Analysis<'k>,
    before: &'b Snapshot,
    load: &'b Load,
    means: Means,
    rounds: usize,
    span: Duration,
}

/// What all rounds of a batch come to.
#[derive(Default)]
struct Sums {
    points: usize,
    armed: usize,
    versions: usize,
    code_bytes: u64,
    slow: u32,
    tactics: BTreeMap<String, usize>,
    refused: BTreeMap<String, usize>,
    conflicts: usize,
    no_version: BTreeMap<String, usize>,
    unfinished: usize,
    arming: Duration,
    disarming: Duration,
}

impl Batch<'_, '_> {
    fn run(&self, number: usize, names: &[(String, u64)]) -> Result<serde_json::Value, Failure> {
        let started = Instant::now();
        let mut functions: Vec<Arc<Function>> = Vec::new();
        let mut unknown = 0;
        for (_, start) in names {
            match self.analysis.function_at(*start) {
                Some(f) if f.entry() == *start => functions.push(f),
                _ => unknown += 1,
            }
        }
        let instructions: usize = functions.iter().map(|f| f.insns.len()).sum();
        let mut sums = Sums::default();
        let mut checked = Checked::default();
        for round in 0..self.rounds {
            self.round(round, &functions, &mut sums, &mut checked)?;
        }
        if let Err(text) = self.before.check(self.kernel) {
            checked.violations.push(text);
        }
        let told: Vec<&String> = checked.violations.iter().take(TOLD).collect();
        Ok(json!({
            "sweep": "batch", "batch": number, "functions": names.len(), "unknown": unknown,
            "instructions": instructions, "points": sums.points, "armed": sums.armed, "versions": sums.versions,
            "code_bytes": sums.code_bytes, "slow": sums.slow, "tactics": sums.tactics, "refused": sums.refused,
            "conflicts": sums.conflicts, "no_version": sums.no_version, "unfinished": sums.unfinished,
            "executed": checked.executed, "executions": checked.executions, "exact": checked.exact,
            "within": checked.within, "under_way": checked.under_way, "never_back": checked.never_back,
            "violation_count": checked.violations.len(), "violations": told,
            "arming_ms": sums.arming.as_millis() as u64, "disarming_ms": sums.disarming.as_millis() as u64,
            "ms": started.elapsed().as_millis() as u64,
        }))
    }

    /// The points of a round: every so-manieth instruction, and all that a block begins with.
    fn points(&self, round: usize, functions: &[Arc<Function>]) -> Vec<Point> {
        let mut points = Vec::new();
        for function in functions {
            for (n, insn) in function.insns.iter().enumerate() {
                let leads = function
                    .blocks
                    .get(insn.block as usize)
                    .is_some_and(|b| b.start == insn.addr);
                if n % self.rounds == round || leads {
                    points.push(Point::insn(0, function, insn.addr));
                }
            }
        }
        points
    }

    fn round(
        &self,
        round: usize,
        functions: &[Arc<Function>],
        sums: &mut Sums,
        checked: &mut Checked,
    ) -> Result<(), Failure> {
        let points = self.points(round, functions);
        if points.is_empty() {
            return Ok(());
        }
        sums.points += points.len();
        let owners = Owners::live();
        let arming = Instant::now();
        let Some(session) = self.arm(&points, &owners)? else {
            // None can be armed: what planning says of them is all there is.
            let planned = plan(self.analysis, &points, &owners, self.means);
            for (_, refused) in &planned.refused {
                *sums.refused.entry(reason::of(&refused.why)).or_default() += 1;
            }
            sums.conflicts += planned.conflicts.len();
            return Ok(());
        };
        sums.arming += arming.elapsed();
        sums.armed += session.points().len();
        sums.versions += session.versions().len();
        sums.code_bytes += session.code_bytes();
        sums.slow += session.slow_sites();
        for point in session.points() {
            *sums.tactics.entry(point.tactic.to_string()).or_default() += 1;
        }
        for (_, refused) in session.refused() {
            *sums.refused.entry(reason::of(&refused.why)).or_default() += 1;
        }
        sums.conflicts += session.conflicts().len();
        for (_, why) in session.no_version() {
            *sums.no_version.entry(reason::of_version(why)).or_default() += 1;
        }
        let told = session.points().len() + session.refused().len();
        if told != points.len() && session.conflicts().is_empty() {
            checked.violations.push(format!(
                "{} points were asked for, {told} are armed or refused",
                points.len()
            ));
        }
        self.load.pause();
        let first = [self.read(&session)?, self.read(&session)?];
        self.load.resume();
        std::thread::sleep(self.span);
        self.load.pause();
        let second = [self.read(&session)?, self.read(&session)?];
        self.load.resume();
        let armed = session.points().to_vec();
        let disarming = Instant::now();
        let (last, report) = session.finish().map_err(|e| e.to_string())?;
        sums.disarming += disarming.elapsed();
        if last.is_none() {
            sums.unfinished += 1;
        }
        if report.stuck > 0 {
            checked
                .violations
                .push(format!("{} sites are stuck", report.stuck));
        }
        let reads = Reads {
            first,
            second,
            last: last.map(|l| l.counts.iter().map(|c| c.total()).collect()),
            under_way: report.under_way,
            threads: load::threads(),
        };
        check::check(functions, &armed, &reads, checked);
        Ok(())
    }

    fn read(&self, session: &Session<'_>) -> Result<Vec<u64>, Failure> {
        let counts = session.read().map_err(|e| e.to_string())?;
        if !counts.complete {
            return Err(counts.notes.join("; "));
        }
        Ok(counts.counts.iter().map(|c| c.total()).collect())
    }

    /// `None`: every point is refused.
    fn arm(&self, points: &[Point], owners: &Owners) -> Result<Option<Session<'_>>, Failure> {
        let options = ArmOptions {
            means: self.means,
            retire_patience: Duration::from_secs(5),
            ..ArmOptions::default()
        };
        let mut tries = 0;
        loop {
            match Session::arm(self.analysis, points, owners, options) {
                Ok(session) => return Ok(Some(session)),
                Err(ArmError::Nothing) => return Ok(None),
                // The text changed by itself, or somebody who reads /proc/modules held the driver.
                Err(e) if e.to_string().contains("try again") && tries < 5 => tries += 1,
                Err(e) => return Err(format!("arming: {e}")),
            }
        }
    }
}
