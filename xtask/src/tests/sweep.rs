//! A short part of `cargo xtask sweep`: every instruction of some hundred functions, under load.

use super::{ensure, lines_of, succeed};
use crate::suite::{Context, Kernels, LabTest, Run, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "sweep: every instruction of 300 functions, under load",
        catches: "an instruction whose version breaks the kernel, or whose count is not its block's; text that is not as before",
        kernels: Kernels::All,
        timeout: Duration::from_secs(240),
        quick: false,
        run: Run::Own(versions),
    },
    LabTest {
        name: "sweep: every instruction of 60 functions by splices, under load",
        catches: "a splice that breaks the kernel, or counts otherwise than its neighbour in the block",
        kernels: Kernels::First,
        timeout: Duration::from_secs(240),
        quick: false,
        run: Run::Own(splices),
    },
];

/// What the kernel runs all the time, so that something is counted, and a share of everything else.
fn sweep(context: &Context<'_>, jobs: &[&str]) -> TestResult {
    let script: String = jobs
        .iter()
        .map(|job| {
            // The module is there when the text is first read, and goes and comes back: not a change of the text.
            format!("modprobe dummy; kerninst-torture sweep --module dummy {job} || exit 1\n")
        })
        .collect();
    let lab = context.lab().carry_module("dummy").smp(2).mem(2048);
    let outcome = succeed(lab, &script)?;
    let batches: Vec<_> = lines_of(&outcome.stdout)
        .filter(|l| l["sweep"] == "batch")
        .collect();
    ensure(batches.len() == jobs.len(), || {
        format!("{} batches of {}", batches.len(), jobs.len())
    })?;
    // A comparison of nothing is none.
    let sum = |name: &str| batches.iter().filter_map(|b| b[name].as_u64()).sum::<u64>();
    ensure(sum("executed") > 50 && sum("armed") > 1000, || {
        format!("{batches:?}")
    })
}

fn versions(context: &Context<'_>) -> TestResult {
    sweep(
        context,
        &[
            "--seed 7 --batch 260 --batches 1",
            "--functions tcp_r* --batch 40 --batches 1",
        ],
    )
}

fn splices(context: &Context<'_>) -> TestResult {
    sweep(
        context,
        &[
            "--means splices --seed 7 --batch 40 --batches 1",
            "--means splices --functions vfs_r* --batch 20 --batches 1",
        ],
    )
}
