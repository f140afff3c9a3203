//! Points that record whether they were executed: bytes in the patch module, set by one instruction each.

use crate::arm::new_site;
use crate::error::{ArmError, SessionError};
use kerninst_driver::abi::{Site, site};
use kerninst_driver::{PatchText, module_section};
use kerninst_patch::{HITS, Splice};
use kerninst_snippet::HitSite;

/// The instructions of a session that set bytes.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    /// Address of byte 0.
    base: u64,
    /// How many bytes.
    count: usize,
    /// Number of the byte and address of each instruction that is still there, by address.
    there: Vec<(u32, u64)>,
}

/// How the instruction begins (`movb $1, disp(%rip)`), and what makes it a jump over the rest of itself. Two bytes: the kernel's
/// poking takes no nop of seven.
const SET: [u8; 2] = [0xc6, 0x05];
const OVER: [u8; 2] = [0xeb, (HitSite::LEN - 2) as u8];

impl Hits {
    /// Those of `splices`, whose patches start at `offsets` in `text`.
    pub(crate) fn of(
        splices: &[Splice],
        offsets: &[u64],
        text: &PatchText,
    ) -> Result<Hits, ArmError> {
        let mut there = Vec::new();
        for (splice, offset) in splices.iter().zip(offsets) {
            let at = |h: &HitSite| (h.flag, text.base + offset + u64::from(h.offset));
            there.extend(splice.patch.hits.iter().map(at));
        }
        let Some(last) = there.iter().map(|(flag, _)| *flag).max() else {
            return Ok(Hits::default());
        };
        there.sort_unstable_by_key(|(_, addr)| *addr);
        Ok(Hits {
            base: module_section(&text.name, HITS)?,
            count: last as usize + 1,
            there,
        })
    }

    /// All bytes: not 0, executed.
    pub(crate) fn read(&self) -> Result<Vec<u8>, SessionError> {
        kerninst_kernel::read_memory(self.base, self.count)
            .map_err(|e| SessionError::Hits(e.to_string()))
    }

    /// What makes jumps of the instructions that have done their work.
    pub(crate) fn done(&self) -> Result<Vec<Site>, SessionError> {
        let bytes = self.read()?;
        let hit = |flag: u32| bytes.get(flag as usize).is_some_and(|b| *b != 0);
        let done = self.there.iter().filter(|(flag, _)| hit(*flag));
        let jump = |(_, addr): &(u32, u64)| {
            let to = addr + u64::from(HitSite::LEN);
            new_site(*addr, site::LIVE, &SET, &OVER, to)
        };
        Ok(done.map(jump).collect())
    }

    /// These are no longer there.
    pub(crate) fn forget(&mut self, sites: &[Site]) {
        let gone = |addr: &u64| sites.binary_search_by_key(addr, |s| s.addr).is_ok();
        self.there.retain(|(_, addr)| !gone(addr));
    }

    /// How many are still there.
    pub(crate) fn left(&self) -> usize {
        self.there.len()
    }
}
