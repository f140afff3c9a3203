//! The workloads.

use crate::Job;
use crate::emit::{Emitter, emitter};
use crate::load::load;
use crate::marker::{op, payload};
use rustix::fd::OwnedFd;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// Why a workload could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("a system call failed: {0}")]
    System(#[from] std::io::Error),
    /// The workload cannot be sampled event by event.
    #[error("{0} cannot be counted event by event")]
    NoSamples(&'static str),
    /// A thread of the workload panicked.
    #[error("a thread of the workload died")]
    Thread,
}

impl From<rustix::io::Errno> for Error {
    fn from(e: rustix::io::Errno) -> Error {
        Error::System(e.into())
    }
}

pub(crate) type Event = Box<dyn FnMut() -> Result<(), Error>>;

/// A workload that is ready to run.
pub struct Prepared {
    name: &'static str,
    work: Work,
}

enum Work {
    /// The same thing so many times.
    Repeat {
        count: u64,
        event: Event,
        /// Markers around each event.
        around: Option<(Emitter, Emitter)>,
    },
    /// Something that does all of it; returns how often it did its work.
    Whole(Box<dyn FnMut() -> Result<u64, Error>>),
}

impl Prepared {
    /// The workload's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Does the work; returns how often.
    pub fn run(&mut self) -> Result<u64, Error> {
        match &mut self.work {
            Work::Whole(whole) => whole(),
            Work::Repeat {
                count,
                event,
                around: None,
            } => {
                for _ in 0..*count {
                    event()?;
                }
                Ok(*count)
            }
            Work::Repeat {
                count,
                event,
                around: Some((begin, end)),
            } => {
                for _ in 0..*count {
                    begin();
                    let result = event();
                    end();
                    result?;
                }
                Ok(*count)
            }
        }
    }
}

/// Gets a workload ready: opens, allocates and warms up what it needs.
pub fn prepare(job: Job, samples: Option<u8>) -> Result<Prepared, Error> {
    let around = samples
        .map(|id| {
            Ok::<_, Error>((
                emitter(payload(op::SAMPLE_BEGIN, id))?,
                emitter(payload(op::SAMPLE_END, id))?,
            ))
        })
        .transpose()?;
    let repeat = |name, count, event: Event| Prepared {
        name,
        work: Work::Repeat {
            count,
            event,
            around,
        },
    };
    let prepared = match job {
        Job::Getppid { count } => repeat(
            "getppid",
            count,
            Box::new(|| {
                // rustix makes the system call itself: exactly one, and no library keeps the answer.
                std::hint::black_box(rustix::process::getppid());
                Ok(())
            }),
        ),
        Job::Fork { count } => repeat("fork", count, Box::new(fork_and_wait)),
        Job::Files { count } => repeat("files", count, files()),
        Job::Timers { count } => repeat(
            "timers",
            count,
            Box::new(|| {
                std::thread::sleep(Duration::from_micros(100));
                Ok(())
            }),
        ),
        Job::Pipe { count } => repeat("pipe", count, pipe()?),
        Job::Nothing => repeat("nothing", 1, Box::new(|| Ok(()))),
        Job::Tcp { mib } => whole("tcp", around.is_some(), move || tcp(mib))?,
        Job::GetppidAllCpus { count } => whole("getppid-all-cpus", around.is_some(), move || {
            on_all_cpus(count)
        })?,
        Job::Load { seconds, module } => whole("load", around.is_some(), move || {
            load(seconds, module.as_deref())
        })?,
        Job::Mark { .. } | Job::Arm { .. } => repeat("nothing", 0, Box::new(|| Ok(()))),
    };
    Ok(prepared)
}

fn whole(
    name: &'static str,
    sampled: bool,
    work: impl FnMut() -> Result<u64, Error> + 'static,
) -> Result<Prepared, Error> {
    if sampled {
        return Err(Error::NoSamples(name));
    }
    Ok(Prepared {
        name,
        work: Work::Whole(Box::new(work)),
    })
}

pub(crate) fn fork_and_wait() -> Result<(), Error> {
    // SAFETY: the child calls nothing but _exit.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().into()),
        // SAFETY: ends this process, without running what belongs to the parent.
        0 => unsafe { libc::_exit(0) },
        child => {
            // SAFETY: the status goes nowhere; `child` is our own.
            let got = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            if got == child {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error().into())
            }
        }
    }
}

pub(crate) fn files() -> Event {
    let path = std::path::PathBuf::from(format!(
        "/tmp/kerninst-guest-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let mut buffer = [0; 4096];
    Box::new(move || {
        let mut file = std::fs::File::create(&path)?;
        file.write_all(&buffer)?;
        drop(file);
        std::fs::metadata(&path)?;
        std::fs::File::open(&path)?.read_exact(&mut buffer)?;
        std::fs::remove_file(&path)?;
        Ok(())
    })
}

/// A thread that sends back each byte it gets, and an event that sends one and waits for it.
pub(crate) fn pipe() -> Result<Event, Error> {
    let (there_read, there_write) = rustix::pipe::pipe()?;
    let (back_read, back_write) = rustix::pipe::pipe()?;
    std::thread::spawn(move || echo(&there_read, &back_write));
    Ok(Box::new(move || {
        let mut byte = [1];
        rustix::io::write(&there_write, &byte)?;
        rustix::io::read(&back_read, &mut byte)?;
        Ok(())
    }))
}

fn echo(from: &OwnedFd, to: &OwnedFd) {
    let mut byte = [0];
    while rustix::io::read(from, &mut byte).is_ok_and(|n| n == 1) {
        if rustix::io::write(to, &byte).is_err() {
            return;
        }
    }
}

pub(crate) fn tcp(mib: u64) -> Result<u64, Error> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let total = mib << 20;
    let reader = std::thread::spawn(move || -> Result<u64, std::io::Error> {
        let (mut stream, _) = listener.accept()?;
        let mut buffer = vec![0; 1 << 16];
        let mut got = 0;
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(got),
                n => got += n as u64,
            }
        }
    });
    let mut stream = TcpStream::connect(address)?;
    let buffer = vec![0x5a; 1 << 16];
    for _ in 0..total >> 16 {
        stream.write_all(&buffer)?;
    }
    drop(stream);
    let got = reader.join().map_err(|_| Error::Thread)??;
    if got == total {
        Ok(mib)
    } else {
        Err(std::io::Error::other(format!("{got} of {total} bytes arrived")).into())
    }
}

/// The CPUs this process may run on.
pub(crate) fn cpus() -> Result<Vec<usize>, Error> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect())
}

pub(crate) fn pin(cpu: usize) -> Result<(), Error> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

fn on_all_cpus(count: u64) -> Result<u64, Error> {
    let cpus = cpus()?;
    let number = cpus.len().max(1) as u64;
    let barrier = Arc::new(Barrier::new(cpus.len()));
    let threads: Vec<_> = cpus
        .into_iter()
        .enumerate()
        .map(|(n, cpu)| {
            let barrier = barrier.clone();
            // The first ones do one more each if it does not divide.
            let share = count / number + u64::from((n as u64) < count % number);
            std::thread::spawn(move || {
                let pinned = pin(cpu);
                barrier.wait();
                pinned?;
                for _ in 0..share {
                    std::hint::black_box(rustix::process::getppid());
                }
                Ok::<u64, Error>(share)
            })
        })
        .collect();
    let mut done = 0;
    for thread in threads {
        done += thread.join().map_err(|_| Error::Thread)??;
    }
    Ok(done)
}
