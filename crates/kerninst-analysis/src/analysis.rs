//! [`Analysis`]: a cache over one kernel.

use std::ops::Range;
use std::sync::Arc;

use kerninst_kernel::Kernel;

use crate::{CallGraph, Function, FunctionId};

/// What the text of one kernel does: functions are analysed on demand and cached.
pub struct Analysis<'k> {
    kernel: &'k Kernel,
}

/// What [`Analysis::all`] met.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
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

impl<'k> Analysis<'k> {
    /// An empty cache: cheap, decodes nothing.
    pub fn new(kernel: &'k Kernel) -> Self {
        Self { kernel }
    }

    /// The kernel that is analysed.
    pub fn kernel(&self) -> &'k Kernel {
        self.kernel
    }

    /// The function that `addr` belongs to (an address in a `.cold` part: the function it is a part of).
    pub fn function_at(&self, addr: u64) -> Option<Arc<Function>> {
        let _ = addr;
        None
    }

    /// All functions by address, core kernel first; decodes nothing.
    pub fn functions(&self) -> Vec<FunctionId> {
        Vec::new()
    }

    /// Analyses every function, on all CPUs, and shows each to `visit` (in no particular order); nothing
    /// is kept, so that memory stays bounded.
    pub fn all(&self, visit: impl Fn(&Function) + Sync) -> Totals {
        let _ = visit;
        Totals::default()
    }

    /// Bytes that are proven free, in ranges within `reach` bytes of `addr`: nop or int3 fill that control
    /// never reaches, that no symbol but `__pfx_`/`__cfi_` names and no table mentions.
    pub fn padding_near(&self, addr: u64, reach: u64) -> Vec<Range<u64>> {
        let _ = (addr, reach);
        Vec::new()
    }

    /// The call graph of the whole kernel (analyses all of it).
    pub fn call_graph(&self) -> CallGraph {
        CallGraph::default()
    }
}
