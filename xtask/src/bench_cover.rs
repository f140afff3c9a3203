//! `cargo xtask bench --whole`: what a mixed load costs while every function of the kernel is covered.
//!
//! Every job of the load does a fixed amount of work, and each is counted alone, by the emulator: with nothing armed, under
//! `cover --all`, and under `cover --all --once` when the marks of what it runs are gone.

use crate::{Failure, programs};
use kerninst_lab::{KernelImage, Lab, Meter};
use std::time::Duration;

/// The jobs: kerninst-guest's own.
const JOBS: &[&str] = &["fork 40", "files 100", "pipe 500", "tcp 4", "timers 100"];
/// Number of the first region without anything armed, with counters, with marks.
const SERIES: [(&str, u16); 3] = [
    ("alone", 1),
    ("cover --all", 11),
    ("cover --all --once", 21),
];
/// A region that is not looked at.
const WARM: u16 = 100;

/// Runs it; prints Markdown.
pub fn run(image: &KernelImage, programs: &programs::Programs) -> Result<(), Failure> {
    let mut jobs = String::from("cat > /tmp/jobs <<'END'\n");
    for (n, job) in JOBS.iter().enumerate() {
        jobs.push_str(&format!(
            "kerninst-guest --region $(($1 + {n})) {job} >/dev/null || exit 1\n"
        ));
    }
    jobs.push_str("END\nstamp() { echo stamp $1 $(cut -d' ' -f1 /proc/uptime); }\n");
    let script = format!(
        "{jobs}
         sleep 2; kerninst-guest arm; sh /tmp/jobs {WARM}; sh /tmp/jobs 1 || exit 1
         cat > /tmp/counts <<'END'
echo stamp armed $(cut -d' ' -f1 /proc/uptime); sh /tmp/jobs {WARM}; sh /tmp/jobs 11; echo stamp done $(cut -d' ' -f1 /proc/uptime)
END
         cat > /tmp/marks <<'END'
sh /tmp/jobs {WARM}; sleep 3; sh /tmp/jobs {WARM}; sleep 3; sh /tmp/jobs 21
END
         stamp begin
         kerninst cover --all -- sh /tmp/counts 2>/dev/null || exit 1
         stamp end
         kerninst cover --all --once -- sh /tmp/marks 2>/dev/null || exit 1"
    );
    let outcome = Lab::new(image.clone())
        .files(programs.guest_files())
        .deterministic(true)
        .seed(42)
        .mem(4096)
        .meter(Meter::new(&programs.meter))
        .timeout(Duration::from_secs(2400))
        .run(&script)
        .map_err(|e| e.to_string())?;
    if !outcome.is_success() {
        return Err(format!("{}{}", outcome.stderr, outcome.report()));
    }
    let report = outcome.meter.as_ref().ok_or("the meter wrote nothing")?;
    let region = |id: u16| {
        let found = report
            .regions
            .iter()
            .find(|r| u64::from(r.id) == u64::from(id));
        found
            .map(|r| r.kernel)
            .ok_or(format!("region {id} was not counted"))
    };
    println!("Guest instructions of the kernel, in thousands, for the same work:\n");
    println!("| Job | alone | `cover --all` | | `cover --all --once`, when all is hit | |");
    println!("|---|---:|---:|---:|---:|---:|");
    let row = |name: &str, n: [u64; 3]| {
        let times = |v: u64| format!("{:.2}x", v as f64 / n[0].max(1) as f64);
        println!(
            "| {name} | {} | {} | {} | {} | {} |",
            n[0] / 1000,
            n[1] / 1000,
            times(n[1]),
            n[2] / 1000,
            times(n[2])
        );
    };
    let mut sum = [0u64; 3];
    for (n, job) in JOBS.iter().enumerate() {
        let mut all = [0u64; 3];
        for ((_, first), slot) in SERIES.iter().zip(&mut all) {
            *slot = region(first + n as u16)?;
        }
        row(job, all);
        for (sum, n) in sum.iter_mut().zip(all) {
            *sum += n;
        }
    }
    row("all", sum);
    let stamp = |name: &str| {
        let line = outcome
            .stdout
            .lines()
            .find_map(|l| l.strip_prefix("stamp ")?.strip_prefix(name));
        line.and_then(|l| l.trim().parse::<f64>().ok())
            .ok_or(format!("no stamp {name}"))
    };
    println!(
        "\nGuest seconds (10^9 instructions each, all of kerninst's own included): {:.1} from the start of `cover --all` to all \
         counters armed, {:.1} from its command's end to its own.\n",
        stamp("armed")? - stamp("begin")?,
        stamp("end")? - stamp("done")?
    );
    Ok(())
}
