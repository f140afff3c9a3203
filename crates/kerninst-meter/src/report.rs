//! The output: one JSON object a line, each with `"event"`.
//!
//! | event | fields |
//! | --- | --- |
//! | `start` | `schema` (1), `vcpus` |
//! | `region` | `id`, `seq`, `vcpu` (where it ended), `armed` (false: nothing was counted), `kernel`, `user`, `kernel_rep`, `user_rep`, `ranges`: list of `start`, `end` (hexadecimal texts), `insns`, `rep` |
//! | `samples` | `id`, `count`, `armed`, `kernel` and `user`: `min`, `p50`, `p90`, `max`, `mean` |
//! | `histogram` | `id`, `file`, `rows`, `armed` |
//! | `error` | `message` |
//! | `end` | `markers` (how many were seen) |
//!
//! A histogram file has a comment line, then one line a row, sorted by address: `ADDRESS COUNT CODE [rep]`, address and
//! machine code in hexadecimal; `rep`: the count is of iterations.

use crate::samples::Summary;
use std::fmt::Write as _;

/// Version of this format.
pub const SCHEMA: u32 = 1;

/// Counts of instructions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) insns: u64,
    pub(crate) rep: u64,
}

impl Counts {
    pub(crate) fn since(self, before: Counts) -> Counts {
        Counts {
            insns: self.insns.wrapping_sub(before.insns),
            rep: self.rep.wrapping_sub(before.rep),
        }
    }
}

pub(crate) struct Region<'a> {
    pub(crate) id: u8,
    pub(crate) seq: u64,
    pub(crate) vcpu: u32,
    pub(crate) armed: bool,
    pub(crate) kernel: Counts,
    pub(crate) user: Counts,
    pub(crate) ranges: &'a [((u64, u64), Counts)],
}

impl Region<'_> {
    pub(crate) fn json(&self) -> String {
        let mut out = format!(
            "{{\"event\":\"region\",\"id\":{},\"seq\":{},\"vcpu\":{},\"armed\":{},\"kernel\":{},\"user\":{},\
             \"kernel_rep\":{},\"user_rep\":{},\"ranges\":[",
            self.id,
            self.seq,
            self.vcpu,
            self.armed,
            self.kernel.insns,
            self.user.insns,
            self.kernel.rep,
            self.user.rep
        );
        for (n, ((start, end), counts)) in self.ranges.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            let _ = write!(
                out,
                "{comma}{{\"start\":\"{start:#x}\",\"end\":\"{end:#x}\",\"insns\":{},\"rep\":{}}}",
                counts.insns, counts.rep
            );
        }
        out.push_str("]}");
        out
    }
}

pub(crate) fn samples_json(
    id: u8,
    count: usize,
    armed: bool,
    kernel: Summary,
    user: Summary,
) -> String {
    let part = |s: Summary| {
        format!(
            "{{\"min\":{},\"p50\":{},\"p90\":{},\"max\":{},\"mean\":{}}}",
            s.min, s.p50, s.p90, s.max, s.mean
        )
    };
    format!(
        "{{\"event\":\"samples\",\"id\":{id},\"count\":{count},\"armed\":{armed},\"kernel\":{},\"user\":{}}}",
        part(kernel),
        part(user)
    )
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
