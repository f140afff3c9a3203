//! `kill -9` at random moments of arming, being armed, and disarming.

use crate::random::Random;
use crate::text::Snapshot;
use crate::{Failure, arm, live, points};
use kerninst::Probe;
use kerninst_analysis::Analysis;
use std::time::{Duration, Instant};

pub fn run(times: u32, seed: u64, probes: &[Probe]) -> Result<(), Failure> {
    let kernel = live()?;
    let analysis = Analysis::new(&kernel);
    let points = points(&analysis, probes)?;
    // Once in peace: warms what the kernel does lazily, and tells how long a round takes.
    let started = Instant::now();
    arm(&analysis, &points)?
        .disarm()
        .map_err(|e| e.to_string())?;
    let round = started.elapsed();
    let before = Snapshot::take(&kernel)?;
    let mut random = Random::new(seed);
    let (mut early, mut armed, mut late) = (0u32, 0u32, 0u32);
    for n in 0..times {
        let moment = Duration::from_micros(random.below(round.as_micros() as u64 * 5 / 4));
        let progress = shared_word()?;
        // SAFETY: this process has one thread; the child only runs code that this process could run.
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Err("fork failed".into());
        }
        if child == 0 {
            let code = match arm(&analysis, &points) {
                Ok(session) => {
                    progress.store(1);
                    std::thread::sleep(round / 8);
                    progress.store(2);
                    i32::from(session.disarm().is_err())
                }
                Err(e) => {
                    eprintln!("kerninst-torture: round {n}: {e}");
                    1
                }
            };
            // SAFETY: ends the child at once, without running the parent's destructors.
            unsafe { libc::_exit(code) };
        }
        std::thread::sleep(moment);
        // SAFETY: a child of ours, not yet waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        let mut status = 0;
        // SAFETY: `status` is a valid place.
        unsafe { libc::waitpid(child, &mut status, 0) };
        match progress.load() {
            0 => early += 1,
            1 => armed += 1,
            _ => late += 1,
        }
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) != 0 {
            return Err(format!("round {n}: the child failed by itself"));
        }
        before
            .check(&kernel)
            .map_err(|e| format!("round {n}, killed after {moment:?}: {e}"))?;
    }
    // The next run works, and leaves nothing.
    arm(&analysis, &points)?
        .disarm()
        .map_err(|e| e.to_string())?;
    before.check(&kernel)?;
    nothing_left()?;
    println!(
        "{{\"job\":\"kill\",\"times\":{times},\"while_arming\":{early},\"while_armed\":{armed},\"while_disarming\":{late},\"points\":{}}}",
        points.len()
    );
    Ok(())
}

/// Neither driver nor patch modules are loaded.
pub fn nothing_left() -> Result<(), Failure> {
    let modules = std::fs::read_to_string("/proc/modules").map_err(|e| e.to_string())?;
    match modules.lines().find(|l| l.starts_with("kerninst")) {
        Some(line) => Err(format!("still loaded: {line}")),
        None => Ok(()),
    }
}

/// A number that parent and child share.
struct Shared(*const std::sync::atomic::AtomicU32);

impl Shared {
    fn store(&self, n: u32) {
        // SAFETY: points to a shared page of this process and its children, zeroed when it was made.
        unsafe { (*self.0).store(n, std::sync::atomic::Ordering::SeqCst) }
    }
    fn load(&self) -> u32 {
        // SAFETY: as in `store`.
        unsafe { (*self.0).load(std::sync::atomic::Ordering::SeqCst) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by `shared_word` and nothing else refers to it.
        unsafe { libc::munmap(self.0 as *mut libc::c_void, 4096) };
    }
}

fn shared_word() -> Result<Shared, Failure> {
    // SAFETY: a fresh anonymous mapping.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        Err("mmap failed".into())
    } else {
        Ok(Shared(page.cast()))
    }
}
