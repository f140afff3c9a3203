//! A second decoder (yaxpeax) must find that a relocated instruction means what the original meant.

use kerninst_patch::relocate;
use proptest::prelude::*;
use yaxpeax_x86::amd64::{InstDecoder, Instruction, Opcode, Operand, RegSpec};

/// An instruction with its address: what it does, in absolute terms.
#[derive(Debug, PartialEq)]
struct Meaning {
    opcode: Opcode,
    operands: Vec<Op>,
    size: Option<u8>,
    rep: (bool, bool, bool),
}

#[derive(Debug, PartialEq)]
enum Op {
    /// Memory at an address that is the same wherever the instruction stands; with its segment.
    At(u64, String),
    /// A branch target.
    To(u64),
    Other(Operand, String),
}

fn decode(bytes: &[u8]) -> Option<(Instruction, usize)> {
    let i = InstDecoder::default().decode_slice(bytes).ok()?;
    let len = usize::try_from(yaxpeax_len(&i)).ok()?;
    Some((i, len))
}

fn yaxpeax_len(i: &Instruction) -> u64 {
    use yaxpeax_arch::LengthedInstruction;
    0u64.wrapping_offset(i.len())
}

trait Offset {
    fn wrapping_offset(self, len: yaxpeax_arch::AddressDiff<u64>) -> u64;
}

impl Offset for u64 {
    fn wrapping_offset(self, len: yaxpeax_arch::AddressDiff<u64>) -> u64 {
        use yaxpeax_arch::AddressBase;
        AddressBase::wrapping_offset(&self, len)
    }
}

fn is_branch(o: Opcode) -> bool {
    use Opcode::*;
    matches!(
        o,
        JMP | CALL
            | JO
            | JNO
            | JB
            | JNB
            | JZ
            | JNZ
            | JA
            | JNA
            | JS
            | JNS
            | JP
            | JNP
            | JL
            | JGE
            | JLE
            | JG
            | LOOP
            | LOOPZ
            | LOOPNZ
            | JRCXZ
            | JECXZ
    )
}

fn meaning(i: &Instruction, len: usize, at: u64) -> Meaning {
    let next = at.wrapping_add(len as u64);
    let operands = (0..i.operand_count())
        .map(|n| {
            let segment = format!("{:?}", i.segment_override_for_op(n));
            match i.operand(n) {
                Operand::Disp { base, disp } if base == RegSpec::rip() => {
                    Op::At(next.wrapping_add_signed(i64::from(disp)), segment)
                }
                Operand::MemDeref { base } if base == RegSpec::rip() => Op::At(next, segment),
                Operand::AbsoluteU32 { addr } => Op::At(i64::from(addr as i32) as u64, segment),
                Operand::AbsoluteU64 { addr } => Op::At(addr, segment),
                Operand::ImmediateI8 { imm } if is_branch(i.opcode()) => {
                    Op::To(next.wrapping_add_signed(i64::from(imm)))
                }
                Operand::ImmediateI32 { imm } if is_branch(i.opcode()) => {
                    Op::To(next.wrapping_add_signed(i64::from(imm)))
                }
                other => Op::Other(other, segment),
            }
        })
        .collect();
    let p = i.prefixes;
    let size = i.mem_size().map(|s| s.bytes_size().unwrap_or(0));
    // Repeat prefixes mean nothing on a branch.
    let rep = if is_branch(i.opcode()) {
        (false, false, false)
    } else {
        (p.rep(), p.repnz(), p.lock())
    };
    Meaning {
        opcode: i.opcode(),
        operands,
        size,
        rep,
    }
}

