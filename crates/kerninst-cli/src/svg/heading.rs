//! What stands above the picture.

use std::io::{self, Write};

use super::{escape, thousands};
use crate::show::model::{Counted, View};

/// Violations and missing counters that are told; the others are in the text forms.
const TOLD: usize = 8;

/// Room that it needs.
pub fn height(view: &View) -> f64 {
    90.0 + 16.0 * problems(view).len() as f64
}

/// Writes it. `kernel` is its kernel's name.
pub fn write(view: &View, kernel: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        r#"<text class="title" x="24" y="26">{}</text>"#,
        escape(&view.id)
    )?;
    let module = view.module.as_deref();
    let module = module.map_or(String::new(), |m| format!("module {m}, "));
    let flow = match view.complete {
        true => "control flow complete",
        false => "control flow NOT complete",
    };
    let second = match (&view.profile, &view.refused) {
        (Some(counted), _) => counts(view, counted),
        (None, Some(r)) => format!("no instruction can be instrumented ({})", r.text),
        (None, None) => format!(
            "{} of {} instructions can be instrumented",
            view.points, view.instructions
        ),
    };
    let first = format!("{module}{kernel}; {} blocks; {flow}", view.blocks.len());
    for (y, line) in [44, 60].iter().zip([first, second]) {
        text(out, "sub", 24.0, f64::from(*y), &line)?;
    }
    let problems = problems(view);
    let mut y = 76.0;
    for problem in &problems {
        text(out, "sub lost", 24.0, y, problem)?;
        y += 16.0;
    }
    legend(view, y - 2.0, out)
}

fn text(out: &mut dyn Write, class: &str, x: f64, y: f64, line: &str) -> io::Result<()> {
    writeln!(
        out,
        r#"<text class="{class}" x="{x:.0}" y="{y:.0}">{}</text>"#,
        escape(line)
    )
}

fn counts(view: &View, c: &Counted) -> String {
    let number = |n: Option<u64>| n.map_or_else(|| "?".into(), thousands);
    let ran = view
        .blocks
        .iter()
        .filter(|b| b.count.is_some_and(|n| n > 0));
    format!(
        "entered {}, left {}, {} inside; {} of {} blocks ran; {} counters; exact: {}",
        number(c.entered),
        number(c.left),
        c.in_flight,
        ran.count(),
        view.blocks.len(),
        c.counters,
        if c.exact { "yes" } else { "NO" }
    )
}

/// What does not add up or is not counted.
fn problems(view: &View) -> Vec<String> {
    let Some(c) = &view.profile else {
        return Vec::new();
    };
    let violations = c.violations.iter();
    let all = violations.map(|v| format!("does not add up: {v}"));
    let missing = c.missing.iter().map(|m| format!("no counter: {m}"));
    let mut all: Vec<String> = all.chain(missing).collect();
    if all.len() > TOLD {
        let more = all.len() - TOLD;
        all.truncate(TOLD);
        all.push(format!("and {more} more"));
    }
    all
}

fn legend(view: &View, y: f64, out: &mut dyn Write) -> io::Result<()> {
    let mut x = 24.0;
    let lines = [
        ("fall", "goes on"),
        ("taken", "branch taken"),
        ("jump", "jump"),
        ("key", "static key"),
        ("fixup", "fault"),
        ("loops", "closes a loop"),
    ];
    for (class, name) in lines {
        writeln!(out, r#"<path class="e {class}" d="M{x:.0} {y:.0}h26"/>"#)?;
        text(out, "sub label", x + 32.0, y + 4.0, name)?;
        x += 48.0 + name.len() as f64 * 6.1;
    }
    if view.profile.is_some() {
        return Ok(());
    }
    let dots = [
        ("ok", "jump fits"),
        ("trap", "int3 only"),
        ("no", "refused"),
    ];
    for (class, name) in dots {
        writeln!(
            out,
            r#"<circle class="{class}" cx="{x:.0}" cy="{y:.0}" r="3"/>"#
        )?;
        text(out, "sub label", x + 8.0, y + 4.0, name)?;
        x += 24.0 + name.len() as f64 * 6.1;
    }
    Ok(())
}
