//! From points to splices.

use std::collections::BTreeMap;

use kerninst_analysis::{Analysis, Function, Sites};
use kerninst_kernel::Kernel;
use kerninst_snippet::{Features, Snippet};

use crate::choose::Chosen;
use crate::facts::Facts;
use crate::{Boards, PlannedPoint, Refusal, Refused, Splice, Tactic, Tactics, emit};

/// A point and what to do there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Address of the instruction before which the snippets run.
    pub addr: u64,
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

/// What became of the points: each is served by exactly one splice or refused exactly once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// By address of their sites.
    pub splices: Vec<Splice>,
    /// By address.
    pub refused: Vec<Refused>,
}

impl Plan {
    /// The splice that serves the point at `addr`.
    pub fn splice_of(&self, addr: u64) -> Option<&Splice> {
        self.splices
            .iter()
            .find(|s| s.points.iter().any(|p| p.addr == addr))
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
            match self.analysis.function_at(r.addr) {
                Some(f) => functions
                    .entry(f.entry())
                    .or_insert_with(|| (f, Vec::new()))
                    .1
                    .push(r.clone()),
                None => plan.refused.push(self.no_function(r.addr, boards)),
            }
        }
        plan.refused.sort_by_key(|r| r.addr);
        plan.refused.dedup_by_key(|r| r.addr);
        for (f, points) in functions.into_values() {
            let part = self.plan_function(&f, &points, boards);
            plan.splices.extend(part.splices);
            plan.refused.extend(part.refused);
        }
        plan.splices.sort_by_key(|s| s.site);
        plan.refused.sort_by_key(|r| r.addr);
        plan
    }

    fn no_function(&self, addr: u64, boards: &Boards) -> Refused {
        let kernel = self.kernel();
        if let Some(o) = kernel.off_limits().at(addr) {
            return Refused {
                addr,
                why: Refusal::OffLimits(o),
                nearest: None,
            };
        }
        if kernel.text_at(addr).is_none() {
            return Refused {
                addr,
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
            addr,
            why: Refusal::Unreached { addr },
            nearest,
        }
    }

    /// Plans all points of one function (see [`Planner::plan`]). Several requests for one address are joined in order.
    pub fn plan_function(
        &self,
        function: &Function,
        requests: &[Request],
        boards: &mut Boards,
    ) -> Plan {
        let mut wanted: BTreeMap<u64, Vec<Snippet>> = BTreeMap::new();
        for r in requests {
            wanted
                .entry(r.addr)
                .or_default()
                .extend(r.snippets.iter().cloned());
        }
        let facts = Facts::new(self.kernel(), function);
        let mut plan = Plan::default();
        let mut points: Vec<(usize, &[Snippet])> = Vec::new();
        for (addr, snippets) in &wanted {
            match self.index_of(&facts, *addr) {
                Ok(index) => points.push((index, snippets)),
                Err(why) => plan.refused.push(self.refuse(&facts, *addr, why, boards)),
            }
        }
        // Only what concerns this function: a batch may own hundreds of thousands of bytes elsewhere.
        let taken_before = boards.clone_in(&function.ranges);
        let mut open: Option<Chosen> = None;
        let mut chosen: Vec<Chosen> = Vec::new();
        for (index, snippets) in points {
            if let Some(c) = &mut open
                && self.extend(&facts, c, index, &taken_before)
            {
                c.points.push((index, snippets.to_vec()));
                continue;
            }
            // Everything before this index is run, or was overwritten, by what is open.
            let floor = open.as_ref().map_or(0, |c| c.end);
            match self.choose(&facts, index, floor, boards) {
                Ok(mut c) => {
                    c.points.push((index, snippets.to_vec()));
                    chosen.extend(open.replace(c));
                }
                Err(why) => {
                    let addr = facts.insn(index).map_or(0, |i| i.addr);
                    plan.refused.push(self.refuse(&facts, addr, why, boards));
                }
            }
        }
        chosen.extend(open);
        for c in chosen {
            plan.splices.push(self.splice(&facts, c));
        }
        plan.refused.sort_by_key(|r| r.addr);
        plan
    }

    /// For each instruction of the function the tactic that it would get as the only point, or the reason why not.
    /// What `boards` holds is respected and not changed.
    pub fn survey(&self, function: &Function, boards: &Boards) -> Vec<Result<Tactic, Refusal>> {
        self.each_alone(function, boards, |_, c| c.reached)
    }

    /// As [`Planner::survey`], with the instructions that one execution of `snippets` there costs.
    pub fn survey_costs(
        &self,
        function: &Function,
        boards: &Boards,
        snippets: &[Snippet],
    ) -> Vec<Result<Surveyed, Refusal>> {
        self.each_alone(function, boards, |facts, mut c| {
            let point = c.index;
            c.points.push((point, snippets.to_vec()));
            let built = emit::patch(facts, &c, self.options.features);
            let cost: u32 = built.snippets.iter().map(|s| s.cost).sum();
            Surveyed {
                tactic: c.reached,
                cost: cost + c.tactic.jumps_in() + built.extra,
            }
        })
    }

    fn each_alone<T>(
        &self,
        function: &Function,
        boards: &Boards,
        mut see: impl FnMut(&Facts, Chosen) -> T,
    ) -> Vec<Result<T, Refusal>> {
        let facts = Facts::new(self.kernel(), function);
        let mut scratch = boards.clone();
        let mut out = Vec::with_capacity(function.insns.len());
        for insn in &function.insns {
            let result = self.index_of(&facts, insn.addr).and_then(|index| {
                let c = self.choose(&facts, index, 0, &mut scratch)?;
                c.give_back(&mut scratch);
                Ok(see(&facts, c))
            });
            out.push(result);
        }
        out
    }

    /// The instruction at `addr`, if a snippet may run before it at all.
    fn index_of(&self, facts: &Facts, addr: u64) -> Result<usize, Refusal> {
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

    fn refuse(&self, facts: &Facts, addr: u64, why: Refusal, boards: &Boards) -> Refused {
        Refused {
            addr,
            why,
            nearest: self.nearest(facts, addr, boards),
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
        let mut scratch = boards.clone();
        near.into_iter().find(|a| {
            let chosen = self
                .index_of(facts, *a)
                .and_then(|i| self.choose(facts, i, 0, &mut scratch));
            if let Ok(c) = &chosen {
                c.give_back(&mut scratch);
            }
            chosen.is_ok()
        })
    }

    /// Makes `c` serve the instruction `index` too, if it runs up to there in a straight line.
    fn extend(&self, facts: &Facts, c: &mut Chosen, index: usize, boards: &Boards) -> bool {
        if index < c.end {
            return index >= c.start;
        }
        let near =
            index - c.end <= self.options.distance && index - c.start <= self.options.longest;
        let linked = |i: usize| facts.linked(i, boards);
        if self.options.merge && near && (c.end..=index).all(linked) {
            c.end = index;
            return true;
        }
        false
    }

    fn splice(&self, facts: &Facts, c: Chosen) -> Splice {
        let site = facts.insn(c.start).map_or(0, |i| i.addr);
        let built = emit::patch(facts, &c, self.options.features);
        let points = c.points.iter().zip(&built.snippets).enumerate().filter_map(
            |(n, ((index, _), snippet))| {
                let insn = facts.insn(*index)?;
                let tactic = match n {
                    0 => c.reached,
                    _ if *index < c.displaced_end => c.tactic,
                    _ => c.hoist_kind(facts, *index),
                };
                Some(PlannedPoint {
                    addr: insn.addr,
                    tactic,
                    snippet_cost: snippet.cost,
                    copy: snippet.end,
                })
            },
        );
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
