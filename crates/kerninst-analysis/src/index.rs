//! Where functions start, and what is known of each from names and tables alone.

use std::ops::Range;

use kerninst_kernel::{Kernel, Symbol, Text};

use crate::names::{Class, KeyConvention, class_of, key_convention};

/// One text address that has symbols: the start of a region, which goes on to the next such address.
#[derive(Clone, Copy)]
pub(crate) struct Start<'k> {
    pub addr: u64,
    /// The first symbol there that is no marker.
    pub symbol: Symbol<'k>,
    pub class: Class,
    /// For an indirect branch thunk: its register.
    pub register: u8,
}

/// All starts, sorted, and the text that they lie in.
pub(crate) struct Index<'k> {
    pub kernel: &'k Kernel,
    texts: Vec<&'k Text>,
    addrs: Vec<u64>,
    starts: Vec<Start<'k>>,
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
        let mut starts: Vec<Start<'k>> = Vec::new();
        for text in &texts {
            for symbol in kernel.symbols().in_range(text.range()) {
                if symbol.is_text() && !symbol.is_marker() {
                    add(&mut starts, symbol);
                }
            }
        }
        // Overlapping texts would give addresses twice.
        starts.sort_by_key(|s| s.addr);
        starts.dedup_by_key(|s| s.addr);
        mark_fentry(&mut starts, kernel);
        let retpolines = starts
            .iter()
            .any(|s| s.class.contains(Class::INDIRECT_THUNK))
            || kernel
                .symbols()
                .addr_of("__x86_indirect_thunk_rax")
                .is_some();
        let addrs = starts.iter().map(|s| s.addr).collect();
        Self {
            kernel,
            texts,
            addrs,
            starts,
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

    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    pub(crate) fn get(&self, n: usize) -> Option<&Start<'k>> {
        self.starts.get(n)
    }

    /// The start at exactly `addr`.
    pub(crate) fn at(&self, addr: u64) -> Option<&Start<'k>> {
        let n = self.addrs.binary_search(&addr).ok()?;
        self.starts.get(n)
    }

    /// Number of the region that `addr` lies in.
    pub(crate) fn region_at(&self, addr: u64) -> Option<usize> {
        let n = self.addrs.partition_point(|a| *a <= addr).checked_sub(1)?;
        self.region(n)?.contains(&addr).then_some(n)
    }

    /// Number of the first start at or behind `addr`.
    pub(crate) fn first_from(&self, addr: u64) -> usize {
        self.addrs.partition_point(|a| *a < addr)
    }

    /// The region of start number `n`: to the next start or the end of its text.
    pub(crate) fn region(&self, n: usize) -> Option<Range<u64>> {
        let start = *self.addrs.get(n)?;
        let text_end = self.text_at(start)?.end();
        let end = self
            .addrs
            .get(n.checked_add(1)?)
            .map_or(text_end, |next| text_end.min(*next));
        Some(start..end)
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

fn add<'k>(starts: &mut Vec<Start<'k>>, symbol: Symbol<'k>) {
    let (class, register) = class_of(symbol.name);
    match starts.last_mut() {
        Some(last) if last.addr == symbol.addr => {
            // An alias. A function's name wins over padding, a plain name over a cold one.
            if last.class == Class::PADDING && class != Class::PADDING {
                *last = Start {
                    addr: symbol.addr,
                    symbol,
                    class,
                    register,
                };
            } else if class != Class::PADDING {
                let cold = last.class & class & Class::COLD;
                if last.class.contains(Class::COLD) && !class.contains(Class::COLD) {
                    last.symbol = symbol;
                }
                last.class = (last.class | class) & !Class::COLD | cold;
                if class.contains(Class::INDIRECT_THUNK) {
                    last.register = register;
                }
            }
        }
        _ => starts.push(Start {
            addr: symbol.addr,
            symbol,
            class,
            register,
        }),
    }
}

/// An fentry site within the first bytes (behind an endbr64) makes a function a traced C function.
fn mark_fentry(starts: &mut [Start<'_>], kernel: &Kernel) {
    let mut n = 0;
    for site in kernel.tables().fentry.entries() {
        while starts.get(n + 1).is_some_and(|next| next.addr <= site.addr) {
            n += 1;
        }
        if let Some(start) = starts.get_mut(n)
            && site.addr.checked_sub(start.addr).is_some_and(|d| d <= 16)
        {
            start.class |= Class::FENTRY;
            start.class &= !Class::SPECIAL;
        }
    }
}
