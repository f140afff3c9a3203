//! `cargo xtask bench --scripts`: what a visit costs under `kerninst run`, how long it takes from Enter to armed, and how many
//! events a second get through; beside bpftrace's same script in the same guest, where Debian has it.
//!
//! Costs are the median of single system calls, as those of the counters are (see [`crate::bench`]).

use crate::{Failure, bpftrace, programs, say};
use kerninst_lab::{GuestFile, KernelImage, Lab, Meter, MeterReport, Outcome};
use std::time::Duration;

/// A script, and bpftrace's that does the same. `F` stands for the probed function.
struct Case {
    what: &'static str,
    kerninst: &'static str,
    bpftrace: Option<&'static str>,
}

const CASES: &[Case] = &[
    Case {
        what: "`count entry:`",
        kerninst: "",
        bpftrace: None,
    },
    Case {
        what: "a filter that does not hold, `/pid == 1/ { @ = count() }`",
        kerninst: "entry:F /pid == 1/ { @ = count(); }",
        bpftrace: Some("kprobe:F /pid == 1/ { @ = count(); }"),
    },
    Case {
        what: "`@ = count()`",
        kerninst: "entry:F { @ = count(); }",
        bpftrace: Some("kprobe:F { @ = count(); }"),
    },
    Case {
        what: "`@[arg0] = count()`",
        kerninst: "entry:F { @[arg0] = count(); }",
        bpftrace: Some("kprobe:F { @[arg0] = count(); }"),
    },
    Case {
        what: "`@[comm] = count()`",
        kerninst: "entry:F { @[comm] = count(); }",
        bpftrace: Some("kprobe:F { @[comm] = count(); }"),
    },
    Case {
        what: "`@ = hist(arg0)`",
        kerninst: "entry:F { @ = hist(arg0); }",
        bpftrace: Some("kprobe:F { @ = hist(arg0); }"),
    },
    Case {
        what: "`printf(\"%d\\n\", pid)`",
        kerninst: "entry:F { printf(\"%d\\n\", pid); }",
        bpftrace: Some("kprobe:F { printf(\"%d\\n\", pid); }"),
    },
    Case {
        what: "`@[kstack] = count()`",
        kerninst: "entry:F { @[kstack] = count(); }",
        bpftrace: Some("kprobe:F { @[kstack] = count(); }"),
    },
];

/// System calls that are measured one by one. No more than what a buffer of events holds.
const SAMPLES: u32 = 2000;
/// Events of the throughput run.
const EVENTS: u32 = 1_000_000;
/// The series of samples without any probe; that of case N is `OURS + N`, and `THEIRS + N`.
const BASE: u8 = 1;
const OURS: u8 = 10;
const THEIRS: u8 = 40;

/// Runs it; prints Markdown.
pub fn run(image: &KernelImage, programs: &programs::Programs) -> Result<(), Failure> {
    let peer = bpftrace::files().inspect_err(|e| say(&format!("without bpftrace: {e}")));
    let peer = peer.ok();
    costs(image, programs, peer.as_deref())?;
    start_and_flow(image, programs, peer.as_deref())
}

fn guest(
    image: &KernelImage,
    programs: &programs::Programs,
    peer: Option<&[GuestFile]>,
    script: &str,
) -> Result<Outcome, Failure> {
    let lab = Lab::new(image.clone())
        .files(programs.guest_files())
        .files(peer.unwrap_or_default().iter().cloned());
    let outcome = lab
        .deterministic(true)
        .seed(42)
        .mem(3072)
        .meter(Meter::new(&programs.meter))
        .timeout(Duration::from_secs(900))
        .run(&format!("{script}\nexit 0\n"))
        .map_err(|e| e.to_string())?;
    if !outcome.is_success() {
        return Err(format!("{}{}", outcome.stderr, outcome.report()));
    }
    for line in outcome.stderr.lines().take(40) {
        say(line);
    }
    Ok(outcome)
}

/// bpftrace starts the command, with words and nothing else in it, when its probes are attached.
fn under_bpftrace(script: &str, command: &str) -> String {
    format!(
        "LD_LIBRARY_PATH={} bpftrace -q -c '{command}' -e '{script}' >/tmp/out 2>&1 || tail -n 3 /tmp/out >&2\n",
        bpftrace::LIBRARIES
    )
}

