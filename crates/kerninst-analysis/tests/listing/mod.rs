#![allow(dead_code)] // Each test binary uses its part.

//! A small text form of a kernel for tests, and a text form of what the analysis makes of it.
//!
//! ```text
//! name:                    a symbol (text); `.name:` is a label without a symbol
//!   0f 1f 44 00 00 | fentry
//!   74 <.out               rel8 branch to a label      0f 84 <<.out   rel32
//!   48 8d 05 <<.here       (the field must be the end of the instruction)
//!   48 c7 c0 =.here        absolute 32-bit address
//!   90x16                  a byte repeated
//! # a comment
//! ```
//! After `|`, what the tables say: `fentry`, `key .target` (`key- .target`: inverted), `fixup .target`,
//! `warn`, `bug`, `static NAME`, `static-tail NAME`, `return`, `alt LENGTH .replacement LENGTH`.

use std::collections::HashMap;
use std::fmt::Write as _;

use kerninst_analysis::{Analysis, EdgeTarget, ExitKind, Function, Live, Sites};
use kerninst_kernel::{
    Alternative, BugEntry, ExEntry, JumpLabel, Kernel, Site, StaticCall, Table, Tables,
};

/// Where a listing's text starts.
pub const BASE: u64 = 0xffff_ffff_8100_0000;
const KEYS: u64 = 0xffff_ffff_8200_0000;

/// The kernel that a listing describes.
pub fn kernel(listing: &str) -> Kernel {
    let mut bytes: Vec<u8> = Vec::new();
    let mut symbols: Vec<(String, u64)> = Vec::new();
    let mut labels: HashMap<String, u64> = HashMap::new();
    let mut fields: Vec<(usize, usize, String)> = Vec::new();
    let mut notes: Vec<(u64, Vec<String>)> = Vec::new();
    for line in listing.lines() {
        let line = line.split('#').next().unwrap_or("").trim();
        let here = BASE + bytes.len() as u64;
        if let Some(name) = line.strip_suffix(':') {
            labels.insert(name.to_string(), here);
            if !name.starts_with('.') {
                symbols.push((name.to_string(), here));
            }
            continue;
        }
        let (code, note) = line.split_once('|').unwrap_or((line, ""));
        if !note.is_empty() {
            notes.push((here, note.split_whitespace().map(str::to_string).collect()));
        }
        for token in code.split_whitespace() {
            if let Some(label) = token.strip_prefix("<<") {
                fields.push((bytes.len(), 4, label.to_string()));
                bytes.extend([0; 4]);
            } else if let Some(label) = token.strip_prefix('<') {
                fields.push((bytes.len(), 1, label.to_string()));
                bytes.push(0);
            } else if let Some(label) = token.strip_prefix('=') {
                fields.push((bytes.len(), 0, label.to_string()));
                bytes.extend([0; 4]);
            } else if let Some((byte, count)) = token.split_once('x') {
                let byte = u8::from_str_radix(byte, 16).expect(token);
                bytes.extend(vec![byte; count.parse::<usize>().expect(token)]);
            } else {
                bytes.push(u8::from_str_radix(token, 16).expect(token));
            }
        }
    }
    let label = |name: &str| {
        *labels
            .get(name)
            .unwrap_or_else(|| panic!("no label {name}"))
    };
    for (at, size, name) in fields {
        let target = label(&name);
        let next = BASE + (at + size) as u64;
        match size {
            0 => bytes[at..at + 4].copy_from_slice(&(target as u32).to_le_bytes()),
            1 => {
                let d = target.wrapping_sub(next) as i64;
                bytes[at] = i8::try_from(d).expect("short branch too far") as u8;
            }
            _ => {
                let d = (target.wrapping_sub(next) as i64) as i32;
                bytes[at..at + 4].copy_from_slice(&d.to_le_bytes());
            }
        }
    }
    let mut builder = Kernel::builder().text(BASE, &bytes);
    for (name, addr) in symbols {
        builder = builder.symbol(&name, addr, 't');
    }
    let mut keys: Vec<String> = Vec::new();
    let mut tables = Entries::default();
    for (addr, note) in notes {
        let note: Vec<&str> = note.iter().map(String::as_str).collect();
        match note.as_slice() {
            ["fentry"] => tables.fentry.push(Site { addr }),
            ["return"] => tables.returns.push(Site { addr }),
            ["key", t] => tables.jumps.push(JumpLabel {
                code: addr,
                target: label(t),
                key: KEYS,
            }),
            ["key-", t] => {
                tables.jumps.push(JumpLabel {
                    code: addr,
                    target: label(t),
                    key: KEYS | 1,
                });
            }
            ["fixup", t] => tables.ex.push(ExEntry {
                insn: addr,
                fixup: label(t),
                data: 0,
            }),
            ["warn"] => tables.bugs.push(BugEntry {
                addr,
                file: 0,
                line: 1,
                flags: 1,
            }),
            ["bug"] => tables.bugs.push(BugEntry {
                addr,
                file: 0,
                line: 1,
                flags: 0,
            }),
            ["static" | "static-tail", name] => {
                let tail = note[0] == "static-tail";
                keys.push(name.to_string());
                let key = (KEYS + 0x100 * keys.len() as u64) | u64::from(tail);
                builder = builder.symbol(&format!("__SCK__{name}"), key & !1, 'd');
                tables.calls.push(StaticCall { addr, key, tail });
            }
            ["alt", len, replacement, replacement_len] => tables.alts.push(Alternative {
                addr,
                replacement: label(replacement),
                feature: 0,
                flags: 0,
                len: len.parse().unwrap(),
                replacement_len: replacement_len.parse().unwrap(),
            }),
            other => panic!("unknown note {other:?}"),
        }
    }
    builder.tables(tables.tables()).build()
}

