//! A session: points planned, armed, read and disarmed.

use crate::access::Access;
use crate::arm::Armed;
use crate::collect::UnderWay;
use crate::counters::{Count, Counts, Slots};
use crate::error::{ArmError, SessionError};
use crate::owners::{Conflict, Owners};
use crate::plan::{
    ArmedPoint, Means, PlannedSession, Records, VersionOf, WhyNoVersion, plan_snippets, plan_with,
};
use crate::point::Point;
use crate::sleepers::{OldBodies, Sleepers};
use crate::{arm, collect};
use kerninst_analysis::Analysis;
use kerninst_driver::{Device, Driver, NotClear};
use kerninst_kernel::Kernel;
use kerninst_patch::Refused;
use kerninst_snippet::Snippet;
use std::time::Duration;

/// How to arm.
#[derive(Clone, Copy, Debug)]
pub struct ArmOptions {
    /// How long to wait, while arming, for tasks to leave bytes that are to be overwritten (tactic `run`). A site
    /// that is not free by then keeps its `int3`, which is exact too, only dearer.
    pub patience: Duration,
    /// How long to wait, while disarming, for tasks to leave patches. Later ones are freed by the next run.
    pub retire_patience: Duration,
    /// How points are served.
    pub means: Means,
    /// What they record.
    pub records: Records,
}

impl Default for ArmOptions {
    fn default() -> ArmOptions {
        ArmOptions {
            patience: Duration::from_secs(2),
            retire_patience: Duration::from_secs(2),
            means: Means::Auto,
            records: Records::Counts,
        }
    }
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
    /// Visits of versions that were under way at the end.
    pub under_way: UnderWay,
}

