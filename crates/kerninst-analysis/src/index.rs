//! Where functions start, and what is known of each from names and tables alone.
//!
//! A text address that has symbols is a start; its region goes on to the next start. Starts are named by
//! their address. Looked up one by one in the kernel's symbols (on demand nothing is gone through as a
//! whole), until the whole kernel is wanted: then they are listed once.

use std::ops::Range;
use std::sync::OnceLock;

use kerninst_kernel::{Kernel, Symbol, Text};

use crate::hash::AddrMap;
use crate::names::{Class, KeyConvention, class_of, key_convention};

/// One text address that has symbols.
#[derive(Clone, Copy)]
pub(crate) struct Start<'k> {
    pub addr: u64,
    /// The first symbol there that is no marker.
    pub symbol: Symbol<'k>,
    pub class: Class,
    /// For an indirect branch thunk: its register.
    pub register: u8,
}

/// Bytes from a function's start within which its fentry site lies (behind an endbr64).
const FENTRY_WITHIN: u64 = 16;

/// All starts, by address.
struct All<'k> {
    addrs: Vec<u64>,
    /// Their places in the list.
    places: AddrMap<u64, u32>,
    starts: Vec<Start<'k>>,
}

/// Look-up of starts, and the text that they lie in.
pub(crate) struct Index<'k> {
    pub kernel: &'k Kernel,
    texts: Vec<&'k Text>,
    all: OnceLock<All<'k>>,
    /// The kernel was built with retpolines, hence without jump tables (`-fno-jump-tables`): an
    /// indirect jump through a register in C code is a tail call.
    pub retpolines: bool,
}

impl<'k> Index<'k> {
    pub(crate) fn new(kernel: &'k Kernel) -> Self {
        let mut texts: Vec<&Text> = kernel
            .text()
            .iter()
            .filter(|t| !t.bytes.is_empty())
            .collect();
        texts.sort_by_key(|t| t.start);
        let thunk = |r: &&str| {
            let name = format!("__x86_indirect_thunk_{r}");
            kernel.symbols().addr_of(&name).is_some()
        };
        let retpolines = crate::live::REG_NAMES.iter().any(thunk);
        Self {
            kernel,
            texts,
            all: OnceLock::new(),
            retpolines,
        }
    }

