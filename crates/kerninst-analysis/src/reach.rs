//! Quick walks within one region: does a function return, and what does control reach from its start.

use std::ops::Range;
use std::sync::Arc;

use crate::decode::{Op, Reader, address_taken};
use crate::names::Class;
use crate::near::Near;
use crate::shared::Shared;

/// Levels of calls that are followed to see that a function does not return.
pub(crate) const NO_RETURN_LEVELS: u8 = 2;
/// Instructions after which a walk gives up (a function that may return, then).
const WALK_LIMIT: usize = 100_000;

/// What a walk found.
struct Walk {
    /// Offsets of the instructions reached (unsorted).
    reached: Vec<u32>,
    /// Control leaves by other ways than calls that do not return and traps, or it is not known.
    returns: bool,
}

impl Shared<'_> {
    /// Does a call of the function at `addr` never return, as far as `levels` levels of calls tell?
    /// By name (objtool's list) or because no path from its start leads out.
    pub(crate) fn never_returns(&self, addr: u64, levels: u8) -> bool {
        let Some(start) = self.index.at(addr) else {
            return false;
        };
        if start.class.contains(Class::NO_RETURN) {
            return true;
        }
        let opaque = Class::SPECIAL
            | Class::INDIRECT_THUNK
            | Class::RETURN_THUNK
            | Class::TRAMPOLINE
            | Class::PADDING;
        if levels == 0 || start.class.intersects(opaque) {
            return false;
        }
        self.no_return.get((addr, levels), || {
            let region = self
                .index
                .region_at(addr)
                .and_then(|n| self.index.region(n));
            region.is_some_and(|r| !self.walk(r, levels - 1, true).returns)
        })
    }

    /// Does control reach the instruction at `addr` from the start of its region, within the region?
    pub(crate) fn reached_in_region(&self, region: Range<u64>, addr: u64) -> bool {
        let Ok(offset) = u32::try_from(addr.wrapping_sub(region.start)) else {
            return false;
        };
        self.reached_offsets(region).binary_search(&offset).is_ok()
    }

    /// Offsets of the instructions that control reaches from the start of a region within it, sorted.
    pub(crate) fn reached_offsets(&self, region: Range<u64>) -> Arc<[u32]> {
        self.reach.get(region.start, || {
            let mut reached = self.walk(region, NO_RETURN_LEVELS, false).reached;
            reached.sort_unstable();
            Arc::from(reached)
        })
    }

    fn walk(&self, region: Range<u64>, levels: u8, stop_at_return: bool) -> Walk {
        let mut walk = Walk {
            reached: Vec::new(),
            returns: false,
        };
        let size = region.end.saturating_sub(region.start) as usize;
        let text = self.index.text_at(region.start);
        let Some(bytes) = text.and_then(|t| t.get(region.start, size)) else {
            walk.returns = true;
            return walk;
        };
        let near = Near::new(self.index.kernel.tables(), region.clone());
        let mut reader = Reader::new(region.start, bytes);
        let mut seen = vec![0u64; size / 64 + 1];
        let mut work = vec![region.start];
        // Where it only matters whether some way out returns: ways that depend on other functions are followed when all others have
        // been, as most functions return without. Jumps to other functions first, and then what comes behind calls.
        let mut out: Vec<u64> = Vec::new();
        let mut behind: Vec<(u64, u64)> = Vec::new();
        loop {
            if stop_at_return && walk.returns {
                break;
            }
            let next = work.pop().or_else(|| {
                while let Some(to) = out.pop() {
                    walk.returns |= !self.never_returns(to, levels);
                    if walk.returns {
                        return None;
                    }
                }
                while let Some((callee, next)) = behind.pop() {
                    if !self.never_returns(callee, levels) {
                        return Some(next);
                    }
                }
                None
            });
            let Some(mut at) = next else { break };
            loop {
                if stop_at_return && walk.returns {
                    return walk;
                }
                if !region.contains(&at) {
                    // Falls or jumps out of the region: to another function, or to a cold part without
                    // a symbol. It does not return only if the function there does not.
                    if stop_at_return {
                        out.push(at);
                    } else {
                        walk.returns |= !self.never_returns(at, levels);
                    }
                    break;
                }
                let offset = (at - region.start) as usize;
                let Some(word) = seen.get_mut(offset / 64) else {
                    break;
                };
                if *word >> (offset % 64) & 1 != 0 {
                    break;
                }
                *word |= 1 << (offset % 64);
                walk.reached.push(offset as u32);
                let Some(insn) = reader.decode(at) else {
                    walk.returns = true;
                    break;
                };
                if walk.reached.len() > WALK_LIMIT {
                    walk.returns = true;
                    return walk;
                }
                let next = at.wrapping_add(u64::from(insn.len));
                work.extend(near.fixups(at).iter().map(|e| e.fixup));
                work.extend(address_taken(&reader.insn).filter(|t| region.contains(t)));
                if let Some(label) = near.jump_label(at) {
                    work.push(label.target);
                    at = next;
                    continue;
                }
                let alternative = near.alternatives(at).next().is_some();
                let managed_call = near.static_call(at);
                if managed_call.is_some_and(|s| s.tail) && insn.op != Op::Jcc {
                    walk.returns = true;
                    break;
                }
                match insn.op {
                    _ if managed_call.is_some_and(|s| !s.tail) => {}
                    Op::Plain | Op::Nop => {}
                    Op::Jcc | Op::Loop => work.extend(insn.target),
                    Op::Jmp => {
                        work.extend(insn.target);
                        if !alternative {
                            break;
                        }
                    }
                    Op::Call => {
                        let stays = near.is_fentry(at) || alternative;
                        if let Some(callee) = insn.target.filter(|_| !stays) {
                            if stop_at_return {
                                behind.push((callee, next));
                                break;
                            }
                            if self.never_returns(callee, levels) {
                                break;
                            }
                        }
                    }
                    Op::IndirectCall => {}
                    Op::Trap if near.trap_resumes(at) => {}
                    Op::Trap => break,
                    Op::IndirectJmp | Op::Ret | Op::Int3 | Op::Special => {
                        walk.returns = true;
                        break;
                    }
                }
                at = next;
            }
        }
        walk
    }
}
