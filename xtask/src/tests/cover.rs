//! `kerninst cover`: what ran is told, sums and differences are right.

use super::count::leaves_no_trace;
use super::{ensure, lines, succeed};
use crate::suite::{Context, Kernels, LabTest, Run, Session, TestResult};
use serde_json::Value;
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "cover: --once tells what ran",
        catches: "a mark that is set without its code having run, or not set though it ran; a mark that writes elsewhere",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: false,
        run: Run::Shared(once),
    },
    LabTest {
        name: "cover: marks take themselves out under load",
        catches: "a mark that is taken out wrongly while it is executed, is not put back at the end, or outlives kill -9",
        kernels: Kernels::All,
        timeout: Duration::from_secs(180),
        quick: false,
        run: Run::Own(taken_out),
    },
    LabTest {
        name: "cover: what ran, sums and differences",
        catches: "a block that ran and is not told, or the other way round; profiles whose sum or difference is wrong",
        kernels: Kernels::First,
        timeout: Duration::from_secs(180),
        quick: false,
        run: Run::Shared(pipes),
    },
];

/// The line of this function.
fn function(output: &str, name: &str) -> Result<Value, String> {
    let found = lines(output, "kerninst.cover/1");
    let one = found.into_iter().find(|v| v["function"] == name);
    one.ok_or_else(|| format!("no {name}: {output}"))
}

fn pipes(session: &mut Session) -> TestResult {
    // What the kernel flips at first use (static keys) is flipped before the hash is taken.
    session.sh("kerninst cover pipe_read -- kerninst-guest pipe 5")?;
    let cover = |session: &mut Session, file: &str| {
        leaves_no_trace(
            session,
            &format!(
                "kerninst cover --json --strict --output /tmp/{file} 'pipe_*' -- sh -c 'kerninst-guest pipe 50 >/dev/null' | grep schema"
            ),
        )
    };
    let first = cover(session, "a.profile")?;
    // 50 round trips are 100 writes and at least as many reads.
    let written = function(&first, "pipe_write")?;
    ensure(written["calls"] == 100 && written["exact"] == true, || {
        format!("not 100 exact writes: {written}")
    })?;
    let read = function(&first, "pipe_read")?;
    ensure(read["calls"].as_u64() >= Some(100), || {
        format!("fewer reads than writes: {read}")
    })?;
    for f in [&written, &read] {
        let (hit, all) = (&f["blocks"]["hit"], &f["blocks"]["all"]);
        ensure(
            hit.as_u64() > Some(3) && hit.as_u64() < all.as_u64(),
            || format!("neither everything nor nothing runs: {f}"),
        )?;
        ensure(
            f["uncovered"].as_array().is_some_and(|a| !a.is_empty()),
            || format!("nothing uncovered: {f}"),
        )?;
    }
    let never = function(&first, "pipe_ioctl")?;
    ensure(never["calls"] == 0 && never["blocks"]["hit"] == 0, || {
        format!("nobody called it: {never}")
    })?;

    let second = cover(session, "b.profile")?;
    session.sh("kerninst cover merge /tmp/a.profile /tmp/b.profile -o /tmp/sum.profile")?;
    let sum = session.sh("kerninst cover --json --read /tmp/sum.profile")?;
    for name in ["pipe_write", "pipe_read"] {
        let calls = |text: &str| -> Result<u64, String> {
            Ok(function(text, name)?["calls"].as_u64().unwrap_or(0))
        };
        let (a, b, all) = (calls(&first)?, calls(&second)?, calls(&sum)?);
        ensure(a + b == all, || {
            format!("{name}: {a} and {b} are not {all}")
        })?;
    }

    session.sh("kerninst cover --output /tmp/idle.profile 'pipe_*' -- true")?;
    let diff = session.sh("kerninst cover diff --json /tmp/idle.profile /tmp/a.profile")?;
    let changes = lines(&diff, "kerninst.cover-diff/1");
    let newly = changes
        .iter()
        .any(|v| v["function"] == "pipe_write" && v["change"] == "newly run");
    ensure(newly, || format!("pipe_write is not newly run: {diff}"))?;
    session.sh("rm /tmp/a.profile /tmp/b.profile /tmp/sum.profile /tmp/idle.profile")?;
    Ok(())
}