    /// The text that `addr` lies in.
    pub(crate) fn text_at(&self, addr: u64) -> Option<&'k Text> {
        let n = self
            .texts
            .partition_point(|t| t.start <= addr)
            .checked_sub(1)?;
        self.texts.get(n).copied().filter(|t| addr < t.end())
    }

    pub(crate) fn texts(&self) -> &[&'k Text] {
        &self.texts
    }

    /// Symbols of code in a range, by address.
    fn code(&self, range: Range<u64>) -> impl DoubleEndedIterator<Item = Symbol<'k>> + use<'k> {
        let symbols = self.kernel.symbols().in_range(range);
        symbols.filter(|s| s.is_text() && !s.is_marker())
    }

    /// The start at exactly `addr`.
    pub(crate) fn at(&self, addr: u64) -> Option<Start<'k>> {
        if let Some(all) = self.all.get() {
            let n = all.places.get(&addr)?;
            return all.starts.get(*n as usize).copied();
        }
        self.text_at(addr)?;
        let mut found: Option<Start<'k>> = None;
        for symbol in self.code(addr..addr.checked_add(1)?) {
            found = Some(with_symbol(found, symbol));
        }
        let mut start = found?;
        // The first fentry site from here on, if no other start lies before it.
        let near = addr..addr.saturating_add(FENTRY_WITHIN + 1);
        let mut sites = self.kernel.tables().fentry.in_range(near).iter();
        if let Some(site) = sites.find(|s| s.addr >= addr)
            && self
                .code(addr.saturating_add(1)..site.addr.saturating_add(1))
                .next()
                .is_none()
        {
            traced(&mut start);
        }
        Some(start)
    }

    /// The start whose region `addr` lies in.
    pub(crate) fn region_at(&self, addr: u64) -> Option<u64> {
        let text = self.text_at(addr)?;
        if let Some(all) = self.all.get() {
            let n = all.addrs.partition_point(|a| *a <= addr).checked_sub(1)?;
            return all.addrs.get(n).copied().filter(|a| *a >= text.start);
        }
        self.code(text.start..addr.checked_add(1)?)
            .next_back()
            .map(|s| s.addr)
    }

    /// The region of the start at `start`: to the next start or the end of its text.
    pub(crate) fn region(&self, start: u64) -> Option<Range<u64>> {
        let text_end = self.text_at(start)?.end();
        Some(
            start
                ..self
                    .next_start(start)
                    .map_or(text_end, |next| next.min(text_end)),
        )
    }

    /// The next start behind `addr`, in the same text.
    pub(crate) fn next_start(&self, addr: u64) -> Option<u64> {
        let end = self.text_at(addr)?.end();
        if let Some(all) = self.all.get() {
            let n = match all.places.get(&addr) {
                Some(n) => *n as usize + 1,
                None => all.addrs.partition_point(|a| *a <= addr),
            };
            return all.addrs.get(n).copied().filter(|a| *a < end);
        }
        self.code(addr.checked_add(1)?..end).next().map(|s| s.addr)
    }

    /// The last start before `addr`, in the same text.
    pub(crate) fn previous_start(&self, addr: u64) -> Option<u64> {
        self.text_at(addr)?.start.lt(&addr).then_some(())?;
        self.region_at(addr.checked_sub(1)?)
    }

    /// Lists all starts, which makes every later look-up quicker. Worth it for a whole kernel.
    pub(crate) fn all(&self) -> &[Start<'k>] {
        let all = self.all.get_or_init(|| {
            let mut starts: Vec<Start<'k>> = Vec::new();
            for text in &self.texts {
                for symbol in self.code(text.range()) {
                    match starts.last_mut() {
                        Some(last) if last.addr == symbol.addr => {
                            *last = with_symbol(Some(*last), symbol);
                        }
                        _ => starts.push(with_symbol(None, symbol)),
                    }
                }
            }
            // Overlapping texts would give addresses twice.
            starts.sort_by_key(|s| s.addr);
            starts.dedup_by_key(|s| s.addr);
            let mut n = 0;
            for site in self.kernel.tables().fentry.entries() {
                while starts.get(n + 1).is_some_and(|next| next.addr <= site.addr) {
                    n += 1;
                }
                if let Some(start) = starts.get_mut(n)
                    && site
                        .addr
                        .checked_sub(start.addr)
                        .is_some_and(|d| d <= FENTRY_WITHIN)
                {
                    traced(start);
                }
            }
            let place = |(n, s): (usize, &Start<'k>)| (s.addr, n as u32);
            All {
                addrs: starts.iter().map(|s| s.addr).collect(),
                places: starts.iter().enumerate().map(place).collect(),
                starts,
            }
        });
        &all.starts
    }

    /// Shows each start of a text with whether it is traced (has an fentry site), by address.
    pub(crate) fn each_start(&self, text: &Text, mut show: impl FnMut(u64, bool)) {
        let sites = self.kernel.tables().fentry.in_range(text.range());
        let mut next_site = 0;
        let mut last: Option<u64> = None;
        let mut tell = |start: u64, end: u64| {
            while sites.get(next_site).is_some_and(|s| s.addr < start) {
                next_site += 1;
            }
            let within = end.min(start.saturating_add(FENTRY_WITHIN + 1));
            show(start, sites.get(next_site).is_some_and(|s| s.addr < within));
        };
        for symbol in self.code(text.range()) {
            if let Some(start) = last.filter(|l| *l != symbol.addr) {
                tell(start, symbol.addr);
            }
            last = Some(symbol.addr);
        }
        if let Some(start) = last {
            tell(start, text.end());
        }
    }

    /// The convention that static calls with this key (raw, low bits included) follow.
    pub(crate) fn key_convention(&self, key: u64) -> KeyConvention {
        let at = self.kernel.symbols().at(key & !3);
        let found = at.iter().map(|s| key_convention(s.name));
        found
            .into_iter()
            .find(|c| *c != KeyConvention::C)
            .unwrap_or(KeyConvention::C)
    }
}

/// A traced function is C code, whatever its name.
fn traced(start: &mut Start<'_>) {
    start.class |= Class::FENTRY;
    start.class &= !Class::SPECIAL;
}

/// Takes one more symbol at the same address into account.
fn with_symbol<'k>(start: Option<Start<'k>>, symbol: Symbol<'k>) -> Start<'k> {
    let (class, register) = class_of(symbol.name);
    let new = Start {
        addr: symbol.addr,
        symbol,
        class,
        register,
    };
    let Some(mut start) = start else { return new };
    // A function's name wins over padding, a plain name over a cold one.
    if start.class == Class::PADDING {
        return new;
    }
    if class != Class::PADDING {
        let cold = start.class & class & Class::COLD;
        if start.class.contains(Class::COLD) && !class.contains(Class::COLD) {
            start.symbol = symbol;
        }
        start.class = (start.class | class) & !Class::COLD | cold;
        if class.contains(Class::INDIRECT_THUNK) {
            start.register = register;
        }
    }
    start
}
