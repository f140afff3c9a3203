//! Small kernels made of bytes, and plans as text.
#![allow(dead_code)]

pub mod model;
pub mod random;
pub mod rules;
pub mod spots;

use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter};
use kerninst_analysis::{Analysis, Live};
use kerninst_kernel::{
    Alternative, BugEntry, ExEntry, JumpLabel, Kernel, KernelBuilder, OffLimit, OffLimitRange,
    OffLimits, Orc, OrcEntry, Site, StaticCall, Table, Tables,
};
use kerninst_patch::{Boards, Fixup, Options, Plan, Planner, Request, Splice, Spot};
use kerninst_snippet::Snippet;

/// Where the function `f` starts; 16 bytes of padding lie before it.
pub const F: u64 = 0xffff_ffff_8100_0100;
/// Where patches are shown.
pub const PATCH: u64 = 0xffff_ffff_c000_0000;
/// The counter of the first point; the next have 8 more.
pub const SLOT: u64 = 0x6075_0000_0000;

pub fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .lines()
        .flat_map(|l| l.split('#').next().unwrap_or("").bytes())
        .filter(|b| !b.is_ascii_whitespace())
        .collect();
    let digit = |d: u8| (d as char).to_digit(16).expect("hex") as u8;
    digits
        .chunks(2)
        .map(|c| digit(c[0]) << 4 | digit(c[1]))
        .collect()
}

/// A kernel with one function `f` of interest, whose code is given as hex (`#` starts a comment).
pub struct Case {
    code: Vec<u8>,
    before: Vec<u8>,
    after: Vec<u8>,
    fentry: bool,
    live: bool,
    jump_labels: Vec<(u64, u64)>,
    static_calls: Vec<u64>,
    extable: Vec<(u64, u64)>,
    bugs: Vec<(u64, bool)>,
    orc: Vec<(u64, [u8; 6])>,
    off_limits: bool,
    alternatives: Vec<(u64, u8)>,
    sealed: bool,
}

impl Case {
    /// The code of `f`; its first instruction is an fentry nop (`0f 1f 44 00 00`) if it starts with one.
    pub fn new(hex: &str) -> Case {
        let code = bytes(hex);
        let fentry = code.starts_with(&[0x0f, 0x1f, 0x44, 0x00, 0x00]);
        Case {
            code,
            before: vec![0x90; 16],
            after: vec![0xcc; 16],
            fentry,
            live: true,
            jump_labels: vec![],
            static_calls: vec![],
            extable: vec![],
            bugs: vec![],
            orc: vec![],
            off_limits: false,
            alternatives: vec![],
            sealed: false,
        }
    }

    /// No padding before and after the function.
    pub fn tight(mut self) -> Case {
        self.before = vec![];
        self.after = vec![];
        self
    }

    pub fn padding(mut self, before: usize, after: usize) -> Case {
        self.before = vec![0x90; before];
        self.after = vec![0xcc; after];
        self
    }

    pub fn in_a_file(mut self) -> Case {
        self.live = false;
        self
    }

    pub fn jump_label(mut self, at: u64, target: u64) -> Case {
        self.jump_labels.push((at, target));
        self
    }

    pub fn static_call(mut self, at: u64) -> Case {
        self.static_calls.push(at);
        self
    }

    pub fn extable(mut self, at: u64, fixup: u64) -> Case {
        self.extable.push((at, fixup));
        self
    }

    pub fn warn(mut self, at: u64) -> Case {
        self.bugs.push((at, true));
        self
    }

    pub fn bug(mut self, at: u64) -> Case {
        self.bugs.push((at, false));
        self
    }

    pub fn alternative(mut self, at: u64, len: u8) -> Case {
        self.alternatives.push((at, len));
        self
    }

    /// An unwind entry: the frame address is `offset` above rsp from `at` on (6.12 encoding, a normal call frame).
    pub fn orc(mut self, at: u64, offset: i16) -> Case {
        let [a, b] = offset.to_le_bytes();
        self.orc.push((at, [a, b, 0, 0, 0x05, 0x02]));
        self
    }

    /// The static keys are in memory that is read-only since boot.
    pub fn sealed(mut self) -> Case {
        self.sealed = true;
        self
    }

    pub fn off_limits(mut self) -> Case {
        self.off_limits = true;
        self
    }

