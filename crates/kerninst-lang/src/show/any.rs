//! Printing of whatever can be printed: maps and entries made at random, which need not fit together.

use proptest::collection::vec;
use proptest::prelude::*;

use super::testing::{Made, map as made};
use super::{json, losses_text, map_text, printf};
use crate::hir::{Conversion, Format, MapValue, Piece, Type};
use crate::value::{Cell, Entry, Value};

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        (any::<u64>(), any::<u8>(), any::<bool>()).prop_map(|(value, bits, signed)| Value::Int {
            value,
            bits,
            signed
        }),
        vec(any::<u8>(), 0..12).prop_map(Value::Text),
        "[a-c,]{0,2}".prop_map(|t| Value::Text(t.into_bytes())),
        vec(any::<u8>(), 0..12).prop_map(Value::Bytes),
        any::<u64>().prop_map(Value::KernelStack),
        (any::<u64>(), any::<u64>()).prop_map(|(id, pid)| Value::UserStack { id, pid }),
        any::<u64>().prop_map(Value::Symbol),
        any::<u32>().prop_map(Value::Name),
        any::<u64>().prop_map(Value::Pointer),
        Just(Value::None),
    ]
}

fn cell() -> impl Strategy<Value = Cell> {
    let counts = || vec(prop_oneof![Just(0), Just(1), any::<u64>()], 0..70);
    prop_oneof![
        value().prop_map(Cell::Plain),
        any::<i128>().prop_map(|value| Cell::Number { value }),
        (any::<u64>(), any::<i128>()).prop_map(|(count, sum)| Cell::Average { count, sum }),
        (any::<u64>(), any::<i128>()).prop_map(|(count, sum)| Cell::Stats { count, sum }),
        counts().prop_map(Cell::Hist),
        counts().prop_map(Cell::LHist),
    ]
}

fn map_value() -> impl Strategy<Value = MapValue> {
    prop_oneof![
        Just(MapValue::Plain(Type::KernelStack)),
        Just(MapValue::Plain(Type::Str(8))),
        Just(MapValue::Count),
        Just(MapValue::Avg { signed: true }),
        Just(MapValue::Stats { signed: false }),
        Just(MapValue::Hist),
        (any::<i64>(), any::<i64>(), any::<i64>()).prop_map(|(min, max, step)| MapValue::LHist {
            min,
            max,
            step
        }),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (vec(value(), 0..3), cell()).prop_map(|(key, cell)| Entry { key, cell })
}

proptest! {
    /// Would catch: a panic on data that does not fit its map, a line that is no JSON, an entry that is lost in it.
    #[test]
    fn maps(kind in map_value(), entries in vec(entry(), 0..6), top in 0u32..4, div: u64) {
        let map = made("@x", kind);
        map_text(&map, &entries, top, div, &Made);
        let line = json::map(&map, &entries, top, div, &Made);
        if entries.is_empty() {
            return Ok(());
        }
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        let shown = if top == 0 { entries.len() } else { entries.len().min(top as usize) };
        let in_data = match &read["data"]["@x"] {
            serde_json::Value::Object(keys) => keys.len(),
            _ => 1,
        };
        let in_entries = read["entries"].as_array().map_or(in_data, Vec::len);
        prop_assert!(in_entries == shown || kind_of_one(&read), "{}", line);
    }

    /// Would catch: a panic, or a line that is no JSON, on any value and text.
    #[test]
    fn values(value in value(), text in vec(any::<u8>(), 0..20), losses in vec(any::<u64>(), 0..8)) {
        for line in [json::value(&value, &Made), json::text("printf", &text), json::lost_events(&losses)] {
            if !line.is_empty() {
                let read: serde_json::Value = serde_json::from_str(&line).unwrap();
                prop_assert_eq!(&read["schema"], json::SCHEMA);
            }
        }
        losses_text(&losses);
    }

    /// Would catch: a panic on a conversion and a value that do not fit.
    #[test]
    fn conversions(
        value in value(), letter: char, flags: (bool, bool, bool, bool), width: u32, precision: Option<u32>,
    ) {
        let (left, zeros, plus, alternate) = flags;
        let c = Conversion { left, zeros, plus, alternate, width, precision, letter };
        let format = Format { pieces: vec![Piece::Conversion(c)], args: Vec::new() };
        printf(&format, &[value], &Made);
    }
}

/// Stats are an object too.
fn kind_of_one(read: &serde_json::Value) -> bool {
    read["data"]["@x"].get("average").is_some()
}
