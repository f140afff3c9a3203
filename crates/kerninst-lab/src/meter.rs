//! The meter: QEMU's plugin `kerninst-meter`, and what it wrote.
//!
//! The format is described in that crate (`report.rs`); the guest steers it with `kerninst-guest` or with marker
//! instructions of its own.

use crate::error::{At, Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The version of the meter's output that this crate reads.
const SCHEMA: u32 = 1;

/// A request to count instructions.
#[derive(Debug, Clone)]
pub struct Meter {
    plugin: PathBuf,
}

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MeterReport {
    /// Regions in the order in which they ended.
    pub regions: Vec<Region>,
    /// Series of samples in the order in which they were reported.
    pub samples: Vec<Samples>,
    /// Histograms in the order in which they were written.
    pub histograms: Vec<Histogram>,
    /// Why these figures cannot be trusted; empty if they can.
    pub problems: Vec<String>,
}

/// What all CPUs executed between two markers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// The number that the guest gave it.
    pub id: u8,
    /// The CPU that ended it.
    pub vcpu: u32,
    /// Whether counting was on all the time.
    pub armed: bool,
    /// Kernel instructions, without `rep` iterations.
    pub kernel: u64,
    /// User instructions, without `rep` iterations.
    pub user: u64,
    /// Iterations of repeated string instructions in the kernel.
    pub kernel_rep: u64,
    /// The same in user space.
    pub user_rep: u64,
    /// The address ranges that the guest named.
    pub ranges: Vec<RangeCount>,
}

/// Instructions executed in an address range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeCount {
    /// Its first address, in hexadecimal with 0x.
    pub start: String,
    /// The address after its last.
    pub end: String,
    /// Instructions.
    pub insns: u64,
    /// Iterations of repeated string instructions.
    pub rep: u64,
}

/// Instructions of single events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// The number that the guest gave the series.
    pub id: u8,
    /// How many events.
    pub count: u64,
    /// Whether counting was on all the time.
    pub armed: bool,
    /// Kernel instructions per event.
    pub kernel: Summary,
    /// User instructions per event.
    pub user: Summary,
}

/// A summary of a series; each but the mean is a value that occurred, the mean is rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The least.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// Nine in ten are not above it.
    pub p90: u64,
    /// The greatest.
    pub max: u64,
    /// The mean.
    pub mean: u64,
}

/// How often each kernel instruction was executed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// The number that the guest gave it.
    pub id: u8,
    /// By address; several rows of one address are different machine code that was there at different times.
    pub rows: Vec<Row>,
}

/// One kernel instruction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its address.
    pub address: u64,
    /// How often it was executed (`rep`: iterations).
    pub count: u64,
    /// Its machine code.
    pub code: Vec<u8>,
    /// Whether it is a repeated string instruction.
    pub rep: bool,
}

impl Histogram {
    /// All rows of an address.
    pub fn at(&self, address: u64) -> &[Row] {
        let from = self.rows.partition_point(|row| row.address < address);
        let to = self.rows.partition_point(|row| row.address <= address);
        self.rows.get(from..to).unwrap_or_default()
    }

    /// How often an instruction at that address was executed, whatever the code was.
    pub fn count(&self, address: u64) -> u64 {
        self.at(address).iter().map(|row| row.count).sum()
    }

    /// How often the instruction at that address was executed while its code began with these bytes.
    pub fn count_of(&self, address: u64, code: &[u8]) -> u64 {
        let rows = self.at(address).iter();
        rows.filter(|row| row.code.starts_with(code))
            .map(|row| row.count)
            .sum()
    }

    fn parse(id: u8, text: &str) -> std::result::Result<Histogram, String> {
        let mut rows = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            rows.push(
                row(line).ok_or_else(|| format!("histogram {id} has the odd line \"{line}\""))?,
            );
        }
        Ok(Histogram { id, rows })
    }
}

fn row(line: &str) -> Option<Row> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let count = words.next()?.parse().ok()?;
    let digits = words.next()?;
    let code: Option<Vec<u8>> = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
        .collect();
    let rep = words.next() == Some("rep");
    Some(Row {
        address,
        count,
        code: code?,
        rep,
    })
}

/// A line of the meter's output.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Start { schema: u32 },
    Region(Region),
    Samples(Samples),
    Histogram { id: u8, file: PathBuf, armed: bool },
    Error { message: String },
    End {},
}

