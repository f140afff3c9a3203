//! What a user writes: `insn:vfs_read+0x1c`, `entry:tcp_*`, `exit:ext4:ext4_sync_file`, `block:schedule/*`.

use std::fmt;

/// A parsed probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// As it was written.
    pub text: String,
    /// What of the function it names.
    pub kind: ProbeKind,
    /// Which function, or address.
    pub place: Place,
}

/// Which points of a function a probe means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// One instruction, at this offset from the function's entry (0 for an address).
    Insn(u64),
    /// The entry: the first instruction after the fentry site.
    Entry,
    /// Every way out of the function.
    Exit,
    /// All blocks.
    Blocks,
    /// The n-th block by address.
    Block(u32),
    /// All edges from one block to another.
    Edge(u32, u32),
    /// Every call of a function of this name or glob (`*`: every call there is), direct or not, tail calls too.
    Call(String),
}

/// Where a probe is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A kernel address.
    Address(u64),
    /// A function name, id or glob, with its module if one was given.
    Function {
        /// Module, as in `module:name`.
        module: Option<String>,
        /// Name (`name`, `name#2`) or glob.
        name: String,
    },
}

/// A probe that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Nothing there.
    #[error(
        "an empty probe: write for example insn:vfs_read+0x1c, entry:vfs_read, exit:vfs_read or block:vfs_read/*"
    )]
    Empty,
    /// The word before the colon is no kind of probe.
    #[error(
        "{text}: there is no probe kind {kind:?}; there are insn, entry, exit, block, edge and call"
    )]
    Kind {
        /// The probe.
        text: String,
        /// The word.
        kind: String,
    },
    /// No kind at all.
    #[error(
        "{text}: say what of it to count: insn:{text}, entry:{text}, exit:{text} or block:{text}/*"
    )]
    NoKind {
        /// The probe.
        text: String,
    },
    /// No function.
    #[error(
        "{text:?} names no function: write for example {}:vfs_read",
        kind_of(text)
    )]
    NoFunction {
        /// The probe.
        text: String,
    },
    /// An offset that is no number.
    #[error(
        "{text}: {offset:?} is not an offset; write it as +0x1c (hexadecimal) or +28 (decimal)"
    )]
    Offset {
        /// The probe.
        text: String,
        /// What stands there.
        offset: String,
    },
    /// A line of a source file.
    #[error(
        "{text}: places in source files are not understood; `kerninst show FUNCTION` lists the instructions, write insn:FUNCTION+0xOFFSET"
    )]
    Line {
        /// The probe.
        text: String,
    },
    /// A number that is no kernel address.
    #[error("{text}: {address} is no address: one has at most 16 hexadecimal digits")]
    Address {
        /// The probe.
        text: String,
        /// What stands there.
        address: String,
    },
    /// A block that is no number.
    #[error(
        "{text}: write block:FUNCTION/* for all blocks or block:FUNCTION/N for the N-th; {block:?} is neither"
    )]
    Block {
        /// The probe.
        text: String,
        /// What stands there.
        block: String,
    },
    /// An edge that is not two numbers.
    #[error(
        "{text}: write edge:FUNCTION/N->M for the way from block N to block M (kerninst show has their numbers)"
    )]
    Edge {
        /// The probe.
        text: String,
    },
    /// A call without callee.
    #[error(
        "{text}: write call:FUNCTION->CALLEE, or call:FUNCTION->* for every call that it makes"
    )]
    Call {
        /// The probe.
        text: String,
    },
    /// An offset or block with a kind that takes none.
    #[error("{text}: {kind} takes a function only, without {extra:?}")]
    Extra {
        /// The probe.
        text: String,
        /// Its kind.
        kind: &'static str,
        /// What is too much.
        extra: String,
    },
}

