//! The symbols of the kernel and its modules, stored compactly and looked up by address or name.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use crate::symbol_name::{self, Derived};

mod builder;
mod index;

pub use builder::SymbolsBuilder;
pub(crate) use builder::Tokens;
use index::NameIndex;

/// What a symbol names, from its nm-like letter in kallsyms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SymbolKind {
    /// Code (`t`, `T`).
    Text,
    /// A weak definition, normally code (`w`, `W`).
    Weak,
    /// Writable data (`d`, `D`).
    Data,
    /// Zero-initialised data (`b`, `B`).
    Bss,
    /// Read-only data (`r`, `R`).
    Rodata,
    /// Not an address in an image; per-CPU offsets are of this kind (`a`, `A`).
    Absolute,
    /// A weak object (`v`, `V`).
    WeakObject,
    /// Any other letter.
    Other,
}

impl SymbolKind {
    /// The kind that a kallsyms letter stands for.
    #[must_use]
    pub fn from_letter(letter: u8) -> Self {
        match letter.to_ascii_lowercase() {
            b't' => SymbolKind::Text,
            b'w' => SymbolKind::Weak,
            b'd' => SymbolKind::Data,
            b'b' => SymbolKind::Bss,
            b'r' => SymbolKind::Rodata,
            b'a' => SymbolKind::Absolute,
            b'v' => SymbolKind::WeakObject,
            _ => SymbolKind::Other,
        }
    }
}

/// One symbol: a cheap view into [`Symbols`].
#[derive(Clone, Copy)]
pub struct Symbol<'k> {
    /// The name as the kernel has it (not unique).
    pub name: &'k str,
    /// Its address.
    pub addr: u64,
    /// Its size in bytes where the symbol table states one (ELF); kallsyms does not: see [`Symbol::end`].
    pub size: Option<u64>,
    /// What it names.
    pub kind: SymbolKind,
    /// Visible outside its compilation unit.
    pub global: bool,
    /// The module it is in; `None` for the core kernel.
    pub module: Option<&'k str>,
    set: &'k Symbols,
    index: u32,
}

impl<'k> Symbol<'k> {
    /// A printable name that finds exactly this symbol again ([`Symbols::by_id`]): `name` where it is the only
    /// one of that name in its image, `name#2` for the second of that name by address; `module:name` in a module.
    #[must_use]
    pub fn id(&self) -> String {
        let mut nth = 0;
        let mut count = 0;
        for other in self.set.indices_named(self.name) {
            if self.set.module_index(other) == self.set.module_index(self.index) {
                count += 1;
                if other == self.index {
                    nth = count;
                }
            }
        }
        let mut id = self.module.map(|m| format!("{m}:")).unwrap_or_default();
        id.push_str(self.name);
        if nth > 1 {
            id.push_str(&format!("#{nth}"));
        }
        id
    }
    /// Code?
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self.kind, SymbolKind::Text | SymbolKind::Weak)
    }
    /// The letter that kallsyms gives it: `t`, `T`, `d` …
    #[must_use]
    pub fn letter(&self) -> u8 {
        self.set
            .stored
            .get(self.index as usize)
            .map_or(b'?', |s| s.letter)
    }
    /// A label that marks a place, such as `_stext` or `__noinstr_text_start`, and is no function.
    #[must_use]
    pub fn is_marker(&self) -> bool {
        is_marker(self.name)
    }
    /// Address after the last byte: address + size where stated, otherwise where the next symbol or the image ends.
    /// Padding between two symbols is part of the first.
    #[must_use]
    pub fn end(&self) -> u64 {
        if let Some(size) = self.size {
            return self.addr.saturating_add(size);
        }
        self.set.extent_end(self.index)
    }
    /// The name without the compiler's suffixes: [`symbol_name::base_name`].
    #[must_use]
    pub fn base_name(&self) -> &'k str {
        symbol_name::base_name(self.name)
    }
    /// How it was derived from its base name, if it was.
    #[must_use]
    pub fn derived(&self) -> Option<Derived> {
        symbol_name::derived(self.name)
    }
}

