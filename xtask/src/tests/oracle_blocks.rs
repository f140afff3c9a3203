//! `cargo xtask oracle --all`: with all blocks of a kernel's functions armed, some thousand functions a boot, all counts
//! equal the emulator's own.

use super::{ensure, lines_of, oracle};
use kerninst_lab::{KernelImage, Lab, Meter};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What one boot compared.
#[derive(Debug, Default)]
pub struct Blocks {
    /// Functions that were asked for.
    pub functions: u64,
    /// Functions that there are.
    pub all_functions: u64,
    /// Blocks of those.
    pub blocks: u64,
    /// Blocks that were armed.
    pub armed: u64,
    /// Blocks that cannot be.
    pub refused: u64,
    /// Versions.
    pub versions: u64,
    /// Counts that are equal and not zero.
    pub equal: usize,
    /// Their sum.
    pub executions: u64,
    /// Counters that are zero, and whose instruction the emulator did not see either.
    pub never: usize,
    /// Counts of blocks that begin with an instruction that may fault, or repeat: the emulator counts at least as many.
    pub at_least: usize,
    /// Milliseconds of the guest that planning and arming took.
    pub arming_ms: u64,
}

/// What `kerninst-torture oracle-blocks` says of a batch with a number too high.
const PAST_THE_END: &str = "there is no such batch";

/// Runs one boot.
pub fn compare(
    lab: Lab,
    meter: &Meter,
    seed: u64,
    batch: usize,
    number: usize,
    splices: bool,
) -> Result<Blocks, String> {
    let splices = if splices { "--splices" } else { "" };
    // 0x0701: the dump marker with number 1 (crates/kerninst-meter/src/marker.rs).
    let script = format!(
        "kerninst-guest arm --hist
         kerninst-torture oracle-blocks --seed {seed} --batch {batch} --from {number} {splices} '{}' || exit 1
         kerninst-guest mark 0x0701",
        oracle::LOAD
    );
    let outcome = lab
        .smp(2)
        .mem(3072)
        .meter(meter.clone())
        .run(&script)
        .map_err(|e| e.to_string())?;
    ensure(outcome.is_success(), || {
        format!("{}{}", outcome.stderr, outcome.report())
    })?;
    ensure(!outcome.truncated, || "the guest said too much".into())?;
    let report = outcome.meter.as_ref().ok_or("the meter wrote no report")?;
    let seen = oracle::seen(report)?;
    judge(&outcome.stdout, &seen)
}

fn judge(output: &str, seen: &HashMap<u64, (u64, bool)>) -> Result<Blocks, String> {
    let mut blocks = Blocks::default();
    let counted = oracle::judge(output, seen)?;
    blocks.equal = counted.equal;
    blocks.executions = counted.executions;
    blocks.at_least = counted.at_least;
    let mut addr = 0u64;
    let mut wrong = Vec::new();
    let mut summed = false;
    for line in lines_of(output) {
        if line["job"] == "oracle-blocks" {
            let number = |name: &str| line[name].as_u64().unwrap_or(0);
            blocks.functions = number("functions");
            blocks.all_functions = number("all_functions");
            blocks.blocks = number("blocks");
            blocks.armed = number("armed");
            blocks.refused = number("refused");
            blocks.versions = number("versions");
            blocks.arming_ms = number("arming_ms");
            summed = true;
        }
        for gap in line["never"].as_str().unwrap_or("").split_whitespace() {
            let gap = u64::from_str_radix(gap, 16).map_err(|e| format!("{gap}: {e}"))?;
            addr = addr.wrapping_add(gap);
            match seen.get(&addr) {
                Some((times, _)) if *times > 0 => {
                    wrong.push(format!("{addr:#x}: 0, the emulator counts {times}"));
                }
                _ => blocks.never += 1,
            }
        }
    }
    ensure(summed, || "the job did not come to its end".into())?;
    ensure(wrong.is_empty(), || {
        let some: Vec<&str> = wrong.iter().take(20).map(String::as_str).collect();
        format!("{} blocks differ:\n{}", wrong.len(), some.join("\n"))
    })?;
    Ok(blocks)
}

/// All batches of a kernel, until the time is over; prints a line for each. Gives the number that failed.
pub fn run(image: &KernelImage, lab: Lab, meter: &Meter, args: &oracle::Args) -> u32 {
    let started = Instant::now();
    let seed = args.seeds.first().copied().unwrap_or(1);
    let (mut failed, mut done, mut equal, mut executions) = (0, 0, 0, 0);
    // Known once a batch was compared: one that fails does not tell.
    let mut all_functions = u64::MAX;
    for number in args.from.. {
        let over = started.elapsed() > Duration::from_secs(args.seconds);
        if over || number as u64 * args.batch as u64 >= all_functions {
            break;
        }
        match compare(lab.clone(), meter, seed, args.batch, number, args.splices) {
            Ok(b) => {
                println!(
                    "{} functions {} to {}: {} of {} blocks armed ({} versions, {} ms), {} refused; {} counts equal the \
                     emulator's ({} executions), {} at least, {} never executed",
                    image.release,
                    number * args.batch,
                    number as u64 * args.batch as u64 + b.functions,
                    b.armed,
                    b.blocks,
                    b.versions,
                    b.arming_ms,
                    b.refused,
                    b.equal,
                    b.executions,
                    b.at_least,
                    b.never
                );
                done += b.functions;
                equal += b.equal + b.never;
                executions += b.executions;
                all_functions = b.all_functions;
            }
            Err(why) if why.contains(PAST_THE_END) => break,
            Err(why) => {
                failed += 1;
                println!("{} batch {number}: FAILED: {why}", image.release);
            }
        }
    }
    println!(
        "{} seed {seed}: {done} functions, {equal} counts equal ({executions} executions), {failed} batches failed",
        image.release
    );
    failed
}

#[cfg(test)]
mod unit {
    use super::*;

    /// Would catch a block whose counter stayed at zero although it ran.
    #[test]
    fn a_block_that_ran_uncounted_is_seen() {
        let rows: String = (0..25)
            .map(|n| format!("{{\"point\":\"f+{n}\",\"copy\":\"{:x}\",\"tactic\":\"version\",\"may_fault\":false,\"count\":5}}\n", 0x1000 + n))
            .collect();
        let output = format!(
            "{rows}{{\"never\":\"2000 8 8\"}}\n{{\"job\":\"oracle-blocks\",\"armed\":28}}\n"
        );
        let mut seen: HashMap<u64, (u64, bool)> =
            (0..25).map(|n| (0x1000 + n, (5, false))).collect();
        let good = judge(&output, &seen).expect("equal");
        assert_eq!((good.equal, good.never, good.armed), (25, 3, 28));
        seen.insert(0x2008, (1, false));
        assert!(judge(&output, &seen).is_err());
        seen.remove(&0x2008);
        assert!(judge(&rows, &seen).is_err(), "an end is missing");
    }
}
