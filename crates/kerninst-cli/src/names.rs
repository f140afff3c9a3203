//! From what a user types to functions.

use std::borrow::Cow;
use std::collections::BTreeSet;

use kerninst_analysis::{Analysis, FunctionId};
use kerninst_kernel::{Derived, Symbol, SymbolKind, glob_match};

use crate::{Fail, suggest};

/// At most so many names are listed where one is ambiguous.
const LISTED: usize = 12;

/// The functions of a kernel, restricted to those of the modules asked for.
pub struct Names<'a, 'k> {
    analysis: &'a Analysis<'k>,
    ids: Vec<FunctionId>,
    module: Option<String>,
}

impl<'a, 'k> Names<'a, 'k> {
    /// All functions, or those of the modules that match the glob `module` ("kernel": the core kernel).
    ///
    /// # Errors
    /// [`Fail::Nothing`] if there is no such module.
    pub fn new(analysis: &'a Analysis<'k>, module: Option<&str>) -> Result<Names<'a, 'k>, Fail> {
        let mut ids = analysis.functions();
        if let Some(wanted) = module {
            ids.retain(|f| module_matches(wanted, f.module.as_deref()));
            if ids.is_empty() {
                return Err(no_module(analysis, wanted));
            }
        }
        // By address, whatever the order in which images come.
        ids.sort_by_key(|f| f.start);
        let module = module.map(str::to_string);
        Ok(Names {
            analysis,
            ids,
            module,
        })
    }

    /// The function that starts at `addr`.
    pub fn at(&self, addr: u64) -> Option<&FunctionId> {
        let found = self.ids.binary_search_by_key(&addr, |f| f.start).ok()?;
        self.ids.get(found)
    }

    /// The functions that match a pattern (a name, an id or a glob), by address. Empty: none.
    pub fn matching(&self, pattern: &str) -> Vec<&FunctionId> {
        let wanted = Pattern::new(pattern);
        let mut starts: BTreeSet<u64> = BTreeSet::new();
        if let Some(nth) = wanted.nth {
            // As ids have it: the first of a name goes without a number.
            let plain = pattern.rsplit_once('#').map(|(plain, _)| plain);
            let id = plain.filter(|_| nth == 1).unwrap_or(pattern);
            starts.extend(self.ids.iter().filter(|f| f.id == id).map(|f| f.start));
        } else {
            starts.extend(self.ids.iter().filter(|f| wanted.fits(f)).map(|f| f.start));
            // Other names of the same code.
            let symbols = self.analysis.kernel().symbols();
            for s in symbols.glob(&wanted.name) {
                if s.is_text() && wanted.module_fits(s.module) {
                    starts.extend(self.at(s.addr).map(|f| f.start));
                }
            }
        }
        starts.into_iter().filter_map(|a| self.at(a)).collect()
    }

    /// The functions that match any of the patterns (all, without patterns), by address.
    ///
    /// # Errors
    /// [`Fail::Nothing`] if a pattern matches none, with names that are near.
    pub fn select(&self, patterns: &[String]) -> Result<Vec<&FunctionId>, Fail> {
        if patterns.is_empty() {
            return Ok(self.ids.iter().collect());
        }
        let mut starts: BTreeSet<u64> = BTreeSet::new();
        for pattern in patterns {
            let found = self.matching(pattern);
            if found.is_empty() {
                return Err(self.nothing(pattern));
            }
            starts.extend(found.iter().map(|f| f.start));
        }
        Ok(starts.into_iter().filter_map(|a| self.at(a)).collect())
    }

    /// The one function that `text` names: a name, an id, a glob that matches one, the name of a cold part, or an
    /// address in it.
    ///
    /// # Errors
    /// [`Fail::Nothing`] if there is none; [`Fail::Error`] if there are several, or it is something else.
    pub fn one(&self, text: &str) -> Result<u64, Fail> {
        if let Some(addr) = address(text)? {
            return self.at_address(addr);
        }
        let found = self.matching(text);
        match found.as_slice() {
            [] => self.cold_part(text).ok_or_else(|| self.nothing(text)),
            [one] => Ok(one.start),
            many => Err(ambiguous(text, many)),
        }
    }

