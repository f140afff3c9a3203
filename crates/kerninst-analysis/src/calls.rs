//! The call graph.

/// Who calls whom: direct calls and tail calls between function entries, and calls through pointers.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct CallGraph {
    /// `(caller entry, callee address, call instruction, tail)`, sorted.
    direct: Vec<Call>,
    /// Indices into `direct`, sorted by callee.
    by_callee: Vec<u32>,
    /// Entries of functions that call through pointers, with the number of such sites, sorted.
    indirect: Vec<(u64, u32)>,
}

/// One direct call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// Entry of the calling function.
    pub caller: u64,
    /// Address that is called or jumped to.
    pub callee: u64,
    /// The call or jump instruction.
    pub insn: u64,
    /// A jump.
    pub tail: bool,
}

impl CallGraph {
    /// From calls in any order, and the functions that call through pointers with the number of such sites.
    pub fn new(mut direct: Vec<Call>, mut indirect: Vec<(u64, u32)>) -> Self {
        direct.sort_unstable();
        direct.dedup();
        indirect.sort_unstable();
        let mut by_callee: Vec<u32> = (0..direct.len() as u32).collect();
        by_callee.sort_by_key(|&n| direct.get(n as usize).map(|c| c.callee));
        Self {
            direct,
            by_callee,
            indirect,
        }
    }

    /// The direct calls that the function with this entry makes, by callee.
    pub fn callees(&self, caller: u64) -> &[Call] {
        let from = self.direct.partition_point(|c| c.caller < caller);
        let to = self.direct.partition_point(|c| c.caller <= caller);
        self.direct.get(from..to).unwrap_or(&[])
    }

    /// The direct calls of this address.
    pub fn callers(&self, callee: u64) -> impl Iterator<Item = &Call> {
        let key = |n: &u32| self.direct.get(*n as usize).map_or(0, |c| c.callee);
        let from = self.by_callee.partition_point(|n| key(n) < callee);
        let to = self.by_callee.partition_point(|n| key(n) <= callee);
        let found = self.by_callee.get(from..to).unwrap_or(&[]);
        found.iter().filter_map(|&n| self.direct.get(n as usize))
    }

    /// How many calls and jumps through pointers the function with this entry makes: their callees are unknown.
    pub fn indirect_calls(&self, caller: u64) -> u32 {
        let found = self.indirect.binary_search_by_key(&caller, |c| c.0).ok();
        found.and_then(|n| self.indirect.get(n)).map_or(0, |c| c.1)
    }

    /// All direct calls, sorted by caller.
    pub fn direct(&self) -> &[Call] {
        &self.direct
    }
}
