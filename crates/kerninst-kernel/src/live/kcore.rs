//! `/proc/kcore`: kernel memory as an ELF core file (fs/proc/kcore.c).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::bytes::{u16_at, u32_at, u64_at};
use crate::{Error, Memory};

const PATH: &str = "/proc/kcore";

/// One mapped range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    addr: u64,
    size: u64,
    offset: u64,
}

/// The open file and its segments.
pub(crate) struct Kcore {
    file: File,
    /// Sorted by address.
    segments: Vec<Segment>,
}

impl Kcore {
    pub(crate) fn open() -> Result<Self, Error> {
        let file = File::open(PATH).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::Unsupported("there is no /proc/kcore: is /proc mounted, and CONFIG_PROC_KCORE set?".into())
            }
            std::io::ErrorKind::PermissionDenied => Error::Unsupported(
                "/proc/kcore may not be opened: root (CAP_SYS_RAWIO) is needed, and no lockdown in confidentiality mode".into(),
            ),
            _ => Error::io(PATH, e),
        })?;
        let mut head = vec![0; 1 << 16];
        let mut have = 0;
        // The headers are read in one or two calls; a short read at their end is normal.
        while let Some(rest) = head.get_mut(have..).filter(|r| !r.is_empty()) {
            match file
                .read_at(rest, have as u64)
                .map_err(|e| Error::io(Path::new(PATH), e))?
            {
                0 => break,
                n => have += n,
            }
        }
        head.truncate(have);
        let segments = parse_segments(&head).map_err(|reason| Error::corrupt(PATH, reason))?;
        Ok(Self { file, segments })
    }

    /// The range of the kernel's image: `_text.._end`.
    pub(crate) fn image(&self) -> Option<std::ops::Range<u64>> {
        // KASLR keeps the image in -2 GiB..-1 GiB; modules and fixmap are above.
        let text = self
            .segments
            .iter()
            .find(|s| (0xffff_ffff_8000_0000..0xffff_ffff_c000_0000).contains(&s.addr))?;
        Some(text.addr..text.addr.checked_add(text.size)?)
    }
}

/// The PT_LOAD program headers.
fn parse_segments(head: &[u8]) -> Result<Vec<Segment>, &'static str> {
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return Err("not a 64-bit little-endian ELF file");
    }
    let truncated = "truncated program headers";
    let start = u64_at(head, 0x20)
        .and_then(|o| usize::try_from(o).ok())
        .ok_or(truncated)?;
    let size = usize::from(u16_at(head, 0x36).ok_or(truncated)?);
    let count = usize::from(u16_at(head, 0x38).ok_or(truncated)?);
    let mut segments = Vec::new();
    for i in 0..count {
        let at = start.checked_add(i * size).ok_or(truncated)?;
        let field = |o: usize| {
            at.checked_add(o)
                .and_then(|a| u64_at(head, a))
                .ok_or(truncated)
        };
        if u32_at(head, at) == Some(1) {
            segments.push(Segment {
                offset: field(8)?,
                addr: field(16)?,
                size: field(40)?,
            });
        } else {
            field(0)?;
        }
    }
    segments.sort_by_key(|s| s.addr);
    Ok(segments)
}

impl Memory for Kcore {
    fn read(&self, addr: u64, len: usize) -> Result<Vec<u8>, Error> {
        let unmapped = || Error::Unmapped { addr, len };
        let at = self
            .segments
            .partition_point(|s| s.addr <= addr)
            .checked_sub(1)
            .ok_or_else(unmapped)?;
        let s = self.segments.get(at).ok_or_else(unmapped)?;
        let inside = addr - s.addr;
        let left = s.size.checked_sub(inside).ok_or_else(unmapped)?;
        if left < len as u64 {
            return Err(unmapped());
        }
        let offset = s.offset.checked_add(inside).ok_or_else(unmapped)?;
        let mut bytes = vec![0; len];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => Ok(bytes),
            Err(e)
                if e.kind() == std::io::ErrorKind::UnexpectedEof
                    || e.raw_os_error() == Some(14) =>
            {
                Err(unmapped())
            }
            Err(e) => Err(Error::io(PATH, e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(segments: &[(u32, u64, u64, u64)]) -> Vec<u8> {
        let mut out = b"\x7fELF\x02\x01".to_vec();
        out.resize(64, 0);
        out[0x20] = 64;
        out[0x36] = 56;
        out[0x38] = segments.len() as u8;
        for &(kind, offset, addr, size) in segments {
            out.extend(kind.to_le_bytes());
            out.extend([0; 4]);
            for v in [offset, addr, 0, size, size, 0] {
                out.extend(v.to_le_bytes());
            }
        }
        out
    }

    #[test]
    fn segments() {
        let head = header(&[
            (4, 1, 2, 3),
            (1, 0x7000, 0xffff_ffff_8100_0000, 0x2000),
            (1, 0x1000, 0x10, 0x20),
        ]);
        let got = parse_segments(&head).unwrap();
        let want = [
            (0x10, 0x20, 0x1000),
            (0xffff_ffff_8100_0000, 0x2000, 0x7000),
        ];
        assert!(got.iter().map(|s| (s.addr, s.size, s.offset)).eq(want));
        assert_eq!(
            parse_segments(&head[..head.len() - 20]),
            Err("truncated program headers")
        );
        assert_eq!(
            parse_segments(b"nothing"),
            Err("not a 64-bit little-endian ELF file")
        );
    }
}
