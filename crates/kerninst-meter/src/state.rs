//! What the plugin knows and does, apart from talking to QEMU: which counters an instruction adds to, and what markers do.

use crate::counter::{Arena, Counter};
use crate::marker::{decode, op};
use crate::report::{Counts, Region, SCHEMA, quoted, samples_json};
use crate::samples::summary;
use std::collections::HashMap;
use std::io::Write;

/// The kernel's half of the address space (Documentation/arch/x86/x86_64/mm.rst; with five-level paging it starts lower,
/// but nothing executable lies below this).
const KERNEL: u64 = 0xffff_8000_0000_0000;
/// At most so many address ranges.
const RANGES: usize = 64;
/// At most so many events in one series of samples.
const SAMPLES: usize = 10_000_000;

/// What counting does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Off,
    Counts,
    Histogram,
}

/// A pair of counters: ordinary instructions, and iterations of `rep` ones.
#[derive(Clone, Copy)]
struct Pair {
    insns: Counter,
    rep: Counter,
}

impl Pair {
    fn new(arena: &mut Arena) -> Pair {
        Pair {
            insns: arena.counter(),
            rep: arena.counter(),
        }
    }

    fn get(self) -> Counts {
        Counts {
            insns: self.insns.get(),
            rep: self.rep.get(),
        }
    }

    fn pick(self, rep: bool) -> Counter {
        if rep { self.rep } else { self.insns }
    }
}

/// An instruction's machine code: length and bytes.
type Code = (u8, [u8; 15]);

/// What QEMU is to do at an instruction.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Call [`State::marker`] with this payload; count nothing.
    Marker(u16),
    /// Add one to each of these.
    Count(Vec<Counter>),
}

/// What QEMU is to do after a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    Nothing,
    /// Throw all translated code away and translate anew, with the mode that is then due.
    Retranslate,
}

struct Snapshot {
    armed: bool,
    kernel: Counts,
    user: Counts,
    ranges: Vec<Counts>,
}

#[derive(Default)]
struct Series {
    begun: Option<(bool, u64, u64)>,
    armed: bool,
    kernel: Vec<u64>,
    user: Vec<u64>,
}

/// Everything the plugin knows.
pub(crate) struct State {
    out: Box<dyn Write + Send>,
    /// Histograms are written to this path with `.hist.ID` appended.
    base: String,
    arena: Arena,
    mode: Mode,
    wanted: Mode,
    kernel: Pair,
    user: Pair,
    ranges: Vec<((u64, u64), Pair)>,
    histogram: HashMap<(u64, Code), (Counter, bool)>,
    regions: HashMap<u8, Snapshot>,
    samples: HashMap<u8, Series>,
    nibbles: Vec<u8>,
    words: Vec<u64>,
    seq: u64,
    markers: u64,
}

impl State {
    pub(crate) fn new(out: Box<dyn Write + Send>, base: String, vcpus: i64) -> State {
        let mut arena = Arena::default();
        let kernel = Pair::new(&mut arena);
        let user = Pair::new(&mut arena);
        let mut state = State {
            out,
            base,
            arena,
            mode: Mode::Off,
            wanted: Mode::Off,
            kernel,
            user,
            ranges: Vec::new(),
            histogram: HashMap::new(),
            regions: HashMap::new(),
            samples: HashMap::new(),
            nibbles: Vec::new(),
            words: Vec::new(),
            seq: 0,
            markers: 0,
        };
        state.line(&format!(
            "{{\"event\":\"start\",\"schema\":{SCHEMA},\"vcpus\":{vcpus}}}"
        ));
        state
    }

    fn line(&mut self, text: &str) {
        // There is nobody to tell but the file itself; the lab misses the "end" line.
        let _ = self.out.write_all(text.as_bytes());
        let _ = self.out.write_all(b"\n");
        let _ = self.out.flush();
    }

    pub(crate) fn error(&mut self, message: &str) {
        self.line(&format!(
            "{{\"event\":\"error\",\"message\":{}}}",
            quoted(message)
        ));
    }

