//! The texts of `func` and `probe`, by number.

use std::collections::HashMap;

/// Names with numbers: programs pass the number.
#[derive(Debug, Clone, Default)]
pub struct NameTable {
    list: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl NameTable {
    /// The number of a name, which is new or was there.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(n) = self.numbers.get(name) {
            return *n;
        }
        let n = self.list.len() as u32;
        self.list.push(name.into());
        self.numbers.insert(name.into(), n);
        n
    }

    /// The name of a number.
    pub fn get(&self, number: u32) -> Option<&str> {
        self.list.get(number as usize).map(String::as_str)
    }
}
