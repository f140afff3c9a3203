//! The same as JSON lines: bpftrace's shape (`type`, `data`), with kerninst's `schema`. docs/json.md describes them for users.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::Names;
use super::buckets::{self, Bucket};
use super::losses::field;
use super::map::is_number;
use super::order::{average, ordered};
use super::text::{key_part, value_text};
use crate::hir::{Map, MapValue};
use crate::layout::Loss;
use crate::value::{Cell, Entry, Value};

/// Schema of all of these lines.
pub const SCHEMA: &str = "kerninst.run/1";

/// A line.
#[derive(Serialize)]
struct Line<'a, T> {
    schema: &'static str,
    r#type: &'a str,
    data: T,
    /// Where `data` is no exact picture of a text: its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
    /// Where `data` is no exact picture of a map: its entries one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<Exact<'a>>>,
}

fn line<T: Serialize>(r#type: &str, data: T) -> String {
    written(&Line {
        schema: SCHEMA,
        r#type,
        data,
        bytes: None,
        entries: None,
    })
}

/// With a newline. Nothing that is written here can fail to be (there are no maps with keys other than text).
fn written<T: Serialize>(line: &Line<'_, T>) -> String {
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

/// Text that was printed (`printf`, `time`, `cat`): `type` says by what. What is no UTF-8 becomes U+FFFD, and `bytes` has all of it.
pub fn text(r#type: &str, text: &[u8]) -> String {
    written(&Line {
        schema: SCHEMA,
        r#type,
        data: String::from_utf8_lossy(text),
        bytes: bytes_if_needed(text),
        entries: None,
    })
}

/// `print(e)`.
pub fn value(value: &Value, names: &dyn Names) -> String {
    let text = value_text(value, names);
    written(&Line {
        schema: SCHEMA,
        r#type: "value",
        data: Shown::plain(value, 1, names),
        bytes: bytes_if_needed(&text),
        entries: None,
    })
}

/// So many points were armed.
pub fn attached_probes(probes: u64) -> String {
    line("attached_probes", Fields(vec![("probes", probes)]))
}

/// What was lost, by reason. Counts are in the order of [`Loss::ALL`]. Nothing lost gives no line.
pub fn lost_events(counts: &[u64]) -> String {
    let lost = Loss::ALL.iter().zip(counts);
    // bpftrace's own field is always there.
    let shown = lost.filter(|&(&l, &n)| n != 0 || l == Loss::Events);
    let fields: Vec<_> = shown.map(|(&l, &n)| (field(l), n)).collect();
    if fields.iter().all(|&(_, n)| n == 0) {
        return String::new();
    }
    line("lost_events", Fields(fields))
}

/// A map, as [`super::map_text`] shows it. One that holds nothing gives no line.
pub fn map(map: &Map, entries: &[Entry], top: u32, div: u64, names: &dyn Names) -> String {
    let div = div.max(1);
    let mut shown: Vec<_> = ordered(entries, top)
        .into_iter()
        .map(|e| (e, Shown::cell(map, &e.cell, div, names)))
        .map(|(e, shown)| Part::new(e, shown, names))
        .collect();
    let r#type = match map.value {
        MapValue::Hist | MapValue::LHist { .. } => "hist",
        MapValue::Avg { .. } | MapValue::Stats { .. } => "stats",
        _ => "map",
    };
    if shown.is_empty() && is_number(map) {
        shown.push(Part {
            exact: true,
            ..Part::default()
        });
    }
    if shown.is_empty() {
        return String::new();
    }
    let mut seen = std::collections::HashSet::new();
    let exact = shown.iter().all(|p| p.exact && seen.insert(&p.key));
    let entries = (!exact).then(|| shown.iter().map(Exact::new).collect());
    let data = Named {
        name: &map.name,
        parts: &shown,
    };
    written(&Line {
        schema: SCHEMA,
        r#type,
        data,
        bytes: None,
        entries,
    })
}

/// Named numbers.
struct Fields(Vec<(&'static str, u64)>);

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().copied())
    }
}

/// An entry as it is written.
#[derive(Default)]
struct Part<'a> {
    entry: Option<&'a Entry>,
    /// The key's parts, with commas between them.
    key: String,
    shown: Shown,
    /// The key's text tells its parts.
    exact: bool,
    parts: Vec<KeyPart>,
}

