//! What inserted code may destroy at a point.

use std::fmt;

/// A general-purpose register by its hardware number (0 = rax, 4 = rsp, 15 = r15).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(u8);

impl Reg {
    /// The register `rax`, the only one that `lahf` and `seto %al` can use.
    pub const RAX: Reg = Reg(0);
    /// The stack pointer; never free.
    pub const RSP: Reg = Reg(4);

    /// The register with this hardware number, if there is one.
    pub fn new(number: u8) -> Option<Reg> {
        (number < 16).then_some(Reg(number))
    }

    /// Hardware number, 0 to 15.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Low three bits, as they stand in ModRM, SIB and opcode bytes.
    pub(crate) fn low(self) -> u8 {
        self.0 & 7
    }

    /// Whether the register needs a REX extension bit (r8 to r15).
    pub(crate) fn high(self) -> bool {
        self.0 >= 8
    }
}

impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 16] = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11",
            "r12", "r13", "r14", "r15",
        ];
        f.write_str(NAMES.get(usize::from(self.0)).unwrap_or(&"?"))
    }
}

/// A set of status flags, in the order of the analysis' live mask: CF, PF, AF, ZF, SF, OF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Carry.
    pub const CF: Flags = Flags(1);
    /// Parity.
    pub const PF: Flags = Flags(1 << 1);
    /// Auxiliary carry.
    pub const AF: Flags = Flags(1 << 2);
    /// Zero.
    pub const ZF: Flags = Flags(1 << 3);
    /// Sign.
    pub const SF: Flags = Flags(1 << 4);
    /// Overflow.
    pub const OF: Flags = Flags(1 << 5);
    /// All six.
    pub const ALL: Flags = Flags(0x3f);
    /// What `inc` writes: all but the carry (Intel SDM, INC).
    pub const INC: Flags = Flags(0x3e);

    /// The set of these six bits; higher bits are ignored.
    pub fn from_bits(bits: u8) -> Flags {
        Flags(bits & 0x3f)
    }

    /// The six bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether `self` holds every flag of `other`.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags in either set.
    pub fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl From<kerninst_analysis::Live> for Free {
    /// Free is what is not live.
    fn from(live: kerninst_analysis::Live) -> Free {
        Free::new(live.dead_mask(), Flags::from_bits((!live.0 >> 16) as u8))
    }
}

/// The registers and flags that inserted code may leave changed: those that are dead at the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Free {
    regs: u16,
    flags: Flags,
}

impl Free {
    /// Nothing is free: everything must be saved. Always correct.
    pub const NOTHING: Free = Free {
        regs: 0,
        flags: Flags::NONE,
    };

    /// Free registers as bits by hardware number, and free flags. `rsp` is never free, whatever `regs` says.
    pub fn new(regs: u16, flags: Flags) -> Free {
        Free {
            regs: regs & !(1 << Reg::RSP.number()),
            flags,
        }
    }

    /// The same without these registers (bits by hardware number): somebody reads them later although they are dead.
    pub fn without(self, regs: u16) -> Free {
        Free::new(self.regs & !regs, self.flags)
    }

    /// Free registers as bits by hardware number.
    pub(crate) fn mask(self) -> u16 {
        self.regs
    }

    /// Free registers, lowest number first.
    pub fn regs(self) -> impl Iterator<Item = Reg> {
        (0..16u8)
            .filter(move |n| self.regs >> n & 1 == 1)
            .filter_map(Reg::new)
    }

    /// Whether `reg` is free.
    pub fn has(self, reg: Reg) -> bool {
        self.regs >> reg.number() & 1 == 1
    }

    /// Free flags.
    pub fn flags(self) -> Flags {
        self.flags
    }
}
