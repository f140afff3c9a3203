//! A script whose programs are armed.

use super::data::{Data, Sums, wants};
use super::facts::facts;
use super::words::Words;
use super::{LeftOut, Placing, ScriptError};
use crate::access::Access;
use crate::error::SessionError;
use crate::owners::Owners;
use crate::point::{Point, PointKind};
use crate::session::{ArmOptions, DisarmReport, Session};
use kerninst_analysis::{Analysis, ExitKind};
use kerninst_driver::{Driver, Stacks, abi};
use kerninst_kernel::Kernel;
use kerninst_lang::hir::Script;
use kerninst_lang::layout::{Facts, Loss, Places};
use kerninst_lang::lower::{self, Events, Reason, lower};
use kerninst_lang::read::{Cells, Entries, MapReader, Record, RingReader, Unchanged};
use kerninst_lang::show::Names;
use kerninst_lang::value::Value;
use kerninst_snippet::{Snippet, ir, optimise};
use std::sync::Arc;

/// How much memory a session takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Keys of each map, rounded up to a power of two.
    pub keys: u32,
    /// Bytes of each CPU's event buffer, rounded up to a power of two.
    pub buffer: u32,
    /// Different stacks, rounded up to a power of two.
    pub stacks: u32,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            keys: 4096,
            buffer: 1 << 20,
            stacks: 4096,
        }
    }
}

/// Most instructions that one clause may take in one visit: some tenths of a millisecond.
const MOST_COST: u64 = 500_000;

/// The programs of a script at all its points, by index in [`Placing::points`].
#[derive(Debug, Clone, Default)]
pub struct Programs {
    /// None: left out.
    pub list: Vec<Option<Arc<ir::Program>>>,
    /// What they send.
    pub events: Events,
    /// What was left out, and why.
    pub left_out: Vec<LeftOut>,
}

/// Makes the programs of all points.
///
/// # Errors
/// [`ScriptError`]: a clause that cannot run at one of its points.
pub(crate) fn programs(
    script: &Script,
    placing: &Placing,
    places: &Places,
    facts: &Facts,
    only: Option<u32>,
) -> Result<Programs, ScriptError> {
    let session = lower::Session {
        script,
        places,
        facts,
        only,
    };
    let mut made = Programs::default();
    for placed in &placing.points {
        let Some(clause) = script.clauses.get(placed.clause) else {
            continue;
        };
        let point = || placed.point.label();
        let program = match lower(&session, clause, &placed.at, &mut made.events) {
            Ok(program) => program,
            // What another function returns is not seen where this one is left for it.
            Err(e) if e.reason == Reason::NoReturnValue && left_for_another(&placed.point) => {
                made.left_out.push(LeftOut(format!(
                    "exit:{}: at {} it leaves by a jump to another function, whose result is not seen here",
                    placed.point.function,
                    point()
                )));
                made.list.push(None);
                continue;
            }
            Err(error) => {
                return Err(ScriptError::Lower {
                    point: point(),
                    error,
                });
            }
        };
        ir::validate(&program).map_err(|e| ScriptError::Invalid {
            point: point(),
            why: e.to_string(),
        })?;
        let program = optimise(&program);
        let cost = ir::worst_cost(&program);
        if cost > MOST_COST {
            return Err(ScriptError::TooLong {
                span: clause.span,
                point: point(),
                cost,
                most: MOST_COST,
            });
        }
        made.list.push(Some(Arc::new(program)));
    }
    Ok(made)
}

fn left_for_another(point: &Point) -> bool {
    matches!(point.kind, PointKind::Exit(kind) if kind != ExitKind::Return)
}

/// A script with its memory, and its programs, armed or not yet. Dropping it disarms.
pub struct Running<'k> {
    kernel: &'k Kernel,
    /// These two before the memory, so that they are dropped first.
    session: Option<Session<'k>>,
    access: Option<Access>,
    data: Data,
    script: Script,
    placing: Placing,
    made: Programs,
    readers: Vec<MapReader>,
    ring: Option<RingReader>,
    losses: [u64; 6],
    /// The time stamp counter when events were last looked for.
    looked: u64,
    /// The last sums, when nothing is armed any more.
    last: Option<Sums>,
}

/// How it ended.
#[derive(Debug, Clone, Default)]
pub struct Finished {
    /// Of disarming.
    pub report: DisarmReport,
    /// Nobody could be in a program any more when the data were read.
    pub complete: bool,
}

