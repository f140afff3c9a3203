//! Other users of kernel text: they go on working, and nobody's bytes are lost.

use super::{ensure, succeed, total};
use crate::suite::{Context, Kernels, LabTest, Run, Session, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "coexist: ftrace attached and detached while armed",
        catches: "a splice on the fentry site, or one that ftrace's rewriting breaks",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: false,
        run: Run::Shared(ftrace),
    },
    LabTest {
        name: "coexist: kprobes before, during and after",
        catches: "a kprobe whose int3 or jump is overwritten, restored over, or makes us free code that it still leads to",
        kernels: Kernels::All,
        timeout: Duration::from_secs(180),
        quick: false,
        run: Run::Shared(kprobes),
    },
    LabTest {
        name: "coexist: a module that is unloaded while armed",
        catches: "text written after its module's memory was freed; a module that can no longer be unloaded",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: false,
        run: Run::Own(module),
    },
];

const TRACING: &str = "/sys/kernel/tracing";

fn ftrace(session: &mut Session) -> TestResult {
    let output = session.sh(&format!(
        "cd {TRACING}; f=$(grep -oE '^__(do|x64)_sys_getppid$' available_filter_functions | head -1); [ -n \"$f\" ] || exit 9
         echo $f > set_ftrace_filter
         kerninst count --json entry:$f exit:$f \"block:$f/*\" -- sh -c \"
            kerninst-guest getppid 100 >/dev/null
            echo function > {TRACING}/current_tracer; kerninst-guest getppid 100 >/dev/null
            grep -c getppid {TRACING}/trace >&2; echo nop > {TRACING}/current_tracer
            kerninst-guest getppid 100 >/dev/null\" 2>/tmp/err
         echo function > current_tracer
         kerninst count --json insn:$f+0x9 -- kerninst-guest getppid 100 >/dev/null 2>&1
         echo nop > current_tracer; echo > set_ftrace_filter; echo traced $(grep -E '^[0-9]+$' /tmp/err)"
    ))?;
    let counted = ["entry", "exit"].map(|kind| total(&output, "", kind));
    // The shell in between makes one call of its own as it starts.
    let expected = counted[0] == counted[1] && (300..=301).contains(&counted[0]);
    ensure(expected, || {
        format!("{counted:?} of 300 counted:\n{output}")
    })?;
    ensure(output.contains("traced 10"), || {
        format!("ftrace saw too little: {output}")
    })
}

fn kprobes(session: &mut Session) -> TestResult {
    // A kprobe first: points near it are refused by name, it goes on working.
    let output = session.run(&format!(
        "f=__x64_sys_getppid; kerninst list --points --json $f > /tmp/points
         off=$(grep -o '[a-z_0-9]*getppid+0x[0-9a-f]*' /tmp/points | sed -n 4p); echo \"p:ki_a $off\" > {TRACING}/kprobe_events || exit 9
         echo 1 > {TRACING}/events/kprobes/ki_a/enable; sleep 1
         kerninst count insn:$off -- true; echo status $?
         kerninst-guest getppid 50 >/dev/null; cat {TRACING}/kprobe_profile
         echo 0 > {TRACING}/events/kprobes/ki_a/enable; echo > {TRACING}/kprobe_events"
    ))?;
    ensure(
        output.stdout.contains("status 2") && output.stderr.contains("kprobe"),
        || format!("a point at a kprobe: {}{}", output.stdout, output.stderr),
    )?;
    let hits = output
        .stdout
        .lines()
        .find(|l| l.contains("ki_a"))
        .and_then(|l| l.split_whitespace().nth(1));
    ensure(
        hits.is_some_and(|h| h.parse::<u64>().is_ok_and(|n| n >= 50)),
        || format!("its hits: {}", output.stdout),
    )?;
    // Then one that comes and goes on a site of ours, and one that stays beyond us.
    let script = format!(
        "f=__x64_sys_getppid
         kerninst count --json entry:$f > /tmp/out 2>/tmp/err & pid=$!
         for i in $(seq 300); do kerninst status --json 2>/dev/null | grep -q '\"state\":\"armed\"' && break; sleep 0.1; done
         at=$(kerninst status --json | grep -o '\"place\":\"[^\"]*getppid[^\"]*\"' | head -1 | cut -d'\"' -f4)
         kerninst-guest getppid 10 >/dev/null
         echo \"p:ki_b $at\" > {TRACING}/kprobe_events && echo 1 > {TRACING}/events/kprobes/ki_b/enable
         kerninst-guest getppid 10 >/dev/null
         echo 0 > {TRACING}/events/kprobes/ki_b/enable; kerninst-guest getppid 10 >/dev/null
         echo 1 > {TRACING}/events/kprobes/ki_b/enable; kerninst-guest getppid 10 >/dev/null
         kill -INT $pid; wait $pid; cat /tmp/out
         kerninst-guest getppid 10 >/dev/null
         echo 0 > {TRACING}/events/kprobes/ki_b/enable; echo > {TRACING}/kprobe_events
         kerninst-guest getppid 10 >/dev/null
         kerninst reset; kerninst-guest getppid 10 >/dev/null; cut -d' ' -f1 /proc/modules | grep kerninst; true"
    );
    let before = session.sh("kerninst-torture text")?;
    let output = session.sh(&script)?;
    let after = session.sh("kerninst-torture text")?;
    let n = total(&output, "", "entry");
    ensure(n == 40, || format!("{n} of 40 counted:\n{output}"))?;
    ensure(before == after, || {
        format!("text differs:\n{before}{after}")
    })?;
    ensure(!output.lines().any(|l| l.starts_with("kerninst")), || {
        format!("still loaded: {output}")
    })
}

fn module(context: &Context<'_>) -> TestResult {
    let outcome = succeed(
        context.lab().smp(2).load_module("dummy"),
            "ip link add d9 type dummy || exit 3
             kerninst count --json 'entry:dummy:*' 'block:dummy:dummy_setup/*' -- sh -c '
                 ip link add d0 type dummy; ip link del d0; ip link del d9; rmmod dummy || echo stays; sleep 1'
             echo status $?; grep -E '^(dummy|kerninst)' /proc/modules; kerninst count entry:vfs_read -- true >/dev/null; echo again $?",
    )?;
    let out = &outcome.stdout;
    ensure(
        out.contains("status 0") && out.contains("again 0") && !out.contains("stays"),
        || format!("{out}{}", outcome.stderr),
    )?;
    ensure(total(out, "dummy:dummy_setup", "entry") >= 1, || {
        format!("nothing counted: {out}")
    })?;
    ensure(
        !out.lines()
            .any(|l| l.starts_with("dummy ") || l.starts_with("kerninst")),
        || format!("loaded: {out}"),
    )
}
