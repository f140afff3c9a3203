//! `kerninst count`: exact counts, and a kernel that is as it was.

use super::{ensure, lines, total};
use crate::suite::{Kernels, LabTest, Run, Session, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "count: exact on all CPUs at once, and no trace is left",
        catches: "a lost or doubled count under preemption, interrupts and migration; a byte of text that is not restored",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(exact),
    },
    LabTest {
        name: "count: every instruction of a function agrees with its block",
        catches: "a tactic, a relocation or a merged splice that counts wrong or changes what the function does",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(every_instruction),
    },
    LabTest {
        name: "count: refused and moved points do not disturb the others",
        catches: "a counter that is lost, or written elsewhere, since points before it were refused or moved",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(refused),
    },
    LabTest {
        name: "count: thousands of points at once",
        catches: "arming that is slow or fails with many points; patches that disturb each other",
        kernels: Kernels::All,
        timeout: Duration::from_secs(240),
        quick: false,
        run: Run::Shared(thousands),
    },
    LabTest {
        name: "count: durations, interrupts and statuses",
        catches: "Ctrl-C or SIGTERM that loses the counts or leaves the kernel armed; a command whose failure is hidden",
        kernels: Kernels::First,
        timeout: Duration::from_secs(120),
        quick: false,
        run: Run::Shared(endings),
    },
    LabTest {
        name: "doctor, list and show work on a live kernel",
        catches: "a verb that fails on a stock kernel",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(looking),
    },
];

/// Runs a script between two hashes of all text, which must be equal; neither driver nor patches may be left.
pub(super) fn leaves_no_trace(session: &mut Session, script: &str) -> Result<String, String> {
    let before = session.sh("kerninst-torture text")?;
    let output = session.sh(script)?;
    let after = session.sh("kerninst-torture text")?;
    ensure(before == after, || {
        format!("text changed by `{script}`:\n{before}{after}")
    })?;
    let modules = session.sh("cut -d' ' -f1 /proc/modules")?;
    ensure(!modules.contains("kerninst"), || {
        format!("still loaded: {modules}")
    })?;
    Ok(output)
}

fn exact(session: &mut Session) -> TestResult {
    // What the kernel flips at first use (static keys) is flipped before the hash is taken.
    session.sh("kerninst count entry:__x64_sys_getppid -- kerninst-guest getppid-all-cpus 10")?;
    let output = leaves_no_trace(
        session,
        "kerninst count --json entry:__x64_sys_getppid exit:__x64_sys_getppid 'block:__x64_sys_getppid/0' \
         -- kerninst-guest getppid-all-cpus 20001 | grep schema",
    )?;
    for kind in ["entry", "exit", "block"] {
        let n = total(&output, "", kind);
        ensure(n == 20001, || {
            format!("{kind} counts {n} of 20001:\n{output}")
        })?;
    }
    let cpus = lines(&output, "kerninst.count/1")
        .iter()
        .filter_map(|v| v["by_cpu"].as_array().cloned())
        .all(|by_cpu| by_cpu.iter().filter(|n| n.as_u64() != Some(0)).count() == 2);
    ensure(cpus, || format!("not both CPUs counted: {output}"))?;
    let summary = lines(&output, "kerninst.summary/1");
    ensure(
        summary.first().is_some_and(|s| s["complete"] == true),
        || format!("no summary that says complete: {output}"),
    )
}

fn refused(session: &mut Session) -> TestResult {
    // Low addresses come first in a plan: the poking path is refused there, and blocks that begin with a static key move.
    let output = leaves_no_trace(
        session,
        "kerninst count --json 'block:text_poke_bp_batch/*' 'block:do_user_addr_fault/*' 'block:__switch_to/*' \
            'block:schedule/*' entry:__x64_sys_getppid exit:__x64_sys_getppid -- kerninst-guest getppid-all-cpus 1000 2>/dev/null | grep schema",
    )?;
    for kind in ["entry", "exit"] {
        let n = total(&output, "", kind);
        ensure(n == 1000, || {
            format!("{kind} counts {n} of 1000:\n{output}")
        })?;
    }
    let slept = total(&output, "schedule", "block");
    ensure(slept > 0, || format!("schedule counts nothing:\n{output}"))
}

