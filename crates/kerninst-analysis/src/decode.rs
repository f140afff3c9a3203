//! One instruction: how control leaves it, and which registers and flags it reads and writes.

use iced_x86::{
    Code, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, InstructionInfoFactory,
    InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register, RflagsBits,
};

use crate::function::Shape;
use crate::hash::AddrMap;
use crate::masks::{ALL, FLAGS};

/// How control leaves an instruction, from its bytes alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Plain,
    Nop,
    Jcc,
    Loop,
    Jmp,
    IndirectJmp,
    Call,
    IndirectCall,
    Ret,
    Trap,
    Int3,
    Special,
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoded {
    pub op: Op,
    pub len: u8,
    /// Direct branch target.
    pub target: Option<u64>,
    /// For an indirect branch: its operand is RIP-relative memory (`call *pv_ops+x(%rip)`).
    pub through_global: bool,
    /// For an indirect branch: its operand is memory with an index register (a jump table).
    pub indexed: bool,
}

/// Decodes at any address of a slice of text.
pub(crate) struct Reader<'b> {
    decoder: Decoder<'b>,
    base: u64,
    bytes: &'b [u8],
    pub insn: Instruction,
}

impl<'b> Reader<'b> {
    pub(crate) fn new(base: u64, bytes: &'b [u8]) -> Self {
        Self {
            decoder: Decoder::with_ip(64, bytes, base, DecoderOptions::NONE),
            base,
            bytes,
            insn: Instruction::default(),
        }
    }

    /// Decodes the instruction at `addr` into `self.insn`; none if there is no valid one.
    pub(crate) fn decode(&mut self, addr: u64) -> Option<Decoded> {
        let offset = usize::try_from(addr.checked_sub(self.base)?).ok()?;
        if offset >= self.bytes.len() {
            return None;
        }
        self.decoder.set_position(offset).ok()?;
        self.decoder.set_ip(addr);
        self.decoder.decode_out(&mut self.insn);
        if self.insn.is_invalid() {
            return None;
        }
        Some(classify(&self.insn))
    }
}

impl<'b> Reader<'b> {
    /// `len` bytes at `addr`.
    pub(crate) fn bytes_at(&self, addr: u64, len: usize) -> Option<&'b [u8]> {
        let offset = usize::try_from(addr.checked_sub(self.base)?).ok()?;
        self.bytes.get(offset..offset.checked_add(len)?)
    }
}

fn classify(insn: &Instruction) -> Decoded {
    let near = insn.op0_kind() == OpKind::NearBranch64;
    let op = match insn.flow_control() {
        FlowControl::Next if insn.mnemonic() == Mnemonic::Nop => Op::Nop,
        FlowControl::Next => Op::Plain,
        FlowControl::UnconditionalBranch if near => Op::Jmp,
        FlowControl::UnconditionalBranch => Op::Special,
        FlowControl::IndirectBranch if is_far(insn) => Op::Special,
        FlowControl::IndirectBranch => Op::IndirectJmp,
        FlowControl::ConditionalBranch if insn.is_jcc_short_or_near() => Op::Jcc,
        FlowControl::ConditionalBranch => Op::Loop,
        FlowControl::Return if insn.mnemonic() == Mnemonic::Ret => Op::Ret,
        FlowControl::Return => Op::Special,
        FlowControl::Call if near => Op::Call,
        // syscall, vmcall, vmlaunch ...: go on behind them.
        FlowControl::Call => Op::Plain,
        FlowControl::IndirectCall if is_far(insn) => Op::Plain,
        FlowControl::IndirectCall => Op::IndirectCall,
        FlowControl::Interrupt if insn.mnemonic() == Mnemonic::Int3 => Op::Int3,
        FlowControl::Interrupt => Op::Plain,
        // xbegin names the abort handler; xabort and xend go on.
        FlowControl::XbeginXabortXend if near => Op::Jcc,
        FlowControl::XbeginXabortXend => Op::Plain,
        FlowControl::Exception => Op::Trap,
    };
    let direct = matches!(op, Op::Jcc | Op::Loop | Op::Jmp | Op::Call);
    let indirect = matches!(op, Op::IndirectJmp | Op::IndirectCall);
    Decoded {
        op,
        len: insn.len() as u8,
        target: direct.then(|| insn.near_branch_target()),
        through_global: indirect && insn.is_ip_rel_memory_operand(),
        indexed: indirect
            && insn.op0_kind() == OpKind::Memory
            && insn.memory_index() != Register::None,
    }
}

fn is_far(insn: &Instruction) -> bool {
    insn.is_jmp_far_indirect() || insn.is_call_far_indirect()
}

/// What an instruction does to registers and flags, in the layout of [`crate::Live`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Effect {
    pub reads: u32,
    /// Surely overwritten. What may be left as it was is not counted: partial writes, conditional writes, flags after a
    /// shift by cl.
    pub kills: u32,
    pub shape: Shape,
}

/// Finds out what instructions read and write.
pub(crate) struct Effects {
    factory: InstructionInfoFactory,
    /// What was found.
    known: AddrMap<Key, Effect>,
}

