//! The bytes of BTF: header, the walk over the types, checked access.

use std::ops::Range;

/// Why BTF data cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The data does not start with BTF's magic number in this machine's byte order.
    #[error("not BTF data")]
    NotBtf,
    /// The data is damaged.
    #[error("BTF is damaged: {0}")]
    Corrupt(&'static str),
    /// A kind of type that this version does not know: nothing after it can be found.
    #[error("BTF has a type of unknown kind {0}")]
    UnknownKind(u32),
}

pub(super) struct Header {
    pub types: Range<usize>,
    pub strings: Range<usize>,
}

pub(super) use crate::bytes::u32_at;

impl Header {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, BtfError> {
        const MAGIC: [u8; 3] = [0x9f, 0xeb, 1];
        if !bytes.starts_with(&MAGIC) {
            return Err(BtfError::NotBtf);
        }
        let field = |at| {
            u32_at(bytes, at)
                .map(|v| v as usize)
                .ok_or(BtfError::Corrupt("truncated header"))
        };
        let hdr_len = field(4)?;
        let section = |off: usize, len: usize| {
            let start = hdr_len.checked_add(off)?;
            let range = start..start.checked_add(len)?;
            bytes.get(range.clone()).map(|_| range)
        };
        let (type_off, type_len, str_off, str_len) =
            (field(8)?, field(12)?, field(16)?, field(20)?);
        let types = section(type_off, type_len)
            .ok_or(BtfError::Corrupt("type section outside the data"))?;
        let strings = section(str_off, str_len)
            .ok_or(BtfError::Corrupt("string section outside the data"))?;
        // The first string is empty, and the last one ends: then every offset inside starts an ended string.
        let s = bytes.get(strings.clone()).unwrap_or(&[]);
        if s.first() != Some(&0) || s.last() != Some(&0) {
            return Err(BtfError::Corrupt(
                "string section is not made of ended strings",
            ));
        }
        Ok(Self { types, strings })
    }
}

/// `BTF_KIND_STRUCT`.
const STRUCT: u32 = 4;

/// Kind of a type, from its info word.
pub(super) fn kind(info: u32) -> u32 {
    (info >> 24) & 0x1f
}

/// Number of members, from the info word.
pub(super) fn vlen(info: u32) -> u32 {
    info & 0xffff
}

/// Bytes that follow the three common words.
fn extra(info: u32) -> Option<usize> {
    let n = vlen(info) as usize;
    Some(match kind(info) {
        2 | 7..=12 | 16 | 18 => 0,
        1 | 14 | 17 => 4,
        3 => 12,
        4 | 5 | 15 | 19 => n * 12,
        6 | 13 => n * 8,
        _ => return None,
    })
}

/// The offset of every type, and the ids of the structs.
pub(super) fn walk(bytes: &[u8], header: &Header) -> Result<(Vec<u32>, Vec<u32>), BtfError> {
    let end = header.types.end;
    let mut at = header.types.start;
    // 20 bytes a type on average in vmlinux.
    let mut types = Vec::with_capacity(header.types.len() / 18);
    let mut structs = Vec::new();
    while at < end {
        let info = u32_at(bytes, at + 4).ok_or(BtfError::Corrupt("truncated type"))?;
        let size = extra(info).ok_or(BtfError::UnknownKind(kind(info)))?;
        types.push(u32::try_from(at).map_err(|_| BtfError::Corrupt("too large"))?);
        if kind(info) == STRUCT {
            structs.push(types.len() as u32);
        }
        at += 12 + size;
    }
    if at != end {
        return Err(BtfError::Corrupt("the last type is truncated"));
    }
    Ok((types, structs))
}
