//! `cargo xtask fuzz`: random scripts of the probe language in guests, one guest after the other.
//!
//! The work itself is `kerninst-torture fuzz`. A program is known by its seed; what was done is said as the seed to go on at.

use crate::{Failure, programs, say, setup};
use kerninst_lab::{Lab, Outcome};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The longest that one guest works.
const GUEST: u64 = 240;
/// What a guest takes besides.
const AROUND: Duration = Duration::from_secs(200);
/// As in the sweep: on a busy machine a guest may stand still for long, which is not its kernel's fault.
const PATIENCE: &str = "rcupdate.rcu_cpu_stall_timeout=300 watchdog_thresh=60";

/// Arguments of the fuzzer.
#[derive(clap::Args)]
pub struct Args {
    /// Kernel
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Seed of the first program: a later run goes on where this one says that it ended
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// No guest is begun after so many seconds
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

/// Runs it; 1 if a program broke something.
pub fn run(args: &Args) -> Result<i32, Failure> {
    setup::run()?;
    let programs = programs::build()?;
    let image = Lab::named(&args.kernel).map_err(|e| e.to_string())?;
    let image = image.kernel().clone();
    let started = Instant::now();
    let (mut seed, mut broken) = (args.seed, 0);
    loop {
        let left = args.seconds.saturating_sub(started.elapsed().as_secs());
        if left == 0 {
            break;
        }
        let time = left.min(GUEST);
        let outcome = Lab::new(image.clone())
            .files(programs.guest_files())
            .append(PATIENCE)
            .smp(2)
            .mem(2048)
            .timeout(Duration::from_secs(time) + AROUND)
            .run(&format!(
                "exec kerninst-torture fuzz --seed {seed} --seconds {time}"
            ))
            .map_err(|e| e.to_string())?;
        let last = last_seed(&outcome);
        if outcome.is_success() {
            let sum = outcome.stdout.lines().last().unwrap_or_default();
            println!("{sum}");
        } else {
            broken += 1;
            let at = last.map_or("no program".into(), |n| format!("program {n}"));
            say(&format!("{at}: {}{}", outcome.stderr, outcome.report()));
        }
        // One that did nothing would be begun for ever.
        let Some(last) = last else {
            return Err("the guest ran no program".into());
        };
        seed = last + 1;
    }
    println!(
        "{}: programs {} to {}, {broken} broke something; go on with --seed {seed}",
        image.release,
        args.seed,
        seed - 1
    );
    Ok(i32::from(broken > 0))
}

/// The last program that was begun.
fn last_seed(outcome: &Outcome) -> Option<u64> {
    let lines = outcome.stdout.lines().rev();
    let begun = lines
        .filter_map(|l| serde_json::from_str::<Value>(l).ok())
        .find(|v| v["schema"] == "kerninst.fuzz.begin/1");
    begun?["seed"].as_u64()
}
