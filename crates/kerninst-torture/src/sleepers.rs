//! Threads asleep in instrumented functions while their patches are taken out.
//!
//! Below a displaced call no stack holds an address of the patch, so the patch can go at once; a task that sleeps
//! in a fault of a displaced instruction keeps it. Either way nothing is freed under anybody, which the sleeper shows
//! by waking up and returning.

use crate::kill::nothing_left;
use crate::text::Snapshot;
use crate::{Failure, arm, live, points};
use kerninst::Probe;
use kerninst_analysis::Analysis;
use std::io::{Read, Write};
use std::time::Duration;

/// Every block of what a thread sleeps in: its calls are displaced.
const PROBES: [&str; 8] = [
    "block:do_nanosleep/*",
    "block:hrtimer_nanosleep/*",
    "block:schedule/*",
    "block:anon_pipe_read/*",
    "block:pipe_read/*",
    "block:vfs_read/*",
    "block:ksys_read/*",
    "block:do_wait/*",
];

pub fn run() -> Result<(), Failure> {
    let kernel = live()?;
    let analysis = Analysis::new(&kernel);
    let before = Snapshot::take(&kernel)?;
    let mut wanted = Vec::new();
    for text in PROBES {
        let probe: Probe = text.parse().map_err(|e| format!("{e}"))?;
        // The pipe's read function was renamed in 6.13.
        wanted.extend(points(&analysis, &[probe]).unwrap_or_default());
    }
    if wanted.len() < 60 {
        return Err(format!("only {} points", wanted.len()));
    }
    for round in 0..6 {
        let session = arm(&analysis, &wanted)?;
        // Asleep below displaced calls: they were called through the patches.
        let naps: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| std::thread::sleep(Duration::from_millis(1500))))
            .collect();
        let (mut reader, mut writer) = std::io::pipe().map_err(|e| e.to_string())?;
        let reading = std::thread::spawn(move || {
            let mut byte = [0];
            reader.read_exact(&mut byte).map(|()| byte[0])
        });
        std::thread::sleep(Duration::from_millis(300));
        let counts = session.read().map_err(|e| e.to_string())?;
        if counts.counts.iter().all(|c| c.total() == 0) {
            return Err("nothing was counted".into());
        }
        session.disarm().map_err(|e| e.to_string())?;
        before.check(&kernel)?;
        // Whoever comes back now must find code there.
        writer.write_all(&[7]).map_err(|e| e.to_string())?;
        let byte = reading
            .join()
            .map_err(|_| "the reader died")?
            .map_err(|e| e.to_string())?;
        if byte != 7 {
            return Err(format!("round {round}: read {byte}"));
        }
        for nap in naps {
            nap.join().map_err(|_| "a sleeper died")?;
        }
    }
    kerninst::reset(None, Duration::from_secs(10)).map_err(|e| e.to_string())?;
    nothing_left()?;
    println!("{{\"job\":\"sleepers\",\"points\":{}}}", wanted.len());
    Ok(())
}
