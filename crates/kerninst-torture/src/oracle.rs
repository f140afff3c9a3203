//! Counts to be compared, to the last execution, with an emulator's.
//!
//! Points are drawn by seed over all instructions of all functions. Each one's counter is read after everything
//! was taken out, so it holds every execution of its patch; the emulator counts, all the while, executions of the
//! address in the patch that follows the counter.

use crate::random::Random;
use crate::{Failure, live};
use kerninst::{ArmOptions, Means, Owners, Point, Session};
use kerninst_analysis::{Analysis, Sites};
use kerninst_patch::{Boards, Options, Planner, Tactic};

pub fn run(wanted: usize, seed: u64, tactic: Option<&str>, command: &str) -> Result<(), Failure> {
    let kernel = live()?;
    let analysis = Analysis::new(&kernel);
    let functions = analysis.functions();
    let mut random = Random::new(seed);
    let mut points: Vec<Point> = Vec::new();
    let mut tries = 0;
    // Rare tactics take more looking.
    let most = wanted * if tactic.is_some() { 40 } else { 4 };
    let planner = Planner::new(&analysis, Options::default());
    while points.len() < wanted && tries < most {
        tries += 1;
        let Some(id) = functions.get(random.below(functions.len() as u64) as usize) else {
            break;
        };
        let Some(function) = analysis.function_at(id.start) else {
            continue;
        };
        if let Some(tactic) = tactic {
            let survey = planner.survey(&function, &Boards::new());
            let fits = |t: &Result<Tactic, _>| t.as_ref().is_ok_and(|t| t.name() == tactic);
            let fitting = function.insns.iter().zip(survey).filter(|(_, t)| fits(t));
            for (insn, _) in fitting.take(6) {
                if points.iter().all(|p| p.addr != insn.addr) {
                    points.push(Point::insn(0, &function, insn.addr));
                }
            }
            continue;
        }
        // Several of a function: they share splices, which is where mistakes would be.
        for _ in 0..1 + random.below(6) {
            let Some(insn) = function
                .insns
                .get(random.below(function.insns.len() as u64) as usize)
            else {
                continue;
            };
            if points.iter().all(|p| p.addr != insn.addr) {
                points.push(Point::insn(0, &function, insn.addr));
            }
        }
    }
    let means = match tactic {
        Some(_) => Means::Splices,
        None => Means::default(),
    };
    let options = ArmOptions {
        means,
        ..ArmOptions::default()
    };
    let session =
        Session::arm(&analysis, &points, &Owners::live(), options).map_err(|e| e.to_string())?;
    // An instruction that faults is executed again: the emulator counts both attempts, the counter before it one.
    let may_fault = |addr: u64| {
        let function = analysis.function_at(addr);
        function.is_some_and(|f| {
            f.insn_at(addr)
                .is_some_and(|i| i.sites.contains(Sites::EXTABLE))
        })
    };
    let rows: Vec<(String, String, String, bool)> = session
        .points()
        .iter()
        .map(|p| {
            let faults = may_fault(p.point.addr);
            let copies: Vec<String> = p.copies.iter().map(|c| format!("{c:x}")).collect();
            (
                p.point.label(),
                copies.join(","),
                p.tactic.to_string(),
                faults,
            )
        })
        .collect();
    let refused = session.refused().len();
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", command])
        .status();
    if !status.is_ok_and(|s| s.success()) {
        return Err("the command failed".into());
    }
    let (counts, report) = session.finish().map_err(|e| e.to_string())?;
    let counts = counts.ok_or_else(|| format!("no final counts: {:?}", report.waiting))?;
    for ((label, copy, tactic, faults), count) in rows.iter().zip(&counts.counts) {
        let row = serde_json::json!({"point": label, "copy": copy, "tactic": tactic, "may_fault": faults, "count": count.total()});
        println!("{row}");
    }
    println!(
        "{}",
        serde_json::json!({"job": "oracle", "armed": rows.len(), "refused": refused})
    );
    Ok(())
}
