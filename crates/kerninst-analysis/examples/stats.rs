//! Analyses a whole kernel and prints what it found: `stats FILE [FUNCTION…]`; `live` for the running one.
//!
//! With function names, prints how long the analysis of each alone takes instead.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use kerninst_analysis::{Analysis, Function, Incomplete, Sites};
use kerninst_kernel::Kernel;

/// Counts over instructions.
#[derive(Default, Clone, Copy)]
struct Count {
    all: u64,
    flags: u64,
    dead: [u64; 3],
    flags_and_one: u64,
}

impl Count {
    fn add(&mut self, live: kerninst_analysis::Live) {
        let dead = live.dead_mask().count_ones() as usize;
        self.all += 1;
        self.flags += u64::from(live.flags_dead());
        self.flags_and_one += u64::from(live.flags_dead() && dead >= 1);
        for (n, slot) in self.dead.iter_mut().enumerate() {
            *slot += u64::from(dead > n);
        }
    }

    fn plus(&mut self, other: &Count) {
        self.all += other.all;
        self.flags += other.flags;
        self.flags_and_one += other.flags_and_one;
        for (a, b) in self.dead.iter_mut().zip(other.dead) {
            *a += b;
        }
    }

    fn print(&self, what: &str) {
        let share = |n: u64| 100.0 * n as f64 / self.all.max(1) as f64;
        println!(
            "{what:<24} {:>9}  flags dead {:5.1} %  registers dead: 1 {:5.1} %  2 {:5.1} %  3 {:5.1} %  flags and 1 {:5.1} %",
            self.all,
            share(self.flags),
            share(self.dead[0]),
            share(self.dead[1]),
            share(self.dead[2]),
            share(self.flags_and_one)
        );
    }
}

#[derive(Default)]
struct Stats {
    functions: u64,
    complete: u64,
    fentry: u64,
    parts: u64,
    insns: Count,
    leaders: Count,
    joins: u64,
    sites: u64,
    reasons: BTreeMap<&'static str, (u64, Vec<String>)>,
}

impl Stats {
    fn add(&mut self, function: &Function) {
        self.functions += 1;
        self.complete += u64::from(function.is_complete());
        self.fentry += u64::from(function.fentry.is_some());
        self.parts += function.ranges.len() as u64 - 1;
        for insn in &function.insns {
            self.joins += u64::from(insn.joins);
            self.sites += u64::from(insn.sites.intersects(Sites::MANAGED));
            self.insns.add(insn.live);
        }
        for block in &function.blocks {
            if let Some(insn) = function.block_insns(block).first() {
                self.leaders.add(insn.live);
            }
        }
        if let Some(reason) = function.incomplete.first() {
            let entry = self.reasons.entry(reason_name(reason)).or_default();
            entry.0 += 1;
            entry.1.push(format!("{} ({reason})", function.id));
        }
    }

    fn plus(&mut self, other: Stats) {
        self.functions += other.functions;
        self.complete += other.complete;
        self.fentry += other.fentry;
        self.parts += other.parts;
        self.joins += other.joins;
        self.sites += other.sites;
        self.insns.plus(&other.insns);
        self.leaders.plus(&other.leaders);
        for (name, (count, list)) in other.reasons {
            let entry = self.reasons.entry(name).or_default();
            entry.0 += count;
            entry.1.extend(list);
        }
    }
}

fn reason_name(reason: &Incomplete) -> &'static str {
    match reason {
        Incomplete::BadInstruction { .. } => "bad instruction",
        Incomplete::OffText { .. } => "off the text",
        Incomplete::Overlap { .. } => "overlapping instructions",
        Incomplete::IndirectJump { .. } => "indirect jump",
        Incomplete::TableMismatch { .. } => "table mismatch",
        Incomplete::Breakpoint { .. } => "breakpoint",
        Incomplete::TooLarge { .. } => "too large",
        Incomplete::ForeignJump { .. } => "foreign jump",
        Incomplete::ColdPart { .. } => "cold part without its function",
        _ => "other",
    }
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|l| l.starts_with("VmHWM:"))
        .unwrap_or("VmHWM: ?");
    line.trim_start_matches("VmHWM:").trim().to_string()
}

/// Processor time used so far, in seconds.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let ticks = |n: usize| {
        fields
            .get(n)
            .and_then(|f| f.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

fn one_by_one(kernel: &Kernel, names: &[String]) {
    for name in names {
        let fresh = Analysis::new(kernel);
        // The index of symbols is made once; what is timed is one function.
        let count = fresh.functions().len();
        for symbol in kernel.symbols().named(name) {
            let start = Instant::now();
            let Some(function) = fresh.function_at(symbol.addr) else {
                continue;
            };
            let alone = start.elapsed();
            let start = Instant::now();
            let padding: usize = function
                .blocks
                .iter()
                .map(|b| fresh.padding_near(b.start, 128).len())
                .sum();
            println!(
                "{name}: {} instructions, {alone:?}; padding near its {} blocks: {padding} ranges, {:?} (of {count} functions)",
                function.insns.len(),
                function.blocks.len(),
                start.elapsed(),
            );
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(path) = args.first() else {
        eprintln!("usage: stats FILE [FUNCTION...]");
        std::process::exit(2);
    };
    let start = Instant::now();
    let read = match path.as_str() {
        "live" => Kernel::live(),
        file => Kernel::from_file(Path::new(file)),
    };
    let kernel = match read {
        Ok(kernel) => kernel,
        Err(error) => {
            eprintln!("{path}: {error}");
            std::process::exit(1);
        }
    };
    let cpu = processor_time();
    println!(
        "{}: read in {:?} ({cpu:.2} s of processor time)",
        kernel.release().unwrap_or("?"),
        start.elapsed()
    );
    if args.len() > 1 {
        one_by_one(&kernel, &args[1..]);
        return;
    }
    let analysis = Analysis::new(&kernel);
    let begin = Instant::now();
    let [core, init] = [Mutex::new(Stats::default()), Mutex::new(Stats::default())];
    let totals = analysis.all(|function| {
        let is_init = kernel.text_at(function.entry()).is_some_and(|t| t.init);
        let mut stats = Stats::default();
        stats.add(function);
        if let Ok(mut all) = if is_init { init.lock() } else { core.lock() } {
            all.plus(stats);
        }
    });
    println!(
        "analysed in {:?} ({:.2} s of processor time), {:?} in all, peak memory {}",
        begin.elapsed(),
        processor_time() - cpu,
        start.elapsed(),
        peak_memory()
    );
    println!("{totals:?}");
    for (what, stats) in [("core", core), ("init", init)] {
        let Ok(stats) = stats.into_inner() else {
            continue;
        };
        println!(
            "\n{what}: {} functions, {} complete, {} with fentry site, {} cold parts, {} joins, {} managed sites",
            stats.functions, stats.complete, stats.fentry, stats.parts, stats.joins, stats.sites
        );
        stats.insns.print("instructions");
        stats.leaders.print("block leaders");
        for (reason, (count, list)) in &stats.reasons {
            println!("{count} incomplete: {reason}");
            for line in list.iter().take(8) {
                println!("    {line}");
            }
        }
    }
}
