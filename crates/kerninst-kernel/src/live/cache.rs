//! Page-wise reading for walks over lists in kernel memory: neighbours are often in one page.

use std::collections::HashMap;

use crate::bytes::{u32_at, u64_at};
use crate::{Error, Memory};

const PAGE: u64 = 4096;

/// Remembers the pages that were read. For one walk: memory that changes meanwhile is seen as it was.
pub(crate) struct PageCache<'m> {
    memory: &'m dyn Memory,
    pages: HashMap<u64, Vec<u8>>,
}

impl<'m> PageCache<'m> {
    pub(crate) fn new(memory: &'m dyn Memory) -> Self {
        Self {
            memory,
            pages: HashMap::new(),
        }
    }

    /// Reads `len` bytes at `addr`.
    pub(crate) fn read(&mut self, addr: u64, len: usize) -> Result<Vec<u8>, Error> {
        let base = addr & !(PAGE - 1);
        let inside = (addr - base) as usize;
        if inside + len > PAGE as usize {
            return self.memory.read(addr, len);
        }
        if !self.pages.contains_key(&base) {
            let page = self.memory.read(base, PAGE as usize)?;
            self.pages.insert(base, page);
        }
        let page = self
            .pages
            .get(&base)
            .and_then(|p| p.get(inside..inside + len));
        page.map(<[u8]>::to_vec)
            .ok_or(Error::Unmapped { addr, len })
    }

    pub(crate) fn u64(&mut self, addr: u64) -> Result<u64, Error> {
        u64_at(&self.read(addr, 8)?, 0).ok_or(Error::Unmapped { addr, len: 8 })
    }

    pub(crate) fn u32(&mut self, addr: u64) -> Result<u32, Error> {
        u32_at(&self.read(addr, 4)?, 0).ok_or(Error::Unmapped { addr, len: 4 })
    }
}