    pub fn kernel(&self) -> Kernel {
        // A function before (so that padding has an owner before it) and one after, which is also called.
        let start = F - self.before.len() as u64 - 8;
        let mut text = vec![0x0f, 0x1f, 0x44, 0, 0, 0x31, 0xc0, 0xc3];
        text.extend(&self.before);
        text.extend(&self.code);
        text.extend(&self.after);
        let g = start + text.len() as u64;
        text.extend([0x0f, 0x1f, 0x44, 0, 0, 0x31, 0xc0, 0xc3, 0xcc, 0xcc]);
        let mut b: KernelBuilder = Kernel::builder().text(start, &text).symbol("e", start, 't');
        if !self.before.is_empty() {
            b = b.symbol("__pfx_f", F - self.before.len() as u64, 't');
        }
        b = b.symbol("f", F, 't').symbol("g", g, 't');
        if self.sealed {
            b = b
                .symbol("__start_ro_after_init", 0xffff_ffff_8200_0000, 'D')
                .symbol("__end_ro_after_init", 0xffff_ffff_8200_0008, 'D');
        }
        let mut fentry = vec![Site { addr: start }, Site { addr: g }];
        if self.fentry {
            fentry.push(Site { addr: F });
        }
        let mut tables = Tables {
            fentry: Table::new(fentry),
            ..Tables::default()
        };
        tables.jump_labels = Table::new(
            self.jump_labels
                .iter()
                .map(|(at, to)| JumpLabel {
                    code: F + at,
                    target: F + to,
                    key: 0xffff_ffff_8200_0000,
                })
                .collect(),
        );
        tables.static_calls = Table::new(
            self.static_calls
                .iter()
                .map(|at| StaticCall {
                    addr: F + at,
                    key: 0xffff_ffff_8200_0010,
                    tail: false,
                })
                .collect(),
        );
        tables.alternatives = Table::new(
            self.alternatives
                .iter()
                .map(|(at, len)| Alternative {
                    addr: F + at,
                    replacement: 0xffff_ffff_8240_0000,
                    feature: 1,
                    flags: 0,
                    len: *len,
                    replacement_len: *len,
                })
                .collect(),
        );
        tables.extable = Table::new(
            self.extable
                .iter()
                .map(|(at, to)| ExEntry {
                    insn: F + at,
                    fixup: F + to,
                    data: 3,
                })
                .collect(),
        );
        tables.bugs = Table::new(
            self.bugs
                .iter()
                .map(|(at, warn)| BugEntry {
                    addr: F + at,
                    file: 0xffff_ffff_8230_0000,
                    line: 77,
                    flags: u16::from(*warn),
                })
                .collect(),
        );
        let orc = self
            .orc
            .iter()
            .map(|(at, raw)| OrcEntry {
                ip: F + at,
                raw: *raw,
            })
            .collect();
        let image = start..start + text.len() as u64;
        tables.orc = Orc::new(Table::new(orc), Vec::from([image]));
        // The static keys: initially false.
        b = b.tables(tables).data(0xffff_ffff_8200_0000, &[0; 32]);
        if self.off_limits {
            let range = F..g;
            b = b.off_limits(OffLimits::new(vec![OffLimitRange {
                range,
                why: OffLimit::Noinstr,
            }]));
        }
        if self.live {
            b.live().build()
        } else {
            b.build()
        }
    }
}

/// Requests for points at these offsets, each with a counter of its own.
pub fn requests(points: &[u64]) -> Vec<Request> {
    let spots: Vec<Spot> = points.iter().map(|at| Spot::Before(F + at)).collect();
    requests_at(&spots)
}

/// Requests for these spots, each with a counter of its own.
pub fn requests_at(spots: &[Spot]) -> Vec<Request> {
    spots
        .iter()
        .enumerate()
        .map(|(n, at)| Request {
            at: *at,
            snippets: vec![Snippet::Count {
                percpu: SLOT + 8 * n as u64,
            }],
        })
        .collect()
}

pub fn plan(case: &Case, points: &[u64], options: Options) -> (Plan, String) {
    let kernel = case.kernel();
    let analysis = Analysis::new(&kernel);
    let planner = Planner::new(&analysis, options);
    let mut boards = Boards::new();
    let plan = planner.plan(&requests(points), &mut boards);
    let text = show(&kernel, &plan);
    (plan, text)
}

pub fn show(kernel: &Kernel, plan: &Plan) -> String {
    let mut out = String::new();
    let mut patch = PATCH;
    for s in &plan.splices {
        out.push_str(&splice(kernel, s, patch));
        patch += 0x100;
    }
    for r in &plan.refused {
        out.push_str(&format!("refused {r}\n"));
    }
    out.replace(&format!("{:#x}", F >> 16), "F")
}

