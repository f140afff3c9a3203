//! `printf`: C's conversions, on values that know their types.

use super::Names;
use super::text::{escaped, value_text};
use crate::hir::{Conversion, Format, Piece};
use crate::value::{Value, extend};

/// Largest width and precision that are heeded: a script must not be able to ask for gigabytes.
const MAX_WIDTH: usize = 4096;

/// The text of a `printf`. Arguments that are missing (which the checker excludes) count as no value.
///
/// Where C converts by the length that the format names (`%hhx`, `%lld`), here the value's own type counts, so that no letter cuts a
/// number off.
pub fn printf(format: &Format, values: &[Value], names: &dyn Names) -> Vec<u8> {
    let mut values = values.iter();
    let mut out = Vec::new();
    for piece in &format.pieces {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Conversion(c) => {
                let value = values.next().unwrap_or(&Value::None);
                convert(c, value, names, &mut out);
            }
        }
    }
    out
}

fn convert(c: &Conversion, value: &Value, names: &dyn Names, out: &mut Vec<u8>) {
    let number = Number::of(value);
    match (c.letter, number) {
        ('d' | 'i', Some(n)) => {
            let n = n.signed();
            let sign = match (n < 0, c.plus) {
                (true, _) => "-",
                (false, true) => "+",
                (false, false) => "",
            };
            digits(c, sign, unless_none(c, n.unsigned_abs().to_string()), out);
        }
        ('u', Some(n)) => digits(c, "", unless_none(c, n.unsigned().to_string()), out),
        ('x', Some(n)) => {
            let n = n.unsigned();
            let prefix = if c.alternate && n != 0 { "0x" } else { "" };
            digits(c, prefix, unless_none(c, format!("{n:x}")), out);
        }
        ('X', Some(n)) => {
            let n = n.unsigned();
            let prefix = if c.alternate && n != 0 { "0X" } else { "" };
            digits(c, prefix, unless_none(c, format!("{n:X}")), out);
        }
        ('o', Some(n)) => {
            let mut text = unless_none(c, format!("{:o}", n.unsigned()));
            let zeros_come = c.precision.is_some_and(|p| p as usize > text.len());
            if c.alternate && !text.starts_with('0') && !zeros_come {
                text.insert(0, '0');
            }
            digits(c, "", text, out);
        }
        ('p', Some(n)) => digits(c, "0x", format!("{:x}", n.unsigned()), out),
        ('c', Some(n)) => pad(c, &[n.bits as u8], out),
        ('r', _) => match value {
            Value::Text(bytes) => cut(c, escaped(bytes).as_bytes(), out),
            other => cut(c, &value_text(other, names), out),
        },
        // `%s`, and whatever the checker should not have let through.
        _ => cut(c, &value_text(value, names), out),
    }
}

/// What numeric conversions print.
#[derive(Clone, Copy)]
struct Number {
    /// Extended to 64 bits as the sign says.
    bits: u64,
    /// Width of the type.
    width: u8,
}

impl Number {
    fn of(value: &Value) -> Option<Number> {
        let width = match *value {
            Value::Int { bits, .. } => bits,
            _ => 64,
        };
        let bits = value.as_word()?;
        Some(Number { bits, width })
    }

    /// As C reads a 64-bit register for `%lld`.
    fn signed(self) -> i64 {
        self.bits as i64
    }

    /// A negative number has the digits of its own width: -1 of 8 bits is ff.
    fn unsigned(self) -> u64 {
        extend(self.bits, self.width, false)
    }
}

/// In C 0 with precision 0 has no digits.
fn unless_none(c: &Conversion, text: String) -> String {
    if c.precision == Some(0) && text == "0" {
        String::new()
    } else {
        text
    }
}

/// Digits with what stands before them: precision is the least number of digits, and turns `0` off, as does `-`.
fn digits(c: &Conversion, prefix: &str, text: String, out: &mut Vec<u8>) {
    let wanted = match c.precision {
        Some(p) => (p as usize).min(MAX_WIDTH),
        None if c.zeros && !c.left => width(c).saturating_sub(prefix.len()),
        None => 1,
    };
    let zeros = "0".repeat(wanted.saturating_sub(text.len()));
    pad(c, format!("{prefix}{zeros}{text}").as_bytes(), out);
}

/// Text: precision is the most bytes of it.
fn cut(c: &Conversion, text: &[u8], out: &mut Vec<u8>) {
    let most = c.precision.map_or(text.len(), |p| p as usize);
    pad(c, text.get(..most).unwrap_or(text), out);
}

fn pad(c: &Conversion, text: &[u8], out: &mut Vec<u8>) {
    let spaces = width(c).saturating_sub(text.len());
    if !c.left {
        out.extend(std::iter::repeat_n(b' ', spaces));
    }
    out.extend_from_slice(text);
    if c.left {
        out.extend(std::iter::repeat_n(b' ', spaces));
    }
}

fn width(c: &Conversion) -> usize {
    (c.width as usize).min(MAX_WIDTH)
}

#[cfg(test)]
mod tests;
