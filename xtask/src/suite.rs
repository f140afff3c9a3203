//! The framework of the lab's tests: a table of tests, guests to run them in, verdicts.
//!
//! A test fails by returning an error, by panicking (so `assert!` may be used), by a crash of the guest's kernel or by its
//! deadline. Tests that only need *a* booted kernel share one ([`Run::Shared`]), since a boot costs more than most of
//! them; one that crashes it fails, and the next gets a fresh one.

use crate::programs::Programs;
use kerninst_lab::{ExecError, Executed, Guest, KernelImage, Lab, Meter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What a test comes to.
pub type TestResult = Result<(), String>;

/// One test of the lab.
#[derive(Clone, Copy)]
pub struct LabTest {
    /// Its name, unique: `area: what holds`.
    pub name: &'static str,
    /// What mistake it would catch.
    pub catches: &'static str,
    /// The kernels it is for.
    pub kernels: Kernels,
    /// Its guests must be done within this time.
    pub timeout: Duration,
    /// Whether `--quick` runs it.
    pub quick: bool,
    /// What it does.
    pub run: Run,
}

/// The kernels a test is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kernels {
    /// Every one.
    All,
    /// Those from that series on.
    #[allow(dead_code)]
    From(u32, u32),
    /// Only the first of the run: what it tests does not depend on the kernel.
    First,
}

/// How a test gets its guest.
#[derive(Clone, Copy)]
pub enum Run {
    /// It boots what it needs.
    Own(fn(&Context<'_>) -> TestResult),
    /// It uses a booted guest (2 CPUs) that other tests use before and after it, so it must leave it as it found it.
    Shared(fn(&mut Session) -> TestResult),
}

/// What a test with guests of its own gets.
pub struct Context<'a> {
    /// The kernel under test.
    pub kernel: &'a KernelImage,
    /// The programs.
    pub programs: &'a Programs,
    deadline: Instant,
}

impl Context<'_> {
    /// A guest with the project's programs in it, which may take as long as the test has left.
    pub fn lab(&self) -> Lab {
        let left = self.deadline.saturating_duration_since(Instant::now());
        Lab::new(self.kernel.clone())
            .files(self.programs.guest_files())
            .timeout(left.max(Duration::from_secs(1)))
    }

    /// The meter.
    pub fn meter(&self) -> Meter {
        Meter::new(&self.programs.meter)
    }
}

/// A booted guest for tests.
pub struct Session {
    guest: Guest,
}

impl Session {
    /// Runs a script of shell; its status is for the caller to judge. A crash of the kernel is an error.
    pub fn run(&mut self, script: &str) -> Result<Executed, String> {
        self.guest.exec(script).map_err(|e| match e {
            ExecError::Crashed(outcome) => {
                format!("in the guest, `{script}`: {}", outcome.report())
            }
            other => other.to_string(),
        })
    }

    /// Runs a script of shell that must succeed; returns its output.
    pub fn sh(&mut self, script: &str) -> Result<String, String> {
        let done = self.run(script)?;
        if done.status == 0 {
            Ok(done.stdout)
        } else {
            Err(format!(
                "in the guest, `{script}` ended with status {}\n{}{}",
                done.status, done.stdout, done.stderr
            ))
        }
    }

    /// The running kernel's release.
    pub fn release(&self) -> &str {
        self.guest.release()
    }
}

/// What became of a test, or of a group of tests that is counted as a whole.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Verdict {
    /// The test's name, with the kernel's where there is one.
    pub name: String,
    /// How many tests passed (0 or 1 for a single one).
    pub passed: usize,
    /// How many failed.
    pub failed: usize,
    /// Host seconds.
    pub seconds: f64,
    /// Why it failed.
    pub failure: Option<String>,
}

impl Verdict {
    /// A test that passed.
    pub fn passed(name: &str, time: Duration) -> Verdict {
        Verdict {
            seconds: time.as_secs_f64(),
            ..Verdict::many(name, 1, 0)
        }
    }

    /// A test that failed.
    pub fn failed(name: &str, failure: String) -> Verdict {
        Verdict {
            failure: Some(failure),
            ..Verdict::many(name, 0, 1)
        }
    }

    /// A group of tests.
    pub fn many(name: &str, passed: usize, failed: usize) -> Verdict {
        Verdict {
            name: name.to_string(),
            passed,
            failed,
            seconds: 0.0,
            failure: None,
        }
    }

    /// One line, and the failure.
    pub fn print(&self) {
        let word = if self.failed == 0 { "ok" } else { "FAILED" };
        println!("{word:6} {:6.1} s  {}", self.seconds, self.name);
        if let Some(failure) = &self.failure {
            println!("{failure}");
        }
    }
}

