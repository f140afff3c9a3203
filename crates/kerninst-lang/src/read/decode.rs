//! Words as values.

use crate::hir::Type;
use crate::value::Value;

/// The value that these words hold ([`Type::size`] bytes; missing ones are 0).
pub fn value(ty: &Type, words: &[u64]) -> Value {
    let word = |n: usize| words.get(n).copied().unwrap_or(0);
    let bytes = |n: u32| {
        let all = words.iter().flat_map(|w| w.to_le_bytes());
        all.take(n as usize).collect::<Vec<u8>>()
    };
    match ty {
        Type::Str(n) => {
            let mut text = bytes(*n);
            if let Some(end) = text.iter().position(|b| *b == 0) {
                text.truncate(end);
            }
            Value::Text(text)
        }
        Type::Bytes(n) => {
            let mut all = bytes(*n);
            all.resize(*n as usize, 0);
            Value::Bytes(all)
        }
        Type::UserStack => Value::UserStack {
            id: word(0),
            pid: word(1),
        },
        _ => Value::word(ty, word(0)).unwrap_or(Value::None),
    }
}

/// The words of a value of this type, as they are in memory ([`Type::size`] bytes). Of a value of another type: 0.
pub fn words(ty: &Type, value: &Value) -> Vec<u64> {
    let size = (ty.size() / 8) as usize;
    let mut words: Vec<u64> = match (ty, value) {
        (Type::Str(n), Value::Text(bytes)) => pack(bytes, n.saturating_sub(1)),
        (Type::Bytes(n), Value::Bytes(bytes)) => pack(bytes, *n),
        (_, Value::UserStack { id, pid }) => vec![*id, *pid],
        _ => value.as_word().into_iter().collect(),
    };
    words.resize(size, 0);
    words
}

fn pack(bytes: &[u8], most: u32) -> Vec<u64> {
    let bytes = bytes.get(..most as usize).unwrap_or(bytes);
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b));
    bytes.chunks(8).map(word).collect()
}

/// The values that follow each other in these words.
pub(super) fn values(types: &[Type], words: &[u64]) -> Vec<Value> {
    let mut rest = words;
    let mut all = Vec::with_capacity(types.len());
    for ty in types {
        let n = (ty.size() / 8) as usize;
        let (own, after) = rest.split_at(n.min(rest.len()));
        all.push(value(ty, own));
        rest = after;
    }
    all
}
