//! `blocks` and `cover` at their limits: nothing to count, too much of it, damaged profiles, a sudden end.

use super::count::leaves_no_trace;
use super::{ensure, succeed};
use crate::suite::{Context, Kernels, LabTest, Run, Session, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "limits: blocks and cover with what cannot be",
        catches: "names and profiles that are taken although they are wrong, or refused without a reason",
        kernels: Kernels::First,
        timeout: Duration::from_secs(180),
        quick: true,
        run: Run::Shared(wrong),
    },
    LabTest {
        name: "limits: more functions than memory",
        catches: "a kernel without memory that kills somebody, where a sentence would do; something left armed then",
        kernels: Kernels::All,
        timeout: Duration::from_secs(240),
        quick: false,
        run: Run::Own(memory),
    },
    LabTest {
        name: "limits: Ctrl-C and kill -9 while thousands of functions are armed",
        catches: "text that stays changed, or modules that stay loaded, after an end in the middle of arming many versions",
        kernels: Kernels::All,
        timeout: Duration::from_secs(580),
        quick: false,
        run: Run::Own(sudden),
    },
];

/// Arguments, exit status, and what the message must contain.
const CASES: &[(&str, i32, &str)] = &[
    ("blocks", 2, "FUNCTION"),
    (
        "blocks 'no_such_thing_*' -d 1",
        1,
        "no function matches no_such_thing_*",
    ),
    ("blocks vfs_raed -d 1", 1, "vfs_read"),
    ("blocks jiffies -d 1", 2, "data symbol"),
    ("blocks exc_page_fault -d 1", 2, "must not be instrumented"),
    ("blocks --module no_such vfs_read -d 1", 1, "no_such"),
    (
        "blocks vfs_read --read /tmp/noise",
        2,
        "/tmp/noise: this is no profile",
    ),
    ("blocks vfs_read --weights /tmp/cut -d 1", 2, "cut short"),
    (
        "blocks vfs_read --weights /tmp/other -d 1",
        2,
        "build id 00",
    ),
    ("blocks vfs_read -d 0", 2, "above 0"),
    ("cover", 2, "which functions"),
    (
        "cover 'no_such_thing_*' -d 1",
        1,
        "no function matches no_such_thing_*",
    ),
    ("cover --module no_such -d 1", 1, "no_such"),
    ("cover 'exc_page_fault*' -d 1", 2, "nothing can be counted"),
    (
        "cover 'pipe_*' --output /no/such/file -d 1",
        2,
        "cannot write /no/such/file",
    ),
    ("cover 'pipe_*' -- /no/such/command", 2, "/no/such/command"),
    ("cover --read /no/such/file", 2, "/no/such/file"),
    ("cover --read /tmp", 2, "/tmp: "),
    (
        "cover --read /tmp/noise",
        2,
        "/tmp/noise: this is no profile",
    ),
    (
        "cover --read /tmp/empty",
        2,
        "/tmp/empty: this is no profile",
    ),
    (
        "cover --read /tmp/cut",
        2,
        "/tmp/cut: the profile was cut short",
    ),
    (
        "cover diff /tmp/good /tmp/other",
        2,
        "profiles of different kernels",
    ),
    (
        "cover merge /tmp/good /tmp/other -o /tmp/sum",
        2,
        "/tmp/other: profiles of different kernels",
    ),
    (
        "cover merge /tmp/good /tmp/cut -o /tmp/sum",
        2,
        "/tmp/cut: the profile was cut short",
    ),
    (
        "cover merge /tmp/good /tmp/good -o /no/such/file",
        2,
        "/no/such/file",
    ),
];