impl Meter {
    /// The plugin built from `kerninst-meter` (`libkerninst_meter.so`).
    pub fn new(plugin: impl Into<PathBuf>) -> Meter {
        Meter {
            plugin: plugin.into(),
        }
    }

    /// QEMU's `-plugin` argument.
    pub(crate) fn argument(&self, out: &Path) -> Result<String> {
        std::fs::metadata(&self.plugin).at("read", &self.plugin)?;
        let plugin = std::path::absolute(&self.plugin).at("read", &self.plugin)?;
        Ok(format!(
            "{},out={}",
            crate::qemu::text(&plugin)?,
            crate::qemu::text(out)?
        ))
    }

    /// Reads what was written. `whole`: the guest ended by itself, so nothing may be missing.
    pub(crate) fn read(&self, out: &Path, whole: bool) -> Result<MeterReport> {
        let text = std::fs::read_to_string(out).at("read", out)?;
        let mut report = MeterReport::default();
        let mut ended = false;
        for line in text.lines() {
            match serde_json::from_str(line) {
                Ok(Event::End {}) => ended = true,
                Ok(event) => report.add(event)?,
                Err(e) => report
                    .problems
                    .push(format!("the meter wrote the odd line \"{line}\": {e}")),
            }
        }
        if whole && !ended {
            report
                .problems
                .push("the meter did not write its last line".into());
        }
        Ok(report)
    }
}

impl MeterReport {
    /// The first region of that number.
    pub fn region(&self, id: u8) -> Option<&Region> {
        self.regions.iter().find(|r| r.id == id)
    }

    /// The first series of that number.
    pub fn series(&self, id: u8) -> Option<&Samples> {
        self.samples.iter().find(|s| s.id == id)
    }

    /// The last histogram of that number.
    pub fn histogram(&self, id: u8) -> Option<&Histogram> {
        self.histograms.iter().rfind(|h| h.id == id)
    }

    fn add(&mut self, event: Event) -> Result<()> {
        let mut unarmed = |what: &str, id: u8| {
            self.problems.push(format!(
                "{what} {id} was not counted all the time (the meter was not armed yet)"
            ));
        };
        match event {
            Event::Start { schema } if schema != SCHEMA => {
                return Err(Error::Unsupported(format!(
                    "the meter writes format {schema}, this lab reads {SCHEMA}: build both anew"
                )));
            }
            Event::Start { .. } | Event::End {} => {}
            Event::Region(region) => {
                if !region.armed {
                    unarmed("region", region.id);
                }
                self.regions.push(region);
            }
            Event::Samples(samples) => {
                if !samples.armed {
                    unarmed("series", samples.id);
                }
                self.samples.push(samples);
            }
            Event::Histogram { id, file, armed } => {
                if !armed {
                    unarmed("histogram", id);
                }
                let text = std::fs::read_to_string(&file).at("read", &file)?;
                match Histogram::parse(id, &text) {
                    Ok(histogram) => self.histograms.push(histogram),
                    Err(problem) => self.problems.push(problem),
                }
            }
            Event::Error { message } => self.problems.push(message),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_read_back() {
        let text = "# kerninst-meter histogram 1\nffffffff81000000 3 90\nffffffff81000000 2 e900000000\nffffffff81000005 9 f348a5 rep\n";
        let h = Histogram::parse(1, text).unwrap();
        assert_eq!(h.count(0xffff_ffff_8100_0000), 5);
        assert_eq!(h.count_of(0xffff_ffff_8100_0000, &[0xe9]), 2);
        assert_eq!(h.count(0xffff_ffff_8100_0001), 0);
        assert!(h.at(0xffff_ffff_8100_0005)[0].rep);
        assert!(Histogram::parse(1, "zz 1 90\n").is_err());
        assert!(Histogram::parse(1, "10 1 9\n").is_err());
    }

    #[test]
    fn events_are_read_and_doubts_are_kept() {
        let mut report = MeterReport::default();
        let line = r#"{"event":"region","id":1,"seq":1,"vcpu":0,"armed":false,"kernel":1,"user":2,"kernel_rep":0,"user_rep":0,"ranges":[{"start":"0x10","end":"0x20","insns":1,"rep":0}]}"#;
        report.add(serde_json::from_str(line).unwrap()).unwrap();
        assert_eq!(report.region(1).map(|r| (r.kernel, r.user)), Some((1, 2)));
        assert_eq!(report.problems.len(), 1);
    }
}
