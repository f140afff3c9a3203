//! Everything at once, on all CPUs.

use crate::work::{Error, Event, cpus, files, fork_and_wait, pin, pipe, tcp};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pages of a mapping that is touched and given back.
const PAGES: usize = 64;
const PAGE: usize = 4096;

/// Signals that were handled.
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_signal: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Sends itself a signal and handles it.
fn signals() -> Result<Event, Error> {
    // SAFETY: all zeroes is a valid action; the handler only touches an atomic.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut())
    };
    if result != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(Box::new(|| {
        let before = HANDLED.load(Ordering::Relaxed);
        // SAFETY: a signal that has a handler, to this thread.
        if unsafe { libc::raise(libc::SIGUSR1) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        if HANDLED.load(Ordering::Relaxed) == before {
            return Err(std::io::Error::other("a signal to itself was not handled").into());
        }
        Ok(())
    }))
}

/// Maps pages, touches each, reads it again, protects and unmaps them.
fn page_faults() -> Result<(), Error> {
    let failed = || Error::System(std::io::Error::last_os_error());
    // SAFETY: a fresh private mapping; it is only touched within its length, while it is writable, and unmapped at the end.
    unsafe {
        let map = libc::mmap(
            std::ptr::null_mut(),
            PAGES * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if map == libc::MAP_FAILED {
            return Err(failed());
        }
        let bytes = map.cast::<u8>();
        for n in 0..PAGES {
            bytes.add(n * PAGE).write_volatile(n as u8);
        }
        let good = (0..PAGES).all(|n| bytes.add(n * PAGE).read_volatile() == n as u8);
        libc::madvise(map, PAGES * PAGE / 2, libc::MADV_DONTNEED);
        let zero = bytes.read_volatile() == 0;
        libc::mprotect(map, PAGE, libc::PROT_READ);
        if libc::munmap(map, PAGES * PAGE) != 0 {
            return Err(failed());
        }
        if !good || !zero {
            return Err(
                std::io::Error::other("memory holds something else than was written").into(),
            );
        }
    }
    Ok(())
}

/// Runs a program and waits for it.
fn program(name: &str, args: &[&str]) -> Result<(), Error> {
    let mut command = Command::new(name);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let status = command.status()?;
    if status.success() {
        Ok(())
    } else {
        let text = format!("{name} {}: {status}", args.join(" "));
        Err(std::io::Error::other(text).into())
    }
}

/// Makes what one thread does again and again.
type Prepare = Box<dyn FnOnce() -> Result<Event, Error> + Send>;

fn kind_of(kind: usize, module: Option<&str>) -> Option<Prepare> {
    fn always(event: fn() -> Result<(), Error>) -> Prepare {
        Box::new(move || Ok(Box::new(event)))
    }
    Some(match kind {
        0 => always(fork_and_wait),
        1 => Box::new(|| Ok(files())),
        2 => Box::new(pipe),
        3 => always(|| tcp(1).map(drop)),
        4 => always(|| {
            std::thread::sleep(Duration::from_micros(100));
            Ok(())
        }),
        5 => always(page_faults),
        6 => Box::new(signals),
        // Directories that do not change meanwhile, as /dev does: ls would complain.
        7 => always(|| {
            program(
                "ls",
                &["-lR", "/sys/class/tty", "/proc/tty", "/proc/sys/fs"],
            )
        }),
        _ => {
            let module = module?.to_string();
            Box::new(move || {
                Ok(Box::new(move || {
                    program("modprobe", &[&module])?;
                    program("rmmod", &[&module])
                }))
            })
        }
    })
}

/// All workloads at once on every CPU until the time is over; returns the number of events. One module can be loaded and
/// unloaded by one thread only.
pub fn load(seconds: u64, module: Option<&str>) -> Result<u64, Error> {
    let over = Arc::new(AtomicBool::new(false));
    let events = Arc::new(AtomicU64::new(0));
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut threads = Vec::new();
    let mut modules = module;
    for cpu in cpus()? {
        let module = modules.take();
        for kind in 0..9 {
            let Some(prepare) = kind_of(kind, module) else {
                continue;
            };
            let (over, events) = (over.clone(), events.clone());
            threads.push(std::thread::spawn(move || -> Result<(), Error> {
                let mut event = prepare()?;
                // One of them wanders, the others stay: migration and steady load at once.
                if kind != 0 {
                    pin(cpu)?;
                }
                while !over.load(Ordering::Relaxed) {
                    event()?;
                    events.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }));
        }
    }
    // Only a thread that fails ends before.
    while Instant::now() < deadline && !threads.iter().any(std::thread::JoinHandle::is_finished) {
        std::thread::sleep(Duration::from_millis(50));
    }
    over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| Error::Thread)??;
    }
    Ok(events.load(Ordering::Relaxed))
}
