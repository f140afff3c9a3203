//! A session: points planned, armed, read and disarmed.

use crate::arm::Armed;
use crate::counters::{Count, Counts, Slots};
use crate::error::{ArmError, SessionError};
use crate::owners::{Conflict, Owners};
use crate::point::Point;
use crate::{arm, collect};
use kerninst_analysis::Analysis;
use kerninst_driver::{Device, Driver, NotClear};
use kerninst_kernel::Kernel;
use kerninst_patch::{Boards, Options, Planner, Refused, Request, Splice, Tactic};
use kerninst_snippet::{Features, Snippet};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// How to arm.
#[derive(Clone, Copy, Debug)]
pub struct ArmOptions {
    /// How long to wait, while arming, for tasks to leave bytes that are to be overwritten (tactic `run`). A site
    /// that is not free by then keeps its `int3`, which is exact too, only dearer.
    pub patience: Duration,
    /// How long to wait, while disarming, for tasks to leave patches. Later ones are freed by the next run.
    pub retire_patience: Duration,
}

impl Default for ArmOptions {
    fn default() -> ArmOptions {
        ArmOptions {
            patience: Duration::from_secs(2),
            retire_patience: Duration::from_secs(2),
        }
    }
}

/// A point with what serves it.
#[derive(Clone, Debug)]
pub struct ArmedPoint {
    /// The point; `addr` is the instruction that is really instrumented.
    pub point: Point,
    /// How.
    pub tactic: Tactic,
    /// Address of the splice that leads to its patch.
    pub site: u64,
    /// Instructions that one execution costs beyond the original ones, all shares of the splice included.
    pub cost: u32,
    /// Address in the patch of what is executed exactly as often as the counter counts (0 until armed): lets an
    /// emulator check the count from outside.
    pub copy: u64,
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
    /// The splices, by site.
    pub splices: Vec<Splice>,
}