/// `disp` more on a stack operand.
fn shifted(op: &Op, disp: i32) -> Option<Op> {
    let rsp = RegSpec::rsp();
    Some(match op {
        Op::Other(o, s) => {
            let o = match *o {
                Operand::MemDeref { base } if base == rsp => Operand::Disp { base, disp },
                Operand::Disp { base, disp: d } if base == rsp && d + disp == 0 => {
                    Operand::MemDeref { base }
                }
                Operand::Disp { base, disp: d } if base == rsp => Operand::Disp {
                    base,
                    disp: d + disp,
                },
                Operand::MemBaseIndexScale { base, index, scale } if base == rsp => {
                    Operand::MemBaseIndexScaleDisp {
                        base,
                        index,
                        scale,
                        disp,
                    }
                }
                Operand::MemBaseIndexScaleDisp {
                    base,
                    index,
                    scale,
                    disp: d,
                } if base == rsp && d + disp == 0 => {
                    Operand::MemBaseIndexScale { base, index, scale }
                }
                Operand::MemBaseIndexScaleDisp {
                    base,
                    index,
                    scale,
                    disp: d,
                } if base == rsp => Operand::MemBaseIndexScaleDisp {
                    base,
                    index,
                    scale,
                    disp: d + disp,
                },
                _ => return None,
            };
            Op::Other(o, s.clone())
        }
        _ => return None,
    })
}

/// Whether a displacement of zero is written out makes no difference.
fn plain(op: Op) -> Op {
    match op {
        Op::Other(Operand::Disp { base, disp: 0 }, s) => Op::Other(Operand::MemDeref { base }, s),
        Op::Other(
            Operand::MemBaseIndexScaleDisp {
                base,
                index,
                scale,
                disp: 0,
            },
            s,
        ) => Op::Other(Operand::MemBaseIndexScale { base, index, scale }, s),
        other => other,
    }
}

/// Compares; `Ok(false)` if the second decoder does not know the instruction or relocation refuses it.
fn compare(bytes: &[u8], at: u64, patch: u64) -> Result<bool, TestCaseError> {
    let Ok(f) = relocate(bytes, at) else {
        return Ok(false);
    };
    let Ok(code) = f.linked_at(patch) else {
        return Ok(false);
    };
    let Some((old, len)) = decode(bytes) else {
        return Ok(false);
    };
    let want = meaning(&old, len, at);
    let new = decode(&code);
    prop_assert!(new.is_some(), "{} became {:02x?}", old, code);
    let (new, new_len) = new.unwrap();
    match old.opcode() {
        Opcode::CALL => {
            prop_assert_eq!(new.opcode(), Opcode::PUSH);
            let pushed = match new.operand(0) {
                Operand::ImmediateI32 { imm } => i64::from(imm) as u64,
                Operand::ImmediateI64 { imm } => imm as u64,
                other => return Err(TestCaseError::fail(format!("push {other:?}"))),
            };
            prop_assert_eq!(pushed, at.wrapping_add(len as u64), "return address");
            let (jump, jump_len) = decode(&code[new_len..]).expect("a jump after the push");
            let got = meaning(&jump, jump_len, patch.wrapping_add(new_len as u64));
            prop_assert_eq!(got.opcode, Opcode::JMP);
            let wanted: Vec<Op> = want
                .operands
                .into_iter()
                .map(|o| plain(shifted(&o, 8).unwrap_or(o)))
                .collect();
            let got: Vec<Op> = got.operands.into_iter().map(plain).collect();
            prop_assert_eq!(got, wanted);
            prop_assert_eq!(code.len(), new_len + jump_len);
            prop_assert!(!f.falls_through);
        }
        Opcode::LOOP | Opcode::LOOPZ | Opcode::LOOPNZ | Opcode::JRCXZ | Opcode::JECXZ => {
            // Taken: over the jump that skips; then a jump to the target. Not taken: skip to the end.
            let taken = meaning(&new, new_len, patch);
            prop_assert_eq!(taken.opcode, want.opcode);
            let (skip, skip_len) = decode(&code[new_len..]).unwrap();
            let skipped = patch.wrapping_add((new_len + skip_len) as u64);
            prop_assert_eq!(taken.operands, vec![Op::To(skipped)]);
            let skip = meaning(&skip, skip_len, patch.wrapping_add(new_len as u64));
            prop_assert_eq!(
                skip.operands,
                vec![Op::To(patch.wrapping_add(code.len() as u64))]
            );
            let (long, long_len) = decode(&code[new_len + skip_len..]).unwrap();
            let long = meaning(&long, long_len, skipped);
            prop_assert_eq!(long.opcode, Opcode::JMP);
            prop_assert_eq!(long.operands, want.operands);
        }
        _ => {
            prop_assert_eq!(new_len, code.len(), "one instruction");
            prop_assert_eq!(meaning(&new, new_len, patch), want);
        }
    }
    Ok(true)
}

