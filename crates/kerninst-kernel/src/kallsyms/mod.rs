//! The symbol tables that the kernel carries inside itself (scripts/kallsyms.c, kernel/kallsyms.c).
//!
//! A distribution's vmlinuz has no ELF symbol table, and `/proc/kallsyms` is slow to read (the kernel formats
//! every line). These tables are in `.rodata` of both the file and the running kernel, without symbols of their own:
//! they are found by their shape, and every part is checked against the others before it is used.

mod find;
#[cfg(test)]
pub(crate) mod tests;
mod text;

pub(crate) use find::find;
pub(crate) use text::parse as parse_text;

use crate::SymbolsBuilder;
use crate::bytes::{i32_at, u16_at, u64_at};
use crate::symbols::Tokens;

/// Where the tables are, as offsets into the bytes searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Number of symbols.
    count: usize,
    /// `kallsyms_names`: for each symbol a length (1 or 2 bytes), then that many token numbers.
    names: usize,
    /// `kallsyms_token_table`: NUL-ended strings.
    tokens: usize,
    /// `kallsyms_token_index`: 256 offsets into the token table.
    token_index: usize,
    /// `kallsyms_offsets`: one i32 each.
    offsets: usize,
    /// `kallsyms_relative_base`.
    base: u64,
    /// Offsets are signed: not negative = absolute, negative = `base - 1 - offset` (`CONFIG_KALLSYMS_ABSOLUTE_PERCPU`,
    /// up to 6.14); otherwise unsigned from `base`.
    absolute_percpu: bool,
}

/// The length of a name's token list and the bytes that the length takes. Since 6.1 (commit 73bbb94466fd) lengths from 128 on take two.
fn name_len(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let first = usize::from(*bytes.get(at)?);
    if first & 0x80 == 0 {
        return Some((first, 1));
    }
    let second = usize::from(*bytes.get(at + 1)?);
    Some((first & 0x7f | second << 7, 2))
}

/// Adds all symbols that the tables in `bytes` describe, with `slide` added to the relative ones.
///
/// # Errors
/// What is wrong with the tables.
pub(crate) fn decode(
    bytes: &[u8],
    layout: &Layout,
    out: &mut SymbolsBuilder,
) -> Result<(), &'static str> {
    let tokens = tokens(bytes, layout)?;
    out.reserve(layout.count);
    let mut at = layout.names;
    for i in 0..layout.count {
        let (len, skip) = name_len(bytes, at).ok_or("names are truncated")?;
        let list = bytes
            .get(at + skip..at + skip + len)
            .ok_or("names are truncated")?;
        at += skip + len;
        let offset = i32_at(bytes, layout.offsets + 4 * i).ok_or("offsets are truncated")?;
        out.add_tokens(list, &tokens, layout.address(offset))
            .ok_or("a symbol has no name, or too long a one")?;
    }
    Ok(())
}

fn tokens(bytes: &[u8], layout: &Layout) -> Result<Box<Tokens>, &'static str> {
    let mut tokens = Vec::with_capacity(256);
    for i in 0..256 {
        let at = u16_at(bytes, layout.token_index + 2 * i).ok_or("token index is truncated")?;
        let from = bytes
            .get(layout.tokens + usize::from(at)..)
            .ok_or("token table is truncated")?;
        let len =
            memchr::memchr(0, from.get(..256).unwrap_or(from)).ok_or("a token does not end")?;
        tokens.push(from.get(..len).unwrap_or(&[]));
    }
    Tokens::new(tokens.into_iter()).ok_or("a token is too long")
}

impl Layout {
    fn address(&self, offset: i32) -> u64 {
        match self.absolute_percpu {
            true if offset >= 0 => offset as u64,
            true => self
                .base
                .wrapping_sub(1)
                .wrapping_sub(i64::from(offset) as u64),
            false => self.base.wrapping_add(u64::from(offset as u32)),
        }
    }

    /// The address that the first relative symbol is counted from: `_text`.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }
}

/// `kallsyms_relative_base` at `at`, if it can be one: an address in the kernel's image, page aligned.
fn relative_base(bytes: &[u8], at: usize) -> Option<u64> {
    u64_at(bytes, at).filter(|b| *b >= 0xffff_ffff_8000_0000 && b.is_multiple_of(0x1000))
}
