//! A snapshot of executable memory.

use std::ops::Range;

/// One executable range and its bytes at the time of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The module it belongs to; `None` for the core kernel.
    pub module: Option<String>,
    /// Address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Init text: runs once at boot (or module load) and is freed afterwards.
    pub init: bool,
}

impl Text {
    /// Address after the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }
    /// `start..end`.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.start..self.end()
    }
    /// The bytes of `addr..addr+len`, if they are all in this range.
    #[must_use]
    pub fn get(&self, addr: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(addr.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }
}
