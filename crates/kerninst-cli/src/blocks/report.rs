//! What was counted, ready for every form of output.

use std::sync::Arc;

use kerninst_analysis::{Analysis, Function};
use kerninst_profile::{Flow, Profile};

use crate::args::Syntax;
use crate::show::build;
use crate::show::model::{Counted, View};

/// The counts of one function.
pub struct Report {
    /// The function.
    pub function: Arc<Function>,
    /// Its flow graph.
    pub flow: Flow,
    /// Its counts.
    pub profile: Profile,
    /// Number of counters.
    pub counters: usize,
    /// Counters that could not be put in, in sentences.
    pub missing: Vec<String>,
}

impl Report {
    /// Are all counts known and all checks passed?
    pub fn is_exact(&self) -> bool {
        self.profile.is_exact()
    }

    /// The function with its counts, ready to be shown.
    pub fn view(&self, analysis: &Analysis, syntax: Syntax) -> View {
        let mut view = build::plain(analysis, &self.function, syntax);
        for (block, count) in view.blocks.iter_mut().zip(&self.profile.blocks) {
            block.count = *count;
        }
        for (block, inside) in view.blocks.iter_mut().zip(&self.profile.inside) {
            block.inside = *inside;
        }
        for (edge, count) in view.edges.iter_mut().zip(&self.profile.edges) {
            edge.count = *count;
        }
        view.profile = Some(Counted {
            entered: self.profile.entered,
            left: self.profile.left,
            in_flight: self.profile.in_flight,
            counters: self.counters,
            exact: self.is_exact(),
            violations: self.violations(),
            missing: self.missing.clone(),
        });
        view
    }

    /// What does not add up, in sentences.
    pub fn violations(&self) -> Vec<String> {
        let all = self.profile.violations.iter();
        all.map(ToString::to_string).collect()
    }
}

/// A count, or `?` where it is not known.
pub fn count(count: Option<u64>) -> String {
    count.map_or_else(|| "?".into(), crate::svg::thousands)
}

/// `12.3%` of the whole; nothing where that says nothing.
pub fn share(part: Option<u64>, whole: Option<u64>) -> String {
    match (part, whole) {
        (Some(p), Some(w)) if p > 0 && w > 0 => {
            let percent = p as f64 * 100.0 / w as f64;
            match percent {
                n if n >= 1000.0 => format!("{:.0}x", n / 100.0),
                n if n > 100.0 => format!("{:.1}x", n / 100.0),
                n if n < 0.05 => "<0.1%".into(),
                n => format!("{n:.1}%"),
            }
        }
        _ => String::new(),
    }
}
