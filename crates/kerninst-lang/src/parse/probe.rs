//! Probes: their text is taken from the source as it stands, and turned into kerninst's own words.

use super::{MAX_PROBES, Parser};
use crate::ast::{Place, PlaceKind, Probe, ProbeKind};
use crate::diag::Diagnostic;
use crate::hir::Span;
use crate::lex::Tok;

/// All kinds of probes, with bpftrace's names for them.
const KINDS: [&str; 17] = [
    "entry",
    "exit",
    "insn",
    "block",
    "edge",
    "call",
    "interval",
    "BEGIN",
    "END",
    "kprobe",
    "k",
    "kretprobe",
    "kr",
    "kfunc",
    "kretfunc",
    "fentry",
    "fexit",
];

/// What bpftrace has and kerninst has not, and what kerninst has instead.
const FOREIGN: [(&[&str], &str); 7] = [
    (
        &["uprobe", "u", "uretprobe", "ur", "usdt", "U"],
        "kerninst is about the kernel: use bpftrace for user programs",
    ),
    (
        &["tracepoint", "t", "rawtracepoint", "rt"],
        "probe the function that the tracepoint is in: `entry:FUNCTION`, or `insn:FUNCTION+0xOFFSET` at the tracepoint itself",
    ),
    (
        &["profile", "p"],
        "to print regularly use `interval:s:1`; how often what runs, `kerninst count` and `kerninst blocks` tell",
    ),
    (
        &["software", "s", "hardware", "h"],
        "perf events are no places in the kernel's code: use bpftrace or perf",
    ),
    (
        &["watchpoint", "w", "asyncwatchpoint", "aw"],
        "probe the instruction that writes the memory: `insn:FUNCTION+0xOFFSET`",
    ),
    (
        &["iter", "it"],
        "kernel objects can be reached from the function that works on them: `entry:FUNCTION`",
    ),
    (
        &["begin", "end", "self", "bench", "test"],
        "to run something once use `BEGIN` (before arming) or `END` (after disarming)",
    ),
];

impl Parser<'_> {
    /// One or more probes with commas between them. Afterwards the next token is what follows them.
    pub(super) fn probes(&mut self) -> Vec<Probe> {
        let mut probes = Vec::new();
        loop {
            if self.at("{") || self.at("/") || self.tok.tok == Tok::Eof {
                let _: Option<()> =
                    self.expected("a probe", &["write for example `entry:vfs_read`"]);
                return probes;
            }
            // Back to the text of the token that was only looked at.
            self.lex.at = self.tok.span.start as usize;
            let start = self.lex.at;
            let text = probe_text(self.lex.rest());
            self.lex.at += text.len();
            let span = self.lex.span_from(start);
            self.advance();
            self.end = span.end;
            match classify(text, span) {
                Ok(kind) => probes.push(Probe { kind, span }),
                Err(d) => self.errors.push(*d),
            }
            self.probes += 1;
            if self.probes == MAX_PROBES + 1 {
                let d = Diagnostic::error(
                    span,
                    format!("the script has more than {MAX_PROBES} probes"),
                );
                self.errors
                    .push(d.help("a pattern is one probe: `entry:tcp_*`"));
            }
            if !self.accept(",") {
                return probes;
            }
        }
    }
}