impl<'a> Part<'a> {
    fn new(entry: &'a Entry, shown: Shown, names: &dyn Names) -> Part<'a> {
        let texts: Vec<_> = entry.key.iter().map(|p| key_part(p, names)).collect();
        let comma = |t: &Vec<u8>| entry.key.len() > 1 && t.contains(&b',');
        let utf8 = |t: &Vec<u8>| std::str::from_utf8(t).is_ok();
        let exact_value = match &entry.cell {
            Cell::Plain(Value::Text(t)) => utf8(t),
            _ => true,
        };
        let lossy: Vec<_> = texts.iter().map(|t| String::from_utf8_lossy(t)).collect();
        Part {
            entry: Some(entry),
            key: lossy.join(","),
            shown,
            exact: exact_value && texts.iter().all(|t| utf8(t) && !comma(t)),
            parts: entry.key.iter().zip(&texts).map(KeyPart::new).collect(),
        }
    }
}

/// `{"@name": value}`, or `{"@name": {"key": value, …}}`.
struct Named<'a> {
    name: &'a str,
    parts: &'a [Part<'a>],
}

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(1))?;
        match self.parts {
            [single] if single.parts.is_empty() => map.serialize_entry(self.name, &single.shown)?,
            parts => map.serialize_entry(self.name, &Keyed(parts))?,
        }
        map.end()
    }
}

struct Keyed<'a>(&'a [Part<'a>]);

impl Serialize for Keyed<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|p| (&p.key, &p.shown)))
    }
}

/// An entry written so that nothing is ambiguous.
#[derive(Serialize)]
struct Exact<'a> {
    key: &'a [KeyPart],
    value: &'a Shown,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
}

impl<'a> Exact<'a> {
    fn new(part: &'a Part<'a>) -> Exact<'a> {
        let bytes = match part.entry.map(|e| &e.cell) {
            Some(Cell::Plain(Value::Text(t))) => bytes_if_needed(t),
            _ => None,
        };
        Exact {
            key: &part.parts,
            value: &part.shown,
            bytes,
        }
    }
}

/// A part of a key.
#[derive(Serialize)]
#[serde(untagged)]
enum KeyPart {
    Number(i128),
    Text(String),
    Raw { text: String, bytes: String },
}

impl KeyPart {
    fn new((value, text): (&Value, &Vec<u8>)) -> KeyPart {
        if let Some(n) = value.number() {
            return KeyPart::Number(n);
        }
        let lossy = String::from_utf8_lossy(text).into_owned();
        match bytes_if_needed(text) {
            None => KeyPart::Text(lossy),
            Some(bytes) => KeyPart::Raw { text: lossy, bytes },
        }
    }
}

/// What a map holds, or a value.
#[derive(Serialize)]
#[serde(untagged)]
enum Shown {
    Number(i128),
    Text(String),
    Stats {
        count: u64,
        average: i128,
        total: i128,
    },
    Buckets(Vec<JsonBucket>),
}

impl Default for Shown {
    fn default() -> Shown {
        Shown::Number(0)
    }
}

#[derive(Serialize)]
struct JsonBucket {
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<i128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<i128>,
    count: u64,
}

impl Shown {
    fn plain(value: &Value, div: i128, names: &dyn Names) -> Shown {
        match value.number() {
            Some(n) => Shown::Number(n / div),
            None => {
                let text = value_text(value, names);
                Shown::Text(String::from_utf8_lossy(&text).into_owned())
            }
        }
    }

    fn cell(map: &Map, cell: &Cell, div: u64, names: &dyn Names) -> Shown {
        let by = i128::from(div);
        match cell {
            Cell::Plain(value) => Shown::plain(value, by, names),
            &Cell::Number { value } => Shown::Number(value / by),
            &Cell::Average { count, sum } => Shown::Number(average(count, sum) / by),
            &Cell::Stats { count, sum } => Shown::Stats {
                count,
                average: average(count, sum) / by,
                total: sum / by,
            },
            Cell::Hist(counts) | Cell::LHist(counts) => {
                let shown = buckets::shown(&map.value, counts, div);
                Shown::Buckets(shown.iter().map(JsonBucket::new).collect())
            }
        }
    }
}

impl JsonBucket {
    fn new(b: &Bucket) -> JsonBucket {
        JsonBucket {
            min: b.start,
            max: b.end.map(|e| e - 1),
            count: b.count,
        }
    }
}

/// Hexadecimal digits of what is no UTF-8.
fn bytes_if_needed(text: &[u8]) -> Option<String> {
    match std::str::from_utf8(text) {
        Ok(_) => None,
        Err(_) => Some(text.iter().map(|b| format!("{b:02x}")).collect()),
    }
}

#[cfg(test)]
mod tests;
