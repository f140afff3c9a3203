//! Coverage as JSON lines.

use std::io::Write;

use kerninst_profile::Violation;
use kerninst_profile::file::HEAD;
use serde::Serialize;

use super::figures::{Figures, Share, Totals};
use super::show::Findings;
use super::uncovered::stretches;
use crate::Fail;
use crate::blocks::LeftOut;
use crate::json::{self, Hex, KernelLine};

/// A function: schema `kerninst.cover/1`.
#[derive(Serialize)]
struct FunctionLine<'a> {
    function: &'a str,
    module: Option<&'a str>,
    entry: Option<Hex>,
    calls: Option<u64>,
    in_flight: u64,
    exact: bool,
    blocks: Share,
    edges: Share,
    uncovered: Vec<(i64, i64)>,
    violations: &'a [Violation],
}

/// A module: schema `kerninst.cover-module/1`.
#[derive(Serialize)]
struct ModuleLine<'a> {
    module: Option<&'a str>,
    #[serde(flatten)]
    figures: Figures,
}

/// A function that was not counted: schema `kerninst.cover-left-out/1`.
#[derive(Serialize)]
struct LeftOutLine<'a> {
    function: &'a str,
    reason: &'a str,
    why: &'a str,
}

/// The end: schema `kerninst.cover-summary/1`.
#[derive(Serialize)]
struct Summary<'a> {
    #[serde(flatten)]
    figures: Figures,
    left_out: usize,
    seconds: f64,
    complete: bool,
    /// Only what ran was recorded: `calls` are 1 or 0.
    once: bool,
    runs: u64,
    notes: &'a [String],
}

/// Writes all.
pub fn write(findings: &Findings, out: &mut dyn Write) -> Result<(), Fail> {
    let profile = &findings.profile;
    match findings.kernel {
        Some(kernel) => KernelLine::write(kernel, out)?,
        None => json::line(out, HEAD, &profile.head)?,
    }
    for function in profile.functions.values() {
        let figures = Figures::of(function);
        let never = stretches(function);
        let line = FunctionLine {
            function: &function.function,
            module: function.module(),
            entry: findings.entries.get(&function.function).copied().map(Hex),
            calls: function.entered,
            in_flight: function.in_flight,
            exact: function.is_exact(),
            blocks: figures.blocks,
            edges: figures.edges,
            uncovered: never.iter().map(|s| (s.start, s.end)).collect(),
            violations: &function.violations,
        };
        json::line(out, "kerninst.cover/1", &line)?;
    }
    left_out(&findings.left_out, out)?;
    let totals = Totals::of(profile);
    for (module, figures) in &totals.modules {
        let line = ModuleLine {
            module: Some(module.as_str()).filter(|m| *m != "kernel"),
            figures: *figures,
        };
        json::line(out, "kerninst.cover-module/1", &line)?;
    }
    let summary = Summary {
        figures: totals.total,
        left_out: findings.left_out.len(),
        seconds: profile.head.seconds,
        complete: profile.head.complete,
        once: profile.head.once,
        runs: profile.head.runs,
        notes: &findings.notes,
    };
    json::line(out, "kerninst.cover-summary/1", &summary)
}

/// Writes a line for each function that is not counted.
pub fn left_out(left_out: &[LeftOut], out: &mut dyn Write) -> Result<(), Fail> {
    for l in left_out {
        let line = LeftOutLine {
            function: &l.function,
            reason: l.reason,
            why: &l.why,
        };
        json::line(out, "kerninst.cover-left-out/1", &line)?;
    }
    Ok(())
}
