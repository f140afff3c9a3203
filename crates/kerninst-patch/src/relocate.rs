//! One instruction, moved.

use iced_x86::{
    Decoder, DecoderOptions, Encoder, EncodingKind, FlowControl, Instruction, Mnemonic, OpKind,
    Register,
};
use kerninst_snippet::StackStep;

use crate::code_patch::link;
use crate::odd::{Odd, odd};
use crate::{OutOfReach, Reloc, RelocKind};

/// Why an instruction cannot run at another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unrelocatable {
    /// The bytes are no instruction.
    #[error("its bytes are not a valid instruction")]
    Invalid,
    /// It must stay where it is.
    #[error("{0}")]
    Odd(#[from] Odd),
    /// A branch with an operand-size prefix: processors disagree about its length and meaning.
    #[error("it is a branch with an operand-size prefix")]
    BranchSize,
    /// An address relative to the 32-bit instruction pointer.
    #[error("it has an operand relative to eip")]
    EipRelative,
    /// A call whose return address a `push imm32` cannot give: it is not in the top or bottom 2 GiB.
    #[error("it is a call whose return address does not fit a sign-extended 32-bit value")]
    FarReturn,
    /// An indirect call through the stack pointer itself.
    #[error("it calls through the stack pointer")]
    ThroughStackPointer,
    /// A fault or bug table entry that cannot be copied.
    #[error("its {0} table entry cannot be copied")]
    Table(&'static str),
    /// Its unwind data cannot describe the pushed return address.
    #[error("its stack cannot be unwound while a return address is pushed")]
    Unwind,
}

/// A relocated instruction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fragment {
    /// The code: runs anywhere once `relocs` are applied.
    pub bytes: Vec<u8>,
    /// References to kernel addresses, offsets from the start of `bytes`.
    pub relocs: Vec<Reloc>,
    /// What the fragment pushes beyond the original, while it runs.
    pub stack: Vec<StackStep>,
    /// Whether control goes on after the fragment (as after the original); otherwise it never arrives there.
    pub falls_through: bool,
    /// Instructions executed beyond the original one (on the way that falls through, if there is one).
    pub extra: u32,
}

/// Relocates the instruction `bytes`, which stands at `addr`.
///
/// A call becomes `push $return; jmp target` with the ORIGINAL return address: no patch address is ever left on a
/// stack, so sleeping tasks and unwinders see only original code, and the callee returns to it.
pub fn relocate(bytes: &[u8], addr: u64) -> Result<Fragment, Unrelocatable> {
    let mut decoder = Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE);
    if !decoder.can_decode() {
        return Err(Unrelocatable::Invalid);
    }
    let i = decoder.decode();
    let Some(raw) = bytes.get(..i.len()).filter(|_| !i.is_invalid()) else {
        return Err(Unrelocatable::Invalid);
    };
    if let Some(o) = odd(&i) {
        return Err(o.into());
    }
    let offsets = decoder.get_constant_offsets(&i);
    let displacement = offsets
        .has_displacement()
        .then(|| offsets.displacement_offset());
    match i.flow_control() {
        FlowControl::Next | FlowControl::Exception | FlowControl::XbeginXabortXend => {
            let mut f = copy(&i, raw, displacement)?;
            // After a trap that is a WARN control goes on; after any other it does not, and nobody cares.
            f.falls_through = true;
            Ok(f)
        }
        FlowControl::Return => copy(&i, raw, displacement),
        FlowControl::IndirectBranch => {
            refuse_prefix(raw)?;
            copy(&i, raw, displacement)
        }
        FlowControl::UnconditionalBranch => {
            refuse_prefix(raw)?;
            let mut f = Fragment::default();
            f.jump(i.near_branch_target());
            Ok(f)
        }
        FlowControl::ConditionalBranch => {
            refuse_prefix(raw)?;
            conditional(&i, raw)
        }
        // Hypercalls count as calls there: they come back to the next instruction, wherever that is.
        FlowControl::Call if !i.is_call_near() => {
            let mut f = copy(&i, raw, displacement)?;
            f.falls_through = true;
            Ok(f)
        }
        FlowControl::Call => {
            refuse_prefix(raw)?;
            let mut f = push_return(&i)?;
            f.jump(i.near_branch_target());
            Ok(f)
        }
        FlowControl::IndirectCall => {
            refuse_prefix(raw)?;
            indirect_call(&i, raw, displacement)
        }
        FlowControl::Interrupt => Err(Odd::Interrupt.into()),
    }
}

