//! The world that `eval` acts on, with the same addresses as the real one.

use std::collections::HashMap;

use kerninst_snippet::Reg;
use kerninst_snippet::eval::{Machine, extend};
use kerninst_snippet::ir::Width;

use crate::make::{Areas, FILL, WORDS};

/// Memory of all kinds by address, byte by byte.
#[derive(Clone)]
pub struct World {
    pub areas: Areas,
    pub regs: [u64; 16],
    pub sure: Vec<u8>,
    pub cpu: Vec<u8>,
    pub probed: Vec<u8>,
    pub frame: HashMap<u64, u8>,
    pub calls: Vec<(u64, Vec<u64>)>,
}

/// Where frames are: nothing else is there.
const FRAMES: u64 = 0x100_0000;

impl World {
    fn byte(&mut self, at: u64) -> &mut u8 {
        let sure = at.wrapping_sub(self.areas.sure);
        if sure < WORDS * 8 {
            &mut self.sure[sure as usize]
        } else {
            assert!((FRAMES..FRAMES + 64).contains(&at), "no memory at {at:#x}");
            self.frame.entry(at).or_default()
        }
    }

    fn cpu(&mut self, pointer: u64) -> &mut [u8] {
        let at = pointer.wrapping_sub(self.areas.cpu) as usize;
        &mut self.cpu[at..at + 8]
    }

    fn probed(&mut self, at: u64, width: Width) -> Option<&mut [u8]> {
        let at = usize::try_from(at.wrapping_sub(self.areas.probed)).ok()?;
        self.probed
            .get_mut(at..at.checked_add(width.bytes() as usize)?)
    }
}

pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

impl Machine for World {
    fn reg(&mut self, reg: Reg) -> u64 {
        self.regs[usize::from(reg.number())]
    }
    fn set_reg(&mut self, reg: Reg, value: u64) {
        self.regs[usize::from(reg.number())] = value;
    }
    fn probe(&mut self, at: u64, width: Width) -> Option<u64> {
        self.probed(at, width).map(|b| number(b))
    }
    fn probe_store(&mut self, at: u64, width: Width, value: u64) -> bool {
        // The second half is read-only.
        let end = self.areas.probed + WORDS * 4;
        if at.saturating_add(u64::from(width.bytes())) > end {
            return false;
        }
        let Some(bytes) = self.probed(at, width) else {
            return false;
        };
        bytes.copy_from_slice(&value.to_le_bytes()[..width.bytes() as usize]);
        true
    }
    fn load(&mut self, at: u64, width: Width) -> u64 {
        let bytes: Vec<u8> = (0..u64::from(width.bytes()))
            .map(|n| *self.byte(at + n))
            .collect();
        number(&bytes)
    }
    fn store(&mut self, at: u64, width: Width, value: u64) {
        for (n, b) in value.to_le_bytes()[..width.bytes() as usize]
            .iter()
            .enumerate()
        {
            *self.byte(at + n as u64) = *b;
        }
    }
    fn frame(&mut self, _: u32) -> u64 {
        // The programs of these tests write all of it first.
        self.frame.clear();
        FRAMES
    }
    fn cpu_load(&mut self, pointer: u64, width: Width) -> u64 {
        extend(number(self.cpu(pointer)), width, false)
    }
    fn cpu_store(&mut self, pointer: u64, value: u64) {
        self.cpu(pointer).copy_from_slice(&value.to_le_bytes());
    }
    fn clock(&mut self) -> u64 {
        12345
    }
    fn call(&mut self, function: u64, args: &[u64]) -> u64 {
        if function == FILL {
            self.store(args[0], Width::B8, filling(&args[1..]));
        }
        let seen = if function == FILL { &args[1..] } else { args };
        self.calls.push((function, seen.to_vec()));
        mixed(seen)
    }
}

/// What a function returns.
pub fn mixed(args: &[u64]) -> u64 {
    args.iter()
        .fold(7, |h, a| (h ^ a).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// What is written by the one that writes.
pub fn filling(args: &[u64]) -> u64 {
    mixed(args) ^ 0x5555
}
