//! Which functions are counted, and where their counters go.

use std::sync::Arc;

use kerninst::Records;
use kerninst_analysis::{Analysis, Function, FunctionId};
use kerninst_patch::{Refusal, Spot};
use kerninst_profile::file::ProfileFile;
use kerninst_profile::{Flow, Marks, Placement, Profile, Weights, WrongCounts, solve};
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::jumps_now;
use super::left_out::LeftOut;
use super::report::Report;
use crate::show::point_name;

/// A function with its counters.
pub struct Target {
    /// The function.
    pub function: Arc<Function>,
    /// Its flow graph.
    pub flow: Flow,
    /// How often edges are expected to be taken.
    pub weights: Weights,
    /// Its counters.
    pub placement: Placement,
    /// Spots that cannot have a counter, and why.
    pub refused: FxHashMap<Spot, String>,
    everywhere: bool,
    /// What records that something ran at all, instead of counters.
    marks: Option<Marks>,
}

impl Target {
    /// For this function; with `measured` weights if there are some for this very code.
    pub fn new(
        analysis: &Analysis,
        function: Arc<Function>,
        measured: Option<&ProfileFile>,
        everywhere: bool,
    ) -> Target {
        let flow = Flow::new(&function);
        let known = measured
            .and_then(|file| file.functions.get(&function.id))
            .and_then(|p| p.profile(&function, &flow).ok());
        let weights = match known {
            Some(profile) => Weights::measured(&flow, &profile.edges),
            None => Weights::estimate(&function, &flow, |a| jumps_now(analysis.kernel(), a)),
        };
        let mut target = Target {
            placement: Placement::default(),
            function,
            flow,
            weights,
            refused: FxHashMap::default(),
            everywhere,
            marks: None,
        };
        target.place();
        target
    }

    /// The same, which records only what ran at all.
    pub fn once(mut self) -> Target {
        self.marks = Some(marks(&self.function, &self.flow, |_| true));
        self
    }

    /// What its points record.
    pub fn records(&self) -> Records {
        match self.marks {
            Some(_) => Records::Hits,
            None => Records::Counts,
        }
    }

    fn place(&mut self) {
        let can = |spot: Spot| !self.refused.contains_key(&spot);
        if self.marks.is_some() {
            self.marks = Some(marks(&self.function, &self.flow, can));
            return;
        }
        self.placement = match self.everywhere {
            true => Placement::everywhere(&self.flow, &self.weights, can),
            false => Placement::without(&self.flow, &self.weights, can),
        };
    }

    /// The spots of its counters, or marks.
    pub fn spots(&self) -> impl Iterator<Item = Spot> {
        let counters = self.placement.counters().iter().map(|c| c.spot);
        let marks = self.marks.iter().flat_map(Marks::spots);
        counters.filter(|_| self.marks.is_none()).chain(marks)
    }

    /// These spots cannot have a counter: puts counters elsewhere. Was there anything new?
    pub fn refuse(&mut self, refused: impl IntoIterator<Item = (Spot, String)>) -> bool {
        let before = self.refused.len();
        self.refused.extend(refused);
        if self.refused.len() == before {
            return false;
        }
        self.place();
        true
    }

    /// Only these spots have a counter: works with what they tell. `why` says it of each other spot.
    pub fn restrict(&mut self, armed: &FxHashSet<Spot>, why: impl Fn(Spot) -> String) {
        let spots = self.flow.edges().iter().filter_map(|e| e.spot);
        let others: Vec<Spot> = spots.filter(|s| !armed.contains(s)).collect();
        self.refuse(others.into_iter().map(|s| (s, why(s))));
    }

    /// Sentences about counters that are needed and cannot be.
    pub fn missing(&self, analysis: &Analysis) -> Vec<String> {
        // What marks do not tell is said as not known.
        let missing = self.placement.missing();
        let edges = missing.iter().filter(|_| self.marks.is_none());
        let text = |n: &u32| {
            let edge = self.flow.edges().get(*n as usize)?;
            let place = format!("edge {} -> {}", edge.from, edge.to);
            Some(match edge.spot {
                None => format!("{place}: nothing can be inserted there that runs only then"),
                Some(spot) => {
                    let why = self.refused.get(&spot).map_or("", String::as_str);
                    let at = point_name(analysis.kernel(), &self.function, spot.addr());
                    format!("{place}, at {at}: {why}")
                }
            })
        };
        edges.filter_map(text).collect()
    }

    /// The result, from what the counters say.
    ///
    /// # Errors
    /// [`WrongCounts`]: they are not those of this target.
    pub fn report(
        self,
        analysis: &Analysis,
        count: impl Fn(Spot) -> u64,
        in_flight: &[(u32, u64)],
    ) -> Result<Report, WrongCounts> {
        if let Some(marks) = &self.marks {
            let profile = marks.profile(&self.flow, |spot| count(spot) > 0);
            return Ok(self.with(analysis, profile));
        }
        let counts: Vec<u64> = self.spots().map(count).collect();
        let profile = solve(&self.flow, &self.placement, &counts, in_flight)?;
        Ok(self.with(analysis, profile))
    }

    /// The result, from a profile that is known already.
    pub fn with(self, analysis: &Analysis, profile: Profile) -> Report {
        Report {
            missing: self.missing(analysis),
            counters: self.spots().count(),
            function: self.function,
            flow: self.flow,
            profile,
        }
    }
}

fn marks(function: &Function, flow: &Flow, can: impl Fn(Spot) -> bool) -> Marks {
    let starts: Vec<u64> = function.blocks.iter().map(|b| b.start).collect();
    Marks::new(flow, &starts, can)
}

/// The functions that can be counted; and those that cannot.
pub fn targets(
    analysis: &Analysis,
    chosen: &[&FunctionId],
    measured: Option<&ProfileFile>,
    everywhere: bool,
) -> (Vec<Target>, Vec<LeftOut>) {
    let target = |id: &&FunctionId| {
        // Which does not need to be analysed.
        if let Some(why) = analysis.kernel().off_limits().at(id.start) {
            return Err(LeftOut::refused(&id.id, &Refusal::OffLimits(why)));
        }
        let Some(function) = analysis.function_at(id.start) else {
            let why = "its bytes are not known";
            return Err(LeftOut::because(&id.id, "no-function", why));
        };
        let off_limits = analysis.kernel().off_limits().at(function.entry());
        let incomplete = function.incomplete.first().cloned();
        let why = off_limits
            .map(Refusal::OffLimits)
            .or(incomplete.map(Refusal::Incomplete));
        match why {
            Some(why) => Err(LeftOut::refused(&id.id, &why)),
            None => Ok(Target::new(analysis, function, measured, everywhere)),
        }
    };
    let all: Vec<Result<Target, LeftOut>> = chosen.par_iter().map(target).collect();
    let (mut targets, mut left_out) = (Vec::new(), Vec::new());
    for one in all {
        match one {
            Ok(target) => targets.push(target),
            Err(why) => left_out.push(why),
        }
    }
    (targets, left_out)
}
