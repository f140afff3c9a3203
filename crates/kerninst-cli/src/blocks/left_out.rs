//! Functions that are not counted, and why.

use std::collections::BTreeMap;
use std::fmt;

use kerninst_patch::Refusal;

use crate::show::refusal_name;

/// A function that is not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its id.
    pub function: String,
    /// A word for the reason, as JSON has it.
    pub reason: &'static str,
    /// The reason.
    pub why: String,
}

impl LeftOut {
    /// Because of a refusal.
    pub fn refused(function: &str, why: &Refusal) -> LeftOut {
        LeftOut::because(function, refusal_name(why), why.to_string())
    }

    /// For another reason.
    pub fn because(function: &str, reason: &'static str, why: impl Into<String>) -> LeftOut {
        LeftOut {
            function: function.into(),
            reason,
            why: why.into(),
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.function, self.why)
    }
}

/// From so many functions on, they are told by reason.
const MANY: usize = 8;
/// Names that stand for those of one reason.
const EXAMPLES: usize = 3;

/// Sentences that tell of all of them: one for each, or one for each reason where they are many.
pub fn sentences(left_out: &[LeftOut]) -> Vec<String> {
    if left_out.len() < MANY {
        return left_out
            .iter()
            .map(|l| format!("not counted: {l}"))
            .collect();
    }
    let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for l in left_out {
        let all = reasons.entry(without_addresses(&l.why)).or_default();
        all.push(&l.function);
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, functions)| std::cmp::Reverse(functions.len()));
    let sentence = |(why, functions): (String, Vec<&str>)| {
        let names: Vec<&str> = functions.iter().take(EXAMPLES).copied().collect();
        let more = if functions.len() > names.len() {
            ", …"
        } else {
            ""
        };
        let number = crate::short::number(functions.len(), "function");
        format!("not counted: {number} ({}{more}): {why}", names.join(", "))
    };
    reasons.into_iter().map(sentence).collect()
}

/// Addresses differ where reasons do not.
fn without_addresses(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, number)) = rest.split_once("0x") {
        out.push_str(before);
        out.push_str("0x…");
        rest = number.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_told_by_reason() {
        let one = |n: usize| {
            let why = match n % 3 {
                0 => "noinstr text".to_string(),
                _ => format!("an int3 at {:#x}: a breakpoint", 0x1000 + n),
            };
            LeftOut::because(&format!("f{n}"), "reason", why)
        };
        let few: Vec<LeftOut> = (0..2).map(one).collect();
        let many: Vec<LeftOut> = (0..10).map(one).collect();
        let text = [sentences(&few), sentences(&many)].concat().join("\n");
        expect_test::expect![[r#"
            not counted: f0: noinstr text
            not counted: f1: an int3 at 0x1001: a breakpoint
            not counted: 6 functions (f1, f2, f4, …): an int3 at 0x…: a breakpoint
            not counted: 4 functions (f0, f3, f6, …): noinstr text"#]]
        .assert_eq(&text);
    }
}
