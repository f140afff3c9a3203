//! The share of each tactic over all instructions of a kernel: `ladder FILE [--booted] [--lahf]`, FILE a vmlinuz, vmlinux or module.
//!
//! Each instruction is planned as if it were the only point. Functions are surveyed on all CPUs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use kerninst_analysis::{Analysis, Sites};
use kerninst_kernel::Kernel;
use kerninst_patch::{Boards, Options, Planner, Refusal, Tactic};
use kerninst_snippet::{Features, Snippet};

/// Short name of a refusal: its kind, without addresses.
fn kind(r: &Refusal) -> String {
    match r {
        Refusal::NoFunction { .. } => "no function".into(),
        Refusal::NotAnInstruction { .. } => "inside an instruction".into(),
        Refusal::Unreached { .. } => "unreached".into(),
        Refusal::OffLimits(o) => format!("off limits: {o}"),
        Refusal::Fentry { .. } => "fentry site".into(),
        Refusal::ManagedSite(m) => format!("managed: {m:?}"),
        Refusal::Incomplete(_) => "incomplete function".into(),
        Refusal::Unrelocatable(u) => format!("cannot be moved: {u}"),
        Refusal::Unsafe(o) => format!("no code may run: {o:?}"),
        Refusal::Taken { .. } => "taken".into(),
        other => format!("{other}"),
    }
}

/// Tactics, refusals, and instructions that one count costs.
type Sums = (
    BTreeMap<Tactic, u64>,
    BTreeMap<String, u64>,
    BTreeMap<u32, u64>,
);

fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("usage: ladder FILE");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    let kernel = match Kernel::from_file(Path::new(&file)) {
        Ok(k) => k,
        Err(e) => {
            eprintln!("ladder: {e}");
            return ExitCode::FAILURE;
        }
    };
    println!("{file}: read in {:.2?}", start.elapsed());
    let analysis = Analysis::new(&kernel);
    let options = Options {
        features: Features {
            lahf: std::env::args().any(|a| a == "--lahf"),
        },
        ..Options::default()
    };
    let planner = Planner::new(&analysis, options);
    let start = Instant::now();
    let sums: Mutex<Sums> = Mutex::default();
    // A counter where the kernel's allocator puts most: out of reach of a 32-bit displacement.
    let far = [Snippet::Count {
        percpu: 0x6000_0000_0000,
    }];
    let skip_alternatives = std::env::args().any(|a| a == "--booted");
    let totals = analysis.all(|f| {
        let mut tactics: BTreeMap<Tactic, u64> = BTreeMap::new();
        let mut refused: BTreeMap<String, u64> = BTreeMap::new();
        let mut costs: BTreeMap<u32, u64> = BTreeMap::new();
        for (insn, result) in f
            .insns
            .iter()
            .zip(planner.survey_costs(f, &Boards::new(), &far))
        {
            // Alternatives are decided at boot: leave them out of the shares on request.
            if skip_alternatives && insn.sites.intersects(Sites::ALTERNATIVE | Sites::PARAVIRT) {
                continue;
            }
            match result {
                Ok(s) => {
                    *tactics.entry(s.tactic).or_default() += 1;
                    if s.tactic != Tactic::Int3 {
                        *costs.entry(s.cost).or_default() += 1;
                    }
                }
                Err(r) => *refused.entry(kind(&r)).or_default() += 1,
            }
        }
        let mut sums = sums.lock().expect("no panic while adding");
        tactics
            .into_iter()
            .for_each(|(t, n)| *sums.0.entry(t).or_default() += n);
        refused
            .into_iter()
            .for_each(|(r, n)| *sums.1.entry(r).or_default() += n);
        costs
            .into_iter()
            .for_each(|(c, n)| *sums.2.entry(c).or_default() += n);
    });
    println!("{totals:?}\nsurveyed in {:.2?}", start.elapsed());
    let sums = sums.into_inner().expect("no panic while adding");
    let all: u64 = sums.0.values().chain(sums.1.values()).sum();
    let share = |n: u64| 100.0 * n as f64 / all.max(1) as f64;
    for (t, n) in &sums.0 {
        println!("{:>9} {:7.3} %  {t}", n, share(*n));
    }
    let counted: u64 = sums.2.values().sum();
    for (c, n) in &sums.2 {
        println!(
            "{n:>9} {:7.3} %  of jumps: {c} instructions",
            100.0 * *n as f64 / counted.max(1) as f64
        );
    }
    for (r, n) in &sums.1 {
        println!("{:>9} {:7.3} %  refused: {r}", n, share(*n));
    }
    ExitCode::SUCCESS
}
