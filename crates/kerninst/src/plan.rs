//! From points to splices and versions, before anything is touched.

use crate::owners::{Conflict, Owner, Owners};
use crate::point::Point;
use kerninst_analysis::{Analysis, Function};
use kerninst_patch::{
    Boards, NoSpot, NoVersion, Options, Planner, Refusal, Refused, Request, Splice, Spot, Tactic,
};
use kerninst_snippet::{Features, Snippet};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// From how many points on in one function a version is better than splices: then a call runs one jump and the points
/// themselves none.
const DENSE: usize = 6;

/// How the points of a function are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Means {
    /// Few points by splices, many (or one that would need an `int3`, or an edge that no splice can hold) by a version; in the
    /// loop of a kernel thread, which is never called again, by splices as far as that goes.
    #[default]
    Auto,
    /// Splices only.
    Splices,
    /// Versions, and splices where a function cannot have one.
    Versions,
}

/// A point with what serves it.
#[derive(Clone, Debug)]
pub struct ArmedPoint {
    /// The point; `addr` is the instruction that is really instrumented.
    pub point: Point,
    /// How.
    pub tactic: Tactic,
    /// Address of the splice that leads to its patch; of several (tactic `edges`) the first.
    pub site: u64,
    /// Instructions that one execution costs beyond the original ones, all shares of the splice included.
    pub cost: u32,
    /// Addresses in the patches of what is executed, all together, exactly as often as the counter counts (none until
    /// armed): lets an emulator check the count from outside. One, but where several splices serve the point.
    pub copies: Vec<u64>,
    /// Index of its counter.
    pub(crate) slot: usize,
}

/// Points with their splices, before anything is touched.
#[derive(Clone, Debug, Default)]
pub struct PlannedSession {
    /// Points that can be armed.
    pub points: Vec<ArmedPoint>,
    /// Points that cannot, and why.
    pub refused: Vec<(Point, Refused)>,
    /// Points whose place somebody else has.
    pub conflicts: Vec<Conflict>,
    /// The splices, by site: those of versions too.
    pub splices: Vec<Splice>,
    /// Functions that get a version.
    pub versions: Vec<VersionOf>,
    /// Functions that were to get a version and cannot: their points are served by splices, or refused.
    pub no_version: Vec<(String, WhyNoVersion)>,
}

impl PlannedSession {
    fn add(&mut self, other: PlannedSession) {
        self.points.extend(other.points);
        self.refused.extend(other.refused);
        self.conflicts.extend(other.conflicts);
        self.splices.extend(other.splices);
        self.versions.extend(other.versions);
        self.no_version.extend(other.no_version);
    }
}

/// A function with a version.
#[derive(Clone, Debug)]
pub struct VersionOf {
    /// Id of the function.
    pub function: String,
    /// The original's code.
    pub ranges: Vec<Range<u64>>,
    /// Address of the splice that leads to the version.
    pub site: u64,
}

/// Why a function has no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyNoVersion {
    /// It cannot have one.
    #[error(transparent)]
    Cannot(#[from] NoVersion),
    /// Somebody else's probe in its body would stop working.
    #[error("{0}")]
    Owner(Conflict),
}

/// Plans without touching anything: works on a kernel in a file too.
pub fn plan(
    analysis: &Analysis<'_>,
    points: &[Point],
    owners: &Owners,
    means: Means,
) -> PlannedSession {
    plan_revised(analysis, points, owners, means, Records::Counts, |_, _| {
        None
    })
}

/// As [`plan`], where `revise` sees what came of each function (its entry, and the plan of its points alone) and may ask
/// for other points in place of all of them, several times. It is asked for different functions at the same time.
pub fn plan_revised(
    analysis: &Analysis<'_>,
    points: &[Point],
    owners: &Owners,
    means: Means,
    records: Records,
    revise: impl Fn(u64, &PlannedSession) -> Option<Vec<Point>> + Sync,
) -> PlannedSession {
    // Counter addresses as a machine gives them: the first few hundred within 32 bits, the others beyond.
    let pointer = |slot| {
        let base = if slot < crate::counters::NEAR {
            0x3_0000
        } else {
            0x6000_0000_0000
        };
        base + 8 * slot as u64
    };
    let snippet = |_: &Point, slot| vec![records.snippet(slot, pointer)];
    plan_with(analysis, points, owners, means, snippet, usize::MAX, revise)
}

