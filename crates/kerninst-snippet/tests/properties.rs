//! What holds for every snippet: checked by running the code on a model of the processor.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use kerninst_snippet::{Features, Flags, Free, Snippet, compile};
use proptest::prelude::*;
use std::collections::HashMap;

/// Registers, flags (the six, in live-mask order), a stack and memory at gs. Knows only what snippets use, written
/// from the processor manuals and not from the compiler.
#[derive(Clone, Debug, PartialEq)]
struct Machine {
    regs: [u64; 16],
    flags: u8,
    stack: Vec<u64>,
    memory: HashMap<u64, u64>,
}

const CF: u8 = 1;
const PF: u8 = 2;
const AF: u8 = 4;
const ZF: u8 = 8;
const SF: u8 = 16;
const OF: u8 = 32;

fn number(r: Register) -> usize {
    r.full_register().number()
}

impl Machine {
    fn set(&mut self, flag: u8, on: bool) {
        self.flags = if on {
            self.flags | flag
        } else {
            self.flags & !flag
        };
    }

    fn step(&mut self, i: &Instruction) {
        match i.mnemonic() {
            Mnemonic::Push => self.stack.push(self.regs[number(i.op0_register())]),
            Mnemonic::Pop => self.regs[number(i.op0_register())] = self.stack.pop().expect("stack"),
            Mnemonic::Pushfq => self.stack.push(u64::from(self.flags)),
            Mnemonic::Popfq => self.flags = self.stack.pop().expect("stack") as u8,
            Mnemonic::Mov => self.regs[number(i.op0_register())] = i.immediate64(),
            Mnemonic::Lahf => {
                let f = self.flags;
                let bit = |flag, at: u32| u64::from(f & flag != 0) << at;
                let ah = bit(SF, 7) | bit(ZF, 6) | bit(AF, 4) | bit(PF, 2) | 2 | bit(CF, 0);
                self.regs[0] = self.regs[0] & !0xff00 | ah << 8;
            }
            Mnemonic::Sahf => {
                let ah = self.regs[0] >> 8;
                for (flag, at) in [(SF, 7), (ZF, 6), (AF, 4), (PF, 2), (CF, 0)] {
                    self.set(flag, ah >> at & 1 == 1);
                }
            }
            Mnemonic::Seto => {
                assert_eq!(i.op0_register(), Register::AL);
                self.regs[0] = self.regs[0] & !0xff | u64::from(self.flags & OF != 0);
            }
            Mnemonic::Add => {
                assert_eq!(i.op0_register(), Register::AL);
                let (a, b) = (self.regs[0] as u8, i.immediate8());
                let sum = a.wrapping_add(b);
                self.arithmetic(
                    sum,
                    (a as i8).overflowing_add(b as i8).1,
                    (a & 15) + (b & 15) > 15,
                );
                self.set(CF, a.checked_add(b).is_none());
                self.regs[0] = self.regs[0] & !0xff | u64::from(sum);
            }
            Mnemonic::Inc => {
                assert_eq!(i.segment_prefix(), Register::GS);
                assert_eq!(i.op0_kind(), OpKind::Memory);
                assert_eq!(i.memory_size().size(), 8);
                assert!(!i.is_ip_rel_memory_operand() && i.memory_index() == Register::None);
                let base = match i.memory_base() {
                    Register::None => 0,
                    r => self.regs[number(r)],
                };
                let slot = self
                    .memory
                    .entry(base.wrapping_add(i.memory_displacement64()))
                    .or_default();
                let (old, new) = (*slot, slot.wrapping_add(1));
                *slot = new;
                self.arithmetic(new as u8, old == i64::MAX as u64, old & 15 == 15);
                self.set(ZF, new == 0);
                self.set(SF, (new as i64) < 0);
            }
            other => panic!("snippets do not use {other:?}"),
        }
    }

    /// Flags of an 8-bit result, without the carry.
    fn arithmetic(&mut self, result: u8, overflow: bool, half_carry: bool) {
        self.set(PF, result.count_ones().is_multiple_of(2));
        self.set(AF, half_carry);
        self.set(ZF, result == 0);
        self.set(SF, result >= 0x80);
        self.set(OF, overflow);
    }
}

fn slot() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..0x10_0000,
        any::<u64>(),
        0x7fff_fff0u64..0x8000_0010,
        Just(u64::MAX - 7)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]
    #[test]
    fn code_counts_and_changes_nothing_that_is_live(
        slots in prop::collection::vec(slot(), 1..4),
        dead in any::<u16>(),
        dead_flags in 0u8..64,
        lahf in any::<bool>(),
        regs in any::<[u64; 16]>(),
        flags in 0u8..64,
        start in prop_oneof![any::<u64>(), Just(u64::MAX), Just(i64::MAX as u64), Just(15)],
    ) {
        let snippets: Vec<_> = slots.iter().map(|percpu| Snippet::Count { percpu: *percpu }).collect();
        let free = Free::new(dead, Flags::from_bits(dead_flags));
        let code = compile(&snippets, free, Features { lahf });
        let memory: HashMap<u64, u64> = slots.iter().map(|s| (*s, start)).collect();
        let before = Machine { regs, flags, stack: vec![0x55], memory };
        let mut after = before.clone();
        let mut steps = code.stack.iter().peekable();
        let mut pushed = 0;
        let mut count = 0;
        for i in Decoder::with_ip(64, &code.bytes, 0, DecoderOptions::NONE).iter() {
            prop_assert!(!i.is_invalid());
            after.step(&i);
            count += 1;
            if let Some(s) = steps.next_if(|s| u64::from(s.offset) == i.next_ip()) {
                pushed = s.pushed;
            }
            prop_assert_eq!(pushed as usize, (after.stack.len() - 1) * 8, "unwind depth after {}", i);
        }
        prop_assert!(steps.next().is_none());
        prop_assert_eq!(count, code.cost);
        for (slot, value) in &after.memory {
            let times = slots.iter().filter(|s| *s == slot).count() as u64;
            prop_assert_eq!(*value, start.wrapping_add(times));
        }
        prop_assert_eq!(&after.stack, &before.stack);
        for n in 0..16 {
            if n == 4 || dead >> n & 1 == 0 {
                prop_assert_eq!(after.regs[n], before.regs[n], "register {}", n);
            }
        }
        prop_assert_eq!((after.flags ^ before.flags) & !dead_flags, 0, "flags");
        if slots.len() == 1 {
            prop_assert!(code.cost <= 7);
        }
    }
}
