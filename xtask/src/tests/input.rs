//! Bad input: a sentence that says what is wrong and what would work, the right exit code, nothing armed.

use super::ensure;
use crate::suite::{Kernels, LabTest, Run, Session, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "input: names, offsets and places that cannot be",
        catches: "a wrong name, offset or place that is guessed, crashes the tool, or is refused without a way out",
        kernels: Kernels::All,
        timeout: Duration::from_secs(180),
        quick: true,
        run: Run::Shared(places),
    },
    LabTest {
        name: "input: damaged kernel files",
        catches: "a panic, or no clear message, on a truncated or corrupt vmlinuz",
        kernels: Kernels::First,
        timeout: Duration::from_secs(120),
        quick: false,
        run: Run::Shared(files),
    },
    LabTest {
        name: "input: no root, and a second user at the same time",
        catches: "an unprivileged user who gets a riddle; two sessions that write text at once",
        kernels: Kernels::First,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(users),
    },
];

/// Arguments, exit status, and what the message must contain.
const CASES: &[(&str, i32, &str)] = &[
    ("count entry:vfs_raed", 1, "vfs_read"),
    ("count vfs_read", 2, "entry:vfs_read"),
    ("count 'entry:no_such_thing_*'", 1, "no_such_thing_"),
    ("count insn:vfs_read+0x1", 2, "inside"),
    ("count insn:vfs_read+0x99999", 2, "long"),
    ("count entry:jiffies", 2, "data"),
    ("count entry:exc_page_fault", 2, "must not be instrumented"),
    ("count insn:vfs_read+zz", 2, "offset"),
    ("count block:vfs_read/100000", 2, "blocks"),
    ("count entry:text_poke", 2, "must not be instrumented"),
    ("count insn:0x1234", 1, "no kernel function"),
    ("count --module no_such entry:vfs_read", 1, "no_such"),
    ("count entry:", 2, "entry:vfs_read"),
    ("count insn:0xffffffff810000100", 2, "16 hexadecimal digits"),
    ("count entry:vfs_read -d -1", 2, "above 0"),
    ("count", 2, "POINT"),
    ("show vfs_raed", 1, "vfs_read"),
    ("show jiffies", 2, "data"),
    ("list 'no_such_thing_*'", 1, ""),
    ("frobnicate", 2, "frobnicate"),
];

fn places(session: &mut Session) -> TestResult {
    let before = session.sh("kerninst-torture text")?;
    for (words, status, needle) in CASES {
        let done = session.run(&format!("kerninst {words} </dev/null"))?;
        ensure(done.status == *status, || {
            format!(
                "`kerninst {words}`: status {} and not {status}: {}{}",
                done.status, done.stdout, done.stderr
            )
        })?;
        ensure(
            done.stderr.contains(needle) && !done.stderr.contains("panicked"),
            || {
                format!(
                    "`kerninst {words}` does not say {needle:?}: {}",
                    done.stderr
                )
            },
        )?;
    }
    let loaded = session.sh("cut -d' ' -f1 /proc/modules")?;
    ensure(!loaded.contains("kerninst"), || {
        format!("something is left: {loaded}")
    })?;
    let after = session.sh("kerninst-torture text")?;
    ensure(before == after, || {
        format!("text changed:\n{before}{after}")
    })?;
    // Ambiguous: the first function name that two functions have.
    let name = session.sh(
        "awk '$2==\"t\" && !/\\[/ {print $3}' /proc/kallsyms | grep -vE '[.]|^__pfx_|^_' | sort | uniq -d | head -1",
    )?;
    let done = session.run(&format!("kerninst count entry:{}", name.trim()))?;
    ensure(done.status == 2 && done.stderr.contains('#'), || {
        format!(
            "{name} is ambiguous, but: status {} {}",
            done.status, done.stderr
        )
    })
}

fn files(session: &mut Session) -> TestResult {
    let script = "
        head -c 100000 /dev/urandom > /tmp/noise
        head -c 40000 /bin/kerninst > /tmp/cut
        : > /tmp/empty
        for f in /tmp/noise /tmp/cut /tmp/empty /no/such/file /tmp; do
            kerninst list --image $f 2>/tmp/err; status=$?
            [ $status = 2 ] || { echo \"$f: status $status\"; exit 1; }
            grep -q panicked /tmp/err && { cat /tmp/err; exit 1; }
            [ -s /tmp/err ] || { echo \"$f: no message\"; exit 1; }
        done";
    session.sh(script).map(drop)
}

fn users(session: &mut Session) -> TestResult {
    session.sh("echo 'nobody:x:65534:65534::/tmp:/bin/sh' > /etc/passwd; echo 'nobody:x:65534:' > /etc/group")?;
    let done = session.run("su nobody -s /bin/sh -c 'kerninst count entry:vfs_read -- true'")?;
    ensure(done.status == 2 && done.stderr.contains("root"), || {
        format!("without root: status {}: {}", done.status, done.stderr)
    })?;
    let script = "
        kerninst count entry:vfs_read -d 60 >/dev/null 2>&1 & first=$!
        for i in $(seq 300); do kerninst status --json 2>/dev/null | grep -q '\"state\":\"armed\"' && break; sleep 0.1; done
        kerninst count entry:vfs_write -- true; echo second $?
        kill -INT $first; wait $first; echo first $?
        kerninst count entry:vfs_write -- true >/dev/null; echo third $?";
    let done = session.run(script)?;
    for line in ["second 2", "first 0", "third 0"] {
        ensure(done.stdout.contains(line), || {
            format!("no \"{line}\": {}{}", done.stdout, done.stderr)
        })?;
    }
    ensure(done.stderr.contains("another kerninst"), || {
        format!("the second user is told: {}", done.stderr)
    })
}