impl<'k> Running<'k> {
    /// Loads the driver, allocates the script's memory, and makes its programs; nothing is armed yet.
    ///
    /// # Errors
    /// [`ScriptError`].
    pub fn prepare(
        analysis: &Analysis<'k>,
        script: Script,
        placing: Placing,
        sizes: &Sizes,
        only: Option<u32>,
    ) -> Result<Running<'k>, ScriptError> {
        let (access, data, places, made) = if placing.points.is_empty() {
            let (data, places) = Data::idle(&script, sizes);
            (None, data, places, Programs::default())
        } else {
            let access = Access::new(analysis.kernel())?;
            let callouts = access.callouts()?;
            // After the access, so that on an error its mappings are gone before the driver is unloaded.
            let (data, places) = Data::new(&access, &script, sizes, &wants(&script))?;
            let facts = facts(analysis, &callouts, monotonic())?;
            let made = programs(&script, &placing, &places, &facts, only)?;
            (Some(access), data, places, made)
        };
        let readers = script.maps.iter().zip(&places.maps);
        let readers = readers.map(|(map, place)| MapReader::new(map, *place));
        Ok(Running {
            kernel: analysis.kernel(),
            session: None,
            readers: readers.collect(),
            ring: data.ring.is_some().then(|| RingReader::new(places.ring)),
            access,
            data,
            script,
            placing,
            made,
            losses: places.losses,
            looked: 0,
            last: None,
        })
    }

    /// Arms all programs; a script without any has nothing to arm.
    ///
    /// # Errors
    /// [`ScriptError`]: nothing is armed.
    pub fn arm(
        &mut self,
        analysis: &Analysis<'k>,
        owners: &Owners,
        options: ArmOptions,
    ) -> Result<(), ScriptError> {
        let Some(access) = self.access.take() else {
            return Ok(());
        };
        let program = |p: &Point| self.made.list.get(p.probe).cloned().flatten();
        let points = self.placing.points.iter().map(|p| &p.point);
        let points: Vec<Point> = points.filter(|p| program(p).is_some()).cloned().collect();
        let snippets = |p: &Point| program(p).map(Snippet::Program).into_iter().collect();
        match Session::arm_snippets(access, analysis, &points, owners, options, snippets) {
            Ok(session) => {
                self.session = Some(session);
                Ok(())
            }
            Err(e) => {
                self.close();
                Err(e.into())
            }
        }
    }

    /// The armed session, until [`Running::finish`].
    pub fn session(&self) -> Option<&Session<'k>> {
        self.session.as_ref()
    }

    /// The script.
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// The events that programs send, by number.
    pub fn events(&self) -> &Events {
        &self.made.events
    }

    /// Points that no program can have, and why.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.made.left_out
    }

    /// Gives the events that had come before the last call, at most so many, in the order of their time; how many there were.
    /// The last ones are given by [`Running::finish`].
    ///
    /// # Errors
    /// The buffer is damaged.
    pub fn drain(&mut self, most: u64, each: impl FnMut(Record)) -> Result<u64, SessionError> {
        let (Some(ring), Some(memory)) = (&self.ring, &self.data.ring) else {
            return Ok(0);
        };
        // Those of before the last call began, all of which are published by now: so they come in the order of all CPUs.
        let now = clock();
        let given = ring
            .drain_before(memory, &self.made.events, most, self.looked, each)
            .map_err(|e| SessionError::Data(e.to_string()))?;
        if given < most {
            self.looked = now;
        }
        Ok(given)
    }

    /// Gives the driver back, of which nothing is armed. The mappings of its memory keep it from being unloaded.
    fn close(&mut self) {
        self.data.keep();
        drop(self.access.take());
        let _ = Driver::unload();
    }

    fn sums(&self) -> Result<Sums, SessionError> {
        if let Some(last) = &self.last {
            return Ok(last.clone());
        }
        let device = match (&self.session, &self.access) {
            (Some(session), _) => session.device(),
            (None, Some(access)) => access.device().ok(),
            (None, None) => None,
        };
        Ok(match device {
            Some(device) => self.data.sums(device)?,
            None => Sums::default(),
        })
    }

    /// What is in a map.
    ///
    /// # Errors
    /// The device.
    pub fn entries(&self, map: u32) -> Result<Entries, SessionError> {
        let sums = self.sums()?;
        let n = map as usize;
        Ok(match (self.readers.get(n), self.data.tables.get(n)) {
            (Some(reader), Some(table)) => reader.entries(table, &sums),
            _ => Entries::default(),
        })
    }

    /// `clear` and, unless `gone`, `zero`.
    ///
    /// # Errors
    /// The device.
    pub fn clear(&mut self, map: u32, gone: bool) -> Result<(), SessionError> {
        self.changed(map, |reader, table, sums| {
            match gone {
                true => reader.clear(table, sums),
                false => reader.zero(table, sums),
            }
            Ok(())
        })
    }

    /// `@x[key] = value` of a plain map.
    ///
    /// # Errors
    /// [`Unchanged`], as text.
    pub fn assign(&mut self, map: u32, key: &[Value], value: &Value) -> Result<(), SessionError> {
        self.changed(map, |reader, table, _| reader.assign(table, key, value))
    }

    /// `delete(@x[key])`.
    ///
    /// # Errors
    /// As [`Running::assign`].
    pub fn delete(&mut self, map: u32, key: &[Value]) -> Result<(), SessionError> {
        self.changed(map, |reader, table, sums| reader.delete(table, sums, key))
    }

    /// `@x[key] = count()` and so on.
    ///
    /// # Errors
    /// As [`Running::assign`].
    pub fn update(
        &mut self,
        map: u32,
        key: &[Value],
        value: u64,
        signed: bool,
    ) -> Result<(), SessionError> {
        self.changed(map, |reader, table, _| {
            reader.update(table, key, value, signed)
        })
    }

    fn changed(
        &mut self,
        map: u32,
        change: impl FnOnce(&mut MapReader, &Words, &Sums) -> Result<(), Unchanged>,
    ) -> Result<(), SessionError> {
        let sums = self.sums()?;
        let n = map as usize;
        let (Some(reader), Some(table)) = (self.readers.get_mut(n), self.data.tables.get(n)) else {
            return Ok(());
        };
        change(reader, table, &sums).map_err(|e| {
            let name = self.script.maps.get(n).map_or("", |m| m.name.as_str());
            SessionError::Data(format!("{name}: {e}"))
        })
    }

    /// How much was lost so far, in the order of [`Loss::ALL`].
    ///
    /// # Errors
    /// The device.
    pub fn lost(&self) -> Result<[u64; Loss::ALL.len()], SessionError> {
        let sums = self.sums()?;
        Ok(self.losses.map(|pointer| sums.sum(pointer)))
    }

    /// What printing needs.
    pub fn names(&self) -> impl Names + '_ {
        Shown { running: self }
    }

    /// Takes everything out; gives the last events, and keeps what is in maps for reading.
    ///
    /// # Errors
    /// The device.
    pub fn finish(&mut self, mut each: impl FnMut(Record)) -> Result<Finished, SessionError> {
        let Some(session) = self.session.take() else {
            self.close();
            return Ok(Finished::default());
        };
        let (data, ring, events) = (&mut self.data, &self.ring, &self.made.events);
        let (read, report) = session.finish_with(|device, complete| {
            let sums = data.sums(device)?;
            if let (Some(ring), Some(memory)) = (ring, &data.ring) {
                ring.drain(memory, events, u64::MAX, &mut each)
                    .map_err(|e| SessionError::Data(e.to_string()))?;
            }
            // The mappings keep the device open.
            data.keep();
            Ok((sums, complete))
        })?;
        let (sums, complete) = read.unwrap_or_default();
        self.last = Some(sums);
        Ok(Finished { report, complete })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Errors have nobody to go to here; closing the device restores the text in any case.
        let _ = self.finish(|_| ());
    }
}

