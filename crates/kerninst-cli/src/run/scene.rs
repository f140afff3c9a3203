//! What a script's clauses act on in user space, and what its events print.

use std::io::Read;
use std::time::Instant;

use kerninst::SessionError;
use kerninst::script::Running;
use kerninst_lang::hir::{Builtin, Clause, On};
use kerninst_lang::layout::What;
use kerninst_lang::read::Record;
use kerninst_lang::show::{self, json};
use kerninst_lang::value::{Cell, Value};
use kerninst_lang::world::{self, World};

use crate::Fail;

/// Most bytes that `cat` shows of a file.
const CAT: u64 = 1 << 20;

/// A running script and its output.
pub(super) struct Scene<'k> {
    pub running: Running<'k>,
    /// Text that is to be written to stdout.
    pub out: Vec<u8>,
    /// `exit()` was called: what comes after it is not shown any more.
    pub exited: bool,
    json: bool,
    started: Instant,
}

impl<'k> Scene<'k> {
    pub(super) fn new(running: Running<'k>, json: bool) -> Scene<'k> {
        Scene {
            running,
            out: Vec::new(),
            exited: false,
            json,
            started: Instant::now(),
        }
    }

    /// The clock of `elapsed` starts now.
    pub(super) fn start(&mut self) {
        self.started = Instant::now();
    }

    /// Runs the clauses of one kind.
    pub(super) fn clauses(&mut self, on: impl Fn(&On) -> bool) -> Result<(), Fail> {
        let all = self.running.script().clauses.clone();
        for clause in all.iter().filter(|c| c.on.iter().any(&on)) {
            self.clause(clause)?;
        }
        Ok(())
    }

    pub(super) fn clause(&mut self, clause: &Clause) -> Result<(), Fail> {
        world::run(clause, self)
            .map(|_| ())
            .map_err(|e| Fail::Error(e.to_string()))
    }

    /// Does what the events say that have come; how many there were.
    pub(super) fn events(&mut self, most: u64) -> Result<u64, Fail> {
        let mut records = Vec::new();
        let given = self.running.drain(most, |r| records.push(r));
        let given = given.map_err(|e| Fail::Error(e.to_string()))?;
        self.show(records)?;
        Ok(given)
    }

    /// Does what these events say.
    pub(super) fn show(&mut self, records: Vec<Record>) -> Result<(), Fail> {
        for record in records {
            if self.exited {
                break;
            }
            let Some(event) = self.running.events().get(record.event) else {
                continue;
            };
            let what = event.what.clone();
            self.act(&what, record.values)
                .map_err(|e| Fail::Error(e.to_string()))?;
        }
        Ok(())
    }

    /// All maps that are not printed by the script alone, as at the end of a session.
    pub(super) fn maps(&mut self) -> Result<(), Fail> {
        for map in 0..self.running.script().maps.len() as u32 {
            self.map(map, 0, 1)
                .map_err(|e| Fail::Error(e.to_string()))?;
        }
        Ok(())
    }

    fn map(&mut self, map: u32, top: u32, div: u64) -> Result<(), SessionError> {
        let entries = self.running.entries(map)?;
        let Some(about) = self.running.script().maps.get(map as usize) else {
            return Ok(());
        };
        let names = self.running.names();
        let text = match self.json {
            true => json::map(about, &entries.list, top, div, &names).into_bytes(),
            false => show::map_text(about, &entries.list, top, div, &names),
        };
        drop(names);
        self.out.extend(text);
        Ok(())
    }

    fn text(&mut self, kind: &str, text: &[u8]) {
        match self.json {
            true => self.out.extend(json::text(kind, text).into_bytes()),
            false => self.out.extend(text),
        }
    }
}

impl World for Scene<'_> {
    type Error = SessionError;

    fn builtin(&mut self, which: Builtin) -> Value {
        let int = |value: u64, bits: u8| Value::Int {
            value,
            bits,
            signed: false,
        };
        match which {
            Builtin::Pid | Builtin::Tid => int(u64::from(std::process::id()), 32),
            Builtin::Cpu => int(rustix::thread::sched_getcpu() as u64, 32),
            Builtin::Comm => {
                let comm = std::fs::read("/proc/self/comm").unwrap_or_default();
                Value::Text(comm.trim_ascii_end().to_vec())
            }
            Builtin::Nsecs => {
                let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                Value::uint(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
            }
            Builtin::Elapsed => Value::uint(self.started.elapsed().as_nanos() as u64),
            _ => Value::None,
        }
    }

    fn get(&mut self, map: u32, key: &[Value]) -> Option<Cell> {
        // What cannot be read is not there: the next statement that needs the device says why.
        let entries = self.running.entries(map).ok()?;
        let found = entries.list.into_iter().find(|e| e.key == key);
        found.map(|e| e.cell)
    }

    fn set(&mut self, map: u32, key: Vec<Value>, value: Value) -> Result<(), SessionError> {
        self.running.assign(map, &key, &value)
    }

    fn update(&mut self, map: u32, key: Vec<Value>, value: Value) -> Result<(), SessionError> {
        let signed = matches!(value, Value::Int { signed: true, .. });
        // Of `count` there is no value: one more.
        let value = value.as_word().unwrap_or(1);
        self.running.update(map, &key, value, signed)
    }

    fn delete(&mut self, map: u32, key: &[Value]) -> Result<(), SessionError> {
        self.running.delete(map, key)
    }

    fn act(&mut self, what: &What, values: Vec<Value>) -> Result<(), SessionError> {
        match what {
            What::Printf(n) => {
                let format = self.running.script().formats.get(*n as usize);
                let text = match format {
                    Some(format) => show::printf(format, &values, &self.running.names()),
                    None => Vec::new(),
                };
                self.text("printf", &text);
            }
            What::PrintValue => {
                for value in &values {
                    let text = match self.json {
                        true => json::value(value, &self.running.names()).into_bytes(),
                        false => {
                            let mut text = show::value_text(value, &self.running.names());
                            // Stacks end in a newline of their own.
                            if text.last() != Some(&b'\n') {
                                text.push(b'\n');
                            }
                            text
                        }
                    };
                    self.out.extend(text);
                }
            }
            What::PrintMap { map, top, div } => self.map(*map, *top, *div)?,
            What::Clear(map) => self.running.clear(*map, true)?,
            What::Zero(map) => self.running.clear(*map, false)?,
            What::Time(format) => {
                let text = super::clock::local(format);
                self.text("time", &text);
            }
            What::Cat(path) => {
                let mut text = Vec::new();
                let file = std::fs::File::open(path);
                let read = file.and_then(|f| f.take(CAT).read_to_end(&mut text));
                if let Err(e) = read {
                    return Err(SessionError::Data(format!("cat: cannot read {path}: {e}")));
                }
                self.text("cat", &text);
            }
            What::Exit => self.exited = true,
        }
        Ok(())
    }
}
