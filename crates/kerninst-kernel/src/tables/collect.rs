//! Collects the bytes of all tables of the core kernel and the modules into [`Tables`].

use std::ops::Range;

use super::decode::{self, Part};
use super::{Fentry, Missing, Orc, Site, Tables};
use crate::table::{Entry, Table};
use crate::{Btf, Memory, Symbols};

/// A table, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ExTable,
    Bugs,
    JumpLabels,
    StaticCalls,
    Mcount,
    Retpolines,
    Returns,
    Alternatives,
    Paravirt,
    EndbrSeals,
    SmpLocks,
    CallSites,
}

/// What is known about a kind of table.
pub(crate) struct Facts {
    pub kind: Kind,
    /// Its section in a module or vmlinux.
    pub section: &'static str,
    /// The symbols that bound it in the core kernel.
    pub bounds: (&'static str, &'static str),
    /// Bytes of one entry that this crate knows; alternatives have two layouts.
    pub stride: &'static [u64],
    /// The struct of one entry, to compare its size.
    pub structure: Option<&'static str>,
    /// In memory that is freed after boot.
    pub init: bool,
    /// Not every kernel has it: not worth a word when it is not there.
    pub optional: bool,
}

const fn facts(
    kind: Kind,
    section: &'static str,
    bounds: (&'static str, &'static str),
    stride: &'static [u64],
) -> Facts {
    Facts {
        kind,
        section,
        bounds,
        stride,
        structure: None,
        init: true,
        optional: false,
    }
}

/// Section names and bounds: include/asm-generic/vmlinux.lds.h, arch/x86/kernel/vmlinux.lds.S (6.1, 6.12).
pub(crate) const ALL: [Facts; 12] = [
    Facts {
        structure: Some("exception_table_entry"),
        init: false,
        ..facts(
            Kind::ExTable,
            "__ex_table",
            ("__start___ex_table", "__stop___ex_table"),
            &[12],
        )
    },
    Facts {
        structure: Some("bug_entry"),
        init: false,
        ..facts(
            Kind::Bugs,
            "__bug_table",
            ("__start___bug_table", "__stop___bug_table"),
            &[12],
        )
    },
    Facts {
        structure: Some("jump_entry"),
        init: false,
        ..facts(
            Kind::JumpLabels,
            "__jump_table",
            ("__start___jump_table", "__stop___jump_table"),
            &[16],
        )
    },
    Facts {
        structure: Some("static_call_site"),
        init: false,
        ..facts(
            Kind::StaticCalls,
            ".static_call_sites",
            ("__start_static_call_sites", "__stop_static_call_sites"),
            &[8],
        )
    },
    facts(
        Kind::Mcount,
        "__mcount_loc",
        ("__start_mcount_loc", "__stop_mcount_loc"),
        &[8],
    ),
    facts(
        Kind::Retpolines,
        ".retpoline_sites",
        ("__retpoline_sites", "__retpoline_sites_end"),
        &[4],
    ),
    facts(
        Kind::Returns,
        ".return_sites",
        ("__return_sites", "__return_sites_end"),
        &[4],
    ),
    facts(
        Kind::Alternatives,
        ".altinstructions",
        ("__alt_instructions", "__alt_instructions_end"),
        &[12, 14],
    ),
    Facts {
        optional: true,
        ..facts(
            Kind::Paravirt,
            ".parainstructions",
            ("__parainstructions", "__parainstructions_end"),
            &[16],
        )
    },
    Facts {
        optional: true,
        ..facts(
            Kind::EndbrSeals,
            ".ibt_endbr_seal",
            ("__ibt_endbr_seal", "__ibt_endbr_seal_end"),
            &[4],
        )
    },
    facts(
        Kind::SmpLocks,
        ".smp_locks",
        ("__smp_locks", "__smp_locks_end"),
        &[4],
    ),
    Facts {
        optional: true,
        ..facts(
            Kind::CallSites,
            ".call_sites",
            ("__call_sites", "__call_sites_end"),
            &[4],
        )
    },
];

/// Gathers parts, then makes [`Tables`] of them.
#[derive(Default)]
pub(crate) struct Collector {
    parts: Vec<(Kind, Part)>,
    orc: Vec<(Part, Vec<u8>)>,
    missing: Vec<Missing>,
    /// fentry sites from elsewhere than `__mcount_loc`.
    fentry: Option<Fentry>,
}

impl Collector {
    pub(crate) fn missing(
        &mut self,
        table: &'static str,
        module: Option<&str>,
        reason: impl Into<String>,
    ) {
        self.missing.push(Missing {
            table,
            module: module.map(Into::into),
            reason: reason.into(),
        });
    }

    /// Adds a table's bytes, if they can be entries.
    pub(crate) fn add(&mut self, facts: &Facts, module: Option<&str>, addr: u64, bytes: Vec<u8>) {
        if !facts
            .stride
            .iter()
            .any(|&s| (bytes.len() as u64).is_multiple_of(s))
        {
            let reason = format!(
                "{} bytes are not whole entries of {:?} bytes",
                bytes.len(),
                facts.stride
            );
            return self.missing(facts.section, module, reason);
        }
        self.parts.push((facts.kind, Part { addr, bytes }));
    }

    /// Adds unwind data: addresses and entries.
    pub(crate) fn add_orc(&mut self, module: Option<&str>, ip: Part, raw: Vec<u8>) {
        if ip.bytes.len() / 4 * 6 != raw.len() {
            let reason = format!(
                "{} bytes of addresses do not fit {} bytes of entries",
                ip.bytes.len(),
                raw.len()
            );
            return self.missing(".orc_unwind", module, reason);
        }
        self.orc.push((ip, raw));
    }

