//! Finds the instructions of a function: decodes from its entry along every way that control can go.

use std::cell::RefCell;
use std::ops::Range;

use crate::decode::{Effect, Effects, Op, Reader, address_taken};
use crate::describe::is_emulation_prefix;
use crate::function::{Incomplete, InsnKind, Sites};
use crate::hash::AddrMap;
use crate::masks::ALL;
use crate::names::Class;
use crate::near::Near;
use crate::node::{Bits, Flow, Leave, Node};
use crate::shared::Shared;

/// More instructions than any function has (the largest in Debian's 6.12 has some 12,000).
const LIMIT: usize = 200_000;

/// See [`Scratch::slots`].
const MET: u32 = u32::MAX;

/// Memory that is used again from function to function.
pub(crate) struct Scratch {
    /// By offset in the main region: 0, or one more than the number of the node there; [`MET`] where decoding has begun.
    slots: Vec<u32>,
    sorted: Vec<Node>,
    pub effects: Effects,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            sorted: Vec::new(),
            effects: Effects::new(),
        }
    }
}

thread_local! {
    static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

/// Calls `work` with this thread's memory (or other memory, if that is in use).
pub(crate) fn with_scratch<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCH.with(|cell| match cell.try_borrow_mut() {
        Ok(mut slot) => work(slot.get_or_insert_with(Scratch::new)),
        Err(_) => work(&mut Scratch::new()),
    })
}

/// The state of one walk through a function.
pub(crate) struct Walk<'a, 'k> {
    pub shared: &'a Shared<'k>,
    pub scratch: &'a mut Scratch,
    pub near: Near<'k>,
    pub flow: Flow,
    /// Decoded addresses outside of the main region.
    far: AddrMap<u64, ()>,
    pub work: Vec<u64>,
    pub joins: Vec<u64>,
    pub roots: Vec<u64>,
    taken: Vec<u64>,
}

impl<'k> Shared<'k> {
    /// Works out the function (or other code) at `n`. With `incoming`, ways in from other
    /// functions are looked for too (where such can be); what is live at the entry does not need them.
    pub(crate) fn flow(&self, n: u64, incoming: bool, scratch: &mut Scratch) -> Option<Flow> {
        let start = self.index.at(n)?;
        let region = self.index.region(n)?;
        let size = usize::try_from(region.end.checked_sub(region.start)?).ok()?;
        let bytes = self.index.text_at(region.start)?.get(region.start, size)?;
        scratch.slots.clear();
        scratch.slots.resize(size, 0);
        let near = Near::new(self.index.kernel.tables(), region.clone());
        let mut walk = Walk {
            shared: self,
            scratch,
            near,
            far: AddrMap::default(),
            work: vec![region.start],
            joins: vec![region.start],
            roots: vec![region.start],
            taken: Vec::new(),
            flow: Flow {
                nodes: Vec::with_capacity((size / 4).min(1024)),
                region,
                fixups: Vec::new(),
                extra: Vec::new(),
                fentry: None,
                abi: start.class.contains(Class::FENTRY),
                entered: false,
                incomplete: Vec::new(),
            },
        };
        if start.class.contains(Class::COLD) {
            walk.flow.abi = self.cold_abi(n);
            let addr = walk.flow.region.start;
            walk.flow.incomplete.push(Incomplete::ColdPart { addr });
        }
        let mut main = Reader::new(walk.flow.region.start, bytes);
        walk.run(&mut main);
        if incoming && !walk.flow.abi {
            walk.enter(n, &mut main);
        }
        Some(walk.finish())
    }

    /// A cold part follows the ABI if every function of its name does.
    fn cold_abi(&self, n: u64) -> bool {
        let Some(name) = self.index.at(n).map(|s| s.symbol.name) else {
            return false;
        };
        let Some((stem, _)) = name.split_once(".cold") else {
            return false;
        };
        let owners = self.index.kernel.symbols().named(stem);
        let fentry = |addr| {
            self.index
                .at(addr)
                .is_some_and(|s| s.class.contains(Class::FENTRY))
        };
        !owners.is_empty() && owners.iter().all(|s| fentry(s.addr))
    }
}

