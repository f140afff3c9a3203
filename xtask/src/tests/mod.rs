//! The lab's tests, by area. Each is a row of a table: its name, what it would catch, the kernels, the function.

mod areas;
mod attach;
mod blocks;
mod coexist;
mod count;
mod cover;
mod endings;
mod input;
mod lab;
mod limits;
mod machine;
pub mod oracle;
mod oracle_blocks;
mod peers;
mod safety;
mod scripts;
mod splices;
mod sweep;
mod tools;
mod versions;

use crate::suite::LabTest;
use kerninst_lab::{Lab, Outcome};

/// All of them.
pub fn all() -> Vec<LabTest> {
    let tables: [&[LabTest]; 19] = [
        lab::TESTS,
        count::TESTS,
        areas::TESTS,
        attach::TESTS,
        blocks::TESTS,
        cover::TESTS,
        endings::TESTS,
        input::TESTS,
        limits::TESTS,
        coexist::TESTS,
        peers::TESTS,
        machine::TESTS,
        safety::TESTS,
        scripts::TESTS,
        splices::TESTS,
        sweep::TESTS,
        tools::TESTS,
        versions::TESTS,
        oracle::TESTS,
    ];
    tables.concat()
}

/// Fails with a sentence unless it holds.
fn ensure(holds: bool, what: impl FnOnce() -> String) -> crate::suite::TestResult {
    if holds { Ok(()) } else { Err(what()) }
}

/// The lines that are JSON.
fn lines_of(output: &str) -> impl Iterator<Item = serde_json::Value> {
    output.lines().filter_map(|l| serde_json::from_str(l).ok())
}

/// Runs a script in a guest; anything but success is an error with all that was said.
fn succeed(lab: Lab, script: &str) -> Result<Outcome, String> {
    let outcome = lab.run(script).map_err(|e| e.to_string())?;
    ensure(outcome.is_success(), || {
        format!("{}{}{}", outcome.stdout, outcome.stderr, outcome.report())
    })?;
    Ok(outcome)
}

/// The lines of JSON with this schema.
fn lines(output: &str, schema: &str) -> Vec<serde_json::Value> {
    lines_of(output).filter(|v| v["schema"] == schema).collect()
}

/// Sum of the counts whose point starts with `prefix` and whose kind is `kind`.
fn total(output: &str, prefix: &str, kind: &str) -> u64 {
    let rows = lines(output, "kerninst.count/1");
    let fits = |v: &&serde_json::Value| {
        v["point"].as_str().is_some_and(|p| p.starts_with(prefix)) && v["kind"] == kind
    };
    rows.iter()
        .filter(fits)
        .filter_map(|v| v["count"].as_u64())
        .sum()
}

#[cfg(test)]
mod unit {
    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = super::all().iter().map(|t| t.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
