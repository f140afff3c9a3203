//! What a compiler-made symbol name says: `vfs_read.cold`, `foo.isra.0`, `bar.constprop.0.cold`.

/// How a symbol was made from the function of its base name (gcc's suffixes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Derived {
    /// The unlikely part of a function, moved away: not a function of its own.
    Cold,
    /// Split off a part of the function (`.part.N`).
    Part,
    /// Arguments replaced by scalars (`.isra.N`): does not take the source's arguments.
    Isra,
    /// A copy specialised for constant arguments (`.constprop.N`).
    ConstProp,
    /// A local copy made for link-time optimisation (`.lto_priv.N`, `.llvm.N`).
    Local,
    /// Padding in front of a function (`__pfx_NAME`).
    Prefix,
    /// Any other suffix.
    Other,
}

const PREFIX: &str = "__pfx_";

/// The name without what the compiler added: `foo.isra.0.cold` is `foo`; `__pfx_foo` is `foo`.
#[must_use]
pub fn base_name(name: &str) -> &str {
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    // A name may start with a dot (".text" section symbols): that one is not a suffix.
    match name.get(1..).and_then(|rest| rest.find('.')) {
        Some(dot) => name.get(..dot + 1).unwrap_or(name),
        None => name,
    }
}

/// What the last suffix of `name` says; `None` for a plain name.
#[must_use]
pub fn derived(name: &str) -> Option<Derived> {
    if name.starts_with(PREFIX) {
        return Some(Derived::Prefix);
    }
    let suffixes = name.get(base_name(name).len()..)?;
    let last = suffixes
        .split('.')
        .rfind(|s| !s.is_empty() && !s.bytes().all(|b| b.is_ascii_digit()));
    match last {
        Some("cold") => Some(Derived::Cold),
        Some("part") => Some(Derived::Part),
        Some("isra") => Some(Derived::Isra),
        Some("constprop") => Some(Derived::ConstProp),
        Some("lto_priv" | "llvm") => Some(Derived::Local),
        Some(_) => Some(Derived::Other),
        None if suffixes.is_empty() => None,
        None => Some(Derived::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, base, what) in [
            ("vfs_read", "vfs_read", None),
            ("vfs_read.cold", "vfs_read", Some(Derived::Cold)),
            ("f.isra.0", "f", Some(Derived::Isra)),
            ("f.isra.0.cold", "f", Some(Derived::Cold)),
            ("f.constprop.12", "f", Some(Derived::ConstProp)),
            ("f.part.0.isra.0", "f", Some(Derived::Isra)),
            ("__func__.3", "__func__", Some(Derived::Other)),
            ("__pfx_f.part.0", "f", Some(Derived::Prefix)),
            (".text", ".text", None),
            ("", "", None),
        ] {
            assert_eq!((base_name(name), derived(name)), (base, what), "{name}");
        }
    }
}
