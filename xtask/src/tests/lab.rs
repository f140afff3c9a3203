//! Tests of the lab itself: a test bed that does not notice a crash makes every other test worthless.

use crate::suite::{Context, Kernels, LabTest, Run, Session, TestResult};
use kerninst_lab::{CrashKind, EXIT_CRASH, EXIT_TIMEOUT};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "lab: exit status and both outputs are carried out",
        catches: "a failing command in a guest that passes for a success, or output that is lost or mixed",
        kernels: Kernels::All,
        timeout: MINUTE,
        quick: true,
        run: Run::Own(status_and_output),
    },
    LabTest {
        name: "lab: a kernel crash is reported",
        catches: "a guest that panics or oopses while its test is called passed",
        kernels: Kernels::All,
        timeout: MINUTE,
        quick: true,
        run: Run::Own(crash),
    },
    LabTest {
        name: "lab: a hang is bounded",
        catches: "a guest that never ends and is waited for, or left running",
        kernels: Kernels::First,
        timeout: MINUTE,
        quick: false,
        run: Run::Own(hang),
    },
    LabTest {
        name: "lab: nothing is left when the lab is killed",
        catches: "a QEMU that outlives its lab, even one killed by SIGKILL",
        kernels: Kernels::First,
        timeout: MINUTE,
        quick: false,
        run: Run::Own(orphan),
    },
    LabTest {
        name: "lab: commands in one booted guest are kept apart",
        catches: "output or status of one command taken for another's in shared guests",
        kernels: Kernels::All,
        timeout: MINUTE,
        quick: true,
        run: Run::Shared(commands),
    },
    LabTest {
        name: "lab: modules load with what they depend on",
        catches: "missing or misordered kernel modules, wrong decompression",
        kernels: Kernels::All,
        timeout: MINUTE,
        quick: false,
        run: Run::Own(modules),
    },
    LabTest {
        name: "lab: deterministic guests repeat to the instruction",
        catches: "something in the guest's environment that differs from run to run",
        kernels: Kernels::First,
        timeout: Duration::from_secs(240),
        quick: false,
        run: Run::Own(deterministic),
    },
    LabTest {
        name: "meter: counts are exact, on two CPUs too",
        catches: "a meter that misses or doubles executions: the oracle of all counting tests",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Own(meter),
    },
];

/// Fails with a sentence unless it holds.
fn ensure(holds: bool, what: impl FnOnce() -> String) -> TestResult {
    if holds { Ok(()) } else { Err(what()) }
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn status_and_output(context: &Context<'_>) -> TestResult {
    let outcome = context
        .lab()
        .run("uname -r; head -c 100000 /dev/zero | tr '\\0' x; echo complaint >&2; exit 37")
        .map_err(text)?;
    let expected = format!("{}\n{}", context.kernel.release, "x".repeat(100_000));
    ensure(outcome.exit_code() == 37, || {
        format!("status {}: {}", outcome.exit_code(), outcome.report())
    })?;
    ensure(outcome.stdout == expected, || {
        format!("output of {} bytes differs", outcome.stdout.len())
    })?;
    ensure(outcome.stderr == "complaint\n", || {
        format!("errors are {:?}", outcome.stderr)
    })
}

fn crash(context: &Context<'_>) -> TestResult {
    let outcome = context
        .lab()
        .run("echo before; echo c > /proc/sysrq-trigger; echo after")
        .map_err(text)?;
    ensure(outcome.exit_code() == EXIT_CRASH, || {
        format!("status {}", outcome.exit_code())
    })?;
    let kind = outcome.crash.as_ref().map(|c| c.kind);
    ensure(
        matches!(kind, Some(CrashKind::Panic | CrashKind::Oops)),
        || format!("a crash of kind {kind:?}"),
    )?;
    ensure(outcome.stdout == "before\n", || {
        format!("output is {:?}", outcome.stdout)
    })?;
    ensure(outcome.report().contains("sysrq"), || {
        "the report lacks the console's tail".into()
    })
}

fn hang(context: &Context<'_>) -> TestResult {
    let started = Instant::now();
    let limit = Duration::from_secs(12);
    let outcome = context
        .lab()
        .timeout(limit)
        .run("echo here; sleep 100000")
        .map_err(text)?;
    let took = started.elapsed();
    ensure(outcome.exit_code() == EXIT_TIMEOUT, || {
        format!("status {}", outcome.exit_code())
    })?;
    ensure(outcome.stdout == "here\n", || {
        format!("output is {:?}", outcome.stdout)
    })?;
    ensure(took < limit * 2, || format!("it took {took:?}"))
}

/// Kills a lab that has a guest running, and looks for the guest.
fn orphan(context: &Context<'_>) -> TestResult {
    let token = format!("lab-orphan-{}", std::process::id());
    let this = std::env::current_exe().map_err(text)?;
    let mut lab = std::process::Command::new(this)
        .args([
            "lab",
            "run",
            "--kernel",
            &context.kernel.name,
            "--append",
            &token,
        ])
        .args(["--", "sleep 100000"])
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .map_err(text)?;
    let appeared = wait_until(|| guests_with(&token) == 1);
    let _ = lab.kill();
    let _ = lab.wait();
    ensure(appeared, || "the guest never started".into())?;
    ensure(wait_until(|| guests_with(&token) == 0), || {
        "QEMU is still running".into()
    })
}

/// How many QEMU processes have this word in their command line.
fn guests_with(word: &str) -> usize {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return 0;
    };
    processes
        .flatten()
        .filter_map(|p| std::fs::read(p.path().join("cmdline")).ok())
        .filter(|line| {
            let line = String::from_utf8_lossy(line);
            let program = line.split('\0').next().unwrap_or_default();
            program.contains("qemu-system") && line.contains(word)
        })
        .count()
}

