//! Plans over real kernels: every instruction of every so-many-th function is a point.
//!
//! `KERNINST_TEST_KERNELS` names a directory of kernel images (`cargo xtask test` fills one), or files separated by `:`.

mod common;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use common::SLOT;
use common::model::compare;
use common::rules::check;
use kerninst_analysis::{Analysis, Function, Sites};
use kerninst_kernel::Kernel;
use kerninst_patch::{Boards, Options, Planner, Request, Spot, Tactic, Tactics};
use kerninst_snippet::Snippet;

/// One function in so many is looked at: some thousands in all.
const EVERY: usize = 23;

fn kernels() -> Vec<PathBuf> {
    let Some(value) = std::env::var_os("KERNINST_TEST_KERNELS") else {
        // Not by a macro that the test harness captures: nobody shall take this for a pass.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: plans over real kernels (KERNINST_TEST_KERNELS is not set)"
        );
        return Vec::new();
    };
    let mut all = Vec::new();
    for path in std::env::split_paths(&value) {
        match std::fs::read_dir(&path) {
            Ok(dir) => all.extend(dir.map(|e| e.expect("a readable directory").path())),
            Err(_) => all.push(path),
        }
    }
    assert!(!all.is_empty(), "KERNINST_TEST_KERNELS names no kernel");
    all.sort();
    all
}

/// Decisions for the model: a fixed pseudo-random sequence for each function.
fn decisions(seed: u64) -> Vec<bool> {
    let mut x = seed | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 63 == 1
    };
    (0..300).map(|_| next()).collect()
}

fn requests(f: &Function) -> (Vec<Spot>, Vec<Request>) {
    let addrs: Vec<Spot> = f.insns.iter().map(|i| Spot::Before(i.addr)).collect();
    let count = |(n, at): (usize, &Spot)| Request {
        at: *at,
        snippets: vec![Snippet::Count {
            percpu: SLOT + 8 * n as u64,
        }],
    };
    let requests = addrs.iter().enumerate().map(count).collect();
    (addrs, requests)
}

#[derive(Default)]
struct Sums {
    functions: usize,
    points: usize,
    splices: usize,
    reached: usize,
    tactics: BTreeMap<Tactic, usize>,
}

fn one_kernel(path: &Path) -> Sums {
    let kernel = Kernel::from_file(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let analysis = Analysis::new(&kernel);
    let mut sums = Sums::default();
    for id in analysis.functions().iter().step_by(EVERY) {
        let Some(f) = analysis.function_at(id.start) else {
            continue;
        };
        let (addrs, requests) = requests(&f);
        sums.functions += 1;
        let whole = Options::default();
        let alone = Options {
            merge: false,
            tactics: Tactics::all() - Tactics::HOIST_PAST_JCC,
            ..whole
        };
        for options in [whole, alone] {
            let planner = Planner::new(&analysis, options);
            let mut boards = Boards::new();
            let plan = planner.plan_function(&f, &requests, &mut boards);
            let checked = check(&analysis, &f, &addrs, options.tactics, &plan, &boards);
            let ran = compare(&kernel, &f, &addrs, &plan, &decisions(id.start));
            match checked.and(ran) {
                Ok(reached) => sums.reached += reached.unwrap_or(0),
                Err(why) => panic!("{}: {}: {why}", path.display(), f.id),
            }
            if options == whole {
                sums.splices += plan.splices.len();
                sums.points += plan.splices.iter().map(|s| s.points.len()).sum::<usize>();
            }
        }
        let planner = Planner::new(&analysis, whole);
        for (insn, tactic) in f.insns.iter().zip(planner.survey(&f, &Boards::new())) {
            if let Ok(t) = tactic
                && !insn.sites.intersects(Sites::ALTERNATIVE | Sites::PARAVIRT)
            {
                *sums.tactics.entry(t).or_default() += 1;
            }
        }
    }
    sums
}

#[test]
fn real_functions_are_planned_by_the_rules_and_count_what_they_execute() {
    for path in kernels() {
        let sums = one_kernel(&path);
        let all: usize = sums.tactics.values().sum();
        let share = |tactics: &[Tactic]| {
            let n: usize = tactics.iter().filter_map(|t| sums.tactics.get(t)).sum();
            100.0 * n as f64 / all.max(1) as f64
        };
        let _ = writeln!(
            std::io::stderr(),
            "{}: {} functions, {} points in {} splices, {} reached; in place {:.1} %, hoist {:.1} %, springboard {:.1} %, run {:.1} %, int3 {:.2} %",
            path.display(),
            sums.functions,
            sums.points,
            sums.splices,
            sums.reached,
            share(&[Tactic::InPlace, Tactic::InPlacePadded]),
            share(&[Tactic::HoistInBlock, Tactic::HoistPastJcc]),
            share(&[Tactic::Springboard]),
            share(&[Tactic::Run]),
            share(&[Tactic::Int3]),
        );
        assert!(
            sums.functions > 500 && sums.reached > 10_000,
            "too little was looked at"
        );
        // Bands around what was measured on Debian 6.1 and 6.12.
        assert!((34.0..45.0).contains(&share(&[Tactic::InPlace, Tactic::InPlacePadded])));
        assert!((22.0..34.0).contains(&share(&[Tactic::HoistInBlock, Tactic::HoistPastJcc])));
        assert!((10.0..25.0).contains(&share(&[Tactic::Springboard])));
        assert!((8.0..20.0).contains(&share(&[Tactic::Run])));
        assert!(share(&[Tactic::Int3]) < 0.4);
        assert!(sums.splices * 2 < sums.points, "points are not merged");
    }
}
