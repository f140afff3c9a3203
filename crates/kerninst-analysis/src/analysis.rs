//! [`Analysis`]: a cache over one kernel.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use kerninst_kernel::Kernel;
use rayon::prelude::*;

use crate::cross::How;
use crate::flow::with_scratch;
use crate::hash::AddrMap;
use crate::index::Start;
use crate::names::Class;
use crate::shared::Shared;
use crate::{Call, CallGraph, Function, FunctionId, build, liveness};

/// What the text of one kernel does: functions are analysed on demand and cached.
pub struct Analysis<'k> {
    kernel: &'k Kernel,
    shared: OnceLock<Shared<'k>>,
    functions: Mutex<AddrMap<u64, Arc<Function>>>,
}

/// What [`Analysis::all`] met.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Functions.
    pub functions: u64,
    /// Those whose control flow is fully known.
    pub complete: u64,
    /// Reachable instructions.
    pub insns: u64,
    /// Basic blocks.
    pub blocks: u64,
}

impl Totals {
    fn of(function: &Function) -> Self {
        Self {
            functions: 1,
            complete: u64::from(function.is_complete()),
            insns: function.insns.len() as u64,
            blocks: function.blocks.len() as u64,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            functions: self.functions + other.functions,
            complete: self.complete + other.complete,
            insns: self.insns + other.insns,
            blocks: self.blocks + other.blocks,
        }
    }
}

/// Functions that are asked whether a cold part is theirs.
const MOST_REFERRERS: usize = 64;

impl<'k> Analysis<'k> {
    /// An empty cache: cheap, decodes nothing.
    pub fn new(kernel: &'k Kernel) -> Self {
        Self {
            kernel,
            shared: OnceLock::new(),
            functions: Mutex::default(),
        }
    }

    /// The kernel that is analysed.
    pub fn kernel(&self) -> &'k Kernel {
        self.kernel
    }

    pub(crate) fn shared(&self) -> &Shared<'k> {
        self.shared.get_or_init(|| Shared::new(self.kernel))
    }

    /// The function that `addr` belongs to (an address in a `.cold` part: the function it is a part of).
    /// None for padding, for code that no function reaches, and where there is no text.
    pub fn function_at(&self, addr: u64) -> Option<Arc<Function>> {
        let index = &self.shared().index;
        let n = index.region_at(addr)?;
        let start = index.at(n)?;
        if start.class.contains(Class::COLD) {
            return self.cold_owner(n, addr).or_else(|| self.starting(n));
        }
        let function = self.starting(n)?;
        if addr == start.addr || function.contains(addr) {
            return Some(function);
        }
        // Cold parts without symbols lie behind some other function: ask those that jump there.
        let behind = function.ranges.first().map_or(start.addr, |r| r.end);
        self.referrers(behind..addr.saturating_add(1), n)
            .find(|f| f.contains(addr))
    }

    /// The function that the `.cold` symbol number `n` is a part of.
    fn cold_owner(&self, n: u64, addr: u64) -> Option<Arc<Function>> {
        let index = &self.shared().index;
        let cold = index.at(n)?.symbol;
        let (stem, _) = cold.name.split_once(".cold")?;
        let named = self.kernel.symbols().named(stem);
        let owners = named.iter().filter(|s| s.module == cold.module);
        let mut owners = owners
            .filter_map(|s| index.region_at(s.addr))
            .filter(|&o| o != n);
        owners.find_map(|o| self.starting(o).filter(|f| f.contains(addr)))
    }

    /// The functions that jump into `range`, nearest target to its end first; not region `not`.
    fn referrers(&self, range: Range<u64>, not: u64) -> impl Iterator<Item = Arc<Function>> {
        let shared = self.shared();
        let all = shared.references().targets_in(range).iter().rev();
        let jumps = all.filter(|r| r.how == How::Jump).map(|r| r.source);
        let regions = jumps.filter_map(|source| shared.index.region_at(source));
        regions
            .filter(move |&n| n != not)
            .take(MOST_REFERRERS)
            .filter_map(|n| self.starting(n))
    }

    /// The function that starts at `n`, from the cache or new.
    pub(crate) fn starting(&self, n: u64) -> Option<Arc<Function>> {
        let start = self.shared().index.at(n)?;
        if start.class.contains(Class::PADDING) {
            return None;
        }
        let cache = || self.functions.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(known) = cache().get(&start.addr) {
            return Some(known.clone());
        }
        let function = Arc::new(self.analyse(n, true)?);
        Some(cache().entry(start.addr).or_insert(function).clone())
    }

    /// `keep`: what later questions about it can be answered from is kept.
    fn analyse(&self, n: u64, keep: bool) -> Option<Function> {
        let shared = self.shared();
        let flow = with_scratch(|scratch| shared.flow(n, true, scratch))?;
        if keep {
            shared.note_ends(n, &flow);
        }
        let live = liveness::solve(shared, &flow);
        build::function(shared, n, flow, &live)
    }

    /// The starts that are functions (not padding, not cold parts).
    fn function_starts(&self) -> impl Iterator<Item = &Start<'k>> {
        let not = Class::PADDING | Class::COLD;
        self.shared()
            .index
            .all()
            .iter()
            .filter(move |s| !s.class.intersects(not))
    }

    /// All functions by address; decodes nothing.
    pub fn functions(&self) -> Vec<FunctionId> {
        let index = &self.shared().index;
        let id = |start: &Start<'k>| FunctionId {
            start: start.addr,
            end: index.region(start.addr).map_or(start.addr, |r| r.end),
            name: start.symbol.name.to_string(),
            id: start.symbol.id(),
            module: start.symbol.module.map(str::to_string),
        };
        self.function_starts().map(id).collect()
    }

    /// Analyses every function, on all CPUs, and shows each to `visit` (in no particular order); the
    /// functions are not kept, so that memory stays bounded.
    pub fn all(&self, visit: impl Fn(&Function) + Sync) -> Totals {
        let starts: Vec<u64> = self.function_starts().map(|s| s.addr).collect();
        starts
            .par_chunks(64)
            .map(|chunk| {
                let mut totals = Totals::default();
                for &n in chunk {
                    if let Some(function) = self.analyse(n, false) {
                        totals = totals.plus(Totals::of(&function));
                        visit(&function);
                    }
                }
                totals
            })
            .reduce(Totals::default, Totals::plus)
    }

    /// The call graph of the whole kernel (analyses all of it).
    pub fn call_graph(&self) -> CallGraph {
        let direct = Mutex::new(Vec::new());
        let indirect = Mutex::new(Vec::new());
        self.all(|function| {
            let mut calls = Vec::new();
            let mut pointers = 0;
            for site in function.calls() {
                let Some(insn) = function.insns.get(site.insn as usize) else {
                    continue;
                };
                match site.target {
                    Some(callee) => calls.push(Call {
                        caller: function.entry(),
                        callee,
                        insn: insn.addr,
                        tail: site.tail,
                    }),
                    None => pointers += 1,
                }
            }
            direct
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .append(&mut calls);
            if pointers > 0 {
                let entry = (function.entry(), pointers);
                indirect
                    .lock()
                    .unwrap_or_else(|e| e.into_inner())
                    .push(entry);
            }
        });
        let take = |e: std::sync::PoisonError<Vec<_>>| e.into_inner();
        let direct = direct.into_inner().unwrap_or_else(take);
        CallGraph::new(
            direct,
            indirect.into_inner().unwrap_or_else(|e| e.into_inner()),
        )
    }
}
