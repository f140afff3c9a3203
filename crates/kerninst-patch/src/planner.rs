//! From points to splices.

use std::collections::BTreeMap;

use kerninst_analysis::{Analysis, Function, Sites};
use kerninst_kernel::Kernel;
use kerninst_snippet::{Features, Snippet};

use crate::choose::{Chosen, Hosted};
use crate::facts::{Facts, Kept};
use crate::place::{Place, Side};
use crate::{Boards, PlannedPoint, Refusal, Refused, Splice, Spot, Tactic, Tactics, emit};

/// A point and what to do there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where the snippets run.
    pub at: Spot,
    /// What runs, in order.
    pub snippets: Vec<Snippet>,
}

/// What a plan may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Tactics that may be used.
    pub tactics: Tactics,
    /// Most instructions between the site of a hoist and the point, and between two points that one patch serves.
    pub distance: usize,
    /// Most original instructions in one patch.
    pub longest: usize,
    /// Let one splice serve several points where that is possible. Without it only points whose bytes a splice had to
    /// displace share it.
    pub merge: bool,
    /// What the processor offers.
    pub features: Features,
}

impl Default for Options {
    /// All tactics; distance 8 (98 % of all hoists need no more); 64 instructions; merging; a base x86-64 processor.
    fn default() -> Options {
        Options {
            tactics: Tactics::all(),
            distance: 8,
            longest: 64,
            merge: true,
            features: Features::default(),
        }
    }
}

/// What became of the points: each is served by one splice (or, [`Tactic::Edges`], by one on each way that leads to it) or
/// refused once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// By address of their sites.
    pub splices: Vec<Splice>,
    /// By spot.
    pub refused: Vec<Refused>,
}

impl Plan {
    /// The splice that serves the point `at`.
    pub fn splice_of(&self, at: Spot) -> Option<&Splice> {
        self.splices
            .iter()
            .find(|s| s.points.iter().any(|p| p.at == at))
    }
}

/// What one instruction would get as the only point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surveyed {
    /// Its tactic.
    pub tactic: Tactic,
    /// Instructions executed beyond the original ones: jumps, snippets, what relocation adds. The trap of
    /// [`Tactic::Int3`] is not in it.
    pub cost: u32,
}

/// What is wanted, by place.
pub(crate) type Places = BTreeMap<Place, Vec<Hosted>>;

/// Decisions for all places of a function.
#[derive(Default)]
pub(crate) struct Pass {
    pub chosen: Vec<Chosen>,
    pub refused: Vec<(Spot, Refusal)>,
}

/// Plans splices over one analysed kernel.
pub struct Planner<'a, 'k> {
    analysis: &'a Analysis<'k>,
    options: Options,
}

impl<'a, 'k> Planner<'a, 'k> {
    /// A planner with these options.
    pub fn new(analysis: &'a Analysis<'k>, options: Options) -> Planner<'a, 'k> {
        Planner { analysis, options }
    }

