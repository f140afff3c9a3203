//! Shell-like patterns for symbol names.

/// Does `name` match `pattern` as a whole? `*` is any run of characters, `?` any one character, `[a-cx]` one of a set and
/// `[!a-cx]` one that is not in it (a `]` that comes first is in the set; a `[` that is never closed is itself),
/// everything else itself (bytes, as kernel symbols are ASCII).
#[must_use]
pub fn glob_match(pattern: &str, name: &str) -> bool {
    let (p, n) = (pattern.as_bytes(), name.as_bytes());
    let (mut pi, mut ni) = (0, 0);
    // Where to resume when a later part does not fit: after the last star, one character on.
    let mut retry: Option<(usize, usize)> = None;
    while ni < n.len() {
        match p.get(pi) {
            Some(b'*') => {
                retry = Some((pi + 1, ni));
                pi += 1;
            }
            Some(_) if let Some(after) = n.get(ni).and_then(|c| one(p, pi, *c)) => {
                pi = after;
                ni += 1;
            }
            _ => match retry {
                Some((after_star, from)) => {
                    pi = after_star;
                    ni = from + 1;
                    retry = Some((after_star, ni));
                }
                None => return false,
            },
        }
    }
    p.get(pi..)
        .is_some_and(|rest| rest.iter().all(|&c| c == b'*'))
}

/// Whether the part of the pattern at `at`, which is no star, has this character; then where the next part begins.
fn one(pattern: &[u8], at: usize, c: u8) -> Option<usize> {
    match pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => match set(pattern.get(at + 1..)?, c) {
            Some((has, len)) => has.then_some(at + 1 + len),
            None => (c == b'[').then_some(at + 1),
        },
        &itself => (itself == c).then_some(at + 1),
    }
}

/// Whether the set that begins after a `[` has this character, and how long it is, `]` included; nothing if it has no end.
fn set(text: &[u8], c: u8) -> Option<(bool, usize)> {
    let not = matches!(text.first(), Some(b'!' | b'^'));
    let from = usize::from(not);
    let members = text.get(from..)?;
    // A `]` at the beginning is a member.
    let end = 1 + members.get(1..)?.iter().position(|&b| b == b']')?;
    let mut members = members.get(..end)?;
    let mut has = false;
    while let Some((&low, rest)) = members.split_first() {
        members = match rest {
            [b'-', high, rest @ ..] => {
                has |= (low..=*high).contains(&c);
                rest
            }
            _ => {
                has |= low == c;
                rest
            }
        };
    }
    Some((has != not, from + end + 1))
}

#[cfg(test)]
mod tests {
    use super::glob_match;

    #[test]
    fn patterns() {
        for (pattern, name, want) in [
            ("vfs_*", "vfs_read", true),
            ("vfs_*", "xvfs_read", false),
            ("*read*", "vfs_readv", true),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxbxxcd", false),
            ("vfs_rea?", "vfs_read", true),
            ("vfs_rea?", "vfs_rea", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("tcp_[rs]*", "tcp_sendmsg", true),
            ("tcp_[rs]*", "tcp_recvmsg", true),
            ("tcp_[rs]*", "tcp_ack", false),
            ("tcp_[!rs]*", "tcp_ack", true),
            ("tcp_[^rs]*", "tcp_sendmsg", false),
            ("*_[a-c]x", "q_bx", true),
            ("*_[a-c]x", "q_dx", false),
            ("*[0-9][0-9]", "read64", true),
            ("*[0-9][0-9]", "read4", false),
            ("[]]a", "]a", true),
            ("[a-]", "-", true),
            ("x[", "x[", true),
            ("x[ab", "x[ab", true),
            ("x[ab", "xa", false),
            ("[!]", "[!]", true),
            ("[]", "[]", true),
        ] {
            assert_eq!(glob_match(pattern, name), want, "{pattern} {name}");
        }
    }
}
