//! Splices whose patches call.

use super::succeed;
use crate::suite::{Context, Kernels, LabTest, Run, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[LabTest {
    name: "splices: threads asleep in calls that patches made",
    catches: "a patch that is freed although a sleeping thread's stack holds a return address in it",
    // Which functions have such points, and sleep, differs from kernel to kernel.
    kernels: Kernels::First,
    timeout: Duration::from_secs(240),
    quick: true,
    run: Run::Own(below),
}];

fn below(context: &Context<'_>) -> TestResult {
    succeed(context.lab().smp(2), "kerninst-torture below").map(|_| ())
}