fn costs(
    image: &KernelImage,
    programs: &programs::Programs,
    peer: Option<&[GuestFile]>,
) -> Result<(), Failure> {
    let sample = |series: u8| format!("/bin/kerninst-guest --samples {series} getppid {SAMPLES}");
    let function = "__x64_sys_getppid";
    let mut script = format!(
        "sleep 5; kerninst-guest getppid 100 >/dev/null; {} >/dev/null\n",
        sample(BASE)
    );
    for (n, case) in CASES.iter().enumerate() {
        let n = n as u8;
        let ours = case.kerninst.replace("F ", &format!("{function} "));
        script.push_str(&match case.kerninst {
            "" => format!(
                "kerninst count entry:{function} -- {} >/dev/null 2>&1\n",
                sample(OURS + n)
            ),
            _ => format!(
                "kerninst run -e '{ours}' -c '{}' >/tmp/out || tail -n 3 /tmp/out >&2\n",
                sample(OURS + n)
            ),
        });
        if let (Some(theirs), Some(_)) = (case.bpftrace, peer) {
            let theirs = theirs.replace("F ", &format!("{function} "));
            script.push_str(&under_bpftrace(&theirs, &sample(THEIRS + n)));
        }
    }
    let outcome = guest(image, programs, peer, &script)?;
    let report = outcome.meter.as_ref().ok_or("the meter wrote nothing")?;
    let base = p50(report, BASE).ok_or("the system call alone was not measured")?;
    println!(
        "Guest instructions of one getppid system call ({base} without a probe), and what a probe of its entry adds:\n"
    );
    println!("| Script | kerninst | bpftrace (kprobe) |\n|---|---:|---:|");
    let added = |series: u8| match p50(report, series) {
        Some(n) => format!("{}", n as i64 - base as i64),
        None => "–".into(),
    };
    for (n, case) in CASES.iter().enumerate() {
        let n = n as u8;
        println!(
            "| {} | {} | {} |",
            case.what,
            added(OURS + n),
            added(THEIRS + n)
        );
    }
    println!();
    Ok(())
}

fn p50(report: &MeterReport, series: u8) -> Option<u64> {
    let found = report.samples.iter().find(|s| s.id == series)?;
    Some(found.kernel.p50)
}

/// From Enter to armed, and a million events. In this guest an instruction takes 1 ns.
fn start_and_flow(
    image: &KernelImage,
    programs: &programs::Programs,
    peer: Option<&[GuestFile]>,
) -> Result<(), Failure> {
    let mut script = format!(
        "stamp() {{ echo stamp $1 $(cut -d' ' -f1 /proc/uptime); }}
         sleep 5
         kerninst-guest getppid 10 >/dev/null
         for n in 1 2; do
         stamp enter$n; kerninst run -e 'entry:__x64_sys_getppid {{ @ = count(); }}' -c 'echo stamp armed$n $(cut -d\" \" -f1 /proc/uptime)'
         done
         kerninst run -e 'entry:__x64_sys_getppid {{ printf(\"%d\\n\", pid); }}' -c 'echo stamp flow $(cut -d\" \" -f1 /proc/uptime) >&2; kerninst-guest getppid {EVENTS} >&2; echo stamp flowed $(cut -d\" \" -f1 /proc/uptime) >&2' 2>/tmp/err >/tmp/lines
         grep -v '^stamp' /tmp/err >&2; grep '^stamp' /tmp/err; echo lines $(wc -l < /tmp/lines); sed 's/^/lost: /' /tmp/err | grep -v -e stamp -e getppid
         rm /tmp/lines\n"
    );
    if peer.is_some() {
        script.push_str("printf '#!/bin/sh\\necho stamp their-armed $(cut -d\" \" -f1 /proc/uptime)\\n' > /tmp/now; chmod 755 /tmp/now\n");
        for _ in 0..2 {
            script.push_str("stamp their-enter\n");
            script.push_str(&under_bpftrace(
                "kprobe:__x64_sys_getppid { @ = count(); }",
                "/tmp/now",
            ));
            script.push_str("grep stamp /tmp/out\n");
        }
        script.push_str(&under_bpftrace(
            "kprobe:__x64_sys_getppid { printf(\"%d\\n\", pid); }",
            &format!("/bin/kerninst-guest getppid {EVENTS}"),
        ));
        script.push_str("echo their lines $(grep -c '^[0-9]' /tmp/out); grep -i lost /tmp/out | tail -n 3; grep -i lost /tmp/out | wc -l\n");
    }
    let outcome = guest(image, programs, peer, &script)?;
    println!("```\n{}```\n", outcome.stdout);
    Ok(())
}
