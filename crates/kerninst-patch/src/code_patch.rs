//! Generated code with everything the kernel must know about it.

use kerninst_kernel::Orc;
use kerninst_snippet::{Code, FaultSite, HitSite, StackStep};

use crate::{OutOfReach, orc};

/// How a field of a [`CodePatch`] is filled in at load time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RelocKind {
    /// 32 bits: target + addend - address of the field (`R_X86_64_PC32`).
    Pc32,
    /// 64 bits: target + addend (`R_X86_64_64`).
    Abs64,
    /// 32 bits, sign-extended when used: target + addend (`R_X86_64_32S`).
    Abs32S,
}

/// A field that refers to an absolute kernel address. The bytes of the field are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reloc {
    /// Offset of the field.
    pub offset: u32,
    /// What is stored.
    pub kind: RelocKind,
    /// Kernel address.
    pub target: u64,
    /// Added to it (-4 for the displacement of a jump).
    pub addend: i64,
}

/// Unwind data from an offset on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OrcSite {
    /// Offset from which on it holds.
    pub offset: u32,
    /// The kernel's own encoding.
    pub raw: [u8; 6],
}

/// Where execution goes on after a fault in the patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fixup {
    /// At this offset of the patch.
    Inside(u32),
    /// At this kernel address.
    Address(u64),
}

/// An instruction of the patch that may fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExSite {
    /// Its offset.
    pub offset: u32,
    /// Where it goes on.
    pub fixup: Fixup,
    /// Type and flags: copied from the original entry, or those of a program's read.
    pub data: u32,
}

/// A `ud2` of the patch that has a bug table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BugSite {
    /// Its offset.
    pub offset: u32,
    /// Address of the file name, 0 for none.
    pub file: u64,
    /// Source line.
    pub line: u16,
    /// Flags, copied from the original entry.
    pub flags: u16,
}

/// The site of a static key (jump label) in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JumpSite {
    /// Its offset; 5 bytes, in the key's initial state.
    pub offset: u32,
    /// Where it jumps to.
    pub target: Fixup,
    /// The key's address with its low bits, as in the original entry.
    pub key: u64,
}

/// A static call site in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StaticSite {
    /// Its offset.
    pub offset: u32,
    /// The key's address with its flag bits.
    pub key: u64,
}

/// One code patch: position-independent until loaded, with offsets from its own start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CodePatch {
    /// The code.
    pub bytes: Vec<u8>,
    /// Its references to kernel addresses.
    pub relocs: Vec<Reloc>,
    /// Offset at which splices enter.
    pub entry: u32,
    /// Unwind data by offset (empty if the kernel has none).
    pub orc: Vec<OrcSite>,
    /// Exception table entries.
    pub extable: Vec<ExSite>,
    /// Bug table entries.
    pub bugs: Vec<BugSite>,
    /// Jump label entries (versions only).
    pub jump_labels: Vec<JumpSite>,
    /// Static call sites (versions only).
    pub static_calls: Vec<StaticSite>,
    /// Calls that may be led back to the original (versions only): offset of the return address, and the return address in
    /// the original, where the frame is the same.
    pub returns: Vec<(u32, u64)>,
    /// Instructions that set a byte of the module's own.
    pub hits: Vec<HitSite>,
}

impl CodePatch {
    /// Offset of what is appended next.
    pub(crate) fn here(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Appends the code of snippets.
    pub(crate) fn put_code(&mut self, code: &Code) {
        let here = self.here();
        self.bytes.extend_from_slice(&code.bytes);
        let hits = code.hits.iter().map(|h| HitSite {
            offset: here + h.offset,
            ..*h
        });
        self.hits.extend(hits);
        let calls = code.calls.iter().map(|c| Reloc {
            offset: here + c.offset,
            kind: RelocKind::Pc32,
            target: c.target,
            addend: -4,
        });
        self.relocs.extend(calls);
        let faults = code.faults.iter().map(|f| ExSite {
            offset: here + f.offset,
            fixup: Fixup::Inside(here + f.fixup),
            data: FaultSite::DATA,
        });
        self.extable.extend(faults);
    }

    /// From here on the stack is as `table` says for the original address `like`, then as `steps` (offsets from here) say.
    pub(crate) fn unwind_as_at(&mut self, table: &Orc, like: u64, steps: &[StackStep]) {
        if !table.is_empty() {
            self.unwind_as(table.lookup(like).map(|e| e.raw), steps);
        }
    }

    /// From here on the stack is as `raw` says (none: not known), then as `steps` (offsets from here) say.
    pub(crate) fn unwind_as(&mut self, raw: Option<[u8; 6]>, steps: &[StackStep]) {
        let here = self.here();
        let raw = raw.unwrap_or(orc::UNDEFINED);
        self.orc_from(here, raw);
        for s in steps {
            let raw = orc::pushed(raw, s.pushed).unwrap_or(orc::UNDEFINED);
            self.orc_from(here + s.offset, raw);
        }
    }

    fn orc_from(&mut self, offset: u32, raw: [u8; 6]) {
        match self.orc.last_mut() {
            Some(last) if last.offset == offset => last.raw = raw,
            Some(last) if last.raw == raw => {}
            _ => self.orc.push(OrcSite { offset, raw }),
        }
    }

    /// The code as the kernel's loader leaves it when the patch starts at `base`. [`OutOfReach`] if a 32-bit field
    /// does not reach its target from there: the loader would refuse the module. The bytes that [`CodePatch::hits`] set have no
    /// place here.
    pub fn linked_at(&self, base: u64) -> Result<Vec<u8>, OutOfReach> {
        link(&self.bytes, &self.relocs, base)
    }
}

/// `bytes` at `base`, with `relocs` applied (arch/x86/kernel/module.c, `apply_relocate_add`).
pub(crate) fn link(bytes: &[u8], relocs: &[Reloc], base: u64) -> Result<Vec<u8>, OutOfReach> {
    let mut out = bytes.to_vec();
    for r in relocs {
        let place = base.wrapping_add(u64::from(r.offset));
        let out_of_reach = OutOfReach {
            from: place,
            to: r.target,
        };
        let sum = r.target.wrapping_add_signed(r.addend);
        let field = match r.kind {
            RelocKind::Abs64 => sum.to_le_bytes().to_vec(),
            RelocKind::Abs32S => i32::try_from(sum as i64)
                .map_err(|_| out_of_reach)?
                .to_le_bytes()
                .to_vec(),
            RelocKind::Pc32 => {
                let value = sum.wrapping_sub(place) as i64;
                i32::try_from(value)
                    .map_err(|_| out_of_reach)?
                    .to_le_bytes()
                    .to_vec()
            }
        };
        let at = out.iter_mut().skip(r.offset as usize);
        at.zip(field).for_each(|(to, from)| *to = from);
    }
    Ok(out)
}
