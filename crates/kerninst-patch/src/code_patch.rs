//! Generated code with everything the kernel must know about it.

use crate::OutOfReach;

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
    /// Type and flags, copied from the original entry.
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
}

impl CodePatch {
    /// The code as the kernel's loader leaves it when the patch starts at `base`. [`OutOfReach`] if a 32-bit field
    /// does not reach its target from there: the loader would refuse the module.
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
