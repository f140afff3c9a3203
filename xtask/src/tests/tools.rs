//! The scripts in tools/: each runs, and shows what its workload is known to do.

use super::ensure;
use crate::suite::{Kernels, LabTest, Run, Session, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[LabTest {
    name: "scripts: every tool shows what its workload does",
    catches: "a script in tools/ that a change of the language or a kernel breaks, or that prints nothing",
    kernels: Kernels::All,
    timeout: Duration::from_secs(240),
    quick: false,
    run: Run::Shared(tools),
}];

/// A tool, its text, the command that it watches, and what its output must have.
const TOOLS: &[(&str, &str, &str, &[&str])] = &[
    (
        "opens",
        include_str!("../../../tools/opens.ki"),
        "cat /etc/passwd /nonexistent",
        &["  0 /etc/passwd", "  2 /nonexistent"],
    ),
    (
        "slow",
        include_str!("../../../tools/slow.ki"),
        "sh -c '(sleep 1; echo) | cat'",
        &["cat (", " ms\n", "ksys_read+0x", "@us:"],
    ),
    (
        "callees",
        include_str!("../../../tools/callees.ki"),
        "dd if=/proc/self/status of=/dev/null bs=4096",
        &[
            "@callees[rw_verify_area, dd]: ",
            "@callees[seq_read, dd]: ",
            "@callers[ksys_read+0x",
        ],
    ),
    (
        "creds",
        include_str!("../../../tools/creds.ki"),
        "su nobody -s /bin/true",
        &["user 0 becomes 65534", "@ways[__sys_setuid+0x"],
    ),
    (
        "error-block",
        include_str!("../../../tools/error-block.ki"),
        "su nobody -s /bin/sh -c 'cat /tmp/secret'",
        &["@errors[-13, block:may_open/"],
    ),
    (
        "rare-branch",
        include_str!("../../../tools/rare-branch.ki"),
        "kerninst-guest tcp 4",
        &["@visits: ", "@taken: "],
    ),
    (
        "tcp-sizes",
        include_str!("../../../tools/tcp-sizes.ki"),
        "kerninst-guest tcp 4",
        &["@received:", "@appended:", "|@@@"],
    ),
];

fn tools(session: &mut Session) -> TestResult {
    session.sh("echo x >/tmp/secret; chmod 600 /tmp/secret")?;
    for (name, text, command, wanted) in TOOLS {
        // The command's own failure (a file that is not there) is part of the workload.
        let script = format!(
            "cat >/tmp/{name}.ki <<'END_OF_TOOL'\n{text}\nEND_OF_TOOL\n\
             kerninst run /tmp/{name}.ki -c \"{command}\" 2>/tmp/{name}.err\n\
             test $? -lt 2 || {{ cat /tmp/{name}.err; false; }}"
        );
        let output = session.sh(&script)?;
        for part in *wanted {
            ensure(output.contains(part), || {
                format!("{name}.ki shows no {part:?}:\n{output}")
            })?;
        }
    }
    Ok(())
}
