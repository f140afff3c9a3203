//! How long the steps from nothing to armed take.

use crate::{Failure, points};
use kerninst::{ArmOptions, Owners, Point, Session};
use kerninst_analysis::Analysis;
use kerninst_kernel::Kernel;
use std::time::Instant;

fn step<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    let ms = started.elapsed().as_secs_f64() * 1e3;
    println!("{}", serde_json::json!({"step": name, "ms": ms}));
    result
}

fn arm_and_disarm(analysis: &Analysis<'_>, name: &str, points: &[Point]) -> Result<(), Failure> {
    let options = ArmOptions::default();
    let session = step(&format!("arming {name}"), || {
        Session::arm(analysis, points, &Owners::live(), options)
    })
    .map_err(|e| e.to_string())?;
    step(&format!("disarming {name}"), || session.disarm())
        .map(drop)
        .map_err(|e| e.to_string())
}

pub fn run() -> Result<(), Failure> {
    let kernel = step("picture of the running kernel", Kernel::live).map_err(|e| e.to_string())?;
    let analysis = Analysis::new(&kernel);
    let probe = |text: &str| text.parse().map_err(|e| format!("{e}"));
    let one = [probe("entry:do_sys_openat2")?];
    let one = step("finding the first point (loads text and tables)", || {
        points(&analysis, &one)
    })?;
    arm_and_disarm(&analysis, "one point, the driver's loading included", &one)?;
    arm_and_disarm(
        &analysis,
        "one point again, the driver's loading included",
        &one,
    )?;
    let many = [probe("block:tcp_*/*")?];
    let mut many = points(&analysis, &many)?;
    many.truncate(1000);
    arm_and_disarm(&analysis, "1,000 points", &many)
}
