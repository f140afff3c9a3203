//! A version of every function of a kernel, with a counter before every block: `versions FILE [--every]` (`--every`: before
//! every instruction). Prints how many functions can have one, why the others cannot, how their entries are spliced, and
//! how much code it is.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use kerninst_analysis::{Analysis, Sites};
use kerninst_kernel::Kernel;
use kerninst_patch::{Boards, NoVersion, Options, Planner, Request, Spot};
use kerninst_snippet::Snippet;

#[derive(Default)]
struct Sums {
    functions: u64,
    versions: u64,
    insns: u64,
    refused: BTreeMap<String, (u64, u64)>,
    entries: BTreeMap<String, u64>,
    spots: u64,
    no_spot: BTreeMap<String, u64>,
    costs: BTreeMap<u32, u64>,
    bytes: u64,
    relocs: u64,
    orc: u64,
}

fn kind(r: &NoVersion) -> String {
    match r {
        NoVersion::OffLimits(o) => format!("off limits: {o}"),
        NoVersion::Incomplete(_) => "control flow not fully known".into(),
        NoVersion::Unrelocatable { why, .. } => format!("cannot be moved: {why}"),
        NoVersion::Key { .. } => "a static key cannot be read".into(),
        other => other.to_string(),
    }
}

fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("usage: versions FILE [--every]");
        return ExitCode::from(2);
    };
    let every = std::env::args().any(|a| a == "--every");
    let kernel = match Kernel::from_file(Path::new(&file)) {
        Ok(k) => k,
        Err(e) => {
            eprintln!("versions: {e}");
            return ExitCode::FAILURE;
        }
    };
    let analysis = Analysis::new(&kernel);
    let planner = Planner::new(&analysis, Options::default());
    let sums: Mutex<Sums> = Mutex::default();
    let start = Instant::now();
    analysis.all(|f| {
        let slot = Snippet::Count {
            percpu: 0x6000_0000_0000,
        };
        let spots = f.insns.iter().filter(|i| {
            let block = f.blocks.get(i.block as usize);
            (every || block.is_some_and(|b| b.start == i.addr)) && !i.sites.contains(Sites::FENTRY)
        });
        let requests: Vec<_> = spots
            .map(|i| Request {
                at: Spot::Before(i.addr),
                snippets: vec![slot.clone()],
            })
            .collect();
        let made = planner.version(f, &requests, None, &mut Boards::new());
        let Ok(mut s) = sums.lock() else { return };
        s.functions += 1;
        s.insns += f.insns.len() as u64;
        match made {
            Ok((v, refused)) => {
                s.versions += 1;
                *s.entries.entry(v.splice.tactic.to_string()).or_default() += 1;
                s.spots += v.splice.points.len() as u64;
                for p in &v.splice.points {
                    *s.costs.entry(p.snippet_cost).or_default() += 1;
                }
                for (_, why) in refused {
                    *s.no_spot.entry(why.to_string()).or_default() += 1;
                }
                s.bytes += v.splice.patch.bytes.len() as u64;
                s.relocs += v.splice.patch.relocs.len() as u64;
                s.orc += v.splice.patch.orc.len() as u64;
            }
            Err(why) => {
                let e = s.refused.entry(kind(&why)).or_default();
                e.0 += 1;
                e.1 += f.insns.len() as u64;
            }
        }
    });
    let s = sums.into_inner().unwrap_or_default();
    println!("{:.2?}", start.elapsed());
    println!(
        "{} functions, {} instructions, {} versions: {} spots, {} bytes of code, {} relocations, {} unwind entries",
        s.functions, s.insns, s.versions, s.spots, s.bytes, s.relocs, s.orc
    );
    for (why, (functions, insns)) in &s.refused {
        println!("  refused {functions:6} functions {insns:8} instructions  {why}");
    }
    for (why, n) in &s.no_spot {
        println!("  no spot {n:6}  {why}");
    }
    for (tactic, n) in &s.entries {
        println!("  entry {n:6}  {tactic}");
    }
    for (cost, n) in &s.costs {
        println!("  {cost} instructions: {n}");
    }
    ExitCode::SUCCESS
}
