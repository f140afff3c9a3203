//! How much ran.

use std::collections::BTreeMap;

use kerninst_profile::file::{FunctionProfile, ProfileFile};
use serde::Serialize;

/// So many of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// All.
    pub all: u64,
    /// Those that ran.
    pub hit: u64,
    /// Those of which it is not known.
    pub unknown: u64,
}

impl Share {
    /// Of these counts.
    pub fn of(counts: &[Option<u64>]) -> Share {
        let number = |what: fn(&Option<u64>) -> bool| {
            let fits = counts.iter().filter(|c| what(c));
            fits.count() as u64
        };
        Share {
            all: counts.len() as u64,
            hit: number(|c| c.is_some_and(|n| n > 0)),
            unknown: number(Option::is_none),
        }
    }

    fn add(&mut self, other: Share) {
        self.all += other.all;
        self.hit += other.hit;
        self.unknown += other.unknown;
    }

    /// `3/7`.
    pub fn text(&self) -> String {
        use crate::svg::thousands;
        format!("{}/{}", thousands(self.hit), thousands(self.all))
    }

    /// `42.9%`; never 100.0% unless all ran, never 0.0% if one did.
    pub fn percent(&self) -> String {
        if self.all == 0 {
            return String::new();
        }
        let tenths = (self.hit as u128 * 1000 / u128::from(self.all)) as u64;
        let tenths = if self.hit > 0 { tenths.max(1) } else { 0 };
        format!("{}.{}%", tenths / 10, tenths % 10)
    }

    /// Orders by the share that ran.
    pub fn compare(&self, other: &Share) -> std::cmp::Ordering {
        let cross = |a: &Share, b: &Share| u128::from(a.hit) * u128::from(b.all.max(1));
        cross(self, other).cmp(&cross(other, self))
    }
}

/// The figures of a function, a module or all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Functions.
    pub functions: Share,
    /// Blocks.
    pub blocks: Share,
    /// Edges: the ways between blocks and out.
    pub edges: Share,
    /// Functions of which a count is not known or does not add up.
    pub inexact: u64,
}

impl Figures {
    /// Of one function.
    pub fn of(function: &FunctionProfile) -> Figures {
        Figures {
            functions: Share::of(&[function.entered]),
            blocks: Share::of(&function.blocks),
            edges: Share::of(function.own_edges()),
            inexact: u64::from(!function.is_exact()),
        }
    }

    fn add(&mut self, other: Figures) {
        self.functions.add(other.functions);
        self.blocks.add(other.blocks);
        self.edges.add(other.edges);
        self.inexact += other.inexact;
    }
}

/// The figures of a whole profile.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Of each module; `kernel` is the core kernel.
    pub modules: BTreeMap<String, Figures>,
    /// Of all.
    pub total: Figures,
}

impl Totals {
    /// Of this profile.
    pub fn of(profile: &ProfileFile) -> Totals {
        let mut totals = Totals::default();
        for function in profile.functions.values() {
            let module = function.module().unwrap_or("kernel");
            let figures = Figures::of(function);
            let of_module = totals.modules.entry(module.to_string()).or_default();
            of_module.add(figures);
            totals.total.add(figures);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::Share;

    /// Would catch a rounding that says "all" or "nothing" where that is not so.
    #[test]
    fn percentages_do_not_flatter() {
        let text = |hit, all| {
            let share = Share {
                all,
                hit,
                unknown: 0,
            };
            share.percent()
        };
        assert_eq!(text(0, 0), "");
        assert_eq!(text(0, 7), "0.0%");
        assert_eq!(text(1, 1_000_000), "0.1%");
        assert_eq!(text(999_999, 1_000_000), "99.9%");
        assert_eq!(text(7, 7), "100.0%");
        assert_eq!(text(u64::MAX, u64::MAX), "100.0%");
    }
}