    /// The mode asked for is in force from now: all code is translated anew.
    pub(crate) fn retranslated(&mut self) {
        self.mode = self.wanted;
    }

    /// What to do at an instruction that is being translated; `None`: nothing.
    pub(crate) fn translate(&mut self, address: u64, code: &[u8]) -> Option<Plan> {
        if let Some(payload) = decode(code) {
            return Some(Plan::Marker(payload));
        }
        if self.mode == Mode::Off {
            return None;
        }
        let rep = is_rep_string(code);
        let mut counters = Vec::with_capacity(3);
        if address < KERNEL {
            counters.push(self.user.pick(rep));
        } else {
            counters.push(self.kernel.pick(rep));
            if self.mode == Mode::Histogram {
                let mut bytes = [0; 15];
                for (place, byte) in bytes.iter_mut().zip(code) {
                    *place = *byte;
                }
                let length = u8::try_from(code.len().min(15)).unwrap_or(15);
                let arena = &mut self.arena;
                let row = self
                    .histogram
                    .entry((address, (length, bytes)))
                    .or_insert_with(|| (arena.counter(), rep));
                counters.push(row.0);
            }
        }
        for ((start, end), pair) in &self.ranges {
            if (*start..*end).contains(&address) {
                counters.push(pair.pick(rep));
            }
        }
        Some(Plan::Count(counters))
    }

    /// Carries out a marker that a guest CPU has reached.
    pub(crate) fn marker(&mut self, payload: u16, vcpu: u32) -> After {
        self.markers += 1;
        let [argument, operation] = payload.to_le_bytes();
        match operation {
            op::NIBBLE => self.nibble(argument),
            op::BEGIN => {
                let now = self.snapshot();
                self.regions.insert(argument, now);
            }
            op::END => self.end(argument, vcpu),
            op::RANGE => return self.range(),
            op::ARM => {
                self.wanted = if argument & 1 == 0 {
                    Mode::Counts
                } else {
                    Mode::Histogram
                };
                return After::Retranslate;
            }
            op::DISARM => {
                self.wanted = Mode::Off;
                return After::Retranslate;
            }
            op::ZERO => self
                .histogram
                .values()
                .for_each(|(counter, _)| counter.zero()),
            op::DUMP => self.dump(argument),
            op::SAMPLE_BEGIN => {
                let at = (self.armed(), self.kernel.get().insns, self.user.get().insns);
                self.samples.entry(argument).or_default().begun = Some(at);
            }
            op::SAMPLE_END => self.sample_end(argument),
            op::SAMPLE_REPORT => self.sample_report(argument),
            _ => self.error(&format!("unknown marker {payload:#06x}")),
        }
        After::Nothing
    }

    fn armed(&self) -> bool {
        self.mode != Mode::Off && self.mode == self.wanted
    }

    fn nibble(&mut self, bits: u8) {
        self.nibbles.push(bits & 15);
        if self.nibbles.len() == 16 {
            let word = self
                .nibbles
                .iter()
                .rev()
                .fold(0, |word, n| word << 4 | u64::from(*n));
            self.nibbles.clear();
            self.words.push(word);
        }
    }

    fn range(&mut self) -> After {
        let (end, start) = (self.words.pop(), self.words.pop());
        self.words.clear();
        let (Some(start), Some(end)) = (start, end) else {
            self.error("a range needs two words before it");
            return After::Nothing;
        };
        if start >= end || self.ranges.len() >= RANGES {
            self.error(&format!("cannot count the range {start:#x}..{end:#x}"));
            return After::Nothing;
        }
        let pair = Pair::new(&mut self.arena);
        self.ranges.push(((start, end), pair));
        if self.wanted == Mode::Off {
            After::Nothing
        } else {
            After::Retranslate
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            armed: self.armed(),
            kernel: self.kernel.get(),
            user: self.user.get(),
            ranges: self.ranges.iter().map(|(_, pair)| pair.get()).collect(),
        }
    }

