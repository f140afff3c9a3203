//! The code patch of a decision.

use kerninst_analysis::InsnKind;
use kerninst_snippet::{Features, Free, StackStep, compile};

use crate::choose::Chosen;
use crate::facts::Facts;
use crate::{BugSite, CodePatch, ExSite, Fixup, OrcSite, Reloc, RelocKind, orc};

/// A finished patch.
pub(crate) struct Built {
    pub patch: CodePatch,
    /// The snippets of each point, in order.
    pub snippets: Vec<Inserted>,
    /// Instructions beyond the originals and the snippets: the jump back, and what relocation added.
    pub extra: u32,
}

/// The snippets of one point, in a patch.
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
        patch: CodePatch::default(),
        extra: 0,
    };
    let mut snippets = Vec::with_capacity(c.points.len());
    let mut points = c.points.iter().peekable();
    let mut goes_on = true;
    for index in c.start..=c.end {
        while let Some((_, wanted)) = points.next_if(|(at, _)| *at == index) {
            let free = facts
                .insn(index)
                .map_or(Free::NOTHING, |i| Free::from(i.live));
            let code = compile(wanted, free, features);
            b.unwind(index, &code.stack);
            b.patch.bytes.extend_from_slice(&code.bytes);
            snippets.push(Inserted {
                cost: code.cost,
                end: b.here(),
            });
        }
        if index < c.end {
            goes_on = b.instruction(index);
        }
    }
    if goes_on {
        b.jump_back(c.end);
    }
    Built {
        patch: b.patch,
        snippets,
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

struct Builder<'a, 'b> {
    facts: &'a Facts<'b>,
    patch: CodePatch,
    extra: u32,
}

impl Builder<'_, '_> {
    fn here(&self) -> u32 {
        self.patch.bytes.len() as u32
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
        if table.is_empty() {
            return;
        }
        let raw = table.lookup(addr).map_or(orc::UNDEFINED, |e| e.raw);
        self.orc(self.here(), raw);
        for s in steps {
            let raw = orc::pushed(raw, s.pushed).unwrap_or(orc::UNDEFINED);
            self.orc(self.here() + s.offset, raw);
        }
    }

    fn orc(&mut self, offset: u32, raw: [u8; 6]) {
        match self.patch.orc.last_mut() {
            Some(last) if last.offset == offset => last.raw = raw,
            Some(last) if last.raw == raw => {}
            _ => self.patch.orc.push(OrcSite { offset, raw }),
        }
    }

    /// The relocated instruction; whether control goes on after it.
    fn instruction(&mut self, index: usize) -> bool {
        let (Some(insn), Some(Ok(f))) = (
            self.facts.insn(index),
            self.facts.fact(index).map(|f| &f.moved),
        ) else {
            return true;
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
        self.patch.relocs.extend(f.relocs.iter().map(|r| Reloc {
            offset: r.offset + base,
            ..*r
        }));
        self.extra += f.extra;
        goes_on
    }

    fn jump_back(&mut self, end: usize) {
        let Some(last) = end.checked_sub(1).and_then(|i| self.facts.insn(i)) else {
            return;
        };
        let target = last.end();
        self.unwind_as_at(target, &[]);
        self.patch.bytes.push(0xe9);
        let offset = self.here();
        self.patch.relocs.push(Reloc {
            offset,
            kind: RelocKind::Pc32,
            target,
            addend: -4,
        });
        self.patch.bytes.extend_from_slice(&[0; 4]);
        self.extra += 1;
    }
}
