//! A remark on tasks that were in original code when versions were armed.

use crate::short;
use kerninst::OldBodies;

/// Most functions that are told by name.
const TOLD: usize = 5;

/// `None`: nobody was.
pub fn remark(old: &OldBodies) -> Option<String> {
    if old.began.is_empty() {
        return None;
    }
    let mut text = format!(
        "tasks that slept in these functions before counting began finish there uncounted: {}",
        list(&old.began)
    );
    if !old.still.is_empty() {
        text.push_str(&format!("; not left to the end: {}", list(&old.still)));
    }
    Some(text)
}

fn list(rows: &[(String, usize)]) -> String {
    let told = rows.iter().take(TOLD);
    let mut all: Vec<String> = told.map(|(f, n)| format!("{f} ({n})")).collect();
    if let Some(more) = rows.len().checked_sub(TOLD).filter(|n| *n > 0) {
        all.push(short::number(more, "more function"));
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::remark;
    use kerninst::OldBodies;

    /// Would catch a remark where there is nothing to tell, or one that names hundreds.
    #[test]
    fn remarks() {
        assert_eq!(remark(&OldBodies::default()), None);
        let row = |n: usize| (format!("f{n}"), 9 - n);
        let old = OldBodies {
            began: (0..7).map(row).collect(),
            still: vec![row(1)],
        };
        assert_eq!(
            remark(&old).as_deref(),
            Some(
                "tasks that slept in these functions before counting began finish there uncounted: f0 (9), f1 (8), f2 (7), \
                 f3 (6), f4 (5), 2 more functions; not left to the end: f1 (8)"
            )
        );
    }
}