/// Plans without touching anything: works on a kernel in a file too.
pub fn plan(analysis: &Analysis<'_>, points: &[Point], owners: &Owners) -> PlannedSession {
    // Counter addresses as a machine gives them: the first few hundred within 32 bits, the others beyond.
    plan_with(analysis, points, owners, |slot| {
        let base = if slot < crate::counters::NEAR {
            0x3_0000
        } else {
            0x6000_0000_0000
        };
        base + 8 * slot as u64
    })
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

pub(crate) fn plan_with(
    analysis: &Analysis<'_>,
    points: &[Point],
    owners: &Owners,
    pointer: impl Fn(usize) -> u64,
) -> PlannedSession {
    let mut planned = PlannedSession::default();
    let options = Options {
        features: features(),
        ..Options::default()
    };
    let planner = Planner::new(analysis, options);
    let mut boards = Boards::new();
    // Points of one address share a counter, whatever probes they came from.
    let mut slots: HashMap<u64, usize> = HashMap::new();
    let mut by_function: BTreeMap<u64, Vec<Point>> = BTreeMap::new();
    for point in points {
        by_function
            .entry(point.entry)
            .or_default()
            .push(point.clone());
    }
    for mut wanted in by_function.into_values() {
        let Some(function) = wanted.first().and_then(|p| analysis.function_at(p.entry)) else {
            // Points were made from this analysis; planning by address gives the reason.
            for p in wanted {
                let plan = planner.plan(
                    &[Request {
                        addr: p.addr,
                        snippets: Vec::new(),
                    }],
                    &mut boards,
                );
                planned
                    .refused
                    .extend(plan.refused.into_iter().map(|r| (p.clone(), r)));
            }
            continue;
        };
        if let Some(owner) = owners.livepatch_of(&function) {
            planned.conflicts.push(Conflict {
                place: function.id.clone(),
                owner,
            });
            continue;
        }
        wanted.retain(|p| match owners.kprobe_near(p.addr) {
            Some((_, owner)) => {
                planned.conflicts.push(Conflict {
                    place: p.label(),
                    owner: owner.clone(),
                });
                false
            }
            None => true,
        });
        let mut refused: Vec<Option<Refused>> = vec![None; wanted.len()];
        // A point keeps its counter when it moves to an equal instruction, so there are never more counters than points.
        let mine: Vec<usize> = wanted
            .iter()
            .map(|p| {
                let next = slots.len();
                *slots.entry(p.addr).or_insert(next)
            })
            .collect();
        loop {
            let active = wanted.iter().zip(&mine).zip(&refused);
            let requests = active
                .filter(|(_, verdict)| verdict.is_none())
                .map(|((p, slot), _)| Request {
                    addr: p.addr,
                    snippets: vec![Snippet::Count {
                        percpu: pointer(*slot),
                    }],
                })
                .collect();
            let requests = dedup(requests);
            let plan = planner.plan_function(&function, &requests, &mut boards);
            // A point that is refused may have an equal further on.
            let mut moved = false;
            for (point, verdict) in wanted.iter_mut().zip(&mut refused) {
                let Some(refusal) = plan.refused.iter().find(|r| r.addr == point.addr) else {
                    continue;
                };
                if verdict.is_some() {
                    continue;
                }
                moved = true;
                if point.candidates.is_empty() {
                    *verdict = Some(refusal.clone());
                } else {
                    point.addr = point.candidates.remove(0);
                }
            }
            if !moved {
                let served = wanted.iter().zip(&mine).zip(&refused);
                planned.points.extend(
                    served
                        .filter(|(_, verdict)| verdict.is_none())
                        .filter_map(|((p, slot), _)| armed_point(p, &plan.splices, *slot)),
                );
                planned.splices.extend(plan.splices);
                break;
            }
            for splice in &plan.splices {
                boards.release(&splice.range());
                if let Some(board) = &splice.board {
                    boards.release(&(board.addr..board.addr + board.old.len() as u64));
                }
            }
        }
        for (point, refusal) in wanted.into_iter().zip(refused) {
            planned.refused.extend(refusal.map(|r| (point, r)));
        }
    }
    planned.splices.sort_by_key(|s| s.site);
    planned
        .points
        .sort_by_key(|a| (a.point.probe, a.point.addr));
    planned
}

/// Without those that ask for the same counter at the same place. Different counters at one place (a point that moved
/// onto another) all stay.
fn dedup(mut requests: Vec<Request>) -> Vec<Request> {
    requests.sort_by_key(|r| r.addr);
    let mut kept: Vec<Request> = Vec::with_capacity(requests.len());
    for request in requests {
        let same = kept.iter().rev().take_while(|k| k.addr == request.addr);
        if !same.into_iter().any(|k| *k == request) {
            kept.push(request);
        }
    }
    kept
}

fn armed_point(point: &Point, splices: &[Splice], slot: usize) -> Option<ArmedPoint> {
    let splice = splices
        .iter()
        .find(|s| s.points.iter().any(|p| p.addr == point.addr))?;
    let served = splice.points.iter().find(|p| p.addr == point.addr)?;
    Some(ArmedPoint {
        point: point.clone(),
        tactic: served.tactic,
        site: splice.site,
        cost: splice.overhead + served.snippet_cost,
        copy: 0,
        slot,
    })
}

/// What became of the patches when a session ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisarmReport {
    /// Sites that somebody else has written over: they stay as they are, with their patch.
    pub stuck: u32,
    /// Sites whose module was unloaded meanwhile.
    pub gone: u32,
    /// Everything is freed and the driver unloaded. False: see `waiting`.
    pub freed: bool,
    /// Why patches could not be freed yet.
    pub waiting: Option<String>,
}

/// Armed points. Dropping it disarms; so does the kernel side when this process dies.
pub struct Session<'k> {
    kernel: &'k Kernel,
    device: Option<Device>,
    slots: Slots,
    points: Vec<ArmedPoint>,
    refused: Vec<(Point, Refused)>,
    conflicts: Vec<Conflict>,
    armed: Armed,
    options: ArmOptions,
}

