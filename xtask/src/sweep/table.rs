//! What a sweep came to.

use super::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Sums over all batches.
#[derive(Default)]
pub struct Table {
    release: String,
    means: String,
    seed: u64,
    batches: u64,
    all_batches: Option<u64>,
    all_functions: Option<u64>,
    sums: BTreeMap<&'static str, u64>,
    tactics: BTreeMap<String, u64>,
    refused: BTreeMap<String, u64>,
    no_version: BTreeMap<String, u64>,
    never_back: BTreeMap<String, u64>,
    violations: Vec<String>,
    violation_count: u64,
    crashes: Vec<Value>,
    left: Vec<String>,
}

const SUMS: [&str; 17] = [
    "functions",
    "unknown",
    "instructions",
    "points",
    "armed",
    "versions",
    "code_bytes",
    "slow",
    "conflicts",
    "unfinished",
    "executed",
    "executions",
    "exact",
    "within",
    "under_way",
    "arming_ms",
    "disarming_ms",
];

fn add(to: &mut BTreeMap<String, u64>, from: &Value) {
    for (name, count) in from.as_object().into_iter().flatten() {
        *to.entry(name.clone()).or_default() += count.as_u64().unwrap_or(0);
    }
}

impl Table {
    /// Of the lines of a sweep.
    pub fn of(release: &str, args: &Args, lines: &[Value]) -> Table {
        let mut table = Table {
            release: release.to_string(),
            means: args.means.clone(),
            seed: args.seed,
            ..Table::default()
        };
        for line in lines {
            match line["sweep"].as_str() {
                Some("batch") => table.batch(line),
                Some("crash") => table.crashes.push(line.clone()),
                Some("end") => {
                    table.all_batches = line["batches"].as_u64();
                    table.all_functions = line["functions"].as_u64();
                    for what in ["left", "text"] {
                        table.left.extend(line[what].as_str().map(str::to_string));
                    }
                }
                _ => {}
            }
        }
        table
    }

    fn batch(&mut self, line: &Value) {
        self.batches += 1;
        for name in SUMS {
            *self.sums.entry(name).or_default() += line[name].as_u64().unwrap_or(0);
        }
        add(&mut self.tactics, &line["tactics"]);
        add(&mut self.refused, &line["refused"]);
        add(&mut self.no_version, &line["no_version"]);
        add(&mut self.never_back, &line["never_back"]);
        self.violation_count += line["violation_count"].as_u64().unwrap_or(0);
        for v in line["violations"].as_array().into_iter().flatten() {
            self.violations.push(format!(
                "batch {}: {}",
                line["batch"],
                v.as_str().unwrap_or("?")
            ));
        }
    }

    fn sum(&self, name: &str) -> u64 {
        self.sums.get(name).copied().unwrap_or(0)
    }

    /// Is everything as it must be?
    pub fn is_good(&self) -> bool {
        self.violation_count == 0 && self.crashes.is_empty() && self.left.is_empty()
    }

    /// As one line of JSON.
    pub fn json(&self) -> Value {
        let mut line = json!({
            "schema": "kerninst.sweep/1", "release": self.release, "means": self.means, "seed": self.seed,
            "batches": self.batches, "all_batches": self.all_batches, "all_functions": self.all_functions,
            "tactics": self.tactics, "refused": self.refused, "no_version": self.no_version,
            "never_back": self.never_back, "violation_count": self.violation_count, "violations": self.violations,
            "crashes": self.crashes, "left": self.left,
        });
        for (name, sum) in &self.sums {
            line[*name] = json!(sum);
        }
        line
    }
}

/// Rows of a Markdown table, most first.
fn rows(f: &mut fmt::Formatter<'_>, counts: &BTreeMap<String, u64>, all: u64) -> fmt::Result {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), (*name).clone()));
    for (name, count) in sorted {
        let share = 100.0 * *count as f64 / all.max(1) as f64;
        writeln!(f, "| {name} | {count} | {share:.3} % |")?;
    }
    Ok(())
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |n: Option<u64>| n.map_or("?".to_string(), |n| n.to_string());
        writeln!(
            f,
            "Sweep of Linux {}, means {}, seed {}: {} of {} functions in {} of {} batches.\n",
            self.release,
            self.means,
            self.seed,
            self.sum("functions"),
            of(self.all_functions),
            self.batches,
            of(self.all_batches)
        )?;
        let points = self.sum("points");
        writeln!(
            f,
            "{points} points on {} instructions, {} armed; {} versions, {} bytes of code; {} points were executed, \
             {} times. {} neighbours in a block counted exactly what they must, {} within bounds; {} visits were taken \
             over into originals.\n",
            self.sum("instructions"),
            self.sum("armed"),
            self.sum("versions"),
            self.sum("code_bytes"),
            self.sum("executed"),
            self.sum("executions"),
            self.sum("exact"),
            self.sum("within"),
            self.sum("under_way")
        )?;
        writeln!(f, "| Served by | Points | |\n|---|---:|---:|")?;
        rows(f, &self.tactics, points)?;
        writeln!(f, "\n| Refused | Points | |\n|---|---:|---:|")?;
        rows(f, &self.refused, points)?;
        if !self.no_version.is_empty() {
            writeln!(f, "\n| No version | Functions | |\n|---|---:|---:|")?;
            rows(f, &self.no_version, self.sum("functions"))?;
        }
        let others = [
            ("points that somebody else has", self.sum("conflicts")),
            ("int3 that no jump replaced in time", self.sum("slow")),
            (
                "rounds whose counts could not be read at the end",
                self.sum("unfinished"),
            ),
            (
                "functions that the analysis does not know",
                self.sum("unknown"),
            ),
        ];
        for (what, count) in others.iter().filter(|(_, n)| *n > 0) {
            writeln!(f, "\n{count} {what}.")?;
        }
        if !self.never_back.is_empty() {
            writeln!(f, "\nCalls that never came back, in: {:?}", self.never_back)?;
        }
        writeln!(
            f,
            "\n{} violations, {} crashes.",
            self.violation_count,
            self.crashes.len()
        )?;
        for violation in self.violations.iter().take(50) {
            writeln!(f, "- {violation}")?;
        }
        for crash in &self.crashes {
            writeln!(
                f,
                "- batch {}: {}, by {}",
                crash["batch"], crash["why"], crash["function"]
            )?;
        }
        for left in &self.left {
            writeln!(f, "- left behind: {left}")?;
        }
        Ok(())
    }
}
