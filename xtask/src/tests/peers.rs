//! BPF, livepatch and ftrace on functions that have our points: both sides go on working and counting right.

use super::{ensure, lines, total};
use crate::suite::{Kernels, LabTest, Run, Session, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "coexist: BPF fentry attached and detached while armed, and the other way round",
        catches: "a BPF trampoline that our splice breaks or that breaks it; a count of either side that is short",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(bpf),
    },
    LabTest {
        name: "coexist: a livepatch on a function with points, and points on a livepatched function",
        catches: "a livepatch that cannot come or go since we are there; points on a body that does not run any more; \
            an owner that is not named",
        kernels: Kernels::All,
        timeout: Duration::from_secs(240),
        quick: false,
        run: Run::Shared(livepatch),
    },
    LabTest {
        name: "coexist: a kprobe that comes between the look and the arming",
        catches: "a kprobe on an instruction that a patch has a copy of, and that it passes by from then on",
        kernels: Kernels::All,
        timeout: Duration::from_secs(60),
        quick: true,
        run: Run::Shared(late),
    },
    LabTest {
        name: "coexist: all functions traced while hundreds of points come and go",
        catches: "our text writing and ftrace's in each other's way; a tracer that sees, or breaks, a patch",
        kernels: Kernels::All,
        timeout: Duration::from_secs(300),
        quick: false,
        run: Run::Shared(all_traced),
    },
];

/// The count that `kerninst-torture bpf` printed, for each time.
fn programs(output: &str) -> Vec<u64> {
    let parsed = output
        .lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    parsed
        .filter(|v| v["job"] == "bpf")
        .filter_map(|v| v["count"].as_u64())
        .collect()
}

fn bpf(session: &mut Session) -> TestResult {
    // Ten times it comes and goes, under load on both CPUs. The shell that runs the script makes one call of its own.
    let output = session.sh("f=__do_sys_getppid
         kerninst count --json entry:$f exit:$f \"block:$f/*\" -- sh -c \"
            for i in 1 2 3 4 5 6 7 8 9 10; do
                kerninst-torture bpf fentry $f -- kerninst-guest getppid-all-cpus 501 | grep job
                kerninst-guest getppid 100 >/dev/null
            done\"")?;
    for kind in ["entry", "exit", "block"] {
        let n = total(&output, "", kind);
        ensure((6010..=6011).contains(&n), || {
            format!("{kind} counts {n} of 6010 (or 6011):\n{output}")
        })?;
    }
    let theirs = programs(&output);
    ensure(theirs == [501; 10], || format!("BPF counted {theirs:?}"))?;
    // Ours comes and goes while theirs is there; a BPF kprobe at the entry too, which goes through ftrace.
    for attach in ["fentry", "kprobe"] {
        let output = session.sh(&format!(
            "f=__do_sys_getppid
             kerninst-torture bpf {attach} $f -- sh -c \"
                for i in 1 2 3; do
                    kerninst-guest getppid 100 >/dev/null
                    kerninst count --json entry:$f exit:$f -- kerninst-guest getppid-all-cpus 501 | grep schema
                done\""
        ))?;
        let counted = ["entry", "exit"].map(|kind| total(&output, "", kind));
        ensure(counted == [1503; 2], || {
            format!("{counted:?} of 1503 counted beside {attach}:\n{output}")
        })?;
        let theirs = programs(&output);
        ensure(matches!(theirs.as_slice(), [1803..=1804]), || {
            format!("BPF {attach} counted {theirs:?} of 1803 (or 1804)")
        })?;
    }
    Ok(())
}