/// Bytes that are often an instruction whose meaning depends on its address.
fn interesting() -> impl Strategy<Value = Vec<u8>> {
    let prefix = prop_oneof![
        4 => Just(vec![]),
        1 => Just(vec![0x65]),
        1 => Just(vec![0xf0]),
        1 => Just(vec![0xf3]),
        1 => Just(vec![0x66]),
        1 => Just(vec![0x3e]),
        1 => Just(vec![0x67]),
    ];
    let rex = prop_oneof![1 => Just(vec![]), 2 => (0x40u8..0x50).prop_map(|r| vec![r])];
    let opcode = prop_oneof![
        4 => any::<u8>().prop_map(|o| vec![o]),
        3 => any::<u8>().prop_map(|o| vec![0x0f, o]),
        1 => any::<u8>().prop_map(|o| vec![0x0f, 0x38, o]),
        1 => Just(vec![0xff]),
        1 => Just(vec![0xe8]),
        1 => (0x70u8..0x80).prop_map(|o| vec![o]),
        1 => (0xe0u8..0xec).prop_map(|o| vec![o]),
    ];
    // RIP-relative and stack-relative ModRM bytes are favoured.
    let modrm = prop_oneof![
        3 => (0u8..8).prop_map(|r| r << 3 | 5),
        1 => (0u8..8, 0u8..3).prop_map(|(r, m)| m << 6 | r << 3 | 4),
        2 => any::<u8>(),
    ];
    (
        prefix,
        rex,
        opcode,
        modrm,
        prop::collection::vec(any::<u8>(), 11),
    )
        .prop_map(|(p, r, o, m, rest)| {
            let mut b = [p, r, o].concat();
            b.push(m);
            b.extend(rest);
            b.truncate(15);
            b
        })
}

fn text() -> impl Strategy<Value = u64> {
    0xffff_ffff_8100_0000u64..0xffff_ffff_8300_0000
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_relocated_instruction_means_the_same(
        bytes in interesting(),
        at in text(),
        patch in 0xffff_ffff_c000_0000u64..0xffff_ffff_f000_0000,
    ) {
        compare(&bytes, at, patch)?;
    }

    #[test]
    fn any_bytes_anywhere_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..20), at in any::<u64>()) {
        if let Ok(f) = relocate(&bytes, at) {
            prop_assert!(f.relocs.iter().all(|r| (r.offset as usize) < f.bytes.len()));
            let _ = f.linked_at(at.wrapping_add(0x4000_0000));
        }
    }
}

/// The comparison must not pass because nothing is ever compared.
#[test]
fn the_comparison_compares() {
    let at = 0xffff_ffff_8100_0000;
    let patch = 0xffff_ffff_c000_0000;
    for bytes in [
        &[0xe8, 1, 2, 3, 0][..],
        &[0x74, 0x10],
        &[0xe3, 0x10],
        &[0x48, 0x8b, 0x05, 1, 2, 3, 0],
        &[0xff, 0x54, 0x24, 0x08],
        &[0xeb, 0xf0],
    ] {
        assert!(
            compare(bytes, at, patch).expect("means the same"),
            "{bytes:02x?}"
        );
    }
}
