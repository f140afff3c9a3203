//! What every verb that arms says of points that were not armed, and of how disarming ended.

use kerninst::{DisarmReport, Session, SessionError};

use crate::count::refusal_texts;
use crate::ui::Ui;

/// Most lines that are told one by one.
const TOLD: usize = 10;

/// The points that a session could not arm, and why.
pub fn refusals(session: &Session) -> Vec<String> {
    let mut lines = refusal_texts(session.refused());
    lines.extend(session.conflicts().iter().map(ToString::to_string));
    lines
}

/// Tells the first of these lines, each after `what`; `all` is the option that lists them all.
pub fn tell(lines: &[String], what: &str, all: &str, ui: &mut Ui) {
    for line in lines.iter().take(TOLD) {
        ui.warn(&format!("{what}: {line}"));
    }
    if let Some(more) = lines.len().checked_sub(TOLD).filter(|n| *n > 0) {
        ui.warn(&format!("and {more} more of this kind; {all} lists them"));
    }
}

/// Disarming failed.
pub fn failure(e: &SessionError) -> String {
    format!("disarming did not end well: {e}; `kerninst status` shows what is left")
}

/// Says so if patches cannot be freed yet.
pub fn tell_waiting(report: &DisarmReport, ui: &mut Ui) {
    if let Some(why) = &report.waiting {
        ui.note(&format!(
            "disarmed; patches that are still in use wait to be freed ({why}): `kerninst reset` frees them later"
        ));
    }
}
