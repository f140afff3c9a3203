//! Reading bytes by kernel address, whatever they come from.

use crate::Error;

/// Kernel memory that can be read: `/proc/kcore`, or the sections of a file.
pub trait Memory: Send + Sync {
    /// Reads exactly `len` bytes at `addr`.
    ///
    /// # Errors
    /// [`Error::Unmapped`] when any byte of the range is not there; [`Error::Io`] when the system
    /// refuses.
    fn read(&self, addr: u64, len: usize) -> Result<Vec<u8>, Error>;
}

/// Memory given as values, for tests and for files: disjoint segments sorted by address.
#[derive(Default)]
pub(crate) struct Segments {
    /// Sorted by start address.
    parts: Vec<(u64, Vec<u8>)>,
}

impl Segments {
    pub(crate) fn add(&mut self, start: u64, bytes: Vec<u8>) {
        let at = self.parts.partition_point(|p| p.0 <= start);
        self.parts.insert(at, (start, bytes));
    }

    /// The bytes at `addr`, when they lie in one segment.
    pub(crate) fn get(&self, addr: u64, len: usize) -> Option<&[u8]> {
        let at = self.parts.partition_point(|p| p.0 <= addr).checked_sub(1)?;
        let (start, bytes) = self.parts.get(at)?;
        let from = usize::try_from(addr.checked_sub(*start)?).ok()?;
        bytes.get(from..from.checked_add(len)?)
    }
}

impl Memory for Segments {
    fn read(&self, addr: u64, len: usize) -> Result<Vec<u8>, Error> {
        self.get(addr, len)
            .map(<[u8]>::to_vec)
            .ok_or(Error::Unmapped { addr, len })
    }
}