impl Fragment {
    /// The code when it stands at `base`; see [`crate::CodePatch::linked_at`].
    pub fn linked_at(&self, base: u64) -> Result<Vec<u8>, OutOfReach> {
        link(&self.bytes, &self.relocs, base)
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A 32-bit displacement to `target`, `tail` bytes before the end of the instruction.
    fn rel32(&mut self, target: u64, tail: i64) {
        let offset = self.bytes.len() as u32;
        self.relocs.push(Reloc {
            offset,
            kind: RelocKind::Pc32,
            target,
            addend: -4 - tail,
        });
        self.put(&[0; 4]);
    }

    fn jump(&mut self, target: u64) {
        self.put(&[0xe9]);
        self.rel32(target, 0);
    }
}

/// Intel ignores an operand-size prefix on near branches, AMD truncates the target to 16 bits.
fn refuse_prefix(raw: &[u8]) -> Result<(), Unrelocatable> {
    let prefix = |b: &&u8| is_legacy_prefix(**b) || matches!(b, 0x40..=0x4f);
    if raw.iter().take_while(prefix).any(|b| *b == 0x66) {
        Err(Unrelocatable::BranchSize)
    } else {
        Ok(())
    }
}

/// The instruction as it is, with a RIP-relative operand made to point to the same address: where its own address does not
/// matter otherwise (an indirect call that may push the address of its copy).
pub(crate) fn copied(bytes: &[u8], addr: u64) -> Result<Fragment, Unrelocatable> {
    let mut decoder = Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE);
    if !decoder.can_decode() {
        return Err(Unrelocatable::Invalid);
    }
    let i = decoder.decode();
    let raw = bytes.get(..i.len()).filter(|_| !i.is_invalid());
    let raw = raw.ok_or(Unrelocatable::Invalid)?;
    if let Some(o) = odd(&i) {
        return Err(o.into());
    }
    let offsets = decoder.get_constant_offsets(&i);
    let displacement = offsets
        .has_displacement()
        .then(|| offsets.displacement_offset());
    copy(&i, raw, displacement)
}

/// The same bytes, with a RIP-relative operand (at `displacement`, an offset in `raw`) made to point to the same address.
fn copy(
    i: &Instruction,
    raw: &[u8],
    displacement: Option<usize>,
) -> Result<Fragment, Unrelocatable> {
    let mut f = Fragment::default();
    if !i.is_ip_rel_memory_operand() {
        f.put(raw);
        return Ok(f);
    }
    if i.memory_base() == Register::EIP {
        return Err(Unrelocatable::EipRelative);
    }
    let target = i.memory_displacement64();
    let at = displacement.ok_or(Unrelocatable::Invalid)?;
    let (Some(head), Some(tail)) = (raw.get(..at), raw.get(at.saturating_add(4)..)) else {
        return Err(Unrelocatable::Invalid);
    };
    // Per-CPU operands: before 6.15 their "address" is a small offset, for which a displacement from the patch may
    // not reach. The absolute form, one byte longer, always does. (`lea` ignores segments.)
    let per_cpu =
        matches!(i.segment_prefix(), Register::GS | Register::FS) && i.mnemonic() != Mnemonic::Lea;
    if let (true, Ok(disp), Some(head)) = (
        per_cpu && raw.len() < 15,
        i32::try_from(target as i64),
        absolute_form(i, head),
    ) {
        f.put(&head);
        f.put(&disp.to_le_bytes());
        f.put(tail);
        return Ok(f);
    }
    f.put(head);
    f.rel32(target, tail.len() as i64);
    f.put(tail);
    Ok(f)
}

