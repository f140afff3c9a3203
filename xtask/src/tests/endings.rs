//! How `count` ends when somebody does not want, or cannot take, its result: nothing is armed afterwards, and the exit
//! status says what became of the result.

use super::{ensure, lines, total};
use crate::suite::{Kernels, LabTest, Run, Session, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "endings: a second Ctrl-C, and an output that cannot be written",
        catches: "a kernel that stays armed when the user or the output is gone; a result that is lost with status 0",
        kernels: Kernels::First,
        timeout: Duration::from_secs(120),
        quick: false,
        run: Run::Shared(outputs),
    },
    LabTest {
        name: "endings: the command's own status is passed on",
        catches: "a failed command that looks like a good one to the script around it",
        kernels: Kernels::First,
        timeout: Duration::from_secs(60),
        quick: true,
        run: Run::Shared(statuses),
    },
    LabTest {
        name: "endings: what is asked for twice is shown once",
        catches: "equal probes that are counted as two; a refusal that is repeated for each point or names another point",
        kernels: Kernels::First,
        timeout: Duration::from_secs(60),
        quick: true,
        run: Run::Shared(twice),
    },
];

/// Waits until points are armed.
const ARMED: &str = "for i in $(seq 300); do kerninst status --json 2>/dev/null | grep -q '\"state\":\"armed\"' && break; sleep 0.1; done";

fn outputs(session: &mut Session) -> TestResult {
    let before = session.sh("kerninst-torture text")?;
    // Two signals, since two of one kind that come at once are one. The command ignores both.
    let script = format!(
        "kerninst count 'block:tcp_*/*' -- sh -c \"trap '' INT TERM; sleep 4\" > /tmp/out 2>/tmp/err & pid=$!
         {ARMED}
         kill -INT $pid; kill -TERM $pid; wait $pid; echo twice $?; wc -c < /tmp/out; cat /tmp/err >&2
         kerninst count entry:vfs_read -- true >&- 2>/tmp/err; echo closed $?; cat /tmp/err
         kerninst count --json entry:vfs_read -- true > /dev/full 2>/tmp/err; echo full $?; cat /tmp/err
         kerninst count -o /dev/full entry:vfs_read -- true 2>/tmp/err; echo file $?; cat /tmp/err
         kerninst count -o /no/such/file entry:vfs_read -- touch /tmp/ran 2>/tmp/err; echo path $?; cat /tmp/err; [ -e /tmp/ran ] && echo ran
         {{ kerninst count 'block:tcp_*/*' --zeros -- true 2>/tmp/err; echo pipe $? >/tmp/status; }} | true; cat /tmp/status /tmp/err
         {{ kerninst count --json -i 0.1 entry:vfs_read -d 20 2>/tmp/err; echo interval $? >/tmp/status; }} | head -1 >/dev/null; cat /tmp/status /tmp/err
         kerninst list >&- 2>/tmp/err; echo list $?
         cut -d' ' -f1 /proc/modules | grep kerninst; true"
    );
    let done = session.run(&script)?;
    let out = &done.stdout;
    for line in [
        "twice 130",
        "0",
        "closed 2",
        "full 2",
        "file 2",
        "path 2",
        "pipe 0",
        "interval 0",
        "list 2",
    ] {
        ensure(out.lines().any(|l| l == line), || {
            format!("no {line:?}: {out}{}", done.stderr)
        })?;
    }
    for sentence in [
        "cannot write the output: Bad file descriptor",
        "cannot write the output: No space left",
        "cannot write /dev/full: No space left",
        "cannot write /no/such/file",
    ] {
        ensure(out.contains(sentence), || {
            format!("no {sentence:?}: {out}{}", done.stderr)
        })?;
    }
    ensure(
        !out.contains("panicked")
            && !out
                .lines()
                .any(|l| l == "ran" || l.starts_with("kerninst ")),
        || format!("{out}{}", done.stderr),
    )?;
    let after = session.sh("kerninst-torture text")?;
    ensure(before == after, || {
        format!("text differs:\n{before}{after}")
    })?;
    let left = session.sh("cut -d' ' -f1 /proc/modules")?;
    ensure(!left.contains("kerninst"), || {
        format!("still loaded: {left}")
    })
}

fn statuses(session: &mut Session) -> TestResult {
    let done = session.run(
        "kerninst count --json entry:vfs_write -- sh -c 'exit 7'; echo exit $?
         kerninst count entry:vfs_write -- sh -c 'kill -TERM $$' >/dev/null; echo signal $?
         kerninst count entry:vfs_write -- true >/dev/null; echo good $?
         kerninst count entry:vfs_write -- /no/such/program >/dev/null; echo none $?",
    )?;
    for line in ["exit 7", "signal 143", "good 0", "none 2"] {
        ensure(done.stdout.lines().any(|l| l == line), || {
            format!("no {line:?}: {}{}", done.stdout, done.stderr)
        })?;
    }
    ensure(lines(&done.stdout, "kerninst.summary/1").len() == 1, || {
        format!("the counts of the failed command: {}", done.stdout)
    })?;
    ensure(
        done.stderr
            .contains("the command ended with exit status: 7"),
        || done.stderr.clone(),
    )
}

fn twice(session: &mut Session) -> TestResult {
    let done = session.run(
        "kerninst count --json entry:__x64_sys_getppid entry:__x64_sys_getppid exit:__x64_sys_getppid 'block:text_poke_bp_batch/*' \
            -- kerninst-guest getppid 77",
    )?;
    let rows = lines(&done.stdout, "kerninst.count/1");
    ensure(
        rows.len() == 2 && total(&done.stdout, "", "entry") == 77,
        || format!("{} rows: {}", rows.len(), done.stdout),
    )?;
    let told = done
        .stderr
        .lines()
        .filter(|l| l.contains("text_poke_bp_batch"))
        .count();
    ensure(told == 1, || {
        format!("the refusals are told in {told} lines: {}", done.stderr)
    })?;
    let done = session.run("kerninst count entry:text_poke -- true")?;
    // The point asked for: just after the fentry site, with or without endbr64 before that.
    let named = ["text_poke+0x5:", "text_poke+0x9:"]
        .iter()
        .any(|p| done.stderr.contains(p));
    ensure(done.status == 2 && named, || {
        format!("another point is named: {}", done.stderr)
    })
}
