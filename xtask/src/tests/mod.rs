//! The lab's tests, by area. Each is a row of a table: its name, what it would catch, the kernels, the function.

mod coexist;
mod count;
mod input;
mod lab;
pub mod oracle;
mod safety;

use crate::suite::LabTest;

/// All of them.
pub fn all() -> Vec<LabTest> {
    let tables: [&[LabTest]; 6] = [
        lab::TESTS,
        count::TESTS,
        input::TESTS,
        coexist::TESTS,
        safety::TESTS,
        oracle::TESTS,
    ];
    tables.concat()
}

/// Fails with a sentence unless it holds.
fn ensure(holds: bool, what: impl FnOnce() -> String) -> crate::suite::TestResult {
    if holds { Ok(()) } else { Err(what()) }
}

/// The lines of JSON with this schema.
fn lines(output: &str, schema: &str) -> Vec<serde_json::Value> {
    let parsed = output
        .lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    parsed.filter(|v| v["schema"] == schema).collect()
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
