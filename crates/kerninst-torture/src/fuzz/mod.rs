//! Random scripts, run one after the other by the command itself while the machine is busy.
//!
//! Whatever a script says, the command ends in time and with a status of its own, the kernel's log has nothing to say, and
//! nothing is left.The program of a seed is always the same on a kernel, so one that broke a guest can be run alone.

mod grammar;

use crate::kill::nothing_left;
use crate::random::Random;
use crate::text::Snapshot;
use crate::{Failure, live};
use grammar::{HOT, Writer};
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A script that is not done after so long hangs.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long each is armed.
const ARMED: &str = "200ms";
/// Where what it says goes.
const OUT: &str = "/tmp/fuzz.out";
const ERR: &str = "/tmp/fuzz.err";

/// What the kernel says when something is wrong (lib/bug.c, kernel/panic.c, kernel/rcu/tree_stall.h, kernel/watchdog.c,
/// kernel/locking/lockdep.c).
const ALARMS: &[&str] = &[
    "BUG:",
    "WARNING:",
    "Oops",
    "general protection",
    "self-detected stall",
    "detected stalls",
    "possible recursive locking",
    "inconsistent lock state",
    "scheduling while atomic",
    "blocked for more than",
];

/// What is run.
#[derive(clap::Args)]
pub struct Args {
    /// Seed of the first program; the next one has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// No program begins later than this many seconds after the start
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// At most so many programs
    #[arg(long)]
    programs: Option<u64>,
    /// Print the programs instead of running them
    #[arg(long)]
    show: bool,
}

/// How many ended how.
#[derive(Default)]
struct Tally {
    ran: u64,
    refused: u64,
    nothing: u64,
    /// Of those that ran.
    lost: u64,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let functions = functions()?;
    let seeds = args.seed..args.seed.saturating_add(args.programs.unwrap_or(u64::MAX));
    if args.show {
        for seed in seeds.take(args.programs.unwrap_or(1) as usize) {
            println!("// {seed}\n{}", script(seed, &functions));
        }
        return Ok(());
    }
    let kernel = live()?;
    // Static keys that are flipped at first use are flipped before the text is looked at.
    one(&mut Tally::default(), "entry:vfs_read { @ = count(); }")?;
    let before = Snapshot::take(&kernel)?;
    let mut log = Log::open()?;
    let started = Instant::now();
    let load = Load::start(args.seconds + PATIENCE.as_secs())?;
    let mut tally = Tally::default();
    let mut next = args.seed;
    for seed in seeds {
        if started.elapsed().as_secs() >= args.seconds {
            break;
        }
        // Whoever finds a broken guest sees at which one it was.
        println!("{{\"schema\":\"kerninst.fuzz.begin/1\",\"seed\":{seed}}}");
        let text = script(seed, &functions);
        let result = one(&mut tally, &text).and_then(|()| log.check());
        result.map_err(|e| format!("program {seed}: {e}\n{text}"))?;
        next = seed + 1;
    }
    drop(load);
    before.check(&kernel)?;
    println!(
        "{{\"schema\":\"kerninst.fuzz/1\",\"from\":{},\"next\":{next},\"ran\":{},\"refused\":{},\"without_points\":{},\"lost\":{},\"seconds\":{}}}",
        args.seed,
        tally.ran,
        tally.refused,
        tally.nothing,
        tally.lost,
        started.elapsed().as_secs()
    );
    Ok(())
}

/// The program of a seed, on kernels with these functions.
fn script(seed: u64, functions: &[&'static str]) -> String {
    Writer::new(&mut Random::new(seed), functions).script()
}

/// Those of the grammar's functions that this kernel has; globs have some on any.
fn functions() -> Result<Vec<&'static str>, Failure> {
    let text = std::fs::read_to_string("/proc/kallsyms").map_err(|e| e.to_string())?;
    let names: HashSet<&str> = text
        .lines()
        .filter_map(|l| l.split_whitespace().nth(2))
        .collect();
    let there = |f: &&str| f.contains('*') || names.contains(*f);
    Ok(HOT.iter().copied().filter(there).collect())
}

/// Runs one, and sees that it ends as it should.
fn one(tally: &mut Tally, text: &str) -> Result<(), Failure> {
    let file = |name| File::create(name).map_err(|e| format!("{name}: {e}"));
    let mut command = Command::new("kerninst");
    command
        .args(["run", "--keys", "512", "--buffer", "64", "--stacks", "256"])
        .args(["-d", ARMED, &format!("--e={text}"), "1"])
        .stdin(Stdio::null())
        .stdout(file(OUT)?)
        .stderr(file(ERR)?);
    let mut child = command
        .spawn()
        .map_err(|e| format!("cannot run kerninst: {e}"))?;
    let status = wait(&mut child)?;
    let said = std::fs::read(ERR).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let problem = |what: &str| Err(format!("{what}: {said}"));
    if let Some(signal) = status.signal() {
        return problem(&format!("killed by signal {signal}"));
    }
    if said.contains("panicked") || said.contains("internal error") {
        return problem("a mistake of kerninst");
    }
    match status.code() {
        Some(0) => {
            tally.ran += 1;
            tally.lost += u64::from(said.contains("Lost "));
        }
        Some(1) => tally.nothing += 1,
        Some(2) if said.contains("none of the points can be") => tally.nothing += 1,
        Some(2) if said.contains("the script has") => tally.refused += 1,
        code => return problem(&format!("ended with {code:?}")),
    }
    // Patches that somebody slept in wait until he is gone.
    kerninst::reset(None, Duration::from_secs(20)).map_err(|e| e.to_string())?;
    nothing_left()
}

fn wait(child: &mut Child) -> Result<std::process::ExitStatus, Failure> {
    let started = Instant::now();
    loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => return Ok(status),
            None if started.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("not done after {PATIENCE:?}"));
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// The load; it ends when this is dropped.
struct Load(Child);

impl Load {
    fn start(seconds: u64) -> Result<Load, Failure> {
        let mut command = Command::new("kerninst-guest");
        command.args(["load", &seconds.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn();
        child
            .map(Load)
            .map_err(|e| format!("cannot run kerninst-guest: {e}"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The kernel's log from now on.
struct Log(File);

impl Log {
    fn open() -> Result<Log, Failure> {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = options
            .open("/dev/kmsg")
            .map_err(|e| format!("/dev/kmsg: {e}"))?;
        let mut log = Log(file);
        while log.line().is_some() {}
        Ok(log)
    }

    /// The next record; `None`: there is none. Records that were overwritten are skipped.
    fn line(&mut self) -> Option<String> {
        let mut record = [0u8; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(n) => return Some(String::from_utf8_lossy(record.get(..n)?).into_owned()),
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => return None,
            }
        }
    }

    fn check(&mut self) -> Result<(), Failure> {
        while let Some(line) = self.line() {
            if ALARMS.iter().any(|alarm| line.contains(alarm)) {
                return Err(format!("the kernel says: {line}"));
            }
        }
        Ok(())
    }
}
