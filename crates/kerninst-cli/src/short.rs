//! Small matters of wording: numbers with nouns, addresses as offsets from the function that is talked about.

use std::fmt::Write as _;
use std::ops::Range;

/// Replaces the hexadecimal addresses in `text` that lie in `range` by offsets from its start: `+0x1c`.
#[must_use]
pub fn offsets(text: &str, range: &Range<u64>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("0x") {
        let (before, number) = rest.split_at(at);
        out.push_str(before);
        let digits = number.get(2..).unwrap_or("");
        let len = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (number, after) = number.split_at(2 + len);
        let value = number
            .get(2..)
            .and_then(|d| u64::from_str_radix(d, 16).ok());
        match value {
            Some(v) if range.contains(&v) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "+{:#x}", v - range.start);
            }
            _ => out.push_str(number),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// `1 block`, `2 blocks`.
#[must_use]
pub fn number(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::offsets;

    #[test]
    fn only_addresses_in_the_function_become_offsets() {
        let range = 0xffff_ffff_8100_0000..0xffff_ffff_8100_0100;
        for (text, want) in [
            ("", ""),
            ("no address", "no address"),
            ("at 0xffffffff81000010", "at +0x10"),
            (
                "0xffffffff81000000; then 0xffffffff81000100",
                "+0x0; then 0xffffffff81000100",
            ),
            ("0x", "0x"),
            (
                "é 0x10 0xzz 0xffffffffffffffffffffffff",
                "é 0x10 0xzz 0xffffffffffffffffffffffff",
            ),
        ] {
            assert_eq!(offsets(text, &range), want);
        }
    }
}
