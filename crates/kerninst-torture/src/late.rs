//! A kprobe that is set on a displaced instruction after the kernel was looked at, and before points are armed: the
//! patch would pass it by, so arming must be refused, and must work again when the kprobe is gone.

use crate::kill::nothing_left;
use crate::text::Snapshot;
use crate::{Failure, live, points};
use kerninst::{ArmOptions, Means, Owners, Point, Session};
use kerninst_analysis::Analysis;

const EVENTS: &str = "/sys/kernel/tracing/kprobe_events";
const ENABLE: &str = "/sys/kernel/tracing/events/kprobes/late/enable";

/// Functions to look for a hoisted point in.
const WHERE: [&str; 3] = [
    "block:vfs_read/*",
    "block:vfs_write/*",
    "block:do_sys_openat2/*",
];

/// A point that is reached by a splice at an earlier instruction, and a displaced instruction between the overwritten bytes
/// and it.
fn hoisted(analysis: &Analysis<'_>) -> Result<(Point, u64), Failure> {
    for text in WHERE {
        let probe = text.parse().map_err(|e| format!("{e}"))?;
        for point in points(analysis, &[probe])? {
            let plan = kerninst::plan(
                analysis,
                std::slice::from_ref(&point),
                &Owners::default(),
                Means::Splices,
            );
            let as_asked = plan.points.iter().any(|p| p.point.addr == point.addr);
            if let ([splice], true) = (plan.splices.as_slice(), as_asked) {
                let between = splice.range().end;
                if splice.site < point.addr && between < point.addr {
                    return Ok((point, between));
                }
            }
        }
    }
    Err("no hoisted point found".into())
}

fn write(path: &str, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|e| format!("{path}: {e}"))
}

pub fn run() -> Result<(), Failure> {
    let kernel = live()?;
    let analysis = Analysis::new(&kernel);
    let (point, between) = hoisted(&analysis)?;
    let before = Snapshot::take(&kernel)?;
    let options = || ArmOptions {
        means: Means::Splices,
        ..ArmOptions::default()
    };
    // As if the kprobe had come after the look at others.
    let arm = || {
        Session::arm(
            &analysis,
            std::slice::from_ref(&point),
            &Owners::default(),
            options(),
        )
    };
    arm()
        .map_err(|e| format!("without a kprobe: {e}"))?
        .disarm()
        .map_err(|e| e.to_string())?;
    let place = analysis.function_at(point.entry).map(|f| f.name.clone());
    let place = place.ok_or("the function is gone")?;
    write(
        EVENTS,
        &format!("p:late {place}+{:#x}", between - point.entry),
    )?;
    write(ENABLE, "1")?;
    let refused = arm().map(drop);
    write(ENABLE, "0")?;
    write(EVENTS, "")?;
    let verdict = match refused {
        Ok(()) => Err(format!("{} was armed over a kprobe", point.label())),
        Err(e) if e.to_string().contains("kprobe") => Ok(()),
        Err(e) => Err(format!("the kprobe is not named: {e}")),
    };
    verdict?;
    arm()
        .map_err(|e| format!("after the kprobe: {e}"))?
        .disarm()
        .map_err(|e| e.to_string())?;
    before.check(&kernel)?;
    nothing_left()?;
    println!(
        "{}",
        serde_json::json!({"job": "late", "point": point.label()})
    );
    Ok(())
}