/// As [`plan`], where `snippets` says what is put before each point. Points that stand for others that are executed as often do not
/// move: what a snippet reads may be different there.
pub fn plan_snippets(
    analysis: &Analysis<'_>,
    points: &[Point],
    owners: &Owners,
    means: Means,
    snippets: impl Fn(&Point) -> Vec<Snippet> + Sync,
) -> PlannedSession {
    let mut points = points.to_vec();
    for p in &mut points {
        p.candidates.clear();
    }
    let snippet = |p: &Point, _| snippets(p);
    plan_with(
        analysis,
        &points,
        owners,
        means,
        snippet,
        usize::MAX,
        |_, _| None,
    )
}

/// What a point records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Records {
    /// How often it was executed.
    #[default]
    Counts,
    /// Whether it was executed: one instruction, which [`crate::Session::take_out_hit`] makes a jump over itself once it was.
    Hits,
}

impl Records {
    /// What is inserted for slot `n`, whose counter would be at `pointer(n)`.
    pub(crate) fn snippet(self, n: usize, pointer: impl Fn(usize) -> u64) -> Snippet {
        match self {
            Records::Counts => Snippet::Count { percpu: pointer(n) },
            Records::Hits => Snippet::Hit { flag: n as u32 },
        }
    }
}

/// What the processor offers for saving flags.
fn features() -> Features {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info
        .lines()
        .find(|l| l.starts_with("flags"))
        .unwrap_or_default();
    Features {
        lahf: flags.split_whitespace().any(|f| f == "lahf_lm"),
    }
}

/// So many functions are worth a thread of their own.
const SHARE: usize = 64;
/// Most revisions of a function's points.
const REVISIONS: usize = 16;

/// The points of a function, and the slots that they may use.
struct Group<'p> {
    entry: u64,
    points: Vec<&'p Point>,
    slots: Range<usize>,
}

/// Plans all points; `snippet(point, n)` is what is inserted at the point, whose slot is `n`, which is below `most`. For `revise` see
/// [`plan_revised`].
pub(crate) fn plan_with(
    analysis: &Analysis<'_>,
    points: &[Point],
    owners: &Owners,
    means: Means,
    snippet: impl Fn(&Point, usize) -> Vec<Snippet> + Sync,
    most: usize,
    revise: impl Fn(u64, &PlannedSession) -> Option<Vec<Point>> + Sync,
) -> PlannedSession {
    let options = Options {
        features: features(),
        ..Options::default()
    };
    let mut by_function: BTreeMap<u64, Vec<&Point>> = BTreeMap::new();
    for point in points {
        let function = by_function.entry(point.entry).or_default();
        function.push(point);
    }
    let mut next = 0;
    let groups: Vec<Group> = by_function
        .into_iter()
        .map(|(entry, points)| {
            let slots = next..next + points.len();
            next = slots.end;
            Group {
                entry,
                points,
                slots,
            }
        })
        .collect();
    let spare = AtomicUsize::new(next);
    let part = |groups: &[Group]| {
        let mut plan = Planning {
            analysis,
            owners,
            planner: Planner::new(analysis, options),
            boards: Boards::new(),
            snippet: &snippet,
            done: PlannedSession::default(),
        };
        let mut all = PlannedSession::default();
        for group in groups {
            let mut slots: Vec<usize> = group.slots.clone().collect();
            let points = group.points.iter().copied().cloned();
            plan.group(points.collect(), &slots, means);
            for _ in 0..REVISIONS {
                let Some(points) = revise(group.entry, &plan.done) else {
                    break;
                };
                while slots.len() < points.len() {
                    let more = spare.fetch_add(1, Ordering::Relaxed);
                    if more >= most {
                        break;
                    }
                    slots.push(more);
                }
                if slots.len() < points.len() {
                    break;
                }
                let before = std::mem::take(&mut plan.done);
                plan.give_back(&before.splices);
                plan.group(points, &slots, means);
            }
            all.add(std::mem::take(&mut plan.done));
        }
        all
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = cpus.min(groups.len() / SHARE + 1);
    let mut parts = in_parallel(&groups, workers, &part);
    // Functions next to each other share the padding between them: where two parts meet, both may have taken it.
    if overlap(&parts) {
        spare.store(next, Ordering::Relaxed);
        parts = vec![part(&groups)];
    }
    let mut planned = PlannedSession::default();
    for part in parts {
        planned.add(part);
    }
    planned.splices.sort_by_key(|s| s.site);
    // Sorts places and moves each point, which is large, once.
    planned
        .points
        .sort_by_cached_key(|a| (a.point.probe, a.point.addr));
    planned
}

/// Plans runs of neighbouring functions, each with about as many points, at the same time.
fn in_parallel(
    groups: &[Group],
    workers: usize,
    part: &(impl Fn(&[Group]) -> PlannedSession + Sync),
) -> Vec<PlannedSession> {
    let all: usize = groups.iter().map(|g| g.points.len()).sum();
    let mut runs = Vec::with_capacity(workers);
    let mut rest = groups;
    for n in (1..=workers).rev() {
        let fair = rest.iter().map(|g| g.points.len()).sum::<usize>() / n;
        let mut points = 0;
        let end = rest.iter().position(|g| {
            points += g.points.len();
            points > fair.max(all / workers / 4)
        });
        let end = if n == 1 {
            rest.len()
        } else {
            end.unwrap_or(rest.len())
        };
        let (run, later) = rest.split_at(end);
        runs.push(run);
        rest = later;
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = runs
            .into_iter()
            .map(|run| scope.spawn(move || part(run)))
            .collect();
        let joined = threads.into_iter().map(|t| t.join());
        // A panic in a thread is one here.
        joined
            .map(|r| r.unwrap_or_else(|p| std::panic::resume_unwind(p)))
            .collect()
    })
}