fn every_instruction(session: &mut Session) -> TestResult {
    for function in [
        "__x64_sys_getpgid",
        "do_getpgid",
        "find_task_by_vpid",
        "ktime_get_ts64",
    ] {
        let points = session.run(&format!("kerninst list --points --json {function}"))?;
        // Not every kernel has each of them out of line.
        let all: Vec<String> = lines(&points.stdout, "kerninst.point/1")
            .iter()
            .filter(|v| v["tactic"].is_string())
            .filter_map(|v| v["point"].as_str().map(str::to_string))
            .collect();
        if all.is_empty() {
            continue;
        }
        let output = leaves_no_trace(
            session,
            &format!(
                "kerninst count --json {} 'block:{function}/*' -- sh -c 'kerninst-guest timers 50; kerninst-guest getppid 10; ps >/dev/null' | grep schema",
                all.join(" ")
            ),
        )?;
        let rows = lines(&output, "kerninst.count/1");
        ensure(rows.len() >= all.len(), || {
            format!("{} rows for {} points", rows.len(), all.len())
        })?;
        let shown = session.sh(&format!("kerninst show --json {function}"))?;
        let show = lines(&shown, "kerninst.show/1");
        let blocks = show
            .first()
            .and_then(|s| s["blocks"].as_array().cloned())
            .unwrap_or_default();
        let count_of = |addr: &str| {
            let row = rows
                .iter()
                .find(|r| r["kind"] == "insn" && r["addr"] == addr);
            row.and_then(|r| r["count"].as_u64())
        };
        for block in &blocks {
            let insns = block["insns"].as_array().cloned().unwrap_or_default();
            let counts: Vec<u64> = insns
                .iter()
                .filter_map(|i| i["addr"].as_str().and_then(count_of))
                .collect();
            let (least, most) = (counts.iter().min(), counts.iter().max());
            ensure(least == most, || {
                format!("{function}: instructions of one block differ: {counts:?} in {block}")
            })?;
        }
    }
    Ok(())
}

fn thousands(session: &mut Session) -> TestResult {
    let output = leaves_no_trace(
        session,
        // Only what is looked at leaves the guest: a realtime kernel takes megabytes on its serial line for an interrupt that
        // nobody cares for, and switches it off.
        "kerninst count --json 'entry:v*' 'exit:v*' 'block:tcp_*/*' -- kerninst-guest tcp 1 >/tmp/out 2>/tmp/err || { cat /tmp/err >&2; exit 1; }
         echo rows $(grep -c kerninst.count/1 /tmp/out); grep '\"point\":\"tcp_sendmsg' /tmp/out",
    )?;
    let rows = output.lines().find_map(|l| l.strip_prefix("rows "));
    let rows = rows.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0);
    ensure(rows > 4000, || format!("only {rows} points"))?;
    let sent = total(&output, "tcp_sendmsg", "block");
    ensure(sent > 0, || {
        "no block of tcp_sendmsg ran while a megabyte was sent".into()
    })
}

fn endings(session: &mut Session) -> TestResult {
    for signal in ["INT", "TERM"] {
        let output = leaves_no_trace(
            session,
            &format!(
                "kerninst count --json entry:__x64_sys_getppid > /tmp/out & pid=$!
                 for i in $(seq 300); do kerninst status --json 2>/dev/null | grep -q '\"state\":\"armed\"' && break; sleep 0.1; done
                 kerninst-guest getppid 123 > /dev/null
                 kill -{signal} $pid; wait $pid; echo status $?; cat /tmp/out"
            ),
        )?;
        let n = total(&output, "", "entry");
        ensure(n == 123, || {
            format!("{signal}: {n} of 123 counted:\n{output}")
        })?;
        ensure(output.contains("status 0"), || {
            format!("{signal}: {output}")
        })?;
    }
    let timed = leaves_no_trace(
        session,
        "kerninst count --json -d 0.5 entry:vfs_write | grep summary",
    )?;
    let summary = lines(&timed, "kerninst.summary/1");
    let seconds = summary
        .first()
        .and_then(|s| s["seconds"].as_f64())
        .unwrap_or(0.0);
    ensure((0.5..10.0).contains(&seconds), || {
        format!("-d 0.5 took {seconds} s")
    })?;
    let failing = session.run("kerninst count entry:vfs_write -- sh -c 'exit 7'")?;
    ensure(failing.stderr.contains('7'), || {
        format!("the command's status is not told: {}", failing.stderr)
    })
}

fn looking(session: &mut Session) -> TestResult {
    let doctor = session.sh("kerninst doctor --json")?;
    let can = lines(&doctor, "kerninst.doctor/1");
    ensure(can.first().is_some_and(|d| d["can_arm"] == true), || {
        format!("doctor says no: {doctor}")
    })?;
    let list = session.sh("kerninst list 'vfs_*'")?;
    ensure(list.lines().count() > 30, || format!("list gave {list}"))?;
    let svg = session.sh("kerninst show vfs_read --svg")?;
    ensure(svg.contains("</svg>"), || {
        "show --svg gave no picture".into()
    })?;
    let status = session.sh("kerninst status")?;
    ensure(!status.is_empty(), || "status says nothing".into())
}
