//! Collecting symbols.

use std::ops::Range;
use std::sync::OnceLock;

use super::{CORE, NO_SIZE, Stored, Symbols};

/// The pieces that compressed names are made of; only ASCII.
pub(crate) struct Tokens {
    lens: [u8; 256],
    /// The first bytes of each, for a copy of constant size.
    starts: [[u8; 8]; 256],
    whole: Vec<Vec<u8>>,
    longest: usize,
}

impl Tokens {
    /// Token 255 is the last of `list`. What is no ASCII becomes `?`; `None` if one is longer than 255 bytes.
    pub(crate) fn new<'t>(list: impl Iterator<Item = &'t [u8]>) -> Option<Box<Self>> {
        let mut new = Self {
            lens: [0; 256],
            starts: [[0; 8]; 256],
            whole: Vec::new(),
            longest: 0,
        };
        for (token, (len, start)) in list.zip(new.lens.iter_mut().zip(&mut new.starts)) {
            let token: Vec<u8> = token
                .iter()
                .map(|&b| if b.is_ascii() { b } else { b'?' })
                .collect();
            *len = u8::try_from(token.len()).ok()?;
            start
                .iter_mut()
                .zip(&token)
                .for_each(|(to, from)| *to = *from);
            new.longest = new.longest.max(token.len());
            new.whole.push(token);
        }
        Some(Box::new(new))
    }
}

/// Collects symbols, then sorts them once.
pub struct SymbolsBuilder {
    names: Vec<u8>,
    /// How much of `names` is used; the rest is room.
    names_len: usize,
    stored: Vec<Stored>,
    modules: Vec<String>,
    limits: Vec<Range<u64>>,
}

impl Default for SymbolsBuilder {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            names_len: 0,
            stored: Vec::new(),
            modules: vec![String::new()],
            limits: Vec::new(),
        }
    }
}

impl SymbolsBuilder {
    pub(super) fn from_parts(
        names: String,
        stored: Vec<Stored>,
        modules: Vec<String>,
        limits: Vec<Range<u64>>,
    ) -> Self {
        Self {
            names_len: names.len(),
            names: names.into_bytes(),
            stored,
            modules,
            limits,
        }
    }
    /// No symbols.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Room for `symbols` symbols with `name_bytes` bytes of names in all.
    #[must_use]
    pub fn with_capacity(symbols: usize, name_bytes: usize) -> Self {
        let mut new = Self::default();
        new.stored.reserve(symbols);
        new.names.reserve(name_bytes);
        new
    }
    /// Adds a symbol. `letter` is the kallsyms letter (upper case = global), `module` `None` for the core kernel.
    /// Names are cut at 65,535 bytes.
    pub fn add(
        &mut self,
        name: &str,
        addr: u64,
        size: Option<u64>,
        letter: u8,
        module: Option<&str>,
    ) {
        let module = match module {
            None => CORE,
            Some(m) => self.module_number(m),
        };
        let mut len = name.len().min(usize::from(u16::MAX));
        while !name.is_char_boundary(len) {
            len -= 1;
        }
        self.names.truncate(self.names_len);
        let Ok(at) = u32::try_from(self.names.len()) else {
            return;
        };
        self.names
            .extend_from_slice(name.get(..len).unwrap_or("").as_bytes());
        self.names_len = self.names.len();
        let size = size.and_then(|s| u32::try_from(s).ok()).unwrap_or(NO_SIZE);
        self.stored.push(Stored {
            addr,
            name: at,
            size,
            len: len as u16,
            module,
            letter,
        });
    }
    /// Makes room for `more` core symbols that come through [`SymbolsBuilder::add_tokens`].
    pub(crate) fn reserve(&mut self, more: usize) {
        self.stored.reserve(more);
    }
    /// Adds a core symbol whose letter and name are these tokens, put together.
    pub(crate) fn add_tokens(&mut self, list: &[u8], tokens: &Tokens, addr: u64) -> Option<()> {
        let start = self.names_len;
        // Room is made in large steps, ahead: the loop below runs two million times for one kernel.
        let most = list.len().checked_mul(tokens.longest)?.checked_add(8)?;
        if self.names.len() - start < most {
            self.names.resize(start + most + (1 << 20), 0);
        }
        let room = self.names.get_mut(start..)?;
        let mut at = 0;
        for &t in list {
            let len = usize::from(tokens.lens[usize::from(t)]);
            // A copy of constant size, of which the next token overwrites what is too much.
            room.get_mut(at..at + 8)?
                .copy_from_slice(&tokens.starts[usize::from(t)]);
            if len > 8 {
                room.get_mut(at..at + len)?
                    .copy_from_slice(tokens.whole.get(usize::from(t))?);
            }
            at += len;
        }
        let letter = *room.first()?;
        let len = u16::try_from(at.checked_sub(1)?).ok().filter(|l| *l > 0)?;
        let name = u32::try_from(start + 1).ok()?;
        self.names_len = start + at;
        self.stored.push(Stored {
            addr,
            name,
            size: NO_SIZE,
            len,
            module: CORE,
            letter,
        });
        Some(())
    }
    /// The address of the core symbol `name`, before there is an index.
    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        let is_it = |s: &&Stored| {
            usize::from(s.len) == name.len()
                && s.module == CORE
                && self
                    .names
                    .get(s.name as usize..)
                    .is_some_and(|n| n.starts_with(name.as_bytes()))
        };
        self.stored.iter().find(is_it).map(|s| s.addr)
    }
    fn module_number(&mut self, name: &str) -> u16 {
        // kallsyms lists a module's symbols together: the last one is nearly always it.
        let found = self
            .modules
            .iter()
            .rposition(|m| m == name)
            .filter(|&i| i > 0);
        let at = found.unwrap_or_else(|| {
            self.modules.push(name.to_string());
            self.modules.len() - 1
        });
        u16::try_from(at).unwrap_or(u16::MAX)
    }
    /// Says that no symbol in `range` reaches beyond its end (a text or data area).
    pub fn limit(&mut self, range: Range<u64>) {
        self.limits.push(range);
    }
    /// Sorts and finishes.
    #[must_use]
    pub fn build(mut self) -> Symbols {
        // Stable, and linear on what the kernel gives: runs sorted by address.
        self.stored.sort_by_key(|s| s.addr);
        self.limits.sort_by_key(|r| r.start);
        self.names.truncate(self.names_len);
        let names = String::from_utf8(self.names).unwrap_or_else(|e| {
            // Only pieces of valid text were put in: this does not happen.
            e.into_bytes()
                .into_iter()
                .map(|b| if b.is_ascii() { b as char } else { '?' })
                .collect()
        });
        Symbols {
            names,
            stored: self.stored,
            modules: self.modules,
            limits: self.limits,
            index: OnceLock::new(),
        }
    }
}
