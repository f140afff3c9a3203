//! Ways into the middle of a function without an fentry site (assembly) from other functions.

use std::ops::Range;

use crate::cross::How;
use crate::decode::{Op, Reader};
use crate::names::Class;
use crate::shared::Shared;

/// Bytes that a short jump can span, with the instruction itself.
const SHORT: u64 = 144;

/// An address that other code refers to.
pub(crate) struct Incoming {
    pub addr: u64,
    /// It is certain that it is code (a reached branch leads there); otherwise it may be an accident.
    pub code: bool,
}

impl Shared<'_> {
    /// Where other functions may enter `region` otherwise than at its start.
    pub(crate) fn incoming(&self, n: u64, region: Range<u64>) -> Vec<Incoming> {
        let mut found = Vec::new();
        for reference in self.untraced_references().targets_in(region.clone()) {
            let branch = matches!(reference.how, How::Jump | How::Call);
            let code = branch && self.is_reached(reference.source);
            found.push(Incoming {
                addr: reference.target,
                code,
            });
        }
        for before in [true, false] {
            let mut at = n;
            while let Some(neighbour) = self.neighbour(&mut at, &region, before) {
                self.short_jumps(neighbour, &region, &mut found);
            }
        }
        found
    }

    /// Is there a reached instruction at `addr`, as far as its own region tells?
    fn is_reached(&self, addr: u64) -> bool {
        let region = self
            .index
            .region_at(addr)
            .and_then(|n| self.index.region(n));
        region.is_some_and(|r| self.reached_in_region(r, addr))
    }

    /// The next region before or behind `at` from where a short jump reaches into `region`, if it is code
    /// without an fentry site. Moves `at` there.
    fn neighbour(&self, at: &mut u64, region: &Range<u64>, before: bool) -> Option<Range<u64>> {
        loop {
            let index = &self.index;
            *at = if before {
                index.previous_start(*at)?
            } else {
                index.next_start(*at)?
            };
            let there = index.region(*at)?;
            let far = if before {
                there.end.saturating_add(SHORT) < region.start
            } else {
                there.start > region.end.saturating_add(SHORT)
            };
            if far {
                return None;
            }
            let class = index.at(*at)?.class;
            if !class.intersects(Class::PADDING | Class::FENTRY) {
                return Some(there);
            }
        }
    }

    fn short_jumps(&self, from: Range<u64>, into: &Range<u64>, found: &mut Vec<Incoming>) {
        let size = from.end.saturating_sub(from.start) as usize;
        let Some(bytes) = self
            .index
            .text_at(from.start)
            .and_then(|t| t.get(from.start, size))
        else {
            return;
        };
        let mut reader = Reader::new(from.start, bytes);
        for &offset in self.reached_offsets(from.clone()).iter() {
            let addr = from.start.wrapping_add(u64::from(offset));
            if addr.saturating_add(SHORT) < into.start || addr > into.end.saturating_add(SHORT) {
                continue;
            }
            let Some(insn) = reader.decode(addr) else {
                continue;
            };
            if let Some(target) = insn.target
                && matches!(insn.op, Op::Jmp | Op::Jcc | Op::Loop)
                && into.contains(&target)
                && target != into.start
            {
                found.push(Incoming {
                    addr: target,
                    code: true,
                });
            }
        }
    }
}