/// Names of a running script.
struct Shown<'a, 'k> {
    running: &'a Running<'k>,
}

impl Shown<'_, '_> {
    fn stack(&self, id: u64) -> Option<Vec<u64>> {
        let words = self.running.data.stacks.as_ref()?.all();
        let depth = self.running.data.depth;
        let capacity = words.first()?.load(std::sync::atomic::Ordering::Relaxed) as u32;
        Stacks::new(words, capacity, depth).ok()?.get(id)
    }
}

impl Names for Shown<'_, '_> {
    fn symbol(&self, address: u64) -> Option<(String, u64)> {
        let (symbol, offset) = self.running.kernel.symbols().containing(address)?;
        Some((symbol.id(), offset))
    }

    fn kernel_stack(&self, id: u64) -> Option<Vec<u64>> {
        self.stack(id)
    }

    fn user_stack(&self, id: u64, _: u64) -> Option<Vec<u64>> {
        self.stack(id)
    }

    fn user_symbol(&self, _: u64, _: u64) -> Option<String> {
        None
    }

    fn name(&self, index: u32) -> Option<String> {
        self.running.placing.names.get(index).map(String::from)
    }
}

/// The time stamp counter.
fn clock() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets user space use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The monotonic clock, ns.
pub(crate) fn monotonic() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The programs of a script as they would be, without a driver: for looking at them.
///
/// # Errors
/// As [`Running::start`].
pub fn dry_programs(
    analysis: &Analysis<'_>,
    script: &Script,
    placing: &Placing,
    sizes: &Sizes,
    only: Option<u32>,
) -> Result<Programs, ScriptError> {
    // Addresses as a machine gives them.
    let callouts = abi::Callouts {
        time: 0xffff_ffff_c000_1000,
        boot_time: 0xffff_ffff_c000_1100,
        str: 0xffff_ffff_c000_1200,
        mem: 0xffff_ffff_c000_1300,
        kstack: 0xffff_ffff_c000_1400,
        ustack: 0xffff_ffff_c000_1500,
        bpf: 0xffff_ffff_c000_1600,
    };
    let facts = facts(analysis, &callouts, 0)?;
    let places = super::data::example(script, sizes);
    programs(script, placing, &places, &facts, only)
}