/// What the effect of an instruction depends on.
type Key = (u64, u64);

/// So many forms of instructions are remembered: more than all of a kernel has.
const KNOWN: usize = 1 << 17;

impl Effects {
    pub(crate) fn new() -> Self {
        Self {
            factory: InstructionInfoFactory::new(),
            known: AddrMap::default(),
        }
    }

    /// The effect of an instruction.
    pub(crate) fn of(&mut self, insn: &Instruction) -> Effect {
        let Some(key) = key(insn) else {
            return self.work_out(insn);
        };
        if let Some(effect) = self.known.get(&key) {
            return *effect;
        }
        let effect = self.work_out(insn);
        if self.known.len() < KNOWN {
            self.known.insert(key, effect);
        }
        effect
    }

    fn work_out(&mut self, insn: &Instruction) -> Effect {
        let (reads, kills) = self.reads_and_kills(insn);
        Effect {
            reads,
            kills,
            shape: shape(insn),
        }
    }

    fn reads_and_kills(&mut self, insn: &Instruction) -> (u32, u32) {
        if reads_anything(insn) {
            return (ALL, 0);
        }
        let info = self
            .factory
            .info_options(insn, InstructionInfoOptions::NO_MEMORY_USAGE);
        let (mut reads, mut writes) = (0, 0);
        for used in info.used_registers() {
            let Some(bit) = register_bit(used.register()) else {
                continue;
            };
            match used.access() {
                OpAccess::Read | OpAccess::CondRead => reads |= bit,
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => reads |= bit,
                // A 32-bit write clears the upper half; 8 and 16-bit writes leave the rest as it was.
                OpAccess::Write if used.register().size() >= 4 => writes |= bit,
                OpAccess::Write | OpAccess::CondWrite => reads |= bit,
                OpAccess::None | OpAccess::NoMemAccess => {}
            }
        }
        reads |= flag_bits(insn.rflags_read());
        if !may_leave_flags(insn) {
            // Flags left undefined are not counted: a processor may well leave them alone.
            let written = insn.rflags_written() | insn.rflags_cleared() | insn.rflags_set();
            writes |= flag_bits(written);
        }
        (reads, writes & !reads)
    }
}

/// All that the effect of an instruction depends on; none for those of which that is more than fits.
fn key(insn: &Instruction) -> Option<Key> {
    let legacy = insn.encoding() == EncodingKind::Legacy;
    if !legacy || insn.op_count() > 3 {
        return None;
    }
    let mut operands = insn.code() as u64;
    let mut count = 0;
    for (kind, register) in [
        (insn.op0_kind(), insn.op0_register()),
        (insn.op1_kind(), insn.op1_register()),
        (insn.op2_kind(), insn.op2_register()),
    ] {
        operands = operands << 5 | kind as u64;
        operands = operands << 8 | register as u64;
        // Of constants only a shift's count matters.
        match kind {
            OpKind::Immediate8 => count = insn.immediate8(),
            OpKind::Immediate8_2nd => return None,
            _ => {}
        }
    }
    let mut rest = u64::from(count);
    for register in [
        insn.memory_base(),
        insn.memory_index(),
        insn.segment_prefix(),
    ] {
        rest = rest << 8 | register as u64;
    }
    for prefix in [
        insn.has_rep_prefix(),
        insn.has_repne_prefix(),
        insn.has_lock_prefix(),
    ] {
        rest = rest << 1 | u64::from(prefix);
    }
    Some((operands, rest))
}

/// See [`Shape`]. Depends on nothing that [`key`] leaves out.
fn shape(insn: &Instruction) -> Shape {
    use Mnemonic as M;
    let mut shape = Shape::empty();
    if insn.is_ip_rel_memory_operand() {
        shape |= Shape::OWN_ADDRESS;
    }
    let general = |kind: OpKind, register: Register| kind != OpKind::Register || register.is_gpr();
    let simple = insn.encoding() == EncodingKind::Legacy
        && general(insn.op0_kind(), insn.op0_register())
        && general(insn.op1_kind(), insn.op1_register());
    // A constant in ecx may be the number of a model-specific register.
    let names_msr = matches!(insn.code(), Code::Mov_r32_imm32 | Code::Mov_rm32_imm32)
        && insn.op0_register() == Register::ECX;
    let common = matches!(
        insn.mnemonic(),
        M::Mov
            | M::Movzx
            | M::Movsx
            | M::Movsxd
            | M::Lea
            | M::Push
            | M::Pop
            | M::Add
            | M::Sub
            | M::Adc
            | M::Sbb
            | M::Inc
            | M::Dec
            | M::Neg
            | M::Not
            | M::And
            | M::Or
            | M::Xor
            | M::Cmp
            | M::Test
            | M::Shl
            | M::Shr
            | M::Sar
            | M::Imul
            | M::Bt
            | M::Nop
    );
    if simple && common && !names_msr {
        shape |= Shape::ORDINARY;
    }
    shape
}

