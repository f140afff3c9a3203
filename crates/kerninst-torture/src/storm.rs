//! Arms and disarms random subsets again and again while the machine is busy, with a count that is known.

use crate::kill::nothing_left;
use crate::random::Random;
use crate::text::Snapshot;
use crate::{Failure, arm, live, points};
use kerninst::{Point, PointKind, Probe};
use kerninst_analysis::Analysis;
use std::time::{Duration, Instant};

/// The function whose calls are known: this system call is only made by this program.
const KNOWN: &str = "__x64_sys_getpgid";

pub fn run(seconds: u64, seed: u64, probes: &[Probe]) -> Result<(), Failure> {
    let kernel = live()?;
    let analysis = Analysis::new(&kernel);
    let all = points(&analysis, probes)?;
    let mut known = points(
        &analysis,
        &[format!("entry:{KNOWN}")
            .parse()
            .map_err(|e| format!("{e}"))?],
    )?;
    known.extend(points(
        &analysis,
        &[format!("exit:{KNOWN}")
            .parse()
            .map_err(|e| format!("{e}"))?],
    )?);
    arm(&analysis, &all)?.disarm().map_err(|e| e.to_string())?;
    let before = Snapshot::take(&kernel)?;
    let mut random = Random::new(seed);
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut rounds, mut armed, mut executions) = (0u64, 0u64, 0u64);
    while Instant::now() < until {
        let share = 1 + random.below(8);
        let mut some: Vec<Point> = all
            .iter()
            .filter(|_| random.below(8) < share)
            .cloned()
            .collect();
        some.extend(known.iter().cloned());
        let session = match arm(&analysis, &some) {
            Ok(session) => session,
            // Somebody who reads /proc/modules holds the driver or the text changed by itself: said, and tried again.
            Err(e) if e.contains("try again") => continue,
            Err(e) => return Err(format!("round {rounds}: {e}")),
        };
        let calls = 1 + random.below(3000);
        call_on_all_cpus(calls);
        let (counts, report) = session_counts(session)?;
        for want_entry in [true, false] {
            // Of several exits each counts its share.
            let mine = counts.iter().filter(|row| {
                known
                    .iter()
                    .any(|p| p.addr == row.addr || p.candidates.contains(&row.addr))
                    && (row.kind == PointKind::Entry) == want_entry
            });
            let counted: u64 = mine.map(|row| row.count).sum();
            if counted != calls {
                let what = if want_entry { "entry" } else { "exits" };
                return Err(format!(
                    "round {rounds}: {calls} calls, but the {what} counted {counted}"
                ));
            }
        }
        if report.stuck != 0 {
            return Err(format!("round {rounds}: {} sites are stuck", report.stuck));
        }
        rounds += 1;
        armed += some.len() as u64;
        executions += counts.iter().map(|row| row.count).sum::<u64>();
    }
    before.check(&kernel)?;
    // What tasks slept in may have waited for this.
    kerninst::reset(None, Duration::from_secs(10)).map_err(|e| e.to_string())?;
    nothing_left()?;
    println!(
        "{{\"job\":\"storm\",\"rounds\":{rounds},\"armed\":{armed},\"executions\":{executions}}}"
    );
    Ok(())
}

/// One count.
struct Row {
    kind: PointKind,
    addr: u64,
    count: u64,
}

fn session_counts(
    session: kerninst::Session<'_>,
) -> Result<(Vec<Row>, kerninst::DisarmReport), Failure> {
    let counts = session.read().map_err(|e| e.to_string())?;
    let rows = session
        .points()
        .iter()
        .zip(&counts.counts)
        .map(|(p, c)| Row {
            kind: p.point.kind,
            addr: p.point.addr,
            count: c.total(),
        })
        .collect();
    let report = session.disarm().map_err(|e| e.to_string())?;
    Ok((rows, report))
}

/// Exactly `calls` calls in all, by a thread on every CPU at once.
fn call_on_all_cpus(calls: u64) {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    std::thread::scope(|scope| {
        for cpu in 0..cpus {
            let mine = calls / cpus + u64::from(cpu < calls % cpus);
            scope.spawn(move || {
                for _ in 0..mine {
                    // SAFETY: has no effect.
                    unsafe { libc::syscall(libc::SYS_getpgid, 0) };
                }
            });
        }
    });
}