/// Whether splices of different parts overwrite the same bytes.
fn overlap(parts: &[PlannedSession]) -> bool {
    let splices = parts.iter().flat_map(|p| &p.splices);
    let mut taken: Vec<Range<u64>> = splices.flat_map(Splice::overwrites).collect();
    taken.sort_unstable_by_key(|r| r.start);
    taken
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if b.start < a.end))
}

struct Planning<'p, 'a, 'k, P> {
    analysis: &'p Analysis<'k>,
    owners: &'p Owners,
    planner: Planner<'a, 'k>,
    boards: Boards,
    snippet: P,
    done: PlannedSession,
}

/// One function's points by one means.
struct Served {
    points: Vec<ArmedPoint>,
    splices: Vec<Splice>,
    refused: Vec<(Point, Refused)>,
    version: Option<VersionOf>,
}

impl<P: Fn(&Point, usize) -> Vec<Snippet>> Planning<'_, '_, '_, P> {
    /// Plans points of one function, with these slots: as many as points at least.
    fn group(&mut self, points: Vec<Point>, slots: &[usize], means: Means) {
        // Points of one spot share a counter, whatever probes they came from.
        let mut free = slots.iter().copied();
        let mut by_spot: FxHashMap<Spot, Option<usize>> = FxHashMap::default();
        by_spot.reserve(points.len());
        let slotted = points.into_iter().filter_map(|p| {
            let slot = by_spot.entry(p.at).or_insert_with(|| free.next());
            Some((p, (*slot)?))
        });
        let (wanted, slots) = slotted.unzip();
        self.function(wanted, slots, means);
    }

    fn function(&mut self, mut wanted: Vec<Point>, slots: Vec<usize>, means: Means) {
        let Some(function) = wanted
            .first()
            .and_then(|p| self.analysis.function_at(p.entry))
        else {
            self.unknown(wanted);
            return;
        };
        if let Some(owner) = self.owners.livepatch_of(&function) {
            self.done.conflicts.push(Conflict {
                place: function.id.clone(),
                owner,
            });
            return;
        }
        let edges = |p: &Point| !matches!(p.at, Spot::Before(_));
        let dense = wanted.len() >= DENSE || wanted.iter().any(edges);
        let mut no_version = None;
        // A kernel thread's loop is never called again: only what is spliced into it is met.
        let dense = dense && !self.owners.is_loop(&function);
        if means == Means::Versions || means == Means::Auto && dense {
            match self.by_version(&function, &mut wanted, &slots) {
                Ok(served) => return self.take(served),
                Err(why) => no_version = Some(why),
            }
        }
        let mut kept = slots.clone();
        self.drop_kprobed(&mut wanted, &mut kept);
        let served = self.by_splices(&function, wanted.clone(), &kept);
        let dear = served.points.iter().any(|p| p.tactic == Tactic::Int3)
            || served.refused.iter().any(|(_, r)| version_would_do(&r.why));
        if means == Means::Auto && no_version.is_none() && dear {
            self.give_back(&served.splices);
            match self.by_version(&function, &mut wanted, &kept) {
                Ok(better) => return self.take(better),
                Err(why) => {
                    no_version = Some(why);
                    let again = self.by_splices(&function, wanted, &kept);
                    self.take(again);
                }
            }
        } else {
            self.take(served);
        }
        if let Some(why) = no_version {
            self.done.no_version.push((function.id.clone(), why));
        }
    }

    fn take(&mut self, served: Served) {
        self.done.points.extend(served.points);
        self.done.splices.extend(served.splices);
        self.done.refused.extend(served.refused);
        self.done.versions.extend(served.version);
    }

    /// Points of which the analysis knows no function: planning by address gives the reason.
    fn unknown(&mut self, wanted: Vec<Point>) {
        for p in wanted {
            let request = Request {
                at: p.at,
                snippets: Vec::new(),
            };
            let plan = self.planner.plan(&[request], &mut self.boards);
            let refused = plan.refused.into_iter().map(|r| (p.clone(), r));
            self.done.refused.extend(refused);
        }
    }

    fn drop_kprobed(&mut self, wanted: &mut Vec<Point>, slots: &mut Vec<usize>) {
        let all = std::mem::take(wanted)
            .into_iter()
            .zip(std::mem::take(slots));
        for (p, slot) in all {
            match self.owners.kprobe_near(p.addr) {
                Some((_, owner)) => self.done.conflicts.push(Conflict {
                    place: p.label(),
                    owner: owner.clone(),
                }),
                None => {
                    wanted.push(p);
                    slots.push(slot);
                }
            }
        }
    }

    /// What the point records, at the point.
    fn request(&self, point: &Point, slot: usize) -> Request {
        Request {
            at: point.at,
            snippets: (self.snippet)(point, slot),
        }
    }

    /// Takes the points out of `wanted` if it works.
    fn by_version(
        &mut self,
        function: &Function,
        wanted: &mut Vec<Point>,
        slots: &[usize],
    ) -> Result<Served, WhyNoVersion> {
        // A kprobe in the old body would never be met again.
        let in_body = |a: &u64| function.contains(*a);
        let theirs = self
            .owners
            .kprobes()
            .find(|(a, o)| in_body(a) && !matches!(o, Owner::Kprobe { ftrace: true, .. }));
        if let Some((_, owner)) = theirs {
            return Err(WhyNoVersion::Owner(Conflict {
                place: function.id.clone(),
                owner: owner.clone(),
            }));
        }
        let all = wanted.iter().zip(slots);
        let requests = dedup(all.map(|(p, slot)| self.request(p, *slot)).collect());
        let boards = &mut self.boards;
        let (version, no_spots) = self.planner.version(function, &requests, None, boards)?;
        let why_not: FxHashMap<Spot, kerninst_patch::NoSpot> = no_spots.into_iter().collect();
        let placed: FxHashMap<Spot, &kerninst_patch::PlannedPoint> =
            version.splice.points.iter().map(|p| (p.at, p)).collect();
        let (mut points, mut refused) = (Vec::new(), Vec::new());
        for (p, slot) in std::mem::take(wanted).into_iter().zip(slots) {
            match (placed.get(&p.at), why_not.get(&p.at)) {
                (Some(at), _) => points.push(ArmedPoint {
                    point: p,
                    tactic: Tactic::Version,
                    site: version.splice.site,
                    cost: at.snippet_cost,
                    copies: Vec::new(),
                    slot: *slot,
                }),
                (None, why) => {
                    let why = why.map_or(Refusal::NoTactic, |w| Refusal::Spot(*w));
                    let refusal = self.instead(function, &p, why);
                    refused.push((p, refusal));
                }
            }
        }
        let about = VersionOf {
            function: function.id.clone(),
            ranges: function.ranges.clone(),
            site: version.splice.site,
        };
        Ok(Served {
            points,
            splices: vec![version.splice],
            refused,
            version: Some(about),
        })
    }

    /// The refusal of a point that a version cannot have: where there is no instruction, planning by splices says what is there
    /// and what is near.
    fn instead(&mut self, function: &Function, point: &Point, why: Refusal) -> Refused {
        if why == Refusal::Spot(NoSpot::NoInstruction) {
            let request = Request {
                at: point.at,
                snippets: Vec::new(),
            };
            // Nothing comes of it but the refusal.
            let boards = &mut self.boards;
            let plan = self.planner.plan_function(function, &[request], boards);
            if let Some(refused) = plan.refused.into_iter().next() {
                return refused;
            }
        }
        Refused {
            at: point.at,
            why,
            nearest: None,
        }
    }

    fn by_splices(
        &mut self,
        function: &Function,
        mut wanted: Vec<Point>,
        slots: &[usize],
    ) -> Served {
        let asked = wanted.clone();
        let mut refused: Vec<Option<Refused>> = vec![None; wanted.len()];
        // Why the place that was asked for cannot be had.
        let mut reasons = refused.clone();
        loop {
            let active = wanted.iter().zip(slots).zip(&refused);
            let requests = active
                .filter(|(_, verdict)| verdict.is_none())
                .map(|((p, slot), _)| self.request(p, *slot))
                .collect();
            let requests = dedup(requests);
            let plan = self
                .planner
                .plan_function(function, &requests, &mut self.boards);
            // A point that is refused may have an equal further on.
            let mut moved = false;
            let all = wanted.iter_mut().zip(&mut refused).zip(&mut reasons);
            for ((point, verdict), reason) in all {
                let Some(refusal) = plan.refused.iter().find(|r| r.at == point.at) else {
                    continue;
                };
                if verdict.is_some() {
                    continue;
                }
                moved = true;
                reason.get_or_insert_with(|| refusal.clone());
                if point.candidates.is_empty() {
                    *verdict = reason.clone();
                } else {
                    point.move_to_candidate();
                }
            }
            if !moved {
                let served = wanted.iter().zip(slots).zip(&refused);
                let points = served
                    .filter(|(_, verdict)| verdict.is_none())
                    .filter_map(|((p, slot), _)| armed_point(p, &plan.splices, *slot))
                    .collect();
                let refused = asked.into_iter().zip(refused);
                return Served {
                    points,
                    splices: plan.splices,
                    // The point that was asked for, not the last one that was tried for it.
                    refused: refused.filter_map(|(p, r)| Some((p, r?))).collect(),
                    version: None,
                };
            }
            self.give_back(&plan.splices);
        }
    }

    fn give_back(&mut self, splices: &[Splice]) {
        for range in splices.iter().flat_map(Splice::overwrites) {
            self.boards.release(&range);
        }
    }
}