    fn end(&mut self, id: u8, vcpu: u32) {
        let now = self.snapshot();
        let Some(before) = self.regions.remove(&id) else {
            return self.error(&format!("region {id} ends but never began"));
        };
        self.seq += 1;
        let ranges: Vec<_> = self
            .ranges
            .iter()
            .zip(&now.ranges)
            .enumerate()
            .map(|(n, ((range, _), counts))| {
                let before = before.ranges.get(n).copied().unwrap_or_default();
                (*range, counts.since(before))
            })
            .collect();
        let region = Region {
            id,
            seq: self.seq,
            vcpu,
            armed: before.armed && now.armed,
            kernel: now.kernel.since(before.kernel),
            user: now.user.since(before.user),
            ranges: &ranges,
        };
        let text = region.json();
        self.line(&text);
    }

    fn sample_end(&mut self, id: u8) {
        let (armed, kernel, user) = (self.armed(), self.kernel.get().insns, self.user.get().insns);
        let series = self.samples.entry(id).or_default();
        let Some((began_armed, began_kernel, began_user)) = series.begun.take() else {
            return self.error(&format!("an event of series {id} ends but never began"));
        };
        if series.kernel.len() >= SAMPLES {
            return self.error(&format!("series {id} has too many events"));
        }
        let armed = armed && began_armed;
        series.armed = armed && (series.armed || series.kernel.is_empty());
        series.kernel.push(kernel.wrapping_sub(began_kernel));
        series.user.push(user.wrapping_sub(began_user));
    }

    fn sample_report(&mut self, id: u8) {
        let Some(mut series) = self.samples.remove(&id) else {
            return self.error(&format!("series {id} has no events"));
        };
        let count = series.kernel.len();
        let both = summary(&mut series.kernel).zip(summary(&mut series.user));
        let Some((kernel, user)) = both else {
            return self.error(&format!("series {id} has no events"));
        };
        self.line(&samples_json(id, count, series.armed, kernel, user));
    }

    fn dump(&mut self, id: u8) {
        let path = format!("{}.hist.{id}", self.base);
        let mut rows: Vec<_> = self
            .histogram
            .iter()
            .filter(|(_, (counter, _))| counter.get() != 0)
            .map(|((address, (length, bytes)), (counter, rep))| {
                (*address, *length, *bytes, counter.get(), *rep)
            })
            .collect();
        rows.sort_unstable();
        let mut text = String::from("# kerninst-meter histogram 1: ADDRESS COUNT CODE [rep]\n");
        for (address, length, bytes, count, rep) in &rows {
            text.push_str(&format!("{address:x} {count} "));
            for byte in bytes.iter().take(usize::from(*length)) {
                text.push_str(&format!("{byte:02x}"));
            }
            text.push_str(if *rep { " rep\n" } else { "\n" });
        }
        match std::fs::write(&path, text) {
            Ok(()) => {
                let armed = self.armed() && self.mode == Mode::Histogram;
                let line = format!(
                    "{{\"event\":\"histogram\",\"id\":{id},\"file\":{},\"rows\":{},\"armed\":{armed}}}",
                    quoted(&path),
                    rows.len()
                );
                self.line(&line);
            }
            Err(e) => self.error(&format!("cannot write {path}: {e}")),
        }
    }

    /// QEMU ends.
    pub(crate) fn finish(&mut self) {
        let line = format!("{{\"event\":\"end\",\"markers\":{}}}", self.markers);
        self.line(&line);
    }
}