    pub(crate) fn kernel(&self) -> &'k Kernel {
        self.analysis.kernel()
    }

    pub(crate) fn analysis(&self) -> &'a Analysis<'k> {
        self.analysis
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Plans points anywhere. All points of a function that are armed at the same time must be in one call: a splice
    /// runs copies of instructions near its point, and must know which of them are points too.
    pub fn plan(&self, requests: &[Request], boards: &mut Boards) -> Plan {
        let mut plan = Plan::default();
        let mut functions: BTreeMap<u64, (std::sync::Arc<Function>, Vec<Request>)> =
            BTreeMap::new();
        for r in requests {
            match self.analysis.function_at(r.at.addr()) {
                Some(f) => functions
                    .entry(f.entry())
                    .or_insert_with(|| (f, Vec::new()))
                    .1
                    .push(r.clone()),
                None => plan.refused.push(self.no_function(r.at, boards)),
            }
        }
        plan.refused.sort_by_key(|r| r.at);
        plan.refused.dedup_by_key(|r| r.at);
        for (f, points) in functions.into_values() {
            let part = self.plan_function(&f, &points, boards);
            plan.splices.extend(part.splices);
            plan.refused.extend(part.refused);
        }
        plan.splices.sort_by_key(|s| s.site);
        plan.refused.sort_by_key(|r| r.at);
        plan
    }

    fn no_function(&self, at: Spot, boards: &Boards) -> Refused {
        let addr = at.addr();
        let kernel = self.kernel();
        if let Some(o) = kernel.off_limits().at(addr) {
            return Refused {
                at,
                why: Refusal::OffLimits(o),
                nearest: None,
            };
        }
        if kernel.text_at(addr).is_none() {
            return Refused {
                at,
                why: Refusal::NoFunction { addr },
                nearest: None,
            };
        }
        // Text that no function reaches: padding, or dead code.
        let symbol = kernel.symbols().containing(addr);
        let nearest = symbol.and_then(|(s, _)| {
            let f = self.analysis.function_at(s.addr)?;
            self.nearest(&Facts::new(kernel, &f), addr, boards)
        });
        Refused {
            at,
            why: Refusal::Unreached { addr },
            nearest,
        }
    }

    /// Plans all points of one function (see [`Planner::plan`]). Several requests for one spot are joined in order.
    pub fn plan_function(
        &self,
        function: &Function,
        requests: &[Request],
        boards: &mut Boards,
    ) -> Plan {
        let mut wanted: BTreeMap<Spot, Vec<Snippet>> = BTreeMap::new();
        for r in requests {
            wanted
                .entry(r.at)
                .or_default()
                .extend(r.snippets.iter().cloned());
        }
        let mut facts = Facts::new(self.kernel(), function);
        facts.kept = Kept::of(wanted.values().flatten());
        let mut plan = Plan::default();
        // Spots that are the same place share it: one splice serves them all.
        let mut places = Places::new();
        for (at, snippets) in wanted {
            match self.place(&facts, at) {
                Ok(place) => places.entry(place).or_default().push(Hosted {
                    place,
                    at,
                    snippets,
                    one_of: false,
                }),
                Err(why) => plan.refused.push(self.refuse(&facts, at, why, boards)),
            }
        }
        let pass = self.pass_or_split(&facts, places, boards);
        for c in pass.chosen {
            plan.splices.push(self.splice(&facts, c));
        }
        for (at, why) in pass.refused {
            plan.refused.push(self.refuse(&facts, at, why, boards));
        }
        plan.refused.sort_by_key(|r| r.at);
        plan
    }

    /// Chooses for all places, in order.
    pub(crate) fn pass(&self, facts: &Facts, places: &Places, boards: &mut Boards) -> Pass {
        // Only what concerns this function: a batch may own hundreds of thousands of bytes elsewhere.
        let taken_before = boards.clone_in(&facts.function.ranges);
        let mut pass = Pass::default();
        let mut open: Option<Chosen> = None;
        for (place, hosted) in places {
            if let Some(c) = &mut open
                && self.extend(facts, c, *place, &taken_before)
            {
                c.points.extend(hosted.iter().cloned());
                continue;
            }
            // Everything before this index is run, or was overwritten, by what is open.
            let floor = open.as_ref().map_or(0, |c| c.end);
            match self.choose(facts, *place, floor, boards) {
                Ok(trap)
                    if trap.tactic == Tactic::Int3
                        && let Some(c) = &mut open
                        && self.extend_past_calls(facts, c, *place, &taken_before) =>
                {
                    trap.give_back(boards);
                    c.points.extend(hosted.iter().cloned());
                }
                Ok(mut c) => {
                    c.points.extend(hosted.iter().cloned());
                    pass.chosen.extend(open.replace(c));
                }
                Err(why) => {
                    let refused = hosted.iter().map(|h| (h.at, why.clone()));
                    pass.refused.extend(refused);
                }
            }
        }
        pass.chosen.extend(open);
        pass
    }

    /// For each instruction of the function the tactic that it would get as the only point, or the reason why not.
    /// What `boards` holds is respected and not changed.
    pub fn survey(&self, function: &Function, boards: &Boards) -> Vec<Result<Tactic, Refusal>> {
        self.each_alone(function, boards, &[], |_, pass| pass.tactic())
    }

    /// As [`Planner::survey`], with the instructions that one execution of `snippets` there costs.
    pub fn survey_costs(
        &self,
        function: &Function,
        boards: &Boards,
        snippets: &[Snippet],
    ) -> Vec<Result<Surveyed, Refusal>> {
        self.each_alone(function, boards, snippets, |facts, pass| {
            let cost = |c: &Chosen| {
                let built = emit::patch(facts, c, self.options.features);
                // Of several ways only one is taken.
                let most = built.snippets.iter().map(|s| s.cost).max();
                most.unwrap_or(0) + c.tactic.jumps_in() + built.extra
            };
            Surveyed {
                tactic: pass.tactic(),
                cost: pass.chosen.iter().map(cost).max().unwrap_or(0),
            }
        })
    }

    fn each_alone<T>(
        &self,
        function: &Function,
        boards: &Boards,
        snippets: &[Snippet],
        mut see: impl FnMut(&Facts, &Pass) -> T,
    ) -> Vec<Result<T, Refusal>> {
        let mut facts = Facts::new(self.kernel(), function);
        facts.kept = Kept::of(snippets);
        let mut scratch = boards.clone_around(&facts.function.ranges);
        let mut out = Vec::with_capacity(function.insns.len());
        for insn in &function.insns {
            let result = self.index_of(&facts, insn.addr).and_then(|index| {
                let place = Place::before(index);
                let hosted = Hosted {
                    place,
                    at: Spot::Before(insn.addr),
                    snippets: snippets.to_vec(),
                    one_of: false,
                };
                let wanted = Places::from([(place, vec![hosted])]);
                let pass = self.pass_or_split(&facts, wanted, &mut scratch);
                pass.chosen.iter().for_each(|c| c.give_back(&mut scratch));
                match pass.refused.first() {
                    Some((_, why)) => Err(why.clone()),
                    None => Ok(see(&facts, &pass)),
                }
            });
            out.push(result);
        }
        out
    }

    /// The instruction at `addr`, if a snippet may run before it at all.
    pub(crate) fn index_of(&self, facts: &Facts, addr: u64) -> Result<usize, Refusal> {
        let f = facts.function;
        if let Some(o) = self.kernel().off_limits().at(addr) {
            return Err(Refusal::OffLimits(o));
        }
        if let Some(why) = f.incomplete.first() {
            return Err(Refusal::Incomplete(why.clone()));
        }
        let Some(index) = f.index_at(addr) else {
            return Err(match f.insn_containing(addr) {
                Some(i) => {
                    let before = f.insns.partition_point(|x| x.addr < i.addr).checked_sub(1);
                    let prev = before.and_then(|b| f.insns.get(b)).map(|p| p.addr);
                    Refusal::NotAnInstruction {
                        addr,
                        inside: i.addr,
                        prev,
                        next: i.end(),
                    }
                }
                None if f.contains(addr) => Refusal::Unreached { addr },
                None => Refusal::NoFunction { addr },
            });
        };
        let (Some(insn), Some(fact)) = (facts.insn(index), facts.fact(index)) else {
            return Err(Refusal::NoFunction { addr });
        };
        if let Some(o) = fact.off_limits {
            return Err(Refusal::OffLimits(o));
        }
        if insn.sites.contains(Sites::FENTRY) {
            return Err(Refusal::Fentry { next: insn.end() });
        }
        if let Some(odd) = facts.no_snippet.or(fact.no_snippet) {
            return Err(Refusal::Unsafe(odd));
        }
        Ok(index)
    }

    fn refuse(&self, facts: &Facts, at: Spot, why: Refusal, boards: &Boards) -> Refused {
        Refused {
            at,
            why,
            nearest: self.nearest(facts, at.addr(), boards),
        }
    }

    /// The nearest instruction of the function for which some tactic works.
    fn nearest(&self, facts: &Facts, addr: u64, boards: &Boards) -> Option<u64> {
        // Beyond this many candidates "nearest" helps nobody.
        const CANDIDATES: usize = 64;
        let insns = &facts.function.insns;
        let at = insns.partition_point(|i| i.addr < addr);
        let window = at.saturating_sub(CANDIDATES)..insns.len().min(at.saturating_add(CANDIDATES));
        let mut near: Vec<u64> = insns
            .get(window)?
            .iter()
            .map(|i| i.addr)
            .filter(|a| *a != addr)
            .collect();
        near.sort_by_key(|a| (a.abs_diff(addr), *a));
        let mut scratch = boards.clone_around(&facts.function.ranges);
        near.into_iter().find(|a| {
            let chosen = self
                .index_of(facts, *a)
                .and_then(|i| self.choose(facts, Place::before(i), 0, &mut scratch));
            if let Ok(c) = &chosen {
                c.give_back(&mut scratch);
            }
            chosen.is_ok()
        })
    }

    /// Makes `c` serve `place` too, if it runs up to there in a straight line.
    fn extend(&self, facts: &Facts, c: &mut Chosen, place: Place, boards: &Boards) -> bool {
        let index = place.index;
        if index < c.end {
            let inside = index >= c.start;
            c.returns |= inside && facts.comes_back(place);
            return inside;
        }
        let near =
            index - c.end <= self.options.distance && place.end() - c.start <= self.options.longest;
        let linked = |i: usize| facts.linked(i, boards);
        let runs = place.side == Side::Before || facts.movable(index, boards);
        if self.options.merge && near && runs && (c.end..=index).all(linked) {
            c.end = place.end();
            c.returns |= facts.comes_back(place);
            return true;
        }
        false
    }

    /// As [`Planner::extend`], also where calls come back on the way: dearer than anything but a trap.
    fn extend_past_calls(
        &self,
        facts: &Facts,
        c: &mut Chosen,
        place: Place,
        boards: &Boards,
    ) -> bool {
        let index = place.index;
        let allowed = self.options.merge && self.options.tactics.has(Tactic::AfterCall);
        if !allowed || place.side != Side::Before || c.tactic == Tactic::Int3 || index < c.end {
            return false;
        }
        let near =
            index - c.end <= self.options.distance && index - c.start <= self.options.longest;
        let comes = |i: usize| facts.linked(i, boards) || facts.returns_into(i, boards);
        if near && (c.end..=index).all(comes) {
            c.returns |= (c.end..=index).any(|i| facts.returns_into(i, boards));
            c.end = index;
            return true;
        }
        false
    }

    fn splice(&self, facts: &Facts, c: Chosen) -> Splice {
        let site = facts.insn(c.start).map_or(0, |i| i.addr);
        let built = emit::patch(facts, &c, self.options.features);
        let points =
            c.points
                .iter()
                .zip(&built.snippets)
                .enumerate()
                .map(|(n, (hosted, snippet))| {
                    let index = hosted.place.index;
                    let tactic = match n {
                        _ if hosted.one_of => Tactic::Edges,
                        0 => c.reached,
                        _ if hosted.place == c.place => c.reached,
                        _ if index < c.displaced_end => c.tactic,
                        _ => c.hoist_kind(facts, index),
                    };
                    PlannedPoint {
                        at: hosted.at,
                        tactic,
                        snippet_cost: snippet.cost,
                        copy: snippet.end,
                    }
                });
        let points = points.collect();
        let bytes = usize::try_from(c.site.end.saturating_sub(c.site.start)).unwrap_or(0);
        let old = self
            .kernel()
            .bytes(c.site.start, bytes)
            .map(<[u8]>::to_vec)
            .unwrap_or_default();
        let start = facts.function.entry();
        Splice {
            name: format!("{}+{:#x}", facts.function.name, site.wrapping_sub(start)),
            site,
            tactic: c.tactic,
            boundaries: emit::boundaries(facts, &c),
            old,
            patch: built.patch,
            board: c.board,
            points,
            displaced: (c.end - c.start) as u32,
            overhead: c.tactic.jumps_in() + built.extra,
        }
    }
}
