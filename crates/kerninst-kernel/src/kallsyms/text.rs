//! `/proc/kallsyms` as text: `address letter name` and, in modules, a tab and `[module]`.

use crate::SymbolsBuilder;

/// What a text held.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// Lines that were symbols.
    pub symbols: usize,
    /// Lines that were not.
    pub bad_lines: usize,
    /// Some address was not zero.
    pub addresses: bool,
}

/// Adds the symbols of `text` to `out`.
pub(crate) fn parse(text: &[u8], out: &mut SymbolsBuilder) -> Parsed {
    let mut result = Parsed::default();
    for line in text.split(|&b| b == b'\n').filter(|l| !l.is_empty()) {
        match parse_line(line) {
            Some((addr, letter, name, module)) => {
                result.symbols += 1;
                result.addresses |= addr != 0;
                out.add(name, addr, None, letter, module);
            }
            None => result.bad_lines += 1,
        }
    }
    result
}

fn parse_line(line: &[u8]) -> Option<(u64, u8, &str, Option<&str>)> {
    let mut addr: u64 = 0;
    let mut at = 0;
    loop {
        let digit = match *line.get(at)? {
            c @ b'0'..=b'9' => c - b'0',
            c @ b'a'..=b'f' => c - b'a' + 10,
            b' ' if at > 0 => break,
            _ => return None,
        };
        if at == 16 {
            return None;
        }
        addr = addr << 4 | u64::from(digit);
        at += 1;
    }
    let letter = *line.get(at + 1)?;
    if line.get(at + 2) != Some(&b' ') {
        return None;
    }
    let rest = std::str::from_utf8(line.get(at + 3..)?).ok()?;
    let (name, module) = match rest.split_once('\t') {
        Some((name, module)) => (
            name,
            Some(module.trim_end().strip_prefix('[')?.strip_suffix(']')?),
        ),
        None => (rest, None),
    };
    (!name.is_empty()).then_some((addr, letter, name, module))
}
