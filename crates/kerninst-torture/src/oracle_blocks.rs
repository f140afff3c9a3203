//! Counts of all blocks of many functions, to be compared with an emulator's.
//!
//! As in the oracle of single points, each counter is read after everything was taken out, and the emulator counts
//! executions of the address behind it in the patch. Most blocks are never executed: of those only the addresses are told,
//! each as the distance from the one before.

use crate::sweep::order;
use crate::{Failure, live};
use kerninst::{ArmOptions, Means, Owners, Point, Session};
use kerninst_analysis::{Analysis, Block, Function, InsnKind, Sites};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Which functions, and how.
#[derive(clap::Args)]
pub struct Args {
    /// Seed of the order of functions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Functions
    #[arg(long, default_value_t = 5000)]
    batch: usize,
    /// Number of the batch
    #[arg(long, default_value_t = 0)]
    from: usize,
    /// Splices only, no versions
    #[arg(long)]
    splices: bool,
    /// Shell command
    command: String,
}

/// The point that counts a block: its first instruction but for the fentry site, else one that is executed as often.
fn point(function: &Function, block: &Block) -> Option<Point> {
    let insns = function.block_insns(block).iter();
    let alike = insns
        .skip_while(|i| i.sites.contains(Sites::FENTRY))
        // Not past what may end the visit.
        .scan(true, |on, i| {
            let now = *on;
            *on &= !matches!(i.kind, InsnKind::Call | InsnKind::IndirectCall)
                && !i.sites.contains(Sites::STATIC_CALL);
            now.then_some(i.addr)
        });
    let mut all = alike;
    let mut point = Point::insn(0, function, all.next()?);
    point.candidates = all.collect();
    Some(point)
}

/// An instruction that faults is executed again: the emulator counts both attempts, the counter before it one.
fn may_fault(function: &Function, addr: u64) -> bool {
    function
        .insn_at(addr)
        .is_some_and(|i| i.sites.contains(Sites::EXTABLE))
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let kernel = live()?;
    let analysis = Analysis::new(&kernel);
    let all = order(&analysis, args.seed, None, None);
    let first = args.from.saturating_mul(args.batch).min(all.len());
    let end = first.saturating_add(args.batch).min(all.len());
    if first == end {
        // The words are known to xtask.
        return Err(format!(
            "there is no such batch: the kernel has {} functions",
            all.len()
        ));
    }
    let mut points: Vec<Point> = Vec::new();
    let mut blocks = 0;
    for (_, start) in all.get(first..end).unwrap_or(&[]) {
        let Some(function) = analysis.function_at(*start).filter(|f| f.entry() == *start) else {
            continue;
        };
        blocks += function.blocks.len();
        points.extend(function.blocks.iter().filter_map(|b| point(&function, b)));
    }
    let options = ArmOptions {
        means: if args.splices {
            Means::Splices
        } else {
            Means::Versions
        },
        retire_patience: Duration::from_secs(20),
        ..ArmOptions::default()
    };
    let arming = Instant::now();
    let session =
        Session::arm(&analysis, &points, &Owners::live(), options).map_err(|e| e.to_string())?;
    let arming = arming.elapsed();
    let armed = session.points().to_vec();
    let (refused, conflicts) = (session.refused().len(), session.conflicts().len());
    let versions = session.versions().len();
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", &args.command])
        .status();
    if !status.is_ok_and(|s| s.success()) {
        return Err("the command failed".into());
    }
    let (counts, report) = session.finish().map_err(|e| e.to_string())?;
    let counts = counts.ok_or_else(|| format!("no final counts: {:?}", report.waiting))?;
    let mut never: Vec<u64> = Vec::new();
    let mut tactics: BTreeMap<String, usize> = BTreeMap::new();
    for (p, count) in armed.iter().zip(&counts.counts) {
        *tactics.entry(p.tactic.to_string()).or_default() += 1;
        let count = count.total();
        if count == 0 {
            never.extend(&p.copies);
            continue;
        }
        let copies: Vec<String> = p.copies.iter().map(|c| format!("{c:x}")).collect();
        let faults = analysis
            .function_at(p.point.entry)
            .is_some_and(|f| may_fault(&f, p.point.addr));
        let row = json!({"point": p.point.label(), "copy": copies.join(","), "tactic": p.tactic.to_string(),
                         "may_fault": faults, "count": count});
        println!("{row}");
    }
    never.sort_unstable();
    let mut before = 0;
    let gaps = never.iter().map(|addr| {
        let gap = addr - before;
        before = *addr;
        format!("{gap:x}")
    });
    let gaps: Vec<String> = gaps.collect();
    for line in gaps.chunks(2000) {
        println!("{}", json!({"never": line.join(" ")}));
    }
    println!(
        "{}",
        json!({"job": "oracle-blocks", "functions": end - first, "all_functions": all.len(), "blocks": blocks,
               "armed": armed.len(), "refused": refused, "conflicts": conflicts, "versions": versions,
               "tactics": tactics, "arming_ms": arming.as_millis() as u64})
    );
    Ok(())
}
