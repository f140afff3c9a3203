//! Shell-like patterns for symbol names.

/// Does `name` match `pattern` as a whole? `*` is any run of characters, `?` any one character,
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
            Some(&c) if c == b'?' || Some(&c) == n.get(ni) => {
                pi += 1;
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
        ] {
            assert_eq!(glob_match(pattern, name), want, "{pattern} {name}");
        }
    }
}