/// Whether this is a string instruction with a repeat prefix: ins, outs, movs, cmps, stos, lods, scas after f2 or f3 and
/// any other prefixes (Intel SDM volume 2, "REP/REPE/REPNE").
fn is_rep_string(code: &[u8]) -> bool {
    let mut repeated = false;
    for byte in code {
        match byte {
            0xf2 | 0xf3 => repeated = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0x40..=0x4f => {}
            0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf => return repeated,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marker::{encode, payload};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn state() -> (State, Sink) {
        let sink = Sink::default();
        (State::new(Box::new(sink.clone()), String::new(), 1), sink)
    }

    fn last(sink: &Sink) -> String {
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        text.lines().last().unwrap_or_default().to_string()
    }

    fn execute(state: &mut State, address: u64, code: &[u8]) {
        if let Some(Plan::Count(counters)) = state.translate(address, code) {
            counters.iter().for_each(|c| c.add(1));
        }
    }

    #[test]
    fn a_marker_is_found_and_only_a_marker() {
        let (mut state, _) = state();
        let code = encode(payload(op::BEGIN, 7));
        assert!(matches!(
            state.translate(0x1000, &code),
            Some(Plan::Marker(0x0107))
        ));
        assert!(state.translate(0x1000, &code[..7]).is_none());
        assert!(state.translate(0x1000, &[0x90]).is_none());
    }

    #[test]
    fn a_region_counts_kernel_user_rep_and_ranges_apart() {
        let (mut state, sink) = state();
        for word in [0xffff_ffff_8100_0000u64, 0xffff_ffff_8100_0010] {
            for n in 0..16 {
                state.marker(payload(op::NIBBLE, (word >> (4 * n)) as u8 & 15), 0);
            }
        }
        assert_eq!(state.marker(payload(op::RANGE, 0), 0), After::Nothing);
        assert_eq!(state.marker(payload(op::ARM, 0), 0), After::Retranslate);
        state.retranslated();
        state.marker(payload(op::BEGIN, 1), 0);
        execute(&mut state, 0x40_0000, &[0x90]);
        execute(&mut state, 0xffff_ffff_8100_0000, &[0x90]);
        execute(&mut state, 0xffff_ffff_8100_0010, &[0xf3, 0x48, 0xa5]);
        state.marker(payload(op::END, 1), 0);
        assert_eq!(
            last(&sink),
            "{\"event\":\"region\",\"id\":1,\"seq\":1,\"vcpu\":0,\"armed\":true,\"kernel\":1,\"user\":1,\
             \"kernel_rep\":1,\"user_rep\":0,\"ranges\":[{\"start\":\"0xffffffff81000000\",\
             \"end\":\"0xffffffff81000010\",\"insns\":1,\"rep\":0}]}"
        );
    }

    #[test]
    fn what_was_measured_before_arming_took_effect_says_so() {
        let (mut state, sink) = state();
        state.marker(payload(op::ARM, 0), 0);
        state.marker(payload(op::BEGIN, 1), 0);
        state.retranslated();
        state.marker(payload(op::END, 1), 0);
        assert!(last(&sink).contains("\"armed\":false"), "{}", last(&sink));
    }

    #[test]
    fn changed_code_at_one_address_has_its_own_row() {
        let (mut state, _) = state();
        state.marker(payload(op::ARM, 1), 0);
        state.retranslated();
        let at = 0xffff_ffff_8100_0000;
        execute(&mut state, at, &[0x90]);
        execute(&mut state, at, &[0xe9, 0, 0, 0, 0]);
        execute(&mut state, at, &[0xe9, 0, 0, 0, 0]);
        let mut counts: Vec<u64> = state.histogram.values().map(|(c, _)| c.get()).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 2]);
    }

    #[test]
    fn string_instructions_are_told_from_others_with_f3() {
        assert!(is_rep_string(&[0xf3, 0xa4]));
        assert!(is_rep_string(&[0xf3, 0x48, 0xab]));
        assert!(is_rep_string(&[0x67, 0xf2, 0xae]));
        assert!(!is_rep_string(&[0xf3, 0x90])); // pause
        assert!(!is_rep_string(&[0xf3, 0x0f, 0x1e, 0xfa])); // endbr64
        assert!(!is_rep_string(&[0xf3, 0xc3])); // rep ret
        assert!(!is_rep_string(&[0x48, 0xa5]));
        assert!(!is_rep_string(&[]));
    }

    #[test]
    fn every_payload_is_answered() {
        let (mut state, _) = state();
        for payload in 0..=u16::MAX {
            if payload.to_le_bytes()[1] != op::DUMP {
                state.marker(payload, 0);
            }
        }
    }
}