/// Instructions that hand registers to other software or microcode, beyond what the decoder's table says.
fn reads_anything(insn: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(
        insn.mnemonic(),
        M::Vmcall
            | M::Vmmcall
            | M::Vmgexit
            | M::Vmlaunch
            | M::Vmresume
            | M::Vmrun
            | M::Vmfunc
            | M::Tdcall
            | M::Seamcall
            | M::Seamret
            | M::Seamops
            | M::Encls
            | M::Enclu
            | M::Enclv
            | M::Getsec
            | M::Pconfig
            | M::Int
            | M::Into
            | M::Int1
            | M::Syscall
            | M::Sysenter
            | M::Rsm
            | M::Xbegin
            | M::Xabort
            | M::Xend
    ) || matches!(insn.flow_control(), FlowControl::Return if insn.mnemonic() != M::Ret)
        || insn.is_jmp_far()
        || insn.is_jmp_far_indirect()
        || insn.is_call_far()
        || insn.is_call_far_indirect()
}

fn may_leave_flags(insn: &Instruction) -> bool {
    use Mnemonic as M;
    let shift = matches!(
        insn.mnemonic(),
        M::Shl | M::Shr | M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr | M::Shld | M::Shrd | M::Sal
    );
    // A count of zero leaves all flags alone; a repeat count of zero too.
    let by_cl = insn.op1_register() == Register::CL || insn.op2_register() == Register::CL;
    shift && by_cl || insn.has_rep_prefix() || insn.has_repne_prefix()
}

/// The bit of a general register (or a part of one).
pub(crate) fn register_bit(register: Register) -> Option<u32> {
    let full = register.full_register();
    full.is_gpr64().then(|| 1 << (full.number() as u32 & 15))
}

fn flag_bits(bits: u32) -> u32 {
    const PAIRS: [(u32, u32); 6] = [
        (RflagsBits::CF, 16),
        (RflagsBits::PF, 17),
        (RflagsBits::AF, 18),
        (RflagsBits::ZF, 19),
        (RflagsBits::SF, 20),
        (RflagsBits::OF, 21),
    ];
    if bits == 0 {
        return 0;
    }
    let mut out = 0;
    for (iced, ours) in PAIRS {
        if bits & iced != 0 {
            out |= 1 << ours;
        }
    }
    out & FLAGS
}

/// A text address that the instruction takes: by RIP-relative `lea`, or as a 32 or 64-bit immediate.
pub(crate) fn address_taken(insn: &Instruction) -> Option<u64> {
    if insn.mnemonic() == Mnemonic::Lea && insn.is_ip_rel_memory_operand() {
        return Some(insn.ip_rel_memory_address());
    }
    let last = insn.op_count().checked_sub(1)?;
    match insn.op_kind(last) {
        OpKind::Immediate32to64 | OpKind::Immediate64 => Some(insn.immediate(last)),
        // `mov $address, %r32` zero-extends: no kernel address. `movl $low, mem` may be half of one.
        OpKind::Immediate32 if insn.op0_kind() == OpKind::Memory => {
            Some(insn.immediate32() as i32 as i64 as u64)
        }
        _ => None,
    }
}

/// Length of the fill (nop or int3) instruction that `bytes` start with; 0 if there is none.
pub(crate) fn fill_len(bytes: &[u8]) -> usize {
    match bytes.first() {
        None => 0,
        Some(0x90 | 0xcc) => 1,
        // Longer nops: 0f 1f, perhaps with 66 and segment prefixes; 66 90.
        Some(0x0f | 0x66 | 0x2e) => {
            let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
            let insn = decoder.decode();
            match insn.code() {
                Code::INVALID => 0,
                _ if insn.mnemonic() == Mnemonic::Nop => insn.len(),
                _ => 0,
            }
        }
        Some(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Would catch an effect that depends on something that its key leaves out: another instruction's would be taken for it.
    #[test]
    fn instructions_of_one_key_have_one_effect() {
        let mut effects = Effects::new();
        let mut known: HashMap<Key, (Effect, Instruction)> = HashMap::new();
        let mut state = 1u64;
        let mut again = 0;
        for _ in 0..400_000 {
            let mut bytes = [0u8; 15];
            for byte in &mut bytes {
                // Knuth's generator: the same bytes every time.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
            // Without all the operands' variety some keys come again.
            if let Some(first) = bytes.first_mut()
                && *first & 3 == 0
            {
                *first = [0x48, 0xc1, 0x0f, 0xf3][usize::from(*first >> 6)];
            }
            let insn = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
            if insn.is_invalid() {
                continue;
            }
            let effect = effects.work_out(&insn);
            assert_eq!(effects.of(&insn), effect, "{insn:?}");
            if let Some(key) = key(&insn) {
                let (before, other) = *known.entry(key).or_insert((effect, insn));
                assert_eq!(before, effect, "{other:?} and {insn:?}");
                again += u32::from(other != insn);
            }
        }
        assert!(again > 10_000, "{again}");
    }
}