/// Looks again and again, for 30 seconds at most.
fn wait_until(holds: impl Fn() -> bool) -> bool {
    let patience = Instant::now() + Duration::from_secs(30);
    while Instant::now() < patience {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    false
}

fn commands(session: &mut Session) -> TestResult {
    for n in 0..5 {
        let done = session.run(&format!("echo out {n}; echo err {n} >&2; exit {n}"))?;
        let got = (done.status, done.stdout.as_str(), done.stderr.as_str());
        let (out, err) = (format!("out {n}\n"), format!("err {n}\n"));
        ensure(got == (n, &out, &err), || {
            format!("command {n} gave {got:?}")
        })?;
    }
    let release = session.sh("uname -r")?;
    ensure(release.trim() == session.release(), || {
        format!("{release} is not {}", session.release())
    })
}

fn modules(context: &Context<'_>) -> TestResult {
    let outcome = context
        .lab()
        .load_module("dummy")
        .carry_module("nf_tables")
        .run("cut -d' ' -f1 /proc/modules; modprobe nf_tables && cut -d' ' -f1 /proc/modules && ip link add d0 type dummy")
        .map_err(text)?;
    ensure(outcome.is_success(), || {
        format!("{}{}", outcome.stderr, outcome.report())
    })?;
    let has = |name: &str| outcome.stdout.lines().any(|line| line == name);
    ensure(has("dummy") && has("nf_tables"), || {
        format!("modules are {}", outcome.stdout)
    })
}

fn deterministic(context: &Context<'_>) -> TestResult {
    let once = || {
        let outcome = context
            .lab()
            .deterministic(true)
            .seed(7)
            .meter(context.meter())
            .run("kerninst-guest --region 1 fork 5; kerninst-guest --region 2 tcp 1; grep -w _text /proc/kallsyms")
            .map_err(text)?;
        ensure(outcome.is_success(), || outcome.report())?;
        Ok::<_, String>((outcome.stdout, outcome.meter))
    };
    let (first, second) = (once()?, once()?);
    ensure(
        first.1.as_ref().is_some_and(|m| m.regions.len() == 2),
        || format!("it counted {:?}", first.1),
    )?;
    ensure(first == second, || format!("{first:?}\n{second:?}"))
}

fn meter(context: &Context<'_>) -> TestResult {
    let outcome = context
        .lab()
        .smp(2)
        .meter(context.meter())
        .run(
            "grep -w __x64_sys_getppid /proc/kallsyms
             kerninst-guest --hist 1 getppid-all-cpus 20001 >&2
             kerninst-guest --samples 2 getppid 1000 >&2",
        )
        .map_err(text)?;
    ensure(outcome.is_success(), || {
        format!("{}{}", outcome.stderr, outcome.report())
    })?;
    let report = outcome.meter.ok_or("no report")?;
    ensure(report.problems.is_empty(), || report.problems.join("; "))?;
    let address = outcome.stdout.split_whitespace().next().unwrap_or_default();
    let address = u64::from_str_radix(address, 16).map_err(|e| format!("{address}: {e}"))?;
    let count = report.histogram(1).map(|h| h.count(address));
    ensure(count == Some(20_001), || {
        format!("getppid ran {count:?} times, not 20001")
    })?;
    let samples = report.series(2).ok_or("no samples")?;
    ensure(samples.count == 1000, || {
        format!("{} samples", samples.count)
    })?;
    // The whole system call takes some 320 kernel instructions on these kernels; RT and mitigations move it a little.
    let typical =
        samples.kernel.p50 == samples.kernel.min && (150..1000).contains(&samples.kernel.min);
    ensure(typical, || format!("a getppid takes {:?}", samples.kernel))
}