pub fn name(addr: u64) -> String {
    if (F..F + 0x1000).contains(&addr) {
        format!("f+{:#x}", addr - F)
    } else {
        format!("{addr:#x}")
    }
}

/// An offset in `f`, with a word where it is not "before".
pub fn spot(at: Spot) -> String {
    match at {
        Spot::Before(a) => name(a),
        Spot::Enter(a) => format!("enter {}", name(a)),
        Spot::After(a) => format!("after {}", name(a)),
        Spot::Taken(a) => format!("taken {}", name(a)),
        Spot::Fixup(a) => format!("fixup {}", name(a)),
    }
}

fn splice(kernel: &Kernel, s: &Splice, at: u64) -> String {
    let mut out = format!("{} {}", s.name, s.tactic);
    for p in &s.points {
        out.push_str(&format!(
            " | {} {} cost {}",
            spot(p.at),
            p.tactic,
            p.snippet_cost
        ));
    }
    out.push_str(&format!(
        " | runs {} overhead {}\n",
        s.displaced, s.overhead
    ));
    let b = s.site_bytes(at).expect("in reach");
    let armed = [b.jump.clone(), b.tail.clone()].concat();
    out.push_str("  site:\n");
    let mut was = s.boundaries.iter().scan(0usize, |from, len| {
        let piece = s.old.get(*from..*from + usize::from(*len));
        *from += usize::from(*len);
        piece
    });
    let old: Vec<String> = was.by_ref().map(hex).collect();
    out.push_str(&format!("    was {}\n", old.join(" | ")));
    out.push_str(&listing(&armed, s.site));
    if let Some((addr, bytes)) = b.board {
        out.push_str("  board:\n");
        out.push_str(&listing(&bytes, addr));
    }
    out.push_str("  patch:\n");
    let code = s.patch.linked_at(at).expect("in reach");
    let mut f = GasFormatter::new();
    for i in Decoder::with_ip(64, &code, at, DecoderOptions::NONE).iter() {
        let offset = (i.ip() - at) as u32;
        let mut text = String::new();
        f.format(&i, &mut text);
        for o in s.patch.orc.iter().filter(|o| o.offset == offset) {
            text.push_str(&format!("  ; orc {}", hex(&o.raw)));
        }
        for e in s.patch.extable.iter().filter(|e| e.offset == offset) {
            let to = match e.fixup {
                Fixup::Inside(o) => format!("patch+{o:#x}"),
                Fixup::Address(a) => name(a),
            };
            text.push_str(&format!("  ; fault -> {to} data {}", e.data));
        }
        for b in s.patch.bugs.iter().filter(|b| b.offset == offset) {
            text.push_str(&format!("  ; bug line {} flags {}", b.line, b.flags));
        }
        out.push_str(&format!("    {}\n", tidy(&text)));
    }
    let _ = kernel;
    out
}

fn listing(code: &[u8], at: u64) -> String {
    let mut f = GasFormatter::new();
    let mut out = String::new();
    for i in Decoder::with_ip(64, code, at, DecoderOptions::NONE).iter() {
        let mut text = String::new();
        f.format(&i, &mut text);
        out.push_str(&format!("    {}: {}\n", name(i.ip()), tidy(&text)));
    }
    out
}

/// Addresses in `f` by name, the patch area by offset.
fn tidy(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_inclusive([' ', ',', '$', '*']) {
        let core = word.trim_end_matches([' ', ',', '$', '*']);
        let addr = core
            .strip_prefix("0x")
            .and_then(|h| u64::from_str_radix(h, 16).ok());
        match addr {
            Some(a) if (F - 0x100..F + 0x1000).contains(&a) => {
                out.push_str(&if a < F {
                    format!("f-{:#x}", F - a)
                } else {
                    name(a)
                });
                out.push_str(word.get(core.len()..).unwrap_or(""));
            }
            Some(a) if (PATCH..PATCH + 0x1_0000).contains(&a) => {
                out.push_str(&format!("patch{:#x}", a - PATCH));
                out.push_str(word.get(core.len()..).unwrap_or(""));
            }
            _ => out.push_str(word),
        }
    }
    out
}

pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Only what is live is kept by a snippet: for reading goldens.
pub fn live_at(case: &Case, at: u64) -> Live {
    let kernel = case.kernel();
    let analysis = Analysis::new(&kernel);
    let f = analysis.function_at(F).expect("f");
    f.insn_at(F + at).expect("an instruction").live
}
