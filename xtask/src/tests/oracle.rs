//! The emulator as oracle: for points drawn by seed over the whole kernel, the tool's count must equal the emulator's
//! own count of executions, to the last one.

use super::ensure;
use crate::suite::{Context, Kernels, LabTest, Run, TestResult};
use kerninst_lab::{KernelImage, Lab, Meter, MeterReport};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[LabTest {
    name: "oracle: counts equal the emulator's, 1500 points anywhere",
    catches: "any tactic, relocation, snippet or reading that counts one execution too many or too few, anywhere in the kernel",
    kernels: Kernels::All,
    timeout: Duration::from_secs(300),
    quick: false,
    run: Run::Own(test),
}];

/// What one run compared.
#[derive(Debug, Default)]
pub struct Compared {
    /// Points whose counts are equal.
    pub equal: usize,
    /// Of them, points that were executed at all.
    pub executed: usize,
    /// Executions of those.
    pub executions: u64,
    /// Points on instructions that may fault, or repeat: the emulator counts attempts and rounds, so at least as many.
    pub at_least: usize,
    /// Points that cannot be instrumented.
    pub refused: u64,
    /// Points by tactic.
    pub tactics: BTreeMap<String, usize>,
}

pub const LOAD: &str = "kerninst-guest load 4; kerninst-guest tcp 1; kerninst-guest files 50; kerninst-guest fork 20; ls -R /sys/class >/dev/null";

fn test(context: &Context<'_>) -> TestResult {
    compare(context.lab(), &context.meter(), 1500, 1, None).map(drop)
}

/// Runs the comparison for `points` points drawn by `seed`.
/// Of one tactic only, if one is named.
pub fn compare(
    lab: Lab,
    meter: &Meter,
    points: usize,
    seed: u64,
    tactic: Option<&str>,
) -> Result<Compared, String> {
    let tactic = tactic.map_or(String::new(), |t| format!("--tactic {t}"));
    // 0x0701: the dump marker with number 1 (crates/kerninst-meter/src/marker.rs).
    let script = format!(
        "kerninst-guest arm --hist
         kerninst-torture oracle --points {points} --seed {seed} {tactic} '{LOAD}' 2>&1 || exit 1
         kerninst-guest mark 0x0701"
    );
    let outcome = lab
        .smp(2)
        .mem(2048)
        .meter(meter.clone())
        .run(&script)
        .map_err(|e| e.to_string())?;
    ensure(outcome.is_success(), || {
        format!("{}{}{}", outcome.stdout, outcome.stderr, outcome.report())
    })?;
    let report = outcome.meter.as_ref().ok_or("the meter wrote no report")?;
    let seen = seen(report)?;
    judge(&outcome.stdout, &seen)
}

/// By address: how often the emulator executed it, and whether it is a repeated string instruction.
pub fn seen(report: &MeterReport) -> Result<HashMap<u64, (u64, bool)>, String> {
    ensure(report.problems.is_empty(), || report.problems.join("; "))?;
    let histogram = report
        .histograms
        .first()
        .ok_or("the meter wrote no histogram")?;
    let mut seen: HashMap<u64, (u64, bool)> = HashMap::new();
    for row in &histogram.rows {
        let at = seen.entry(row.address).or_default();
        at.0 += row.count;
        at.1 |= row.rep;
    }
    Ok(seen)
}

/// Compares the job's lines with the emulator's counts.
pub fn judge(output: &str, seen: &HashMap<u64, (u64, bool)>) -> Result<Compared, String> {
    let mut compared = Compared::default();
    let mut wrong = Vec::new();
    for line in output
        .lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok())
    {
        if line["job"] == "oracle" {
            compared.refused = line["refused"].as_u64().unwrap_or(0);
        }
        let (Some(count), Some(copy)) = (line["count"].as_u64(), line["copy"].as_str()) else {
            continue;
        };
        // Several, where several splices serve the point.
        let (mut executed, mut rep) = (0, false);
        for copy in copy.split(',') {
            let copy = u64::from_str_radix(copy, 16).map_err(|e| format!("{line}: {e}"))?;
            let (times, repeats) = seen.get(&copy).copied().unwrap_or_default();
            executed += times;
            rep |= repeats;
        }
        let tactic = line["tactic"].as_str().unwrap_or("?").to_string();
        *compared.tactics.entry(tactic).or_default() += 1;
        if rep || line["may_fault"] == true {
            compared.at_least += 1;
            if executed < count {
                wrong.push(format!("{line}: the emulator counts only {executed}"));
            }
        } else if executed == count {
            compared.equal += 1;
            compared.executed += usize::from(count > 0);
            compared.executions += count;
        } else {
            wrong.push(format!("{line}: the emulator counts {executed}"));
        }
    }
    ensure(wrong.is_empty(), || {
        format!(
            "{} points differ:\n{}",
            wrong.len(),
            wrong
                .iter()
                .take(20)
                .cloned()
                .collect::<Vec<_>>()
                .join("\n")
        )
    })?;
    // A comparison of nothing is none.
    ensure(compared.executed >= 20, || {
        format!("only {} points were executed", compared.executed)
    })?;
    Ok(compared)
}