/// Armed points. Dropping it disarms; so does the kernel side when this process dies.
pub struct Session<'k> {
    kernel: &'k Kernel,
    device: Option<Device>,
    slots: Slots,
    points: Vec<ArmedPoint>,
    refused: Vec<(Point, Refused)>,
    conflicts: Vec<Conflict>,
    versions: Vec<VersionOf>,
    no_version: Vec<(String, WhyNoVersion)>,
    armed: Armed,
    options: ArmOptions,
    /// Who was in the originals of versions when they were armed.
    old: Sleepers,
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
        Session::load_and_arm(analysis, points, owners, options, 0, |_, _| None)
    }

    /// As [`Session::arm`], where `revise` may ask for other points of a function once it sees what can be: see
    /// [`crate::plan_revised`].
    ///
    /// # Errors
    /// [`ArmError`]: nothing is armed.
    pub fn arm_revised(
        analysis: &Analysis<'k>,
        points: &[Point],
        owners: &Owners,
        options: ArmOptions,
        revise: impl Fn(u64, &PlannedSession) -> Option<Vec<Point>> + Sync,
    ) -> Result<Session<'k>, ArmError> {
        // A function may need more counters than it had before.
        let spare = points.len() / 8 + 64;
        Session::load_and_arm(analysis, points, owners, options, spare, revise)
    }

    fn load_and_arm(
        analysis: &Analysis<'k>,
        points: &[Point],
        owners: &Owners,
        options: ArmOptions,
        spare: usize,
        revise: impl Fn(u64, &PlannedSession) -> Option<Vec<Point>> + Sync,
    ) -> Result<Session<'k>, ArmError> {
        let access = Access::new(analysis.kernel())?;
        let count = points.len() + spare;
        let slots = match options.records {
            Records::Counts => Slots::new(access.device()?, count)?,
            Records::Hits => Slots::none(),
        };
        let snippet = |_: &Point, slot| vec![options.records.snippet(slot, |n| slots.pointer(n))];
        let planned = plan_with(
            analysis,
            points,
            owners,
            options.means,
            snippet,
            count,
            revise,
        );
        // A counter that does not exist would be a write to wherever its pointer says.
        if planned.points.iter().any(|p| p.slot >= count) {
            return Err(ArmError::Build("more counters than points".into()));
        }
        Session::arm_planned(access, analysis, planned, slots, options)
    }

    /// Puts before every point what `snippets` says for it. Memory that they use comes from `access`, and is read by
    /// [`Session::finish_with`] when nobody writes it any more.
    ///
    /// # Errors
    /// [`ArmError`]: nothing is armed.
    pub fn arm_snippets(
        access: Access,
        analysis: &Analysis<'k>,
        points: &[Point],
        owners: &Owners,
        options: ArmOptions,
        snippets: impl Fn(&Point) -> Vec<Snippet> + Sync,
    ) -> Result<Session<'k>, ArmError> {
        let planned = plan_snippets(analysis, points, owners, options.means, snippets);
        let options = ArmOptions {
            records: Records::Counts,
            ..options
        };
        Session::arm_planned(access, analysis, planned, Slots::none(), options)
    }

    fn arm_planned(
        access: Access,
        analysis: &Analysis<'k>,
        planned: PlannedSession,
        slots: Slots,
        options: ArmOptions,
    ) -> Result<Session<'k>, ArmError> {
        if planned.points.is_empty() {
            return Err(planned
                .conflicts
                .into_iter()
                .next()
                .map_or(ArmError::Nothing, ArmError::Conflict));
        }
        let armed = arm::arm(access.device()?, analysis, &planned, options.patience)?;
        let mut points = planned.points;
        for p in &mut points {
            p.copies = armed.copies.get(&p.point.at).cloned().unwrap_or_default();
        }
        // A symbol names all functions of one name.
        let functions = planned.versions.iter().map(|v| v.function.as_str());
        let names = functions.map(|id| id.split('#').next().unwrap_or(id));
        let names = names.map(|id| id.rsplit(':').next().unwrap_or(id));
        let old = match planned.versions.is_empty() {
            true => Sleepers::default(),
            false => Sleepers::now().within(names),
        };
        Ok(Session {
            old,
            kernel: analysis.kernel(),
            device: Some(access.into_device()?),
            slots,
            points,
            refused: planned.refused,
            conflicts: planned.conflicts,
            versions: planned.versions,
            no_version: planned.no_version,
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

    /// Functions that have a version.
    pub fn versions(&self) -> &[VersionOf] {
        &self.versions
    }

    /// Functions that were to have a version and cannot.
    pub fn no_version(&self) -> &[(String, WhyNoVersion)] {
        &self.no_version
    }

    /// Tasks that slept in original code when its versions were armed: they finish there, and what they run is not counted.
    /// Where functions share a name, they are told together.
    pub fn old_bodies(&self) -> OldBodies {
        match self.versions.is_empty() {
            true => OldBodies::default(),
            false => self.old.since(&Sleepers::now()),
        }
    }

    /// Sites that are still an `int3` since a task did not leave them in time.
    pub fn slow_sites(&self) -> u32 {
        self.armed.slow
    }

    /// Bytes of generated code.
    pub fn code_bytes(&self) -> u64 {
        self.armed.code_bytes
    }

    /// Counts so far, on all CPUs; of points that record [`Records::Hits`], 1 for those that were executed.
    ///
    /// # Errors
    /// The device.
    pub fn read(&self) -> Result<Counts, SessionError> {
        let Some(device) = &self.device else {
            return Ok(Counts::default());
        };
        let mut counts = self.counts(&self.totals(device)?);
        let stuck = self.armed.foreign_sites(self.kernel, device);
        if stuck > 0 {
            counts.complete = false;
            counts.notes.push(format!(
                "{} written over by somebody else (a kprobe?) while armed: counts may be short",
                if stuck == 1 {
                    "1 site was".into()
                } else {
                    format!("{stuck} sites were")
                }
            ));
        }
        Ok(counts)
    }

    /// Takes everything out again.
    ///
    /// # Errors
    /// The device. What is still armed then is restored when the device closes, at the end of this call.
    pub fn disarm(self) -> Result<DisarmReport, SessionError> {
        let (_, report) = self.finish_with(|_, _| Ok(()))?;
        Ok(report)
    }

    /// Takes everything out again, and reads the counts when no execution can be under way any more: every execution
    /// from the first that went through a patch to the last is in them. `None`: a task stayed inside, so there is no
    /// such moment yet.
    ///
    /// # Errors
    /// As [`Session::disarm`].
    pub fn finish(mut self) -> Result<(Option<Counts>, DisarmReport), SessionError> {
        let Some(device) = self.device.take() else {
            return Ok((None, DisarmReport::default()));
        };
        let patience = self.options.retire_patience;
        let (counts, report) =
            take_out(device, &self.armed, patience, |device, still| match still {
                true => Ok(Some(self.counts(&self.totals(device)?))),
                false => Ok(None),
            })?;
        Ok((counts, report))
    }

    /// As [`Session::finish`], for what snippets have written elsewhere: `read` is called once, when everything is taken out and the
    /// device still open; with `true` if no execution can be under way any more.
    ///
    /// # Errors
    /// As [`Session::disarm`].
    pub fn finish_with<T>(
        mut self,
        read: impl FnOnce(&Device, bool) -> Result<T, SessionError>,
    ) -> Result<(Option<T>, DisarmReport), SessionError> {
        let Some(device) = self.device.take() else {
            return Ok((None, DisarmReport::default()));
        };
        let patience = self.options.retire_patience;
        let (read, report) = take_out(device, &self.armed, patience, read)?;
        Ok((Some(read), report))
    }

    /// The device, while anything is armed.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Of points that record [`Records::Hits`]: makes each that was executed since a jump over itself, so that it costs
    /// next to nothing from now on, and no CPU writes to a line that another one reads. How many were taken out, and how
    /// many are left.
    ///
    /// # Errors
    /// The device. What was taken out before is out; all points go on recording.
    pub fn take_out_hit(&mut self) -> Result<(usize, usize), SessionError> {
        let out = match &self.device {
            Some(device) => self.armed.take_out_hit(device)?,
            None => 0,
        };
        Ok((out, self.armed.hits.left()))
    }

    /// What all slots say now.
    fn totals(&self, device: &Device) -> Result<Vec<Count>, SessionError> {
        match self.options.records {
            Records::Counts => Ok(self.slots.read(device)?),
            Records::Hits => {
                let bytes = self.armed.hits.read()?;
                let hit = |b: u8| Count {
                    by_cpu: vec![u64::from(b != 0)],
                };
                Ok(bytes.into_iter().map(hit).collect())
            }
        }
    }

    fn counts(&self, all: &[Count]) -> Counts {
        let of = |p: &ArmedPoint| all.get(p.slot).cloned().unwrap_or_default();
        Counts {
            counts: self.points.iter().map(of).collect(),
            complete: true,
            notes: Vec::new(),
        }
    }
}

/// Takes out what is armed, and closes the device. `read` is called once, as soon as nobody can be in the patches any more (with
/// `true`), or at the end (with `false`).
fn take_out<T>(
    device: Device,
    armed: &Armed,
    patience: Duration,
    read: impl FnOnce(&Device, bool) -> Result<T, SessionError>,
) -> Result<(T, DisarmReport), SessionError> {
    let mut report = DisarmReport::default();
    for batch in armed.batches.iter().rev() {
        let r = device.restore(*batch)?;
        report.stuck += r.stuck;
        report.gone += r.gone;
    }
    let mut read = Some(read);
    let mut last = None;
    let collected = collect::collect_with(&device, patience, |module, under_way| {
        if module == armed.module {
            report.under_way = under_way.clone();
            if let Some(read) = read.take() {
                last = Some(read(&device, true)?);
            }
        }
        Ok(())
    });
    if let Some(read) = read.take() {
        last = Some(read(&device, false)?);
    }
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
    let last = last.ok_or_else(|| SessionError::TakeOut("the result was not read".into()))?;
    Ok((last, report))
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let patience = self.options.retire_patience;
        if let Some(device) = self.device.take() {
            // Errors have nobody to go to here; closing the device restores the text in any case.
            let _ = take_out(device, &self.armed, patience, |_, _| Ok(()));
        }
    }
}