#[derive(Default)]
struct Entries {
    fentry: Vec<Site>,
    returns: Vec<Site>,
    jumps: Vec<JumpLabel>,
    ex: Vec<ExEntry>,
    // A bug table that is not empty: traps without an entry are not resumed.
    bugs: Vec<BugEntry>,
    calls: Vec<StaticCall>,
    alts: Vec<Alternative>,
}

impl Entries {
    fn tables(mut self) -> Tables {
        self.bugs.push(BugEntry {
            addr: 1,
            file: 0,
            line: 0,
            flags: 0,
        });
        Tables {
            fentry: Table::new(self.fentry),
            returns: Table::new(self.returns),
            jump_labels: Table::new(self.jumps),
            extable: Table::new(self.ex),
            bugs: Table::new(self.bugs),
            static_calls: Table::new(self.calls),
            alternatives: Table::new(self.alts),
            ..Tables::default()
        }
    }
}

/// The functions of a listing, as text: addresses are offsets from the start of the text.
pub fn render(listing: &str) -> String {
    let kernel = kernel(listing);
    let analysis = Analysis::new(&kernel);
    let mut out = String::new();
    for id in analysis.functions() {
        let Some(function) = analysis.function_at(id.start) else {
            continue;
        };
        out.push_str(&function_text(&function));
    }
    out
}

fn place(addr: u64) -> String {
    match addr.checked_sub(BASE) {
        Some(offset) => format!("{offset:x}"),
        None => format!("{addr:#x}"),
    }
}

pub fn function_text(f: &Function) -> String {
    let mut out = String::new();
    let ranges: Vec<String> = f
        .ranges
        .iter()
        .map(|r| format!("{}..{}", place(r.start), place(r.end)))
        .collect();
    let abi = if f.abi { " abi" } else { "" };
    writeln!(out, "{}: {}{abi}", f.id, ranges.join(" ")).unwrap();
    for reason in &f.incomplete {
        writeln!(out, "  incomplete: {reason}").unwrap();
    }
    for (n, block) in f.blocks.iter().enumerate() {
        writeln!(out, " b{n}{}", if block.root { " root" } else { "" }).unwrap();
        for insn in f.block_insns(block) {
            let mut notes = String::new();
            if insn.sites != Sites::empty() {
                let names: Vec<&str> = insn.sites.iter_names().map(|(n, _)| n).collect();
                write!(notes, " {}", names.join("+")).unwrap();
            }
            for (set, name) in [
                (insn.joins, "join"),
                (insn.after_call, "after-call"),
                (insn.after_trap, "after-trap"),
            ] {
                if set {
                    write!(notes, " {name}").unwrap();
                }
            }
            let target = insn
                .target
                .map(|t| format!(" {}", place(t)))
                .unwrap_or_default();
            let dead = Live(Live::ALL.0 & !insn.live.0);
            writeln!(
                out,
                "  {}+{} {:?}{target}{notes} | dead {}",
                place(insn.addr),
                insn.len,
                insn.kind,
                short(dead)
            )
            .unwrap();
        }
        let edges: Vec<String> = f
            .block_edges(block)
            .iter()
            .map(|e| match e.to {
                EdgeTarget::Block(b) => format!("{:?} b{b}", e.kind),
                EdgeTarget::Exit(ExitKind::TailCall(t)) => {
                    format!("{:?} tail-call {}", e.kind, place(t))
                }
                EdgeTarget::Exit(ExitKind::JumpInto(t)) => {
                    format!("{:?} jump-into {}", e.kind, place(t))
                }
                EdgeTarget::Exit(x) => format!("{:?} {x:?}", e.kind),
            })
            .collect();
        writeln!(out, "  -> {}", edges.join(", ")).unwrap();
    }
    out
}

/// "flags" for all six.
fn short(set: Live) -> String {
    let regs = Live(set.0 & Live::REGS.0);
    match (regs.0, set.flags()) {
        (0, Live::FLAGS) => "flags".to_string(),
        (_, Live::FLAGS) => format!("{regs} flags"),
        _ => set.to_string(),
    }
}