fn wrong(session: &mut Session) -> TestResult {
    session.sh(
        "kerninst cover 'pipe_*' --output /tmp/good -- true > /dev/null || exit 1
         head -c 30000 /dev/urandom > /tmp/noise; : > /tmp/empty
         head -c $(($(wc -c < /tmp/good) / 2)) /tmp/good > /tmp/cut
         sed 's/\"build_id\":\"/\"build_id\":\"00/' /tmp/good > /tmp/other",
    )?;
    let mut problems = Vec::new();
    leaves_no_trace(session, "true")?;
    let before = session.sh("kerninst-torture text")?;
    for (words, status, needle) in CASES {
        let done = session.run(&format!("kerninst {words} </dev/null"))?;
        let told = done.stderr.contains(needle) && !done.stderr.contains("panicked");
        if done.status != *status || !told {
            problems.push(format!(
                "`kerninst {words}`: status {} (wanted {status}), not {needle:?}: {}{}",
                done.status, done.stdout, done.stderr
            ));
        }
    }
    ensure(problems.is_empty(), || problems.join("\n"))?;
    let left = session.sh("ls /tmp/sum 2>/dev/null; grep ^kerninst /proc/modules; true")?;
    ensure(left.trim().is_empty(), || {
        format!("something is left: {left}")
    })?;
    let after = session.sh("kerninst-torture text")?;
    ensure(before == after, || {
        format!("text changed:\n{before}{after}")
    })
}

fn memory(context: &Context<'_>) -> TestResult {
    succeed(
        context.lab().mem(512),
        "kerninst-torture text > /tmp/before
         refused() { \"$@\" > /tmp/out 2> /tmp/err; status=$?; [ $status = 2 ] || { echo \"$* gave $status\"; cat /tmp/err; exit 3; }
             grep -q 'not enough memory: .* may take .* MiB, and .* MiB are available' /tmp/err || { cat /tmp/err; exit 4; }; }
         refused kerninst cover --all -d 1
         refused kerninst cover --all --plan
         refused kerninst blocks '*' -d 1
         refused kerninst count 'block:*/*' -d 1
         dmesg | grep -iE 'out of memory|oom' && exit 5
         # What fits is counted.
         kerninst cover 'pipe_*' 'vfs_*' -- ls / > /tmp/out 2> /tmp/err || { cat /tmp/err; exit 6; }
         grep ^kerninst /proc/modules && exit 7
         kerninst-torture text > /tmp/after; cmp /tmp/before /tmp/after || exit 8",
    )
    .map(drop)
}

fn sudden(context: &Context<'_>) -> TestResult {
    let outcome = succeed(
        context.lab().smp(2).mem(2048),
        "set -- 't*' # some 3,500 functions
         # What is flipped at first use is flipped before the text is taken down.
         kerninst cover 'sys_p*' -- ls / > /dev/null 2>&1
         kerninst-torture text > /tmp/before
         end() { # signal, then seconds to wait after a module of this name was seen
             kerninst cover \"$@\" -- sleep 1000 > /tmp/out 2> /tmp/err & pid=$!
             for i in $(seq 1200); do grep -q \"^$module\" /proc/modules && break; sleep 0.1; done
             grep -q \"^$module\" /proc/modules || { cat /tmp/err; exit 3; }
             sleep $delay; kill -$signal $pid; wait $pid; status=$?
             echo \"end $signal $module $delay: $status\"; tail -2 /tmp/err
             # A killed one's command goes on; nobody waits for it.
             for p in $(pidof sleep); do kill $p; done
             [ $signal = INT ] || kerninst reset --wait 30 || exit 4
             grep ^kerninst /proc/modules && exit 5
             kerninst-torture text > /tmp/after; cmp /tmp/before /tmp/after || exit 6; }
         for signal in INT KILL; do
             module='kerninst '; delay=0; end \"$@\"
             module=kerninst_p; delay=0; end \"$@\"
             module=kerninst_p; delay=0.7; end \"$@\"
             module=kerninst_p; delay=6; end \"$@\"
         done
         kerninst cover 'pipe_*' -- ls / > /dev/null || exit 7",
    )?;
    let statuses = |signal: &str| -> Vec<&str> {
        let lines = outcome.stdout.lines();
        let of = lines.filter(|l| l.starts_with(&format!("end {signal} ")));
        of.filter_map(|l| l.rsplit(' ').next()).collect()
    };
    // One Ctrl-C ends the counting, not the program.
    let interrupted = statuses("INT");
    ensure(interrupted == ["0"; 4], || {
        format!("after one Ctrl-C: {interrupted:?}\n{}", outcome.stdout)
    })?;
    ensure(statuses("KILL") == ["137"; 4], || outcome.stdout.clone())
}