/// Blocks and edges of these functions do not depend on chance: counts and marks must agree on all of them.
fn once(session: &mut Session) -> TestResult {
    const JOB: &str = "'__x64_sys_getppid' '__do_sys_getppid' 'pipe_read' 'pipe_ioctl' 'do_pipe2' 'pipe_fcntl' 'alloc_pipe_info' \
                       -- kerninst-guest getppid-all-cpus 20 | grep schema";
    session.sh("kerninst cover pipe_read -- kerninst-guest getppid-all-cpus 20")?;
    let counted = session.sh(&format!("kerninst cover --json --strict {JOB}"))?;
    let marked = leaves_no_trace(
        session,
        &format!("kerninst cover --once --json --strict {JOB}"),
    )?;
    let functions = lines(&counted, "kerninst.cover/1");
    ensure(functions.len() >= 6, || counted.clone())?;
    let mut ran = 0;
    for with_counts in functions {
        let name = with_counts["function"].as_str().unwrap_or_default();
        let with_marks = function(&marked, name)?;
        for key in ["blocks", "edges", "uncovered"] {
            ensure(with_counts[key] == with_marks[key], || {
                format!("{key} differ: {with_counts} {with_marks}")
            })?;
        }
        let calls = with_counts["calls"].as_u64().unwrap_or(0);
        ensure(with_marks["calls"] == calls.min(1), || {
            format!("called: {with_counts} {with_marks}")
        })?;
        ran += calls.min(1);
    }
    ensure(ran >= 1, || format!("nothing ran: {counted}"))?;
    let summary = lines(&marked, "kerninst.cover-summary/1");
    ensure(summary.iter().all(|s| s["once"] == true), || {
        format!("not said to be marks: {marked}")
    })
}

fn taken_out(context: &Context<'_>) -> TestResult {
    // The second session is killed while it takes marks out.
    let outcome = succeed(
        context.lab().smp(2).mem(2048),
        "hot=\"'vfs_*' 'pipe_*' 'tcp_send*' 'hrtimer_*' 'try_to_wake_up'\"
         # Started before `set -e`: a process that ends while `ls` reads /proc is no reason to stop the load.
         (while :; do kerninst-guest pipe 100; ls /proc /tmp; cat /proc/mounts; sleep 0.1; done) >/dev/null 2>&1 & load=$!
         set -e
         sleep 2
         eval kerninst cover $hot -d 1 >/dev/null 2>&1
         kerninst-torture text >/tmp/before
         eval kerninst cover --once $hot -d 4 >/tmp/out 2>/tmp/err
         grep -o '[0-9,]* marks taken out' /tmp/err | tr -d ,
         tail -1 /tmp/out
         (eval exec kerninst cover --once $hot -d 60 >/dev/null 2>&1) & victim=$!
         for i in $(seq 300); do kerninst status --json 2>/dev/null | grep -q '\"state\":\"armed\"' && break; sleep 0.1; done
         sleep 1; kill -9 $victim; wait $victim || true
         kerninst reset
         kill $load; wait $load || true
         kerninst-torture text >/tmp/after
         diff /tmp/before /tmp/after && echo same",
    )?;
    let out = &outcome.stdout;
    let taken = out.lines().find_map(|l| l.split_once(" marks taken out"));
    let taken = taken.and_then(|(n, _)| n.parse::<u64>().ok()).unwrap_or(0);
    ensure(taken >= 150, || {
        format!("few marks were taken out: {out}{}", outcome.stderr)
    })?;
    ensure(out.lines().any(|l| l == "same"), || {
        format!("the text is not as before: {out}")
    })
}
