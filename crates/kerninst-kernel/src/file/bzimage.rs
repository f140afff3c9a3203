//! bzImage: the boot protocol's header and the compressed vmlinux (Documentation/arch/x86/boot.rst).

use std::ops::Range;

use super::Reason;
use crate::bytes::{cstr_at, u16_at, u32_at};

/// What the setup header tells.
pub(super) struct BzImage {
    payload: Range<usize>,
    /// File offset of the version text.
    version: Option<usize>,
}

impl BzImage {
    /// `None` if this is no bzImage.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, Reason> {
        const MAGIC: u32 = u32::from_le_bytes(*b"HdrS");
        if u32_at(bytes, 0x202) != Some(MAGIC) {
            return Ok(None);
        }
        let truncated = || Reason::Corrupt("the bzImage is truncated in its header".into());
        let protocol = u16_at(bytes, 0x206).ok_or_else(truncated)?;
        if protocol < 0x208 {
            return Err(Reason::Corrupt(format!(
                "boot protocol {protocol:#x} is too old: payload unknown"
            )));
        }
        let setup_sectors = match bytes.get(0x1f1).copied().ok_or_else(truncated)? {
            0 => 4,
            n => usize::from(n),
        };
        let start = (setup_sectors + 1) * 512;
        let offset = u32_at(bytes, 0x248).ok_or_else(truncated)? as usize;
        let len = u32_at(bytes, 0x24c).ok_or_else(truncated)? as usize;
        let from = start.saturating_add(offset);
        let payload = from..from.saturating_add(len);
        let version = u16_at(bytes, 0x20e)
            .filter(|v| *v != 0)
            .map(|v| usize::from(v) + 0x200);
        Ok(Some(Self { payload, version }))
    }

    pub(super) fn payload<'b>(&self, bytes: &'b [u8]) -> Result<&'b [u8], Reason> {
        bytes.get(self.payload.clone()).filter(|p| p.len() > 8).ok_or_else(|| {
            let Range { start, end } = self.payload;
            Reason::Corrupt(format!(
                "the bzImage is truncated: its payload is at {start:#x}..{end:#x}, the file has {:#x} bytes",
                bytes.len()
            ))
        })
    }

    /// The release: the first word of the version text.
    pub(super) fn release(&self, bytes: &[u8]) -> Option<String> {
        cstr_at(bytes, self.version?)?
            .split(' ')
            .next()
            .filter(|r| !r.is_empty())
            .map(Into::into)
    }
}

/// The payload's last four bytes are its unpacked size, in every format (arch/x86/boot/compressed/mkpiggy.c).
pub(super) fn check_size(payload: &[u8], unpacked: usize) -> Result<(), Reason> {
    let stated = payload
        .len()
        .checked_sub(4)
        .and_then(|at| u32_at(payload, at));
    match stated {
        Some(stated) if stated as usize != unpacked => Err(Reason::Corrupt(format!(
            "its payload unpacks to {unpacked} bytes, and says {stated}"
        ))),
        _ => Ok(()),
    }
}