    fn at_address(&self, addr: u64) -> Result<u64, Fail> {
        if let Some(f) = self.analysis.function_at(addr) {
            return Ok(f.entry());
        }
        Err(Fail::Nothing(
            match self.analysis.kernel().symbols().containing(addr) {
                Some((s, _)) if !s.is_text() => format!("{addr:#x} is not code: {}", what(&s)),
                _ => format!("no kernel function is at {addr:#x}"),
            },
        ))
    }

    /// The function that a `.cold` symbol is a part of.
    fn cold_part(&self, text: &str) -> Option<u64> {
        let wanted = Pattern::new(text);
        let symbols = self.analysis.kernel().symbols().named(&wanted.name);
        let cold = symbols
            .iter()
            .filter(|s| s.derived() == Some(Derived::Cold) && wanted.module_fits(s.module));
        let mut owners = cold.filter_map(|s| Some(self.analysis.function_at(s.addr)?.entry()));
        owners.next()
    }

    /// Why nothing matches, and what would.
    fn nothing(&self, text: &str) -> Fail {
        let wanted = Pattern::new(text);
        let place = match &self.module {
            Some(m) => format!(" in {}", module_text(m)),
            None => String::new(),
        };
        if is_glob(text) {
            return Fail::Nothing(format!("no function matches {text}{place}"));
        }
        if wanted.name.is_empty() {
            return Fail::error("the name of the function is missing");
        }
        if let Some(nth) = wanted.nth {
            let twins = self
                .ids
                .iter()
                .filter(|f| f.name == wanted.name && f.module == wanted.module);
            let name = &wanted.name;
            match twins.count() {
                0 => {}
                1 => {
                    return Fail::Nothing(format!(
                        "there is no {name}#{nth}: there is one {name}{place}"
                    ));
                }
                n => {
                    return Fail::Nothing(format!(
                        "there is no {name}#{nth}: there are {n} of {name}{place}"
                    ));
                }
            }
        }
        let symbols = self.analysis.kernel().symbols().named(&wanted.name);
        let mut other = symbols.iter().filter(|s| wanted.module_fits(s.module));
        if let Some(s) = other.next() {
            return Fail::Error(match self.analysis.function_at(s.addr) {
                Some(f) if s.is_text() && self.at(f.entry()).is_none() => {
                    format!(
                        "{text} is in {}, not{place}",
                        module_of(f.module.as_deref())
                    )
                }
                Some(f) if s.is_text() => {
                    format!(
                        "{text} is a place in {}, not a function: try {}",
                        f.id, f.id
                    )
                }
                _ => format!("{}, not a function", what(s)),
            });
        }
        if let Some((function, _)) = wanted.name.rsplit_once('+')
            && !self.matching(function).is_empty()
        {
            return Fail::Error(format!(
                "a function is wanted, not a place in one: try {function}"
            ));
        }
        let elsewhere = self.module.is_some() || wanted.module.is_some();
        let near = suggest::nearest(&wanted.name, self.ids.iter().map(|f| f.name.as_str()));
        let hint = match near.as_slice() {
            [] if elsewhere => String::new(),
            [] => format!("; `kerninst list '*{text}*'` lists names that contain it"),
            [one] => format!("; did you mean {one}?"),
            many => format!("; did you mean one of {}?", many.join(", ")),
        };
        Fail::Nothing(format!("no function is called {text}{place}{hint}"))
    }
}

fn no_module(analysis: &Analysis, wanted: &str) -> Fail {
    let modules = analysis.kernel().modules();
    let names = || modules.iter().map(|m| m.name.as_str());
    if names().any(|m| glob_match(wanted, m)) {
        return Fail::Nothing(format!("module {wanted} has no functions"));
    }
    let near = suggest::nearest(wanted, names());
    Fail::Nothing(match near.as_slice() {
        [] if modules.is_empty() => format!("no module is called {wanted}: this image has none"),
        [] => format!("no loaded module is called {wanted} (lsmod lists them)"),
        many => format!(
            "no loaded module is called {wanted}; did you mean {}?",
            many.join(" or ")
        ),
    })
}

/// `kernel` stands for the core kernel.
fn module_matches(wanted: &str, module: Option<&str>) -> bool {
    match module {
        None => wanted == "kernel" || wanted == "vmlinux",
        // The kernel has underscores where file names have dashes.
        Some(m) => glob_match(&wanted.replace('-', "_"), m) || glob_match(wanted, m),
    }
}

