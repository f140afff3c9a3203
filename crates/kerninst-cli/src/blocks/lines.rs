//! Counts as JSON lines.

use std::io::Write;

use kerninst_profile::Violation;
use serde::Serialize;

use super::report::Report;
use crate::Fail;
use crate::json::{self, Hex};
use crate::show::model::View;

/// A function: schema `kerninst.blocks/1`.
#[derive(Serialize)]
struct FunctionLine<'a> {
    function: &'a str,
    module: Option<&'a str>,
    entry: Hex,
    entered: Option<u64>,
    left: Option<u64>,
    in_flight: u64,
    counters: usize,
    exact: bool,
    violations: &'a [Violation],
    missing: &'a [String],
    blocks: Vec<BlockPart<'a>>,
    edges: Vec<EdgePart<'a>>,
}

#[derive(Serialize)]
struct BlockPart<'a> {
    start: Hex,
    end: Hex,
    at: &'a str,
    instructions: usize,
    depth: u32,
    cold: bool,
    count: Option<u64>,
    inside: u64,
}

#[derive(Serialize)]
struct EdgePart<'a> {
    from: usize,
    to: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<&'a str>,
    kind: &'static str,
    back: bool,
    count: Option<u64>,
}

/// The end: schema `kerninst.blocks-summary/1`.
#[derive(Serialize)]
pub struct Summary<'a> {
    /// Functions that were counted.
    pub functions: usize,
    /// Those with exact counts.
    pub exact: usize,
    /// Functions that could not be counted, and why.
    pub left_out: Vec<String>,
    /// Time that was counted, in seconds.
    pub seconds: f64,
    /// Nothing was lost.
    pub complete: bool,
    /// Remarks.
    pub notes: &'a [String],
}

/// Writes a line for each function.
pub fn functions(reports: &[(Report, View)], out: &mut dyn Write) -> Result<(), Fail> {
    for (report, view) in reports {
        let profile = &report.profile;
        let blocks = view.blocks.iter().map(|b| BlockPart {
            start: b.start,
            end: b.end,
            at: b.insns.first().map_or("", |i| i.offset.as_str()),
            instructions: b.insns.len(),
            depth: b.depth,
            cold: b.cold,
            count: b.count,
            inside: b.inside,
        });
        let edges = view.edges.iter().map(|e| EdgePart {
            from: e.from,
            to: e.to,
            exit: e.exit.as_deref(),
            kind: e.kind,
            back: e.back,
            count: e.count,
        });
        let line = FunctionLine {
            function: &view.id,
            module: view.module.as_deref(),
            entry: view.entry,
            entered: profile.entered,
            left: profile.left,
            in_flight: profile.in_flight,
            counters: report.counters,
            exact: report.is_exact(),
            violations: &profile.violations,
            missing: &report.missing,
            blocks: blocks.collect(),
            edges: edges.collect(),
        };
        json::line(out, "kerninst.blocks/1", &line)?;
    }
    Ok(())
}

/// Writes the last line.
pub fn summary(summary: &Summary, out: &mut dyn Write) -> Result<(), Fail> {
    json::line(out, "kerninst.blocks-summary/1", summary)
}