impl<'k> Session<'k> {
    /// Puts a counter before every point. Points that are refused are told by [`Session::refused`] and
    /// [`Session::conflicts`]; of the others all are armed, or none.
    ///
    /// # Errors
    /// [`ArmError`]: nothing is armed.
    pub fn arm(
        analysis: &Analysis<'k>,
        points: &[Point],
        owners: &Owners,
        options: ArmOptions,
    ) -> Result<Session<'k>, ArmError> {
        let kernel = analysis.kernel();
        Driver::load(kernel)?;
        let result = Session::arm_loaded(analysis, points, owners, options);
        if result.is_err() {
            // As found: a driver that nobody uses goes. In use, it stays.
            let _ = Driver::unload();
        }
        result
    }

    fn arm_loaded(
        analysis: &Analysis<'k>,
        points: &[Point],
        owners: &Owners,
        options: ArmOptions,
    ) -> Result<Session<'k>, ArmError> {
        let device = Device::open()?;
        // What an earlier run left behind, if it is free by now.
        let _ = collect::collect(&device, Duration::ZERO);
        let slots = Slots::new(&device, points.len())?;
        let planned = plan_with(analysis, points, owners, |slot| slots.pointer(slot));
        // A counter that does not exist would be a write to wherever its pointer says.
        if planned.points.iter().any(|p| p.slot >= slots.len()) {
            return Err(ArmError::Build("more counters than points".into()));
        }
        if planned.points.is_empty() {
            return Err(planned
                .conflicts
                .into_iter()
                .next()
                .map_or(ArmError::Nothing, ArmError::Conflict));
        }
        let armed = arm::arm(
            &device,
            analysis.kernel(),
            &planned.splices,
            options.patience,
        )?;
        let mut points = planned.points;
        for p in &mut points {
            p.copy = armed
                .copies
                .get(&(p.site, p.point.addr))
                .copied()
                .unwrap_or(0);
        }
        Ok(Session {
            kernel: analysis.kernel(),
            device: Some(device),
            slots,
            points,
            refused: planned.refused,
            conflicts: planned.conflicts,
            armed,
            options,
        })
    }

    /// The armed points.
    pub fn points(&self) -> &[ArmedPoint] {
        &self.points
    }

    /// Points that cannot be instrumented, and why.
    pub fn refused(&self) -> &[(Point, Refused)] {
        &self.refused
    }

    /// Points that somebody else has.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// Sites that are still an `int3` since a task did not leave them in time.
    pub fn slow_sites(&self) -> u32 {
        self.armed.slow
    }

    /// Bytes of generated code.
    pub fn code_bytes(&self) -> u64 {
        self.armed.code_bytes
    }

    /// Counts so far, on all CPUs.
    ///
    /// # Errors
    /// The device.
    pub fn read(&self) -> Result<Counts, SessionError> {
        let Some(device) = &self.device else {
            return Ok(Counts::default());
        };
        let mut counts = self.counts(&self.slots.read(device)?);
        let stuck = self.armed.foreign_sites(self.kernel, device);
        if stuck > 0 {
            counts.complete = false;
            counts.notes.push(format!(
                "{stuck} sites were written over by somebody else (a kprobe?) while they were armed: their counts may be short"
            ));
        }
        Ok(counts)
    }

    /// Takes everything out again.
    ///
    /// # Errors
    /// The device. What is still armed then is restored when the device closes, at the end of this call.
    pub fn disarm(mut self) -> Result<DisarmReport, SessionError> {
        self.take_out(false).map(|(_, report)| report)
    }

    /// Takes everything out again, and reads the counts when no execution can be under way any more: every execution
    /// from the first that went through a patch to the last is in them. `None`: a task stayed inside, so there is no
    /// such moment yet.
    ///
    /// # Errors
    /// As [`Session::disarm`].
    pub fn finish(mut self) -> Result<(Option<Counts>, DisarmReport), SessionError> {
        self.take_out(true)
    }

    fn counts(&self, all: &[Count]) -> Counts {
        let of = |p: &ArmedPoint| all.get(p.slot).cloned().unwrap_or_default();
        Counts {
            counts: self.points.iter().map(of).collect(),
            complete: true,
            notes: Vec::new(),
        }
    }

    fn take_out(&mut self, count: bool) -> Result<(Option<Counts>, DisarmReport), SessionError> {
        let Some(device) = self.device.take() else {
            return Ok((None, DisarmReport::default()));
        };
        let mut report = DisarmReport::default();
        let mut last = None;
        for batch in self.armed.batches.iter().rev() {
            let r = device.restore(*batch)?;
            report.stuck += r.stuck;
            report.gone += r.gone;
        }
        let collected = collect::collect_with(&device, self.options.retire_patience, |module| {
            if count && module == self.armed.module {
                last = Some(self.counts(&self.slots.read(&device)?));
            }
            Ok(())
        });
        match collected {
            Ok(collected) => {
                report.freed = collected.left == 0;
                report.waiting = collected.waiting;
            }
            Err(SessionError::NotClear(e @ NotClear::Cpu { .. })) => {
                report.waiting = Some(e.to_string())
            }
            Err(e) => return Err(e),
        }
        drop(device);
        if report.freed {
            report.freed = Driver::unload().unwrap_or(false);
        }
        Ok((last, report))
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // Errors have nobody to go to here; closing the device restores the text in any case.
        let _ = self.take_out(false);
    }
}
