//! The lab's tests, by area. Each is a row of a table: its name, what it would catch, the kernels, the function.

mod lab;

use crate::suite::LabTest;

/// All of them.
pub fn all() -> Vec<LabTest> {
    let tables: [&[LabTest]; 1] = [lab::TESTS];
    tables.concat()
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
