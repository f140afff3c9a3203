//! `kerninst blocks`: all counts exact, visits under way accounted for, and nothing left behind.

use super::count::leaves_no_trace;
use super::{ensure, lines};
use crate::suite::{Kernels, LabTest, Run, Session, TestResult};
use serde_json::Value;
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "blocks: known numbers of calls, on all CPUs",
        catches: "an edge that is counted twice or not at all; counts that do not add up although nothing is wrong",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(known),
    },
    LabTest {
        name: "blocks: every edge of busy functions balances",
        catches: "a version that counts on the wrong edge, or goes another way than the original",
        kernels: Kernels::All,
        timeout: Duration::from_secs(180),
        quick: false,
        run: Run::Shared(balance),
    },
    LabTest {
        name: "blocks: visits that sleep inside at the end are accounted for",
        catches: "a task under way that is lost, or counted as having left",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(under_way),
    },
];

/// The functions of a run's output.
fn functions(output: &str) -> Result<Vec<Value>, String> {
    let found = lines(output, "kerninst.blocks/1");
    ensure(!found.is_empty(), || format!("no function: {output}"))?;
    Ok(found)
}

fn number(v: &Value, field: &str) -> Option<u64> {
    v[field].as_u64()
}

fn exact(v: &Value) -> TestResult {
    ensure(v["exact"] == true, || {
        let mut v = v.clone();
        v["blocks"] = Value::Null;
        v["edges"] = Value::Null;
        format!("not exact: {v}")
    })
}

fn known(session: &mut Session) -> TestResult {
    session.sh("kerninst blocks __x64_sys_getppid -- kerninst-guest getppid-all-cpus 10")?;
    let output = leaves_no_trace(
        session,
        "kerninst blocks --json __x64_sys_getppid -- kerninst-guest getppid-all-cpus 20001 | grep schema",
    )?;
    for f in functions(&output)? {
        exact(&f)?;
        ensure(
            number(&f, "entered") == Some(20001) && number(&f, "left") == Some(20001),
            || format!("not 20001 calls: {f}"),
        )?;
        ensure(f["blocks"][0]["count"] == 20001, || {
            format!("the first block: {f}")
        })?;
    }
    Ok(())
}

fn balance(session: &mut Session) -> TestResult {
    let output = leaves_no_trace(
        session,
        "kerninst blocks --json --every-edge pipe_read pipe_write tcp_rcv_established tcp_sendmsg_locked vfs_read \
         handle_mm_fault schedule -- sh -c 'kerninst-guest pipe 300; kerninst-guest tcp 1; kerninst-guest fork 20' \
         | grep schema",
    )?;
    for f in functions(&output)? {
        // The scheduler switches to tasks that were in its original when counting began.
        if f["function"] != "schedule" {
            exact(&f)?;
        }
        if f["function"] == "pipe_read" {
            ensure(number(&f, "entered") >= Some(600), || {
                format!("300 round trips are at least 600 reads: {}", f["entered"])
            })?;
        }
    }
    Ok(())
}

fn under_way(session: &mut Session) -> TestResult {
    // The reader begins to wait after counting began, and still waits when it ends.
    let output = session.sh(
        "kerninst blocks --json pipe_read -- sh -c '(sleep 4 | cat &) ; sleep 1' | grep schema; sleep 5",
    )?;
    for f in functions(&output)? {
        exact(&f)?;
        let parts = (
            number(&f, "entered"),
            number(&f, "left"),
            number(&f, "in_flight"),
        );
        let (Some(entered), Some(left), Some(inside)) = parts else {
            return Err(format!("not all known: {f}"));
        };
        ensure(inside >= 1 && entered == left + inside, || {
            format!("entered {entered}, left {left}, {inside} inside")
        })?;
    }
    Ok(())
}