impl fmt::Debug for Symbol<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} {:?} {}", self.addr, self.kind, self.id())
    }
}
impl PartialEq for Symbol<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.set, other.set) && self.index == other.index
    }
}
impl Eq for Symbol<'_> {}

fn is_marker(name: &str) -> bool {
    matches!(
        name,
        "_stext" | "_text" | "_etext" | "_sinittext" | "_einittext"
    ) || name.ends_with("_text_start")
        || name.ends_with("_text_end")
        || matches!(name, "__indirect_thunk_start" | "__indirect_thunk_end")
}

/// One stored symbol: 24 bytes, the name in the arena.
#[derive(Clone, Copy)]
struct Stored {
    addr: u64,
    name: u32,
    size: u32,
    len: u16,
    module: u16,
    letter: u8,
}

const NO_SIZE: u32 = u32::MAX;
const CORE: u16 = 0;

/// All symbols, sorted by address (in table order where addresses are equal).
pub struct Symbols {
    names: String,
    stored: Vec<Stored>,
    /// Module names; index 0 is the core kernel.
    modules: Vec<String>,
    /// Ranges beyond which no symbol reaches, sorted.
    limits: Vec<Range<u64>>,
    index: OnceLock<NameIndex>,
}

impl Symbols {
    /// To add more symbols; no copy of the names is made.
    #[must_use]
    pub fn into_builder(self) -> SymbolsBuilder {
        SymbolsBuilder::from_parts(self.names, self.stored, self.modules, self.limits)
    }
    /// Number of symbols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stored.len()
    }
    /// No symbols at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }
    /// All symbols by address.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Symbol<'_>> {
        (0..self.stored.len()).filter_map(|i| self.view(i as u32))
    }
    /// Code symbols only (text and weak), by address: quicker than filtering [`Symbols::iter`].
    pub fn text(&self) -> impl DoubleEndedIterator<Item = Symbol<'_>> {
        let is_text = |s: &Stored| matches!(s.letter, b't' | b'T' | b'w' | b'W');
        let indices = self
            .stored
            .iter()
            .enumerate()
            .filter(move |(_, s)| is_text(s));
        indices.filter_map(|(i, _)| self.view(i as u32))
    }
    /// The code symbols whose names, as bytes, are wanted: made for passes over all of them.
    pub(crate) fn text_named(
        &self,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> impl Iterator<Item = Symbol<'_>> {
        let names = self.names.as_bytes();
        let is_it = move |s: &Stored| {
            let from = s.name as usize;
            matches!(s.letter, b't' | b'T' | b'w' | b'W')
                && names
                    .get(from..from + usize::from(s.len))
                    .is_some_and(&wanted)
        };
        let indices = self
            .stored
            .iter()
            .enumerate()
            .filter(move |(_, s)| is_it(s));
        indices.filter_map(|(i, _)| self.view(i as u32))
    }
    fn view(&self, index: u32) -> Option<Symbol<'_>> {
        let s = self.stored.get(index as usize)?;
        Some(Symbol {
            name: self.name_of(s),
            addr: s.addr,
            size: (s.size != NO_SIZE).then_some(u64::from(s.size)),
            kind: SymbolKind::from_letter(s.letter),
            global: s.letter.is_ascii_uppercase(),
            module: match s.module {
                CORE => None,
                m => self.modules.get(usize::from(m)).map(String::as_str),
            },
            set: self,
            index,
        })
    }
    fn name_of(&self, s: &Stored) -> &str {
        let from = s.name as usize;
        self.names
            .get(from..from + usize::from(s.len))
            .unwrap_or("")
    }
    fn module_index(&self, index: u32) -> Option<u16> {
        self.stored.get(index as usize).map(|s| s.module)
    }
    fn indices_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u32> + 'a {
        let index = self.index.get_or_init(|| {
            NameIndex::new(
                self.stored.len(),
                self.stored.iter().map(|s| self.name_of(s)),
            )
        });
        let same = move |&i: &u32| {
            self.stored
                .get(i as usize)
                .is_some_and(|s| self.name_of(s) == name)
        };
        index.candidates(name).filter(same)
    }
    /// All symbols of exactly this name, by address.
    #[must_use]
    pub fn named(&self, name: &str) -> Vec<Symbol<'_>> {
        self.indices_named(name)
            .filter_map(|i| self.view(i))
            .collect()
    }
    /// The address of the core kernel's symbol `name`: the first by address if there are several.
    #[must_use]
    pub fn addr_of(&self, name: &str) -> Option<u64> {
        self.indices_named(name)
            .filter_map(|i| self.stored.get(i as usize))
            .find(|s| s.module == CORE)
            .map(|s| s.addr)
    }
    /// The symbol with this [`Symbol::id`]; `name#1` is the same as `name`.
    #[must_use]
    pub fn by_id(&self, id: &str) -> Option<Symbol<'_>> {
        let (module, rest) = match id.split_once(':') {
            Some((m, rest)) => (Some(m), rest),
            None => (None, id),
        };
        let (name, nth) = match rest.rsplit_once('#') {
            Some((name, n)) => (name, n.parse::<usize>().ok()?),
            None => (rest, 1),
        };
        self.named(name)
            .into_iter()
            .filter(|s| s.module == module)
            .nth(nth.checked_sub(1)?)
    }
    /// All symbols at exactly this address, in table order.
    #[must_use]
    pub fn at(&self, addr: u64) -> Vec<Symbol<'_>> {
        let from = self.stored.partition_point(|s| s.addr < addr);
        (from..self.stored.len())
            .take_while(|&i| self.stored.get(i).is_some_and(|s| s.addr == addr))
            .filter_map(|i| self.view(i as u32))
            .collect()
    }
    /// The symbol that `addr` lies in, and the offset into it. Of several at one address the first that is neither a
    /// marker (`_stext`) nor padding (`__pfx_`) is taken.
    #[must_use]
    pub fn containing(&self, addr: u64) -> Option<(Symbol<'_>, u64)> {
        let last = self
            .stored
            .partition_point(|s| s.addr <= addr)
            .checked_sub(1)?;
        let start = self.stored.get(last)?.addr;
        if start != addr && addr >= self.extent_end(last as u32) {
            return None;
        }
        let at = self.at(start);
        let best = at
            .iter()
            .find(|s| !s.is_marker() && s.derived() != Some(Derived::Prefix))
            .or(at.first())
            .copied()?;
        Some((best, addr - start))
    }
    /// Symbols with addresses in `range`.
    pub fn in_range(&self, range: Range<u64>) -> impl DoubleEndedIterator<Item = Symbol<'_>> {
        let from = self.stored.partition_point(|s| s.addr < range.start);
        let to = self
            .stored
            .partition_point(|s| s.addr < range.end)
            .max(from);
        (from..to).filter_map(|i| self.view(i as u32))
    }
    /// All symbols whose name matches the pattern ([`crate::glob_match`]).
    #[must_use]
    pub fn glob(&self, pattern: &str) -> Vec<Symbol<'_>> {
        if !pattern.contains(['*', '?', '[']) {
            return self.named(pattern);
        }
        self.iter()
            .filter(|s| crate::glob_match(pattern, s.name))
            .collect()
    }
    /// Where the symbol's bytes end: at the next higher symbol or the end of the area it lies in.
    fn extent_end(&self, index: u32) -> u64 {
        let Some(addr) = self.stored.get(index as usize).map(|s| s.addr) else {
            return 0;
        };
        let next = self.stored.partition_point(|s| s.addr <= addr);
        let next = self.stored.get(next).map_or(u64::MAX, |s| s.addr);
        let area = self
            .limits
            .partition_point(|r| r.start <= addr)
            .checked_sub(1);
        match area.and_then(|i| self.limits.get(i)) {
            Some(r) if addr < r.end => next.min(r.end),
            _ => next,
        }
    }
}