/// The text of the probe that `rest` begins with; at least one character.
fn probe_text(rest: &str) -> &str {
    let kind = rest
        .split(|c: char| !c.is_ascii_alphanumeric())
        .next()
        .unwrap_or("");
    // Slashes belong to `block:FUNC/N` once, and to the path of `insn:FUNC@PATH:LINE` up to its last colon.
    let mut slashes = match kind {
        "block" | "edge" => 1,
        kind if KINDS.contains(&kind) => 0,
        // Of what there is not, all is one probe: `uprobe:/bin/sh:main`.
        _ => u32::MAX,
    };
    let mut in_path = false;
    let mut end = rest.len();
    let mut bracket = false;
    for (at, c) in rest.char_indices() {
        match c {
            '/' if in_path => {}
            '/' if slashes > 0 => slashes -= 1,
            '@' if kind == "insn" => in_path = true,
            ':' if in_path => in_path = false,
            '[' => bracket = true,
            ']' => bracket = false,
            '/' | '{' | '}' | ';' => {
                end = at;
                break;
            }
            ',' if !bracket => {
                end = at;
                break;
            }
            c if c.is_whitespace() => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    let first = rest.chars().next().map_or(0, char::len_utf8);
    rest.get(..end.max(first)).unwrap_or(rest)
}

type Result<T> = std::result::Result<T, Box<Diagnostic>>;

fn error<T>(span: Span, message: String, help: &str) -> Result<T> {
    Err(Box::new(Diagnostic::error(span, message).help(help)))
}

/// What a probe's text says.
fn classify(text: &str, span: Span) -> Result<ProbeKind> {
    match text {
        "BEGIN" => return Ok(ProbeKind::Begin),
        "END" => return Ok(ProbeKind::End),
        _ => {}
    }
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    if let Some((_, help)) = FOREIGN.iter().find(|(names, _)| names.contains(&kind)) {
        return error(span, format!("kerninst has no probe `{kind}`"), help);
    }
    if kind.starts_with('#') || ["struct", "union", "enum", "typedef"].contains(&kind) {
        return error(
            span,
            format!("`{kind}`: a script declares no types and includes nothing"),
            "the kernel's own types are there without it, from its BTF: `((struct sock *)arg0)->sk_err`",
        );
    }
    if !KINDS.contains(&kind) {
        let d = Diagnostic::error(span, format!("there is no probe kind `{kind}`"));
        let near = crate::diag::nearest(kind, KINDS);
        let d = d.nearest(kind, KINDS);
        return Err(Box::new(if near.is_some() {
            d
        } else {
            d.help("there are entry: exit: insn: block: edge: call: interval: BEGIN END")
        }));
    }
    if rest.is_empty() {
        let example = match kind {
            "interval" => "interval:s:1",
            "insn" => "insn:vfs_read+0x1c",
            "BEGIN" | "END" => "BEGIN",
            _ => "entry:vfs_read",
        };
        return error(
            span,
            format!("`{kind}` does not say where"),
            &format!("write for example `{example}`"),
        );
    }
    if kind == "interval" {
        return interval(rest, span).map(ProbeKind::Interval);
    }
    place(kind, rest, span).map(ProbeKind::Kernel)
}

fn interval(rest: &str, span: Span) -> Result<u64> {
    let help = "write `interval:s:N`, `ms:N`, `us:N` or `hz:N`, with N of at least 1";
    let parsed = rest.split_once(':').and_then(|(unit, n)| {
        let n: u64 = n.parse().ok().filter(|n| *n > 0)?;
        match unit {
            "s" => n.checked_mul(1_000_000_000),
            "ms" => n.checked_mul(1_000_000),
            "us" => n.checked_mul(1_000),
            "hz" => Some(1_000_000_000 / n).filter(|ns| *ns > 0),
            _ => None,
        }
    });
    match parsed {
        Some(ns) => Ok(ns),
        None => error(span, format!("`{rest}` is no interval"), help),
    }
}

fn place(kind: &str, rest: &str, span: Span) -> Result<Place> {
    let mut rest = rest;
    let kind = match kind {
        "entry" => PlaceKind::Entry,
        "exit" => PlaceKind::Exit,
        "insn" => PlaceKind::Insn,
        "block" => PlaceKind::Block,
        "edge" => PlaceKind::Edge,
        "call" => PlaceKind::Call,
        "kprobe" | "k" if rest.contains('+') => PlaceKind::Insn,
        "kretprobe" | "kr" => PlaceKind::Exit,
        "kretfunc" | "fexit" => {
            rest = rest.strip_prefix("vmlinux:").unwrap_or(rest);
            PlaceKind::Exit
        }
        _ => {
            rest = rest.strip_prefix("vmlinux:").unwrap_or(rest);
            PlaceKind::Entry
        }
    };
    let name = function_part(kind, rest, span)?;
    if name.is_empty() || name.ends_with(':') {
        return error(
            span,
            format!("`{}:{rest}` names no function", kind.word()),
            "write for example `entry:vfs_read`, or `entry:ext4:ext4_sync_file` for a module's",
        );
    }
    let bare = name.rsplit(':').next().unwrap_or(name);
    let bare = bare.split('#').next().unwrap_or(bare);
    let address = bare.starts_with(|c: char| c.is_ascii_digit());
    if address && kind != PlaceKind::Insn && kind != PlaceKind::Entry && kind != PlaceKind::Exit {
        return error(
            span,
            format!("{}: takes a function, not an address", kind.word()),
            "for an address write `insn:0xffffffff81000000`",
        );
    }
    Ok(Place {
        text: format!("{}:{rest}", kind.word()),
        kind,
        function: (!address).then(|| bare.to_string()),
        glob: name.contains(['*', '?', '[']),
    })
}

/// The function of a probe's text, whose other parts are checked.
fn function_part(kind: PlaceKind, rest: &str, span: Span) -> Result<&str> {
    match kind {
        PlaceKind::Entry | PlaceKind::Exit => match rest.find(['+', '@']) {
            None => Ok(rest),
            Some(_) => error(
                span,
                format!("{}: takes a function only, not a place in it", kind.word()),
                &format!("write `insn:{rest}`"),
            ),
        },
        PlaceKind::Insn => {
            if let Some((name, place)) = rest.split_once('@') {
                let line = place.rsplit_once(':').and_then(|(_, n)| n.parse().ok());
                return match line {
                    Some(0u32) | None => error(
                        span,
                        format!("`{place}` is no line of a source file"),
                        "write `insn:FUNCTION@FILE.c:LINE`",
                    ),
                    Some(_) => Ok(name),
                };
            }
            match rest.split_once('+') {
                None => Ok(rest),
                Some((name, offset)) if number(offset) => Ok(name),
                Some((_, offset)) => error(
                    span,
                    format!("`{offset}` is no offset"),
                    "write it as +0x1c (hexadecimal) or +28 (decimal)",
                ),
            }
        }
        PlaceKind::Block => match rest.split_once('/') {
            None => Ok(rest),
            Some((name, n)) if n == "*" || n.parse::<u32>().is_ok() => Ok(name),
            Some((_, n)) => error(
                span,
                format!("`{n}` is no block"),
                "write `block:FUNCTION/3` for one block, `block:FUNCTION/*` for all",
            ),
        },
        PlaceKind::Edge => {
            let parts = rest.split_once('/').filter(|(_, edge)| {
                let ends = edge.split_once("->");
                let is = |n: &str| n == "*" || n.parse::<u32>().is_ok();
                *edge == "*" || ends.is_some_and(|(a, b)| is(a) && is(b))
            });
            match parts {
                Some((name, _)) => Ok(name),
                None => error(
                    span,
                    format!("`{rest}` is no edge"),
                    "write `edge:FUNCTION/2->5`: from block 2 to block 5, without blanks",
                ),
            }
        }
        PlaceKind::Call => Ok(rest.split("->").next().unwrap_or(rest)),
    }
}

/// `0x1c` or `28`.
fn number(text: &str) -> bool {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).is_ok(),
        None => text.parse::<u64>().is_ok(),
    }
}
