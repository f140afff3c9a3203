//! What a profile says of a function's code, so that it can be read without the kernel that it was made on.

use kerninst_analysis::{Edge, EdgeKind, Function};
use kerninst_kernel::Kernel;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A stretch of a function's code: the main part comes first, then `.cold` parts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// What `at` counts from: the symbol `_text` (or `_stext`) of the core kernel, or a section of the module. Empty: not known.
    pub base: String,
    /// Bytes from there. KASLR and the module loader move the base, never this.
    pub at: u64,
    /// Bytes from the function's entry, in the boot in which the profile was made.
    pub from: i64,
    /// Bytes.
    pub size: u64,
}

impl Part {
    /// The parts of `function`.
    pub fn of(kernel: &Kernel, function: &Function) -> Vec<Part> {
        let part = |range: &std::ops::Range<u64>| {
            let (base, start) = base(kernel, function.module.as_deref(), range.start);
            Part {
                base,
                at: range.start.wrapping_sub(start),
                from: range.start.wrapping_sub(function.entry()) as i64,
                size: range.end.saturating_sub(range.start),
            }
        };
        function.ranges.iter().map(part).collect()
    }

    /// Where in the file the byte lies that is `from` bytes from the entry; none: not in this part.
    pub fn offset(&self, from: i64) -> Option<u64> {
        let inside = u64::try_from(from.checked_sub(self.from)?).ok()?;
        let at = self.at.checked_add(inside)?;
        (inside < self.size).then_some(at)
    }
}

/// The nearest thing before `addr` that a file of this image has as well.
fn base(kernel: &Kernel, module: Option<&str>, addr: u64) -> (String, u64) {
    let found = match module {
        None => ["_text", "_stext"].into_iter().find_map(|name| {
            let start = kernel.symbols().addr_of(name)?;
            (start <= addr).then(|| (name.to_string(), start))
        }),
        Some(module) => {
            let module = kernel.modules().iter().find(|m| m.name == module);
            let sections = module.map_or(&[][..], |m| m.sections());
            let before = sections.iter().filter(|s| s.addr <= addr);
            let nearest = before.max_by_key(|s| s.addr);
            nearest.map(|s| (s.name.clone(), s.addr))
        }
    };
    found.unwrap_or_default()
}

/// An edge of a function. In a file: the number of its block and a letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The block that it leaves.
    pub from: u32,
    /// How.
    pub kind: EdgeKind,
}

/// The letters of kinds: the format of files.
const LETTERS: &[(char, EdgeKind)] = &[
    ('f', EdgeKind::FallThrough),
    ('t', EdgeKind::Taken),
    ('j', EdgeKind::Jump),
    ('n', EdgeKind::StaticKeyOn),
    ('o', EdgeKind::StaticKeyOff),
    ('x', EdgeKind::Fixup),
    ('c', EdgeKind::CallReturn),
    ('r', EdgeKind::TrapResume),
    ('e', EdgeKind::Exit),
];

impl Way {
    /// That of an edge.
    pub fn of(edge: &Edge) -> Way {
        Way {
            from: edge.from,
            kind: edge.kind,
        }
    }
}

impl Serialize for Way {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let letter = LETTERS.iter().find(|l| l.1 == self.kind);
        s.collect_str(&format_args!(
            "{}{}",
            self.from,
            letter.map_or('?', |l| l.0)
        ))
    }
}

impl<'de> Deserialize<'de> for Way {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Way, D::Error> {
        let text = String::deserialize(d)?;
        let way = || {
            let letter = text.chars().next_back()?;
            let kind = LETTERS.iter().find(|l| l.0 == letter)?.1;
            let from = text.strip_suffix(letter)?.parse().ok()?;
            Some(Way { from, kind })
        };
        way().ok_or_else(|| D::Error::custom(format!("{text:?} is no edge")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch a letter that means two kinds, or a kind without one.
    #[test]
    fn edges_are_read_as_they_were_written() {
        for &(_, kind) in LETTERS {
            let way = Way { from: 17, kind };
            let text = serde_json::to_string(&way).expect("a string");
            let read: Way = serde_json::from_str(&text).expect("an edge");
            assert_eq!(read, way, "{text}");
        }
        for bad in ["\"\"", "\"7\"", "\"7?\"", "\"-1f\"", "\"f\"", "7", "\"é\""] {
            assert!(serde_json::from_str::<Way>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_part_knows_its_bytes() {
        let part = Part {
            base: "_text".into(),
            at: 0x100,
            from: -0x20,
            size: 0x10,
        };
        assert_eq!(part.offset(-0x20), Some(0x100));
        assert_eq!(part.offset(-0x11), Some(0x10f));
        assert_eq!(part.offset(-0x10), None);
        assert_eq!(part.offset(-0x21), None);
        assert_eq!(part.offset(i64::MAX), None);
        assert_eq!(
            Part {
                from: i64::MIN,
                ..part
            }
            .offset(1),
            None
        );
    }
}