/// Everything before the displacement, with ModRM and SIB for "disp32 alone" in place of "rip + disp32".
fn absolute_form(i: &Instruction, head: &[u8]) -> Option<Vec<u8>> {
    if i.encoding() != EncodingKind::Legacy {
        return None;
    }
    let (modrm, front) = head.split_last()?;
    let mut out = front.to_vec();
    // An index extension, which the old form ignored, would make "no index" (100) into r12.
    let rex = out.iter_mut().find(|b| !is_legacy_prefix(**b))?;
    if matches!(rex, 0x40..=0x4f) {
        *rex &= !0x02;
    }
    out.extend([modrm & 0x38 | 0x04, 0x25]);
    Some(out)
}

fn is_legacy_prefix(b: u8) -> bool {
    matches!(
        b,
        0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

fn conditional(i: &Instruction, raw: &[u8]) -> Result<Fragment, Unrelocatable> {
    let mut f = Fragment {
        falls_through: true,
        ..Fragment::default()
    };
    let target = i.near_branch_target();
    if i.is_jcc_short_or_near() {
        let condition = if i.is_jcc_short() {
            raw.get(raw.len().wrapping_sub(2))
        } else {
            raw.get(raw.len().wrapping_sub(5))
        };
        let condition = condition.ok_or(Unrelocatable::Invalid)? & 0x0f;
        f.put(&[0x0f, 0x80 | condition]);
        f.rel32(target, 0);
        return Ok(f);
    }
    // loop, loope, loopne, jrcxz, jecxz have only a short form: go over a jump.
    let Some((_, head)) = raw.split_last() else {
        return Err(Unrelocatable::Invalid);
    };
    f.put(head);
    f.put(&[2, 0xeb, 5]); // taken: over the next jump; not taken: over the long one
    f.jump(target);
    f.extra = 1;
    Ok(f)
}

/// `push $imm32` of the original return address.
fn push_return(i: &Instruction) -> Result<Fragment, Unrelocatable> {
    let back = i32::try_from(i.next_ip() as i64).map_err(|_| Unrelocatable::FarReturn)?;
    let mut f = Fragment::default();
    f.put(&[0x68]);
    f.put(&back.to_le_bytes());
    f.stack.push(StackStep {
        offset: f.bytes.len() as u32,
        pushed: 8,
    });
    f.extra = 1;
    Ok(f)
}

fn indirect_call(
    i: &Instruction,
    raw: &[u8],
    displacement: Option<usize>,
) -> Result<Fragment, Unrelocatable> {
    let mut f = push_return(i)?;
    let register = i.op0_kind() == OpKind::Register;
    let through = if register {
        i.op0_register()
    } else {
        i.memory_base()
    };
    let jump = if through.full_register() == Register::RSP && (register || through != Register::RSP)
    {
        return Err(Unrelocatable::ThroughStackPointer);
    } else if through == Register::RSP {
        // The push moved the stack pointer: the operand is 8 bytes further up.
        let mut j = *i;
        j.set_code(iced_x86::Code::Jmp_rm64);
        j.set_memory_displacement64(i.memory_displacement64().wrapping_add(8));
        j.set_memory_displ_size(if i.memory_displ_size() == 0 {
            1
        } else {
            i.memory_displ_size()
        });
        let mut e = Encoder::new(64);
        e.encode(&j, i.ip())
            .map_err(|_| Unrelocatable::ThroughStackPointer)?;
        Fragment {
            bytes: e.take_buffer(),
            ..Fragment::default()
        }
    } else {
        let mut j = copy(i, raw, displacement)?;
        // Opcode FF: /2 is call, /4 is jmp. It is followed by ModRM.
        let opcode = j
            .bytes
            .iter()
            .position(|b| *b == 0xff)
            .ok_or(Unrelocatable::Invalid)?;
        let modrm = j.bytes.get_mut(opcode + 1).ok_or(Unrelocatable::Invalid)?;
        *modrm = *modrm & !0x38 | 4 << 3;
        j
    };
    let base = f.bytes.len() as u32;
    f.put(&jump.bytes);
    f.relocs.extend(jump.relocs.iter().map(|r| Reloc {
        offset: r.offset + base,
        ..*r
    }));
    Ok(f)
}
