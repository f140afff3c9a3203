//! Sites that boot code may replace (`.altinstructions`).

use crate::decode::{Op, Reader};
use crate::flow::Walk;
use crate::function::Sites;
use crate::jumps::Goes;
use crate::node::{Bits, Node};

impl Walk<'_, '_> {
    /// A site that boot code may replace (files only; on a live kernel the table is gone and the bytes are
    /// final): what either version reads counts as live, nothing as overwritten, and both versions'
    /// branches are followed.
    pub(crate) fn alternatives(&mut self, node: &mut Node) -> bool {
        let mut any = false;
        for entry in self.near.alternatives(node.addr) {
            any = true;
            node.sites |= Sites::ALTERNATIVE;
            node.kills = 0;
            let len = usize::from(entry.replacement_len);
            let kernel = self.shared.index.kernel;
            let (mut at, end) = (
                entry.replacement,
                entry.replacement.wrapping_add(len as u64),
            );
            let mut owned = Vec::new();
            if kernel.bytes(at, len).is_none() {
                owned = kernel.read(at, len).unwrap_or_default();
            }
            let mut reader = Reader::new(at, kernel.bytes(at, len).unwrap_or(&owned));
            while at != end {
                let Some(insn) = reader.decode(at) else {
                    node.bits |= Bits::OPAQUE;
                    break;
                };
                at = at.wrapping_add(u64::from(insn.len));
                node.uses |= self.scratch.effects.of(&reader.insn).reads;
                match (insn.op, insn.target) {
                    (Op::Plain | Op::Nop | Op::Int3, _) => {}
                    (Op::Jmp | Op::Jcc, Some(target)) => self.replacement_branch(node, target),
                    _ => node.bits |= Bits::OPAQUE,
                }
            }
        }
        any
    }

    fn replacement_branch(&mut self, node: &mut Node, target: u64) {
        let inside = matches!(self.goes(target), Goes::Inside);
        if inside && self.shared.index.region_at(target).is_some() {
            self.flow.extra.push((node.addr, target));
            self.queue(target);
        } else {
            node.bits |= Bits::OPAQUE;
        }
    }
}
