//! BTF: the kernel's own type information (Documentation/bpf/btf.rst, include/uapi/linux/btf.h).
//!
//! Checked and lazy: parsing walks the type section once to note where each type starts; names are
//! not decoded until asked for.

mod queries;
#[cfg(test)]
mod queries_tests;
mod raw;
#[cfg(test)]
mod tests;
mod types;

pub use queries::Integer;
pub use raw::BtfError;
pub use types::{Function, Kind, Member, Param};

use raw::Header;

/// A parsed set of types. Type id 0 is `void`.
pub struct Btf {
    bytes: Vec<u8>,
    header: Header,
    /// Offset in `bytes` of each type; `[0]` is type id 1.
    types: Vec<u32>,
    /// Ids of all structs.
    structs: Vec<u32>,
}

impl Btf {
    /// Parses a `.BTF` section or `/sys/kernel/btf/vmlinux`.
    ///
    /// # Errors
    /// [`BtfError`] when the data is truncated or contradicts itself.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        let header = Header::parse(&bytes)?;
        let (types, structs) = raw::walk(&bytes, &header)?;
        Ok(Self {
            bytes,
            header,
            types,
            structs,
        })
    }

    /// Number of types; ids go from 1 to this number.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.types.len() as u32
    }

    /// No types?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }
}
