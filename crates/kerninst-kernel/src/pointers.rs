//! Words of read-only data that point into the middle of functions.
//!
//! A kernel with retpolines is built without jump tables, but not without tables of labels: the BPF interpreter
//! (`___bpf_prog_run`, kernel/bpf/core.c) jumps through one, by a retpoline that looks like a tail call. Such targets
//! are in no site table; this is how they are found.

use std::ops::Range;

use crate::{Symbols, Text};

/// The addresses in `text` that 8-byte aligned words of `data` hold and that are not those of code symbols; sorted.
/// Each piece of data is an address (8-byte aligned) and bytes.
pub(crate) fn scan(data: &[(u64, Vec<u8>)], text: &[Range<u64>], symbols: &Symbols) -> Vec<u64> {
    let low = text.iter().map(|r| r.start).min().unwrap_or(u64::MAX);
    let high = text.iter().map(|r| r.end).max().unwrap_or(0);
    let mut found = Vec::new();
    for (addr, bytes) in data {
        // Sections of a file may start in the middle of a word.
        let skip = (addr.wrapping_neg() % 8) as usize;
        let (words, _) = bytes.get(skip..).unwrap_or(&[]).as_chunks::<8>();
        for word in words {
            let value = u64::from_le_bytes(*word);
            if (low..high).contains(&value) && text.iter().any(|r| r.contains(&value)) {
                found.push(value);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found.retain(|&addr| !symbols.at(addr).iter().any(crate::Symbol::is_text));
    found
}

/// The text ranges to look for.
pub(crate) fn ranges(text: &[Text]) -> Vec<Range<u64>> {
    text.iter().filter(|t| !t.init).map(Text::range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SymbolsBuilder;

    #[test]
    fn middles_only() {
        let mut symbols = SymbolsBuilder::new();
        symbols.add("f", 0x1000, None, b't', None);
        symbols.add("label_in_data", 0x1010, None, b'd', None);
        let symbols = symbols.build();
        let words = |list: &[u64]| {
            list.iter()
                .flat_map(|w| w.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let data = [
            (0x8000, words(&[0x1000, 0x1020, 0x1010, 5, 0x2000, 0x1020])),
            (0x9004, [vec![0xff; 4], words(&[0x1ff0])].concat()),
        ];
        let text = 0x1000..0x2000;
        assert_eq!(scan(&data, &[text], &symbols), [0x1010, 0x1020, 0x1ff0]);
        assert_eq!(scan(&data, &[], &symbols), []);
    }
}