/// The word before the first colon.
fn kind_of(text: &str) -> &str {
    text.split(':').next().unwrap_or(text)
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Probe {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Probe, ParseError> {
        let trimmed = text.trim();
        let owned = || trimmed.to_string();
        if trimmed.is_empty() {
            return Err(ParseError::Empty);
        }
        let (kind, rest) = trimmed
            .split_once(':')
            .ok_or_else(|| ParseError::NoKind { text: owned() })?;
        if rest.is_empty() {
            return Err(ParseError::NoFunction { text: owned() });
        }
        let (kind, place) = match kind {
            "insn" => insn(trimmed, rest)?,
            // bpftrace's names for the same places.
            "entry" | "kprobe" | "k" | "fentry" | "kfunc" => {
                (ProbeKind::Entry, whole(trimmed, "entry", rest)?)
            }
            "exit" | "kretprobe" | "kr" | "fexit" | "kretfunc" => {
                (ProbeKind::Exit, whole(trimmed, "exit", rest)?)
            }
            "block" => block(trimmed, rest)?,
            "edge" => edge(trimmed, rest)?,
            "call" => call(trimmed, rest)?,
            _ => {
                return Err(ParseError::Kind {
                    text: owned(),
                    kind: kind.into(),
                });
            }
        };
        Ok(Probe {
            text: owned(),
            kind,
            place,
        })
    }
}

/// `FUNC+OFF`, `FUNC` or an address.
fn insn(text: &str, rest: &str) -> Result<(ProbeKind, Place), ParseError> {
    if let Some(addr) = address(text, rest)? {
        return Ok((ProbeKind::Insn(0), Place::Address(addr)));
    }
    if rest.contains('@') {
        return Err(ParseError::Line { text: text.into() });
    }
    let (name, offset) = match rest.rsplit_once('+') {
        Some((name, offset)) => {
            let parsed = number(offset);
            (
                name,
                parsed.ok_or_else(|| ParseError::Offset {
                    text: text.into(),
                    offset: offset.into(),
                })?,
            )
        }
        None => (rest, 0),
    };
    Ok((ProbeKind::Insn(offset), function(text, name)?))
}

/// A function, and nothing after it.
fn whole(text: &str, kind: &'static str, rest: &str) -> Result<Place, ParseError> {
    if let Some(at) = rest.find(['+', '/']) {
        return Err(ParseError::Extra {
            text: text.into(),
            kind,
            extra: rest[at..].into(),
        });
    }
    match address(text, rest)? {
        Some(addr) => Ok(Place::Address(addr)),
        None => function(text, rest),
    }
}

/// `FUNC/*`, `FUNC/N` or `FUNC`.
fn block(text: &str, rest: &str) -> Result<(ProbeKind, Place), ParseError> {
    let (name, kind) = match rest.rsplit_once('/') {
        None | Some((_, "*")) => (rest.strip_suffix("/*").unwrap_or(rest), ProbeKind::Blocks),
        Some((name, n)) => match n.parse() {
            Ok(n) => (name, ProbeKind::Block(n)),
            Err(_) => {
                return Err(ParseError::Block {
                    text: text.into(),
                    block: n.into(),
                });
            }
        },
    };
    Ok((kind, function(text, name)?))
}

/// `FUNC/N->M`.
fn edge(text: &str, rest: &str) -> Result<(ProbeKind, Place), ParseError> {
    let wrong = || ParseError::Edge { text: text.into() };
    let (name, numbers) = rest.rsplit_once('/').ok_or_else(wrong)?;
    let (from, to) = numbers.split_once("->").ok_or_else(wrong)?;
    let number = |n: &str| n.trim().parse::<u32>().map_err(|_| wrong());
    Ok((
        ProbeKind::Edge(number(from)?, number(to)?),
        function(text, name)?,
    ))
}

/// `FUNC->CALLEE`.
fn call(text: &str, rest: &str) -> Result<(ProbeKind, Place), ParseError> {
    let wrong = || ParseError::Call { text: text.into() };
    let (name, callee) = rest.split_once("->").ok_or_else(wrong)?;
    if callee.trim().is_empty() {
        return Err(wrong());
    }
    let kind = ProbeKind::Call(callee.trim().into());
    Ok((kind, function(text, name.trim())?))
}

fn function(text: &str, name: &str) -> Result<Place, ParseError> {
    let (module, name) = match name.split_once(':') {
        Some((module, name)) => (Some(module.to_string()), name),
        None => (None, name),
    };
    if name.is_empty() || module.as_deref() == Some("") {
        return Err(ParseError::NoFunction { text: text.into() });
    }
    Ok(Place::Function {
        module,
        name: name.into(),
    })
}

/// A kernel address: hexadecimal with `0x`, or without in the upper half. `None`: it looks like a name.
fn address(probe: &str, text: &str) -> Result<Option<u64>, ParseError> {
    let prefixed = text.strip_prefix("0x");
    let Some(digits) = prefixed.or_else(|| text.strip_prefix("ffff").map(|_| text)) else {
        return Ok(None);
    };
    match u64::from_str_radix(digits, 16) {
        Ok(addr) => Ok(Some(addr)),
        // No name starts with a digit; `ffff` without 0x may be one.
        Err(_) if prefixed.is_some() => Err(ParseError::Address {
            text: probe.into(),
            address: text.into(),
        }),
        Err(_) => Ok(None),
    }
}

/// `0x1c` or `28`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let got = match text.parse::<Probe>() {
            Ok(p) => format!("{:?} {:?}", p.kind, p.place),
            Err(e) => format!("error: {e}"),
        };
        assert_eq!(got, expected, "{text:?}");
    }

    fn func(module: &str, name: &str) -> String {
        let module = if module.is_empty() {
            "None".into()
        } else {
            format!("Some({module:?})")
        };
        format!("Function {{ module: {module}, name: {name:?} }}")
    }

    /// Would catch a probe that is read as something else than what it says.
    #[test]
    fn probes_are_read() {
        check(
            "insn:vfs_read+0x1c",
            &format!("Insn(28) {}", func("", "vfs_read")),
        );
        check(
            "insn:vfs_read+28",
            &format!("Insn(28) {}", func("", "vfs_read")),
        );
        check(
            "insn:vfs_read",
            &format!("Insn(0) {}", func("", "vfs_read")),
        );
        check(
            "insn:ext4:ext4_sync_file#2+0x4",
            &format!("Insn(4) {}", func("ext4", "ext4_sync_file#2")),
        );
        check(
            "insn:0xffffffff81000010",
            "Insn(0) Address(18446744071578845200)",
        );
        check(
            "insn:ffffffff81000010",
            "Insn(0) Address(18446744071578845200)",
        );
        check("entry:tcp_*", &format!("Entry {}", func("", "tcp_*")));
        check("kprobe:do_exit", &format!("Entry {}", func("", "do_exit")));
        check("exit:nfs:*", &format!("Exit {}", func("nfs", "*")));
        check(
            "block:schedule/*",
            &format!("Blocks {}", func("", "schedule")),
        );
        check(
            "edge:schedule/7->12",
            &format!("Edge(7, 12) {}", func("", "schedule")),
        );
        check(
            "call:ext4:ext4_*->jbd2_*",
            &format!("Call(\"jbd2_*\") {}", func("ext4", "ext4_*")),
        );
        check(
            "block:schedule/7",
            &format!("Block(7) {}", func("", "schedule")),
        );
    }

    /// Would catch a message that does not say what to write instead.
    #[test]
    fn bad_probes_are_explained() {
        check(
            "",
            "error: an empty probe: write for example insn:vfs_read+0x1c, entry:vfs_read, exit:vfs_read or block:vfs_read/*",
        );
        check(
            "vfs_read",
            "error: vfs_read: say what of it to count: insn:vfs_read, entry:vfs_read, exit:vfs_read or block:vfs_read/*",
        );
        check(
            "inst:x",
            "error: inst:x: there is no probe kind \"inst\"; there are insn, entry, exit, block, edge and call",
        );
        check(
            "insn:f+zz",
            "error: insn:f+zz: \"zz\" is not an offset; write it as +0x1c (hexadecimal) or +28 (decimal)",
        );
        check(
            "entry:f+4",
            "error: entry:f+4: entry takes a function only, without \"+4\"",
        );
        check(
            "block:f/x",
            "error: block:f/x: write block:FUNCTION/* for all blocks or block:FUNCTION/N for the N-th; \"x\" is neither",
        );
        check(
            "edge:f/3",
            "error: edge:f/3: write edge:FUNCTION/N->M for the way from block N to block M (kerninst show has their numbers)",
        );
        check(
            "call:f->",
            "error: call:f->: write call:FUNCTION->CALLEE, or call:FUNCTION->* for every call that it makes",
        );
        check(
            "exit:",
            "error: \"exit:\" names no function: write for example exit:vfs_read",
        );
        check(
            "exit:m:",
            "error: \"exit:m:\" names no function: write for example exit:vfs_read",
        );
        check(
            "insn:0xffffffff810000100",
            "error: insn:0xffffffff810000100: 0xffffffff810000100 is no address: one has at most 16 hexadecimal digits",
        );
    }
}