/// One guest for each processor: an emulated guest uses one, however many virtual CPUs it has.
pub fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A piece of work for one worker.
enum Job<'a> {
    One(&'a LabTest, &'a KernelImage),
    /// Tests that share a guest, in order.
    Shared(Vec<&'a LabTest>, &'a KernelImage),
}

/// Runs the tests on the kernels, `jobs` guests at a time.
pub fn run(
    tests: &[LabTest],
    kernels: &[KernelImage],
    programs: &Programs,
    jobs: usize,
) -> Vec<Verdict> {
    let queue = Mutex::new(plan(tests, kernels));
    let verdicts = Mutex::new(Vec::new());
    // QEMU is killed when the thread that started it ends (PR_SET_PDEATHSIG): each guest stays within one thread.
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    // On its own line: in the loop's condition the lock would be held until the job is done, and the
                    // workers would take turns.
                    let job = lock(&queue).pop();
                    let Some(job) = job else { break };
                    let done = |verdict: Verdict| {
                        verdict.print();
                        lock(&verdicts).push(verdict);
                    };
                    match job {
                        Job::One(test, kernel) => done(own(test, kernel, programs)),
                        Job::Shared(tests, kernel) => shared(&tests, kernel, programs, done),
                    }
                }
            });
        }
    });
    verdicts.into_inner().unwrap_or_else(|p| p.into_inner())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|p| p.into_inner())
}

/// All work, longest first at the end (the queue is taken from there), so that no long test starts last.
fn plan<'a>(tests: &'a [LabTest], kernels: &'a [KernelImage]) -> Vec<Job<'a>> {
    let mut own = Vec::new();
    let mut jobs = Vec::new();
    for (n, kernel) in kernels.iter().enumerate() {
        let fits = |t: &&LabTest| match t.kernels {
            Kernels::All => true,
            Kernels::From(major, minor) => kernel.series().is_some_and(|s| s >= (major, minor)),
            Kernels::First => n == 0,
        };
        let mut sharing = Vec::new();
        for test in tests.iter().filter(fits) {
            match test.run {
                Run::Own(_) => own.push(Job::One(test, kernel)),
                Run::Shared(_) => sharing.push(test),
            }
        }
        if !sharing.is_empty() {
            jobs.push(Job::Shared(sharing, kernel));
        }
    }
    own.sort_by_key(|job| match job {
        Job::One(test, _) => test.timeout,
        Job::Shared(..) => Duration::MAX,
    });
    own.extend(jobs);
    own
}

/// Turns a panic of a test into its failure.
fn caught(work: impl FnOnce() -> TestResult) -> TestResult {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(text.unwrap_or("it panicked").to_string())
    })
}

fn verdict(test: &LabTest, kernel: &KernelImage, started: Instant, result: TestResult) -> Verdict {
    let name = format!("{} [{}]", test.name, kernel.name);
    let time = started.elapsed();
    match result {
        Ok(()) => Verdict::passed(&name, time),
        Err(why) => Verdict {
            seconds: time.as_secs_f64(),
            ..Verdict::failed(&name, why)
        },
    }
}

fn own(test: &LabTest, kernel: &KernelImage, programs: &Programs) -> Verdict {
    let started = Instant::now();
    let context = Context {
        kernel,
        programs,
        deadline: started + test.timeout,
    };
    let result = match test.run {
        Run::Own(work) => caught(|| work(&context)),
        Run::Shared(_) => Err("a shared test was planned as one of its own".into()),
    };
    verdict(test, kernel, started, result)
}

fn shared(
    tests: &[&LabTest],
    kernel: &KernelImage,
    programs: &Programs,
    mut done: impl FnMut(Verdict),
) {
    const BOOT: Duration = Duration::from_secs(120);
    let mut session: Option<Session> = None;
    for test in tests {
        let Run::Shared(work) = test.run else {
            continue;
        };
        let started = Instant::now();
        let booted = match session.take() {
            Some(session) => Ok(session),
            None => Lab::new(kernel.clone())
                .smp(2)
                .files(programs.guest_files())
                .timeout(BOOT)
                .boot()
                .map(|guest| Session { guest })
                .map_err(|e| e.to_string()),
        };
        let mut broken = false;
        let result = booted.and_then(|mut guest| {
            guest.guest.extend(test.timeout);
            let result = caught(|| work(&mut guest));
            // The kernel may have crashed after the test's last command; a failed test may have left anything behind.
            let alive = guest.run("true").map(drop);
            broken = alive.is_err() || result.is_err();
            session = Some(guest);
            result.and(alive)
        });
        if broken {
            session = None;
        }
        done(verdict(test, kernel, started, result));
    }
}
