//! Memory that generated code writes and user space sees, and the functions that generated code calls.

use super::succeed;
use crate::suite::{Context, Kernels, LabTest, Run, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "areas: made, mapped, refused, and given back",
        catches: "an area that the kernel sees elsewhere or outside, one that stays after its owner's end or ends before, or one \
                  that has the kernel kill somebody for memory",
        kernels: Kernels::All,
        timeout: Duration::from_secs(240),
        quick: true,
        run: Run::Own(areas),
    },
    LabTest {
        name: "callouts: addresses, times, copies, stacks, and one within another",
        catches: "a callout that faults, writes beyond its destination, loses a flag or the preempt count, gives the stack of \
                  somebody else, or goes on within itself",
        kernels: Kernels::All,
        timeout: Duration::from_secs(180),
        quick: true,
        run: Run::Own(callouts),
    },
];

/// A job of the torturer after which the kernel has nothing to complain of.
fn quiet(context: &Context<'_>, job: &str) -> TestResult {
    succeed(
        context.lab().smp(2),
        &format!(
            "kerninst-torture {job} || exit 3
             dmesg | grep -iE 'out of memory|oom-kill|imbalance|WARNING|BUG:|scheduling while' && exit 4
             kerninst doctor >/dev/null && kerninst count 'entry:vfs_read' -- true >/dev/null"
        ),
    )
    .map(|_| ())
}

fn areas(context: &Context<'_>) -> TestResult {
    quiet(context, "areas")
}

fn callouts(context: &Context<'_>) -> TestResult {
    quiet(context, "callouts")
}
