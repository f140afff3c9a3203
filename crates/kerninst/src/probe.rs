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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    #[error("{text}: there is no probe kind {kind:?}; there are insn, entry, exit and block")]
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
    #[error("{text}: a function name or address is missing")]
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
    if let Some(addr) = address(rest) {
        return Ok((ProbeKind::Insn(0), Place::Address(addr)));
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
    match address(rest) {
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

/// A kernel address: hexadecimal with or without `0x`, in the upper half.
fn address(text: &str) -> Option<u64> {
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("ffff").map(|_| text))?;
    u64::from_str_radix(digits, 16).ok()
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
            "error: inst:x: there is no probe kind \"inst\"; there are insn, entry, exit and block",
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
            "exit:",
            "error: exit:: a function name or address is missing",
        );
        check(
            "exit:m:",
            "error: exit:m:: a function name or address is missing",
        );
    }
}