impl<'k> Walk<'_, 'k> {
    /// `main` reads the main region.
    fn run(&mut self, main: &mut Reader<'k>) {
        loop {
            while let Some(addr) = self.work.pop() {
                self.straight(addr, main);
                if self.flow.nodes.len() > LIMIT {
                    self.flow
                        .incomplete
                        .push(Incomplete::TooLarge { limit: LIMIT });
                    return;
                }
            }
            // Addresses that the code takes of itself may be jumped to.
            let Some(addr) = self.taken.pop() else { return };
            if self.is_inside_insn(addr) {
                continue;
            }
            self.joins.push(addr);
            self.roots.push(addr);
            self.work.push(addr);
        }
    }

    /// Adds the ways in from other functions.
    fn enter(&mut self, n: u64, main: &mut Reader<'k>) {
        for way in self.shared.incoming(n, self.flow.region.clone()) {
            self.flow.entered = true;
            self.joins.push(way.addr);
            self.roots.push(way.addr);
            if way.code {
                self.work.push(way.addr);
            }
        }
        self.run(main);
    }

    /// Is `addr` in the middle of an instruction that is reached? (Data then, such as an operand to patch.)
    fn is_inside_insn(&self, addr: u64) -> bool {
        self.flow
            .nodes
            .iter()
            .any(|n| n.addr < addr && addr < n.end())
    }

    /// The node that was added last is that of `addr`.
    fn note_place(&mut self, addr: u64) {
        let offset = addr.wrapping_sub(self.flow.region.start);
        let slot = usize::try_from(offset).ok();
        if let Some(slot) = slot.and_then(|o| self.scratch.slots.get_mut(o)) {
            *slot = self.flow.nodes.len() as u32;
        }
    }

    /// Sorts the nodes by address.
    fn sort(&mut self) {
        let nodes = &mut self.flow.nodes;
        if nodes.is_sorted_by_key(|n| n.addr) {
            return;
        }
        if !self.far.is_empty() {
            // Decoded in ascending runs: a stable sort merges them.
            return nodes.sort_by_key(|n| n.addr);
        }
        // All are in the main region, each in its place.
        let sorted = &mut self.scratch.sorted;
        sorted.clear();
        let places = self.scratch.slots.iter().filter(|s| **s != 0 && **s != MET);
        sorted.extend(places.filter_map(|s| nodes.get(*s as usize - 1)));
        if nodes.len() == sorted.len() {
            nodes.copy_from_slice(sorted);
        } else {
            nodes.sort_by_key(|n| n.addr);
        }
    }

    fn mark(&mut self, addr: u64) -> bool {
        if self.flow.region.contains(&addr) {
            let offset = (addr - self.flow.region.start) as usize;
            match self.scratch.slots.get_mut(offset) {
                Some(slot) if *slot == 0 => {
                    *slot = MET;
                    true
                }
                Some(_) => false,
                None => false,
            }
        } else {
            self.far.insert(addr, ()).is_none()
        }
    }

    /// Decodes from `at` on until control does not fall through or known code is met.
    fn straight(&mut self, mut at: u64, main: &mut Reader<'k>) {
        if self.flow.region.contains(&at) {
            let region = self.flow.region.clone();
            return self.straight_in(&mut at, main, region);
        }
        let index = &self.shared.index;
        let part = index.region_at(at).and_then(|n| index.region(n));
        let bytes = part.clone().and_then(|r| {
            index
                .text_at(at)?
                .get(at, usize::try_from(r.end.checked_sub(at)?).ok()?)
        });
        match (part, bytes) {
            (Some(part), Some(bytes)) => {
                let mut reader = Reader::new(at, bytes);
                self.straight_in(&mut at, &mut reader, part);
            }
            _ => self.flow.incomplete.push(Incomplete::OffText { addr: at }),
        }
    }

    fn straight_in(&mut self, at: &mut u64, reader: &mut Reader<'k>, part: Range<u64>) {
        while self.mark(*at) {
            let Some(decoded) = reader.decode(*at) else {
                self.flow
                    .incomplete
                    .push(Incomplete::BadInstruction { addr: *at });
                return;
            };
            let Effect {
                reads: mut uses,
                kills,
                shape,
            } = self.scratch.effects.of(&reader.insn);
            if let Some(taken) = address_taken(&reader.insn)
                && taken != self.flow.region.start
                && self.flow.region.contains(&taken)
            {
                self.taken.push(taken);
            }
            let end = at.wrapping_add(u64::from(decoded.len));
            if decoded.through_global {
                // Only paravirt operations are called through globals in a kernel with retpolines, and
                // some of them have conventions of their own.
                uses = ALL;
            }
            let mut node = Node {
                addr: *at,
                target: decoded.target.unwrap_or(0),
                uses,
                kills,
                sites: Sites::empty(),
                bits: Bits::empty(),
                len: decoded.len,
                kind: InsnKind::Plain,
                shape,
                leave: Leave::Not,
            };
            self.describe(&mut node, &decoded, &part);
            if self.is_endbr(reader, &decoded, &node) {
                node.sites |= Sites::ENDBR;
            }
            if decoded.op == Op::Trap && is_emulation_prefix(reader, end) {
                self.flow
                    .incomplete
                    .push(Incomplete::BadInstruction { addr: *at });
            }
            if node.bits.contains(Bits::FALLS) && !part.contains(&end) {
                node.bits.insert(Bits::FALLS_OUT);
            }
            self.flow.nodes.push(node);
            self.note_place(*at);
            if self.flow.nodes.len() > LIMIT || !node.bits.contains(Bits::FALLS) {
                return;
            }
            if node.bits.contains(Bits::FALLS_OUT) {
                return;
            }
            *at = end;
        }
    }
}

impl Walk<'_, '_> {
    fn finish(mut self) -> Flow {
        self.sort();
        let flow = &mut self.flow;
        flow.fixups.sort_unstable();
        flow.extra.sort_unstable();
        for pair in flow.nodes.windows(2) {
            if let [a, b] = pair
                && b.addr < a.end()
            {
                flow.incomplete.push(Incomplete::Overlap { addr: b.addr });
            }
        }
        for (list, bit) in [
            (&self.joins, Bits::JOIN),
            (&self.roots, Bits::ROOT | Bits::JOIN),
        ] {
            for &addr in list {
                if let Ok(n) = flow.nodes.binary_search_by_key(&addr, |n| n.addr)
                    && let Some(node) = flow.nodes.get_mut(n)
                {
                    node.bits |= bit;
                }
            }
        }
        crate::sites::apply(flow, &self.near, self.shared.index.kernel.tables());
        // A jump through a pointer is a tail call (kernels are built without jump tables) unless read-only data points
        // into this very function: then it is a computed goto, as in the BPF interpreter.
        let jump = flow.nodes.iter().find(|n| n.kind == InsnKind::IndirectJmp);
        let kernel = self.shared.index.kernel;
        if let Some(jump) = jump
            && !kernel.code_pointers_in(flow.region.clone()).is_empty()
        {
            flow.incomplete
                .push(Incomplete::IndirectJump { addr: jump.addr });
        }
        flow.incomplete.dedup();
        self.flow
    }
}
