//! `kerninst cover merge` and `kerninst cover diff`.

use kerninst_profile::file::{FunctionProfile, HEAD, ProfileFile};
use kerninst_profile::{Change, Diff};
use serde::Serialize;

use super::args::{DiffArgs, MergeArgs};
use super::figures::{Figures, Share, Totals};
use super::{open, show, uncovered};
use crate::blocks::output;
use crate::json;
use crate::paint::Style;
use crate::table::{Align, Table};
use crate::ui::Ui;
use crate::{Fail, short};

/// Adds up profiles.
///
/// # Errors
/// [`Fail::Error`]: damaged files, profiles that do not go together, an output that cannot be written. The output is made
/// only when all is well.
pub fn merge(args: &MergeArgs, ui: &mut Ui) -> Result<(), Fail> {
    let mut sum: Option<ProfileFile> = None;
    for path in &args.profiles {
        let next = open(path)?;
        match &mut sum {
            None => sum = Some(next),
            Some(sum) => sum
                .merge(next)
                .map_err(|e| Fail::Error(format!("{}: {e}", path.display())))?,
        }
    }
    let Some(sum) = sum else {
        return Err(Fail::error("no profiles to add up"));
    };
    show::write_profile(&sum, &args.output, output::create(&args.output)?)?;
    let total = Totals::of(&sum).total;
    ui.note(&format!(
        "{} of {}: {} blocks ran ({}), {} edges ({})",
        short::number(args.profiles.len(), "profile"),
        short::number(sum.functions.len(), "function"),
        total.blocks.text(),
        total.blocks.percent(),
        total.edges.text(),
        total.edges.percent(),
    ));
    Ok(())
}

/// A function that is covered differently: schema `kerninst.cover-diff/1`.
#[derive(Serialize)]
struct ChangeLine<'a> {
    function: &'a str,
    change: &'static str,
    old: Option<Share>,
    new: Option<Share>,
    gained: Vec<(i64, i64)>,
    lost: Vec<(i64, i64)>,
    gained_edges: usize,
    lost_edges: usize,
}

/// The end: schema `kerninst.cover-diff-summary/1`.
#[derive(Serialize)]
struct Summary {
    old: Figures,
    new: Figures,
    changed: usize,
    newly_run: usize,
    no_longer_run: usize,
    gained: usize,
    lost: usize,
    only_old: usize,
    only_new: usize,
}

/// Compares two profiles.
///
/// # Errors
/// [`Fail::Error`]: damaged files, profiles of different kernels.
pub fn diff(args: &DiffArgs, ui: &mut Ui) -> Result<(), Fail> {
    let (old, new) = (open(&args.old)?, open(&args.new)?);
    let diff = Diff::new(&old, &new).map_err(|e| Fail::Error(e.to_string()))?;
    let changes = &diff.changes;
    let summary = Summary {
        old: Totals::of(&old).total,
        new: Totals::of(&new).total,
        changed: changes.len(),
        newly_run: changes.iter().filter(|c| c.is_new()).count(),
        no_longer_run: changes.iter().filter(|c| c.is_gone()).count(),
        gained: changes.iter().map(|c| c.gained.len()).sum(),
        lost: changes.iter().map(|c| c.lost.len()).sum(),
        only_old: diff.only_old,
        only_new: diff.only_new,
    };
    if args.json {
        json::line(ui.out, HEAD, &new.head)?;
        for change in changes {
            let line = ChangeLine {
                function: change.function(),
                change: word(change),
                old: change.old.map(|f| Share::of(&f.blocks)),
                new: change.new.map(|f| Share::of(&f.blocks)),
                gained: ranges(change, &change.gained),
                lost: ranges(change, &change.lost),
                gained_edges: change.gained_edges,
                lost_edges: change.lost_edges,
            };
            json::line(ui.out, "kerninst.cover-diff/1", &line)?;
        }
        return json::line(ui.out, "kerninst.cover-diff-summary/1", &summary);
    }
    table(changes, ui)?;
    totals(&summary, ui)
}

/// What became of the function.
fn word(change: &Change) -> &'static str {
    match (change.is_new(), change.is_gone()) {
        (true, _) => "newly run",
        (_, true) => "no longer run",
        _ => "changed",
    }
}

/// Where these blocks lie: bytes from the entry.
fn ranges(change: &Change, blocks: &[usize]) -> Vec<(i64, i64)> {
    let Some(function) = change.new.or(change.old) else {
        return Vec::new();
    };
    let range = |b: &usize| Some((*function.starts.get(*b)?, *function.ends.get(*b)?));
    blocks.iter().filter_map(range).collect()
}

/// Names so many places.
const PLACES: usize = 6;

/// `+0xc +0x18`.
fn places(change: &Change, blocks: &[usize]) -> String {
    let starts = ranges(change, blocks);
    let named = starts.iter().take(PLACES);
    let mut text: Vec<String> = named.map(|(start, _)| uncovered::offset(*start)).collect();
    if starts.len() > PLACES {
        text.push("…".into());
    }
    text.join(" ")
}

fn table(changes: &[Change], ui: &mut Ui) -> Result<(), Fail> {
    let mut table = Table::new(&[
        ("OLD", Align::Right),
        ("NEW", Align::Right),
        ("BLOCKS", Align::Left),
        ("EDGES", Align::Left),
        ("FUNCTION", Align::Left),
        ("WHERE", Align::Left),
    ]);
    let share = |f: Option<&FunctionProfile>| match f {
        Some(f) => Share::of(&f.blocks).text(),
        None => "-".into(),
    };
    for change in changes {
        let style = match change.lost.is_empty() {
            true => Style::Good,
            false => Style::Bad,
        };
        let mut text = [("now", &change.gained), ("not now", &change.lost)]
            .into_iter()
            .filter(|(_, blocks)| !blocks.is_empty())
            .map(|(word, blocks)| format!("{word}: {}", places(change, blocks)))
            .collect::<Vec<_>>()
            .join("; ");
        if change.is_new() || change.is_gone() {
            text = word(change).into();
        }
        table.row(vec![
            (share(change.old), Style::Plain),
            (share(change.new), Style::Plain),
            (signed(change.gained.len(), change.lost.len()), style),
            (signed(change.gained_edges, change.lost_edges), Style::Dim),
            (change.function().to_string(), Style::Label),
            (text, Style::Dim),
        ]);
    }
    table.write(ui.out, ui.paint)?;
    Ok(())
}

/// `+3 -1`.
fn signed(gained: usize, lost: usize) -> String {
    let part = |sign: char, n: usize| (n > 0).then(|| format!("{sign}{n}"));
    let parts = [part('+', gained), part('-', lost)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn totals(s: &Summary, ui: &mut Ui) -> Result<(), Fail> {
    let figures = |f: &Figures| format!("{} ({})", f.blocks.text(), f.blocks.percent());
    writeln!(ui.out, "blocks: {} -> {}", figures(&s.old), figures(&s.new))?;
    writeln!(
        ui.out,
        "{} newly run, {} no longer; {} newly run, {} no longer",
        short::number(s.gained, "block"),
        s.lost,
        short::number(s.newly_run, "function"),
        s.no_longer_run,
    )?;
    for (n, which) in [(s.only_old, "old"), (s.only_new, "new")] {
        if n > 0 {
            let functions = short::number(n, "function");
            writeln!(ui.out, "{functions} only in the {which} profile")?;
        }
    }
    ui.flush()?;
    Ok(())
}
