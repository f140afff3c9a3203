//! What was lost, in sentences.

use crate::layout::Loss;

/// One line for each reason that something was lost for: how much, and what it means. Counts are in the order of [`Loss::ALL`].
pub fn losses_text(counts: &[u64]) -> String {
    let mut out = String::new();
    for (loss, &n) in Loss::ALL.iter().zip(counts) {
        if n != 0 {
            out.push_str(&format!("Lost {n} {}\n", reason(*loss, n)));
        }
    }
    out
}

fn reason(loss: Loss, n: u64) -> String {
    let s = if n == 1 { "" } else { "s" };
    match loss {
        Loss::Events => format!("event{s}: the event buffer was full"),
        Loss::Keys => format!("update{s} of maps: no room for another key"),
        Loss::Stacks => format!("stack{s}: no room for another one"),
        Loss::Nested => format!("call{s} of a clause: it interrupted another one in a callout"),
        Loss::Contended => format!("update{s}: other CPUs were faster again and again"),
        Loss::Unreadable => format!("read{s}: the memory cannot be read, 0 was taken"),
    }
}

/// The field of a reason in JSON.
pub(super) fn field(loss: Loss) -> &'static str {
    match loss {
        Loss::Events => "events",
        Loss::Keys => "keys",
        Loss::Stacks => "stacks",
        Loss::Nested => "nested",
        Loss::Contended => "contended",
        Loss::Unreadable => "unreadable",
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    /// Would catch: a reason that is silent or mixed up with another.
    #[test]
    fn every_reason_has_its_sentence() {
        assert_eq!(losses_text(&[0; 6]), "");
        expect![[r#"
            Lost 5 events: the event buffer was full
            Lost 1 update of maps: no room for another key
            Lost 2 stacks: no room for another one
            Lost 3 calls of a clause: it interrupted another one in a callout
            Lost 4 updates: other CPUs were faster again and again
            Lost 6 reads: the memory cannot be read, 0 was taken
        "#]]
        .assert_eq(&losses_text(&[5, 1, 2, 3, 4, 6]));
    }
}