    pub(crate) fn set_fentry(&mut self, fentry: Fentry) {
        self.fentry = Some(fentry);
    }

    /// Reads the core kernel's tables between their bounding symbols.
    pub(crate) fn add_core(
        &mut self,
        symbols: &Symbols,
        memory: &dyn Memory,
        btf: Option<&Btf>,
        live: bool,
    ) {
        for facts in &ALL {
            if facts.init && live {
                // fentry sites of a live kernel come from ftrace's own records or from the text.
                if facts.kind != Kind::Mcount && !facts.optional {
                    self.missing(
                        facts.section,
                        None,
                        "the kernel frees this table after boot: read the file for it",
                    );
                }
                continue;
            }
            let size = facts.structure.and_then(|s| btf?.struct_size(s));
            if let Some(size) = size.filter(|s| !facts.stride.contains(s)) {
                self.missing(
                    facts.section,
                    None,
                    format!(
                        "entries have {size} bytes here, {:?} are known",
                        facts.stride
                    ),
                );
                continue;
            }
            match between(symbols, memory, facts.bounds) {
                Ok(part) => self.add(facts, None, part.addr, part.bytes),
                Err(_) if facts.optional => {}
                Err(reason) => self.missing(facts.section, None, reason),
            }
        }
        let ip = between(
            symbols,
            memory,
            ("__start_orc_unwind_ip", "__stop_orc_unwind_ip"),
        );
        let raw = between(symbols, memory, ("__start_orc_unwind", "__stop_orc_unwind"));
        match (ip, raw) {
            (Ok(ip), Ok(raw)) => self.add_orc(None, ip, raw.bytes),
            (Err(reason), _) | (_, Err(reason)) => self.missing(".orc_unwind", None, reason),
        }
    }

    /// `images`: the text ranges of the core kernel and of each module.
    pub(crate) fn build(self, images: Vec<Range<u64>>) -> Tables {
        let Collector {
            mut parts,
            orc,
            mut missing,
            fentry,
        } = self;
        fn table<T: Entry>(
            parts: &mut Vec<(Kind, Part)>,
            kind: Kind,
            decode: fn(&Part) -> Vec<T>,
        ) -> Table<T> {
            let mine: Vec<Part> = parts.extract_if(.., |p| p.0 == kind).map(|p| p.1).collect();
            Table::lazy(move || concat(mine.iter().map(decode)))
        }
        let sites =
            |parts: &mut _, kind| -> Table<Site> { table(parts, kind, decode::relative_sites) };
        // The build clears entries of weak functions that were replaced (scripts/sorttable.c): they are 0.
        let mcount = table(&mut parts, Kind::Mcount, decode::mcount_loc);
        missing.sort_by(|a, b| (&a.module, a.table).cmp(&(&b.module, b.table)));
        let orc = Table::lazy(move || concat(orc.iter().map(|(ip, raw)| decode::orc(ip, raw))));
        Tables {
            extable: table(&mut parts, Kind::ExTable, decode::extable),
            bugs: table(&mut parts, Kind::Bugs, decode::bugs),
            jump_labels: table(&mut parts, Kind::JumpLabels, decode::jump_labels),
            static_calls: table(&mut parts, Kind::StaticCalls, decode::static_calls),
            orc: Orc::new(orc, images),
            fentry: fentry.unwrap_or(mcount),
            retpolines: sites(&mut parts, Kind::Retpolines),
            returns: sites(&mut parts, Kind::Returns),
            alternatives: table(&mut parts, Kind::Alternatives, decode::alternatives),
            paravirt: table(&mut parts, Kind::Paravirt, decode::paravirt),
            endbr_seals: sites(&mut parts, Kind::EndbrSeals),
            smp_locks: sites(&mut parts, Kind::SmpLocks),
            call_sites: sites(&mut parts, Kind::CallSites),
            missing,
        }
    }
}

/// One list of several, in the order of their first entries: each is nearly sorted, the whole then is too.
fn concat<T: Entry>(parts: impl Iterator<Item = Vec<T>>) -> Vec<T> {
    let mut parts: Vec<Vec<T>> = parts.filter(|p| !p.is_empty()).collect();
    parts.sort_by_key(|p| p.first().map(Entry::addr));
    let mut parts = parts.into_iter();
    // The core kernel's, by far the longest, comes first: it is not copied.
    let mut all = parts.next().unwrap_or_default();
    parts.for_each(|mut p| all.append(&mut p));
    all
}

/// No table is larger than this; a larger one is a sign of wrong bounds.
const LARGEST: u64 = 64 << 20;

/// The bytes between two symbols.
pub(crate) fn between(
    symbols: &Symbols,
    memory: &dyn Memory,
    bounds: (&str, &str),
) -> Result<Part, String> {
    let find = |name: &str| {
        symbols
            .addr_of(name)
            .ok_or_else(|| format!("no symbol {name}"))
    };
    let (start, end) = (find(bounds.0)?, find(bounds.1)?);
    let len = end.checked_sub(start).filter(|&l| l <= LARGEST);
    let len = len.ok_or_else(|| format!("{}..{} is {start:#x}..{end:#x}", bounds.0, bounds.1))?;
    let bytes = match len {
        0 => Vec::new(),
        len => memory
            .read(start, len as usize)
            .map_err(|e| e.to_string())?,
    };
    Ok(Part { addr: start, bytes })
}
