//! The code patch of a decision.

use kerninst_analysis::InsnKind;
use kerninst_snippet::{Features, StackStep, compile};

use crate::choose::{Chosen, Hosted};
use crate::facts::Facts;
use crate::place::{Place, Side};
use crate::{BugSite, CodePatch, ExSite, Fixup, Reloc, RelocKind};

/// A finished patch.
pub(crate) struct Built {
    pub patch: CodePatch,
    /// The snippets of each point, in order.
    pub snippets: Vec<Inserted>,
    /// Instructions beyond the originals and the snippets: the jump back, and what relocation added.
    pub extra: u32,
}

/// The snippets of one point, in a patch.
#[derive(Default)]
pub(crate) struct Inserted {
    /// Their instructions.
    pub cost: u32,
    /// Offset after them: what stands there is executed as often as they are.
    pub end: u32,
}

/// Snippets and relocated instructions `c.start..c.end`, and the jump back.
pub(crate) fn patch(facts: &Facts, c: &Chosen, features: Features) -> Built {
    let mut b = Builder {
        facts,
        features,
        patch: CodePatch::default(),
        extra: 0,
    };
    // By number of the point: the snippets of taken branches come last in the code.
    let mut snippets: Vec<Option<Inserted>> = c.points.iter().map(|_| None).collect();
    let mut host = |b: &mut Builder, place: Place| {
        for (hosted, slot) in c.points.iter().zip(&mut snippets) {
            if hosted.place == place {
                *slot = Some(b.snippets(hosted));
            }
        }
    };
    let side = |index: usize, side: Side| Place { index, side };
    let mut stubs = Vec::new();
    let mut goes_on = true;
    for index in c.start..=c.end {
        if index > c.start {
            host(&mut b, side(index - 1, Side::After));
        }
        host(&mut b, side(index, Side::Before));
        if index < c.end {
            let taken = side(index, Side::Taken);
            let apart = c.points.iter().any(|p| p.place == taken);
            let branch = match facts.insn(index) {
                Some(i) if c.returns && i.kind == InsnKind::Call => b.call(index),
                _ => b.instruction(index, apart),
            };
            goes_on = branch.goes_on;
            if let Some(field) = branch.to_stub {
                stubs.push((taken, field));
            }
        }
    }
    if goes_on {
        b.jump_back(c.end);
    }
    for (place, field) in stubs {
        b.stub_at(field);
        host(&mut b, place);
        b.go_to_target(place.index);
    }
    Built {
        patch: b.patch,
        snippets: snippets
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect(),
        extra: b.extra,
    }
}

/// The lengths of the pieces that the site's bytes consist of.
pub(crate) fn boundaries(facts: &Facts, c: &Chosen) -> Vec<u8> {
    let mut left = c.site.end.saturating_sub(c.site.start);
    let mut out = Vec::new();
    for index in c.start..c.displaced_end {
        let len = facts.insn(index).map_or(0, |i| u64::from(i.len)).min(left);
        out.push(len as u8);
        left -= len;
    }
    if left > 0 {
        out.push(left as u8);
    }
    out
}

/// A copied instruction.
struct Copied {
    /// Control goes on after it.
    goes_on: bool,
    /// Where its displacement is, if its branch is to lead to a stub of the patch.
    to_stub: Option<u32>,
}

struct Builder<'a, 'b> {
    facts: &'a Facts<'b>,
    features: Features,
    patch: CodePatch,
    extra: u32,
}

impl Builder<'_, '_> {
    fn here(&self) -> u32 {
        self.patch.here()
    }

    /// From here on the stack is as before instruction `index`, then as `steps` (offsets from here) say.
    fn unwind(&mut self, index: usize, steps: &[StackStep]) {
        let addr = match self.facts.insn(index) {
            Some(i) => i.addr,
            // The instruction that the patch goes back to may be unknown: after the last one.
            None => self
                .facts
                .insn(index.wrapping_sub(1))
                .map_or(0, |i| i.end()),
        };
        self.unwind_as_at(addr, steps);
    }

    fn unwind_as_at(&mut self, addr: u64, steps: &[StackStep]) {
        let table = &self.facts.kernel.tables().orc;
        self.patch.unwind_as_at(table, addr, steps);
    }

