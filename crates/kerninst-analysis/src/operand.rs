//! Where an indirect call or jump gets its target from.

use iced_x86::{Decoder, DecoderOptions, OpKind, Register};
use kerninst_kernel::Kernel;

use crate::{Insn, live::REG_NAMES};

/// What an indirect branch goes to. Registers by hardware number (0 = rax, 15 = r15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// The value of a register.
    Register(u8),
    /// The 64 bits in memory at `base + index * scale + displacement`.
    Memory {
        /// Register.
        base: Option<u8>,
        /// Register, and 1, 2, 4 or 8.
        index: Option<(u8, u8)>,
        /// Constant; of RIP-relative memory its whole address.
        displacement: u64,
    },
}

impl Operand {
    /// That of an indirect call or jump, be it raw or by a retpoline thunk (which has its register's name:
    /// arch/x86/lib/retpoline.S). `None`: it is no indirect branch, or one through a segment or a narrow register.
    pub fn of(kernel: &Kernel, insn: &Insn) -> Option<Operand> {
        let bytes = kernel.bytes(insn.addr, usize::from(insn.len))?;
        let mut decoder = Decoder::with_ip(64, bytes, insn.addr, DecoderOptions::NONE);
        let mut decoded = decoder.decode();
        // What the kernel put in place of a thunk may begin with an lfence.
        if decoded.code() == iced_x86::Code::Lfence {
            decoded = decoder.decode();
        }
        match decoded.op0_kind() {
            OpKind::NearBranch64 => thunk(kernel, decoded.near_branch_target()),
            OpKind::Register => number(decoded.op0_register()).map(Operand::Register),
            OpKind::Memory if decoded.segment_prefix() == Register::None => {
                let index = match decoded.memory_index() {
                    Register::None => None,
                    r => Some((number(r)?, decoded.memory_index_scale() as u8)),
                };
                let base = match decoded.memory_base() {
                    Register::None | Register::RIP => None,
                    r => Some(number(r)?),
                };
                Some(Operand::Memory {
                    base,
                    index,
                    displacement: decoded.memory_displacement64(),
                })
            }
            _ => None,
        }
    }
}

fn number(register: Register) -> Option<u8> {
    (register.is_gpr64()).then(|| register.number() as u8)
}

/// The register that the retpoline thunk at `addr` jumps to.
fn thunk(kernel: &Kernel, addr: u64) -> Option<Operand> {
    const NAMES: [&str; 3] = [
        "__x86_indirect_thunk_",
        "__x86_indirect_call_thunk_",
        "__x86_indirect_jump_thunk_",
    ];
    let symbols = kernel.symbols().at(addr);
    let register = symbols.iter().find_map(|s| {
        let rest = NAMES.iter().find_map(|n| s.name.strip_prefix(n))?;
        REG_NAMES.iter().position(|r| *r == rest)
    });
    register.map(|n| Operand::Register(n as u8))
}

#[cfg(test)]
mod tests {
    use super::Operand;
    use crate::Analysis;
    use kerninst_kernel::Kernel;

    const F: u64 = 0xffff_ffff_8100_0000;

    fn check(code: &[u8], expected: &str) {
        let mut text = code.to_vec();
        text.resize(32, 0xc3);
        text.extend([0xff, 0xe0]); // 20: the thunk
        let kernel = Kernel::builder()
            .text(F, &text)
            .symbol("f", F, 't')
            .symbol("__x86_indirect_thunk_r11", F + 0x20, 't')
            .build();
        let analysis = Analysis::new(&kernel);
        let function = analysis.function_at(F).expect("f");
        let insn = function.insns.first().expect("an instruction");
        let shown = match Operand::of(&kernel, insn) {
            None => "none".to_string(),
            Some(Operand::Register(n)) => format!("register {n}"),
            Some(Operand::Memory {
                base,
                index,
                displacement,
            }) => format!("{base:?} {index:?} {displacement:#x}"),
        };
        assert_eq!(shown, expected, "{code:02x?}");
    }

    /// Would catch an operand that is read from another place than the call takes it from.
    #[test]
    fn operands() {
        check(&[0xff, 0xd0], "register 0");
        check(&[0x41, 0xff, 0xd7], "register 15");
        check(&[0xe8, 0x1b, 0, 0, 0], "register 11");
        check(&[0xff, 0x53, 0x18], "Some(3) None 0x18");
        check(
            &[0xff, 0x54, 0xc8, 0xf8],
            "Some(0) Some((1, 8)) 0xfffffffffffffff8",
        );
        check(
            &[0xff, 0x14, 0xc5, 0, 0, 0, 0x82],
            "None Some((0, 8)) 0xffffffff82000000",
        );
        check(
            &[0xff, 0x15, 0xfa, 0x0f, 0, 0],
            "None None 0xffffffff81001000",
        );
        check(&[0x90], "none");
        check(&[0x65, 0xff, 0x10], "none");
    }
}