fn livepatch(session: &mut Session) -> TestResult {
    let before = session.sh("kerninst-torture text")?;
    // Armed first: the patch comes and goes, and while it is there the old body is not called.
    let output = session.sh("f=__x64_sys_getppid
         kerninst count --json entry:$f exit:$f \"block:$f/*\" -- sh -c \"
            kerninst-guest getppid 100 >/dev/null
            kerninst-torture livepatch -- kerninst-guest getppid 50 >&2 || exit 1
            kerninst-guest getppid 100 >/dev/null\"")?;
    for kind in ["entry", "exit", "block"] {
        let n = total(&output, "", kind);
        // 200, the job's own call at its end, and perhaps the shell's.
        ensure((201..=202).contains(&n), || {
            format!("{kind} counts {n} of 201 (or 202):\n{output}")
        })?;
    }
    // Patched first: refused under each of its names, the owner is named, other points are armed.
    let script = "kerninst-torture livepatch -- sh -c '
            kerninst status
            kerninst count entry:__x64_sys_getppid -- true; echo first $?
            kerninst count entry:__do_sys_getppid -- true; echo second $?
            kerninst count --json entry:__do_sys_getppid entry:vfs_read -- cat /proc/version; echo third $?'
        echo job $?";
    let done = session.run(script)?;
    for line in [
        "livepatch torture_livepatch",
        "first 2",
        "second 2",
        "third 0",
        "job 0",
    ] {
        ensure(done.stdout.contains(line), || {
            format!("no {line:?}: {}{}", done.stdout, done.stderr)
        })?;
    }
    let named = done
        .stderr
        .matches("livepatch torture_livepatch has replaced this function")
        .count();
    ensure(named == 3, || {
        format!("the owner is named {named} times of 3: {}", done.stderr)
    })?;
    let read = total(&done.stdout, "vfs_read", "entry");
    ensure(read > 0, || {
        format!("vfs_read was not counted: {}", done.stdout)
    })?;
    let after = session.sh("kerninst-torture text")?;
    ensure(before == after, || {
        format!("text differs:\n{before}{after}")
    })
}

fn late(session: &mut Session) -> TestResult {
    session.sh("kerninst-torture late").map(drop)
}

fn all_traced(session: &mut Session) -> TestResult {
    // It comes and goes while armed, then is there when points come and when they go, and goes and comes in between.
    let points = "'entry:vfs_*' 'exit:vfs_*' 'block:do_sys_openat2/*' 'block:__schedule/*' entry:__x64_sys_getppid exit:__x64_sys_getppid";
    let output = session.sh(&format!(
        "t=/sys/kernel/tracing; echo > $t/set_ftrace_filter
         on() {{ echo function > $t/current_tracer; }}
         off() {{ echo nop > $t/current_tracer; }}
         cat > /tmp/toggle <<'END'
t=/sys/kernel/tracing
kerninst-guest getppid-all-cpus 301 >/dev/null
echo $1 > $t/current_tracer; kerninst-guest getppid-all-cpus 301 >/dev/null; ls / >/dev/null
echo $2 > $t/current_tracer; kerninst-guest getppid-all-cpus 301 >/dev/null
END
         kerninst count --means splices --json {points} -- sh /tmp/toggle function nop 2>/dev/null | grep -e getppid -e openat2 -e summary
         on; kerninst count --means splices --json {points} -- sh /tmp/toggle nop function 2>/dev/null | grep -e getppid -e openat2 -e summary
         off; grep -c . $t/trace >/dev/null; echo > $t/trace"
    ))?;
    let summaries = lines(&output, "kerninst.summary/1");
    ensure(
        summaries.len() == 2
            && summaries
                .iter()
                .all(|s| s["complete"] == true && s["points"].as_u64() > Some(200)),
        || format!("{summaries:?}"),
    )?;
    for kind in ["entry", "exit"] {
        let rows = lines(&output, "kerninst.count/1");
        let known: Vec<u64> = rows
            .iter()
            .filter(|v| {
                v["kind"] == kind && v["probe"].as_str().is_some_and(|p| p.ends_with("getppid"))
            })
            .filter_map(|v| v["count"].as_u64())
            .collect();
        let right = known.len() == 2 && known.iter().all(|n| (903..=904).contains(n));
        ensure(right, || format!("{kind} counts {known:?} of 903 each"))?;
    }
    let opened = total(&output, "do_sys_openat2", "block");
    ensure(opened > 0, || "no block of do_sys_openat2 ran".into())
}