/// `cargo xtask oracle`.
#[derive(clap::Args)]
pub struct Args {
    /// Kernels, comma-separated
    #[arg(long, default_value = "6.12,6.1", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Points for each round
    #[arg(long, default_value_t = 3000)]
    points: usize,
    /// Seeds, comma-separated: one round for each
    #[arg(long, default_value = "1", value_delimiter = ',')]
    pub seeds: Vec<u64>,
    /// Only points of this tactic (edges, after-call, hoist-short ..)
    #[arg(long)]
    tactic: Option<String>,
    /// All blocks of all functions, in batches, by versions; the first seed gives the order
    #[arg(long)]
    pub all: bool,
    /// With --all: functions of one boot
    #[arg(long, default_value_t = 5000)]
    pub batch: usize,
    /// With --all: number of the first batch
    #[arg(long, default_value_t = 0)]
    pub from: usize,
    /// With --all: by splices alone
    #[arg(long)]
    pub splices: bool,
    /// With --all: no boot begins later than this many seconds after the start
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 3600)]
    pub seconds: u64,
}

/// Runs it and prints a line for each round.
pub fn run(args: &Args) -> Result<i32, crate::Failure> {
    crate::setup::run()?;
    let programs = crate::programs::build()?;
    let mut failed = 0;
    for name in &args.kernels {
        let image: KernelImage = Lab::named(name)
            .map_err(|e| e.to_string())?
            .kernel()
            .clone();
        if args.all {
            let lab = Lab::new(image.clone())
                .files(programs.guest_files())
                .timeout(Duration::from_secs(1800));
            let meter = Meter::new(&programs.meter);
            failed += super::oracle_blocks::run(&image, lab, &meter, args);
            continue;
        }
        for &seed in &args.seeds {
            let lab = Lab::new(image.clone())
                .files(programs.guest_files())
                .timeout(Duration::from_secs(1800));
            let meter = Meter::new(&programs.meter);
            match compare(lab, &meter, args.points, seed, args.tactic.as_deref()) {
                Ok(c) => println!(
                    "{} seed {seed}: {} counts equal the emulator's ({} points executed, {} executions), {} at least, {} refused, {:?}",
                    image.release,
                    c.equal,
                    c.executed,
                    c.executions,
                    c.at_least,
                    c.refused,
                    c.tactics
                ),
                Err(why) => {
                    failed += 1;
                    println!("{} seed {seed}: FAILED: {why}", image.release);
                }
            }
        }
    }
    Ok(i32::from(failed > 0))
}

#[cfg(test)]
mod unit {
    use super::*;

    /// Would catch an oracle that overlooks a difference.
    #[test]
    fn a_difference_is_seen() {
        let line = |count: u64, fault: bool| {
            (0..25)
                .map(|n| format!("{{\"point\":\"f+{n}\",\"copy\":\"{:x}\",\"tactic\":\"run\",\"may_fault\":{fault},\"count\":{count}}}\n", 0x1000 + n))
                .collect::<String>()
        };
        let seen: HashMap<u64, (u64, bool)> = (0..25).map(|n| (0x1000 + n, (5, false))).collect();
        let equal = judge(&line(5, false), &seen).expect("equal counts");
        assert_eq!((equal.equal, equal.executions), (25, 125));
        assert!(judge(&line(4, false), &seen).is_err());
        assert!(judge(&line(6, false), &seen).is_err());
        assert!(judge(&line(6, true), &seen).is_err());
        assert!(judge("", &seen).is_err());
    }
}
