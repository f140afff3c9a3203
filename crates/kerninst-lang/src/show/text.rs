//! Values as text.

use super::{Names, stack, symbol_text};
use crate::value::Value;

/// Spaces before a frame of a stack that is part of a key.
const IN_KEY: usize = 4;
/// Spaces before a frame of any other stack.
const IN_VALUE: usize = 8;

/// A value as `print`, `%s` and a map's values show it: as its type says. Texts are given out byte by byte, UTF-8 or not.
pub fn value_text(value: &Value, names: &dyn Names) -> Vec<u8> {
    text(value, IN_VALUE, names)
}

/// A part of a key.
pub(super) fn key_part(value: &Value, names: &dyn Names) -> Vec<u8> {
    text(value, IN_KEY, names)
}

fn text(value: &Value, indent: usize, names: &dyn Names) -> Vec<u8> {
    match value {
        Value::Text(bytes) => bytes.clone(),
        other => shown(other, indent, names).into_bytes(),
    }
}

fn shown(value: &Value, indent: usize, names: &dyn Names) -> String {
    match value {
        Value::Int { .. } => value.number().unwrap_or(0).to_string(),
        Value::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Bytes(bytes) => escaped(bytes),
        &Value::KernelStack(id) => stack::kernel(id, indent, names),
        &Value::UserStack { id, pid } => stack::user(id, pid, indent, names),
        &Value::Symbol(address) => symbol_text(address, names),
        &Value::Name(index) => {
            let known = names.name(index);
            known.unwrap_or_else(|| format!("<name {index}>"))
        }
        &Value::Pointer(address) => format!("{address:#x}"),
        Value::None => String::new(),
    }
}

/// Bytes: printable ASCII as it is, others as `\x00`.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &b in bytes {
        if b == b' ' || b.is_ascii_graphic() {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("\\x{b:02x}"));
        }
    }
    out
}
