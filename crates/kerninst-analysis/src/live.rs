//! Sets of registers and flags.

use std::fmt;

/// A set of general registers and status flags: those that are live.
///
/// Bits 0..=15 are rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8..r15 (the hardware numbers);
/// bits 16..=21 are CF, PF, AF, ZF, SF, OF. What is not proven dead is in the set; rsp always is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Live(pub u32);

/// Names of the 16 general registers, by hardware number.
pub const REG_NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

const FLAG_NAMES: [&str; 6] = ["CF", "PF", "AF", "ZF", "SF", "OF"];

impl Live {
    /// All six status flags.
    pub const FLAGS: Live = Live(0x3f << 16);
    /// All sixteen general registers.
    pub const REGS: Live = Live(0xffff);
    /// Everything is live: nothing is known.
    pub const ALL: Live = Live(0xffff | 0x3f << 16);
    /// The empty set (only of use as a start value: rsp is live everywhere).
    pub const NONE: Live = Live(0);
    /// Carry flag.
    pub const CF: Live = Live(1 << 16);
    /// Parity flag.
    pub const PF: Live = Live(1 << 17);
    /// Auxiliary carry flag.
    pub const AF: Live = Live(1 << 18);
    /// Zero flag.
    pub const ZF: Live = Live(1 << 19);
    /// Sign flag.
    pub const SF: Live = Live(1 << 20);
    /// Overflow flag.
    pub const OF: Live = Live(1 << 21);

    /// Is general register `number` (0..=15, hardware number) live? Numbers above 15: yes.
    pub const fn reg(self, number: u8) -> bool {
        number > 15 || number == 4 || self.0 >> number & 1 != 0
    }

    /// The general registers that are dead, as a mask by hardware number. Never rsp.
    pub const fn dead_mask(self) -> u16 {
        !(self.0 as u16) & !(1 << 4)
    }

    /// The general registers that are dead, by hardware number, lowest first. Never rsp.
    pub fn dead_regs(self) -> impl Iterator<Item = u8> {
        let dead = self.dead_mask();
        (0..16u8).filter(move |n| dead >> n & 1 != 0)
    }

    /// Are all six status flags dead?
    pub const fn flags_dead(self) -> bool {
        self.0 & Self::FLAGS.0 == 0
    }

    /// The status flags that are live (a subset of [`Live::FLAGS`]).
    pub const fn flags(self) -> Live {
        Live(self.0 & Self::FLAGS.0)
    }

    /// Both sets together.
    pub const fn union(self, other: Live) -> Live {
        Live(self.0 | other.0)
    }

    /// Is every member of `other` in this set?
    pub const fn contains(self, other: Live) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = REG_NAMES.iter().chain(FLAG_NAMES.iter());
        let mut first = true;
        for (n, name) in names.enumerate() {
            if self.0 >> n & 1 != 0 {
                if !first {
                    f.write_str(" ")?;
                }
                first = false;
                f.write_str(name)?;
            }
        }
        if first { f.write_str("-") } else { Ok(()) }
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}