fn module_text(wanted: &str) -> String {
    if wanted == "kernel" || wanted == "vmlinux" {
        "the core kernel".into()
    } else {
        format!("module {wanted}")
    }
}

fn module_of(module: Option<&str>) -> String {
    module.map_or_else(|| "the core kernel".into(), |m| format!("module {m}"))
}

/// Contains wildcards?
pub fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// `0x…`: an address.
fn address(text: &str) -> Result<Option<u64>, Fail> {
    let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) else {
        return Ok(None);
    };
    u64::from_str_radix(digits, 16).map(Some).map_err(|_| {
        Fail::Error(format!(
            "{text} is not an address: write 0x and up to 16 hexadecimal digits"
        ))
    })
}

/// What a symbol that is no function is.
fn what(s: &Symbol) -> String {
    let kind = match s.kind {
        SymbolKind::Data => "writable",
        SymbolKind::Bss => "zero at boot",
        SymbolKind::Rodata => "read-only",
        SymbolKind::WeakObject => "a weak object",
        SymbolKind::Absolute => "an absolute value or per-CPU data",
        SymbolKind::Text | SymbolKind::Weak if s.derived() == Some(Derived::Prefix) => {
            "the padding before a function"
        }
        SymbolKind::Text | SymbolKind::Weak if s.is_marker() => "a label that marks a place",
        SymbolKind::Text | SymbolKind::Weak => "code that is not known as a function",
        SymbolKind::Other => "neither code nor data",
    };
    let data = matches!(
        s.kind,
        SymbolKind::Data | SymbolKind::Bss | SymbolKind::Rodata | SymbolKind::WeakObject
    );
    let noun = if data { "a data symbol" } else { "a symbol" };
    format!("{} is {noun} ({kind}, at {:#x})", s.id(), s.addr)
}

fn ambiguous(text: &str, found: &[&FunctionId]) -> Fail {
    let mut list: Vec<Cow<str>> = Vec::new();
    for f in found.iter().take(LISTED) {
        // A plain name would be ambiguous again: the first of several needs its number too.
        let twins = found
            .iter()
            .filter(|g| (&g.name, &g.module) == (&f.name, &f.module));
        list.push(
            if f.id == text || (twins.count() > 1 && !f.id.contains('#')) {
                Cow::Owned(format!("{}#1", f.id))
            } else {
                Cow::Borrowed(f.id.as_str())
            },
        );
    }
    let more = found.len().saturating_sub(LISTED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let count = found.len();
    Fail::Error(format!(
        "{text} matches {count} functions: {}{more}; name one of them",
        list.join(", ")
    ))
}

/// Does the function of this id match a pattern (a name, an id or a glob)?
pub fn id_matches(pattern: &str, id: &str) -> bool {
    let (wanted, it) = (Pattern::new(pattern), Pattern::new(id));
    let number = match wanted.nth {
        Some(nth) => nth == it.nth.unwrap_or(1),
        None => true,
    };
    let name = match is_glob(&wanted.name) {
        true => glob_match(&wanted.name, &it.name),
        false => wanted.name == it.name,
    };
    number && name && wanted.module_fits(it.module.as_deref())
}

/// A name pattern: `[module:]name[#n]`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    module: Option<String>,
    name: String,
    nth: Option<usize>,
}

impl Pattern {
    fn new(text: &str) -> Pattern {
        let (module, rest) = match text.split_once(':') {
            Some((m, rest)) if !m.is_empty() => (Some(m.to_string()), rest),
            Some((_, rest)) => (None, rest),
            None => (None, text),
        };
        let (name, nth) = match rest.rsplit_once('#') {
            Some((name, n)) => match n.parse() {
                Ok(n) => (name, Some(n)),
                Err(_) => (rest, None),
            },
            None => (rest, None),
        };
        Pattern {
            module,
            name: name.to_string(),
            nth,
        }
    }

    fn module_fits(&self, module: Option<&str>) -> bool {
        match (&self.module, module) {
            (Some(wanted), m) => module_matches(wanted, m),
            (None, None) => true,
            // A number counts within one image: `name#2` is the core kernel's.
            (None, Some(_)) => self.nth.is_none(),
        }
    }

    fn fits(&self, f: &FunctionId) -> bool {
        self.module_fits(f.module.as_deref())
            && if is_glob(&self.name) {
                glob_match(&self.name, &f.name)
            } else {
                self.name == f.name
            }
    }
}