/// Whether a version could serve a point that splices cannot.
fn version_would_do(why: &Refusal) -> bool {
    !matches!(
        why,
        Refusal::NoFunction { .. }
            | Refusal::NotAnInstruction { .. }
            | Refusal::Unreached { .. }
            | Refusal::OffLimits(_)
            | Refusal::Incomplete(_)
            | Refusal::Unsafe(_)
    )
}

/// Without those that ask for the same counter at the same place. Different counters at one place (a point that moved
/// onto another) all stay.
fn dedup(mut requests: Vec<Request>) -> Vec<Request> {
    requests.sort_by_key(|r| r.at);
    let mut kept: Vec<Request> = Vec::with_capacity(requests.len());
    for request in requests {
        let same = kept.iter().rev().take_while(|k| k.at == request.at);
        if !same.into_iter().any(|k| *k == request) {
            kept.push(request);
        }
    }
    kept
}

fn armed_point(point: &Point, splices: &[Splice], slot: usize) -> Option<ArmedPoint> {
    // One, or one on each way to the point: an execution goes through one of them.
    let serving = splices.iter().flat_map(|s| {
        let points = s.points.iter().filter(|p| p.at == point.at);
        points.map(move |p| (s, p))
    });
    let cost = |(s, p): &(&Splice, &kerninst_patch::PlannedPoint)| s.overhead + p.snippet_cost;
    let dearest = serving.clone().map(|s| cost(&s)).max()?;
    let (splice, served) = serving.into_iter().next()?;
    Some(ArmedPoint {
        point: point.clone(),
        tactic: served.tactic,
        site: splice.site,
        cost: dearest,
        copies: Vec::new(),
        slot,
    })
}