    /// The snippets of one point.
    fn snippets(&mut self, hosted: &Hosted) -> Inserted {
        let free = self.facts.free(self.facts.live(hosted.place));
        let code = compile(&hosted.snippets, free, self.features);
        let insn = self.facts.insn(hosted.place.index);
        let addr = insn.map_or(0, |i| match hosted.place.side {
            // A branch leaves the stack as it is.
            Side::Before | Side::Taken => i.addr,
            Side::After => i.end(),
        });
        self.unwind_as_at(addr, &code.stack);
        self.patch.put_code(&code);
        Inserted {
            cost: code.cost,
            end: self.here(),
        }
    }

    /// The relocated instruction. `apart`: its branch leads to a stub.
    fn instruction(&mut self, index: usize, apart: bool) -> Copied {
        let (Some(insn), Some(Ok(f))) = (self.facts.insn(index), self.facts.moved(index)) else {
            return Copied {
                goes_on: true,
                to_stub: None,
            };
        };
        self.unwind(index, &f.stack);
        let base = self.here();
        let tables = self.facts.kernel.tables();
        let end = base + f.bytes.len() as u32;
        if let Some(e) = tables.extable.at(insn.addr) {
            // "Go on after the instruction" must mean the copy: EX_TYPE_ZEROPAD decodes the instruction that lies
            // between the two (arch/x86/mm/extable.c, 6.1 and 6.12).
            let fixup = if e.fixup == insn.end() {
                Fixup::Inside(end)
            } else {
                Fixup::Address(e.fixup)
            };
            self.patch.extable.push(ExSite {
                offset: base,
                fixup,
                data: e.data,
            });
        }
        let mut goes_on = f.falls_through;
        if insn.kind == InsnKind::Trap {
            let bug = tables.bugs.at(insn.addr);
            if let Some(e) = bug {
                self.patch.bugs.push(BugSite {
                    offset: base,
                    file: e.file,
                    line: e.line,
                    flags: e.flags,
                });
            }
            // The analysis knows what follows a trap that is resumed.
            goes_on = self.facts.function.insn_at(insn.end()).is_some();
        }
        self.patch.bytes.extend_from_slice(&f.bytes);
        let relocs = f.relocs.iter().map(|r| Reloc {
            offset: r.offset + base,
            ..*r
        });
        let mut to_stub = None;
        for r in relocs {
            // A conditional branch has one field: its target.
            if apart {
                to_stub = Some(r.offset);
            } else {
                self.patch.relocs.push(r);
            }
        }
        self.extra += f.extra;
        Copied { goes_on, to_stub }
    }

    /// A call that comes back to the patch. Whoever unwinds from below it finds the frame as at the original call.
    fn call(&mut self, index: usize) -> Copied {
        if let Some(insn) = self.facts.insn(index) {
            self.unwind_as_at(insn.addr, &[]);
            self.branch(0xe8, insn.target.unwrap_or(0));
        }
        Copied {
            goes_on: true,
            to_stub: None,
        }
    }

    /// A stub starts here: fills in the 32-bit displacement at `field`, which leads to it.
    fn stub_at(&mut self, field: u32) {
        let distance = self.here().wrapping_sub(field.wrapping_add(4));
        let at = self.patch.bytes.iter_mut().skip(field as usize);
        at.zip(distance.to_le_bytes())
            .for_each(|(to, from)| *to = from);
    }

    /// The jump from a stub to where the branch `index` leads.
    fn go_to_target(&mut self, index: usize) {
        let Some(insn) = self.facts.insn(index) else {
            return;
        };
        self.unwind_as_at(insn.addr, &[]);
        self.jump(insn.target.unwrap_or(0));
    }

    fn jump_back(&mut self, end: usize) {
        let Some(last) = end.checked_sub(1).and_then(|i| self.facts.insn(i)) else {
            return;
        };
        let target = last.end();
        self.unwind_as_at(target, &[]);
        self.jump(target);
        self.extra += 1;
    }

    fn jump(&mut self, target: u64) {
        self.branch(0xe9, target);
    }

    /// An opcode with a 32-bit displacement.
    fn branch(&mut self, opcode: u8, target: u64) {
        self.patch.bytes.push(opcode);
        let offset = self.here();
        self.patch.relocs.push(Reloc {
            offset,
            kind: RelocKind::Pc32,
            target,
            addend: -4,
        });
        self.patch.bytes.extend_from_slice(&[0; 4]);
    }
}
