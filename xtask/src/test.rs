//! `cargo xtask test`: every test there is, one summary.

use crate::cargo::{cargo, work_dir};
use crate::suite::{self, Verdict};
use crate::{Failure, programs, say, setup, tests};
use kerninst_lab::{Cache, KernelImage, fetch};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Arguments of the test run.
#[derive(clap::Args)]
pub struct Args {
    /// Kernels for the lab's tests: names, comma-separated, or all
    #[arg(long, default_value = "6.12,6.1", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Only the quick ones of the lab's tests, on the first kernel
    #[arg(long)]
    quick: bool,
    /// Only the lab's tests whose name contains this; no other checks
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// How many guests run at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// List the lab's tests and what each would catch
    #[arg(long)]
    list: bool,
}

/// Runs the tests; returns 0 if all passed.
pub fn run(args: &Args) -> Result<i32, Failure> {
    if args.list {
        for test in tests::all() {
            println!("{}\n    {}", test.name, test.catches);
        }
        return Ok(0);
    }
    let started = Instant::now();
    setup::run()?;
    setup::disk(args.only.is_none());
    let kernels = kernels(args)?;
    let mut verdicts = Vec::new();
    if args.only.is_none() {
        checks(&kernels, &mut verdicts)?;
    }
    match programs::build() {
        Ok(programs) => {
            let chosen: Vec<_> = tests::all()
                .into_iter()
                .filter(|t| args.only.as_ref().is_none_or(|text| t.name.contains(text)))
                .filter(|t| t.quick || !args.quick)
                .collect();
            if chosen.is_empty() {
                return Err("no test of the lab has that in its name (see --list)".into());
            }
            let jobs = args.jobs.unwrap_or_else(suite::default_jobs);
            verdicts.extend(suite::run(&chosen, &kernels, &programs, jobs));
        }
        Err(failure) => verdicts.push(Verdict::failed("build", failure)),
    }
    report(&verdicts, started)
}

fn kernels(args: &Args) -> Result<Vec<KernelImage>, Failure> {
    let names: Vec<String> = match args.kernels.as_slice() {
        [one] if one == "all" => fetch::NAMES.map(String::from).to_vec(),
        names => names.to_vec(),
    };
    let wanted = if args.quick {
        names.get(..1).unwrap_or_default()
    } else {
        &names
    };
    let cache = Cache::standard().map_err(|e| e.to_string())?;
    wanted
        .iter()
        .map(|name| KernelImage::find(name, None, &cache, &mut say).map_err(|e| e.to_string()))
        .collect()
}

/// A directory with links to the kernels' images, `vmlinuz-RELEASE`, for the tests that read kernel files.
fn image_dir(kernels: &[KernelImage]) -> Result<PathBuf, Failure> {
    let dir = work_dir().join("images");
    let problem = |e: std::io::Error| format!("cannot fill {}: {e}", dir.display());
    match std::fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(problem(e)),
        _ => {}
    }
    std::fs::create_dir_all(&dir).map_err(problem)?;
    for kernel in kernels {
        let link = dir.join(format!("vmlinuz-{}", kernel.release));
        std::os::unix::fs::symlink(&kernel.image, &link).map_err(problem)?;
    }
    Ok(dir)
}

/// Everything that needs no guest.
fn checks(kernels: &[KernelImage], verdicts: &mut Vec<Verdict>) -> Result<(), Failure> {
    step(verdicts, "format", &mut cargo(&["fmt", "--all", "--check"]));
    let lints = [
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    step(verdicts, "lints", &mut cargo(&lints));
    match cargo_deny() {
        Ok(()) => {
            // The advisory database is fetched from the network, which a test run must not depend on.
            let deny = [
                "deny",
                "--offline",
                "--log-level",
                "error",
                "check",
                "licenses",
                "bans",
                "sources",
            ];
            step(verdicts, "licences", &mut cargo(&deny));
        }
        Err(failure) => verdicts.push(Verdict::failed("licences", failure)),
    }
    unit_tests(kernels, verdicts)
}

/// Runs one command as one test.
fn step(verdicts: &mut Vec<Verdict>, name: &str, command: &mut Command) {
    let started = Instant::now();
    let verdict = match crate::cargo::succeed(command) {
        Ok(()) => Verdict::passed(name, started.elapsed()),
        Err(failure) => Verdict {
            seconds: started.elapsed().as_secs_f64(),
            ..Verdict::failed(name, failure)
        },
    };
    verdict.print();
    verdicts.push(verdict);
}

fn cargo_deny() -> Result<(), Failure> {
    let present = |mut command: Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|s| s.success())
    };
    if present(cargo(&["deny", "--version"])) {
        return Ok(());
    }
    say("cargo-deny is missing: installing it (cargo install, some minutes, once)");
    // Unoptimised: it runs for seconds, but an optimised build of it takes longer than all tests together.
    let mut install = cargo(&["install", "--quiet", "--locked", "--debug", "cargo-deny"]);
    crate::cargo::succeed(&mut install)
        .map_err(|e| format!("licences cannot be checked without cargo-deny, and {e}"))
}

/// `cargo test` on the whole workspace; its tests are counted one by one.
fn unit_tests(kernels: &[KernelImage], verdicts: &mut Vec<Verdict>) -> Result<(), Failure> {
    let dir = image_dir(kernels)?;
    let mut command = cargo(&["test", "--quiet", "--workspace", "--no-fail-fast"]);
    command
        .env("KERNINST_TEST_KERNELS", &dir)
        .stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|e| format!("cannot run cargo test: {e}"))?;
    let (mut passed, mut failed) = (0, 0);
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            println!("{line}");
            if let Some((p, f)) = counts(&line) {
                passed += p;
                failed += f;
            }
        }
    }
    let status = child
        .wait()
        .map_err(|e| format!("cannot wait for cargo test: {e}"))?;
    verdicts.push(Verdict::many("unit tests", passed, failed));
    if !status.success() && failed == 0 {
        // It did not compile, or a test program died.
        verdicts.push(Verdict::failed(
            "unit tests",
            format!("cargo test failed ({status})"),
        ));
    }
    Ok(())
}

/// The numbers in cargo's "test result: ok. 7 passed; 0 failed; …".
fn counts(line: &str) -> Option<(usize, usize)> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |word: &str| -> Option<usize> {
        let before = rest.split(word).next()?;
        before.split_whitespace().last()?.parse().ok()
    };
    Some((number(" passed")?, number(" failed")?))
}

fn report(verdicts: &[Verdict], started: Instant) -> Result<i32, Failure> {
    let path = work_dir().join("test-report.json");
    let text = serde_json::to_string_pretty(verdicts).map_err(|e| e.to_string())?;
    std::fs::create_dir_all(work_dir())
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    let failures: Vec<&Verdict> = verdicts.iter().filter(|v| v.failed > 0).collect();
    for verdict in &failures {
        verdict.print();
    }
    let passed: usize = verdicts.iter().map(|v| v.passed).sum();
    let failed: usize = verdicts.iter().map(|v| v.failed).sum();
    say(&format!(
        "{:.0} s; report: {}",
        started.elapsed().as_secs_f64(),
        path.display()
    ));
    println!("{passed} passed, {failed} failed");
    let _ = std::io::stdout().flush();
    Ok(i32::from(failed > 0))
}

#[cfg(test)]
mod unit {
    use super::counts;

    #[test]
    fn cargos_summary_is_read() {
        let line = "test result: FAILED. 17 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.04s";
        assert_eq!(counts(line), Some((17, 2)));
        assert_eq!(counts("running 3 tests"), None);
    }
}
