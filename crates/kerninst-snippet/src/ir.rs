//! The typed intermediate form of a program: what one clause of a user's script does at one point, before registers are
//! chosen.
//!
//! Straight code on 64-bit virtual registers with labels. Every branch leads forward but those of [`Op::Again`], whose number of
//! rounds is a constant: so a program always ends, and the work that it can do has a bound that is known before it is armed.
//! Memory is read in two ways: what is there for sure (areas of the session, the running task) by [`Op::Load`], and everything
//! else by [`Op::Probe`], which cannot fault the kernel.

use crate::Reg;
pub use crate::validate::{Invalid, MAX_OPS, What, validate, worst_cost};

/// Number of a virtual register. It holds 64 bits; narrower values are kept extended as their type says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct V(pub u32);

/// A place in the code of one region, to jump to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub u32);

/// An operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Val {
    /// The value of a virtual register, which was written on every way that leads here.
    V(V),
    /// A constant.
    Imm(u64),
}

/// How many bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Width {
    B1,
    B2,
    B4,
    B8,
}

impl Width {
    /// In bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Width::B1 => 1,
            Width::B2 => 2,
            Width::B4 => 4,
            Width::B8 => 8,
        }
    }
}

/// What [`Op::Bin`] computes, on 64 bits, wrapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BinOp {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    /// Counts of 64 and more give 0.
    Shl,
    /// Unsigned; counts of 64 and more give 0.
    Shr,
    /// Signed; counts of 64 and more give 0 or -1.
    Sar,
    /// Unsigned; by 0 gives 0.
    DivU,
    /// Unsigned remainder; by 0 gives 0.
    RemU,
    /// Signed; by 0 gives 0; the smallest number by -1 gives itself.
    DivS,
    /// Signed remainder (sign of the dividend); by 0 or -1 gives 0.
    RemS,
}

/// A comparison of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Cond {
    Eq,
    Ne,
    /// Unsigned.
    LtU,
    LeU,
    GtU,
    GeU,
    /// Signed.
    LtS,
    LeS,
    GtS,
    GeS,
}

impl Cond {
    /// The comparison that holds if and only if this one does not.
    pub fn opposite(self) -> Cond {
        match self {
            Cond::Eq => Cond::Ne,
            Cond::Ne => Cond::Eq,
            Cond::LtU => Cond::GeU,
            Cond::LeU => Cond::GtU,
            Cond::GtU => Cond::LeU,
            Cond::GeU => Cond::LtU,
            Cond::LtS => Cond::GeS,
            Cond::LeS => Cond::GtS,
            Cond::GtS => Cond::LeS,
            Cond::GeS => Cond::LtS,
        }
    }

    /// The same comparison with its sides exchanged.
    pub fn mirrored(self) -> Cond {
        match self {
            Cond::Eq | Cond::Ne => self,
            Cond::LtU => Cond::GtU,
            Cond::LeU => Cond::GeU,
            Cond::GtU => Cond::LtU,
            Cond::GeU => Cond::LeU,
            Cond::LtS => Cond::GtS,
            Cond::LeS => Cond::GeS,
            Cond::GtS => Cond::LtS,
            Cond::GeS => Cond::LeS,
        }
    }
}

/// Where memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Base {
    /// At this address.
    At(Val),
    /// In the program's own frame of scratch memory, from its start (offsets 0 to [`Region::frame`]). It is not cleared.
    Frame,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// `to = from`.
    Copy {
        /// Written.
        to: V,
        /// Read.
        from: Val,
    },
    /// The value that a register of the interrupted code has at the point, or was given by [`Op::SetReg`] since; of `rsp` too, as
    /// it is there.
    Reg {
        /// Written.
        to: V,
        /// Which one.
        reg: Reg,
    },
    /// `to = a op b`.
    Bin {
        /// The operation.
        op: BinOp,
        /// Written.
        to: V,
        /// Left.
        a: Val,
        /// Right.
        b: Val,
    },
    /// `to` = 1 if the comparison holds, otherwise 0.
    Set {
        /// Written.
        to: V,
        /// How to compare.
        cond: Cond,
        /// Left.
        a: Val,
        /// Right.
        b: Val,
    },
    /// `to` = the low bytes of `from`, extended to 64 bits.
    Extend {
        /// Written.
        to: V,
        /// Read.
        from: Val,
        /// How many of its bytes.
        width: Width,
        /// With copies of their sign.
        signed: bool,
    },
    /// Number of the highest bit that is set: 63 to 0; of 0: 0.
    HighBit {
        /// Written.
        to: V,
        /// Read.
        from: Val,
    },
    /// A place to jump to.
    Label(Label),
    /// Goes to a label further down.
    Jump(Label),
    /// Goes to a label further down if the comparison holds.
    Branch {
        /// How to compare.
        cond: Cond,
        /// Left.
        a: Val,
        /// Right.
        b: Val,
        /// Where to.
        to: Label,
    },
    /// One less in `left`; goes back to a label further up unless that makes it 0. So what is between runs `rounds` times at most
    /// when it is entered from above. Nothing else there writes `left`.
    Again {
        /// Counts the rounds: `Copy { to: left, from: rounds }` stands before the label.
        left: V,
        /// The label.
        to: Label,
        /// The bound.
        rounds: u32,
    },
    /// Reads memory that may not be there, or may be anything: `to` = the value, extended; goes to `fault` if it cannot be read,
    /// or is no kernel memory. Such memory are all addresses from 0xffff_8000_0000_0000 up to the page of vsyscalls.
    Probe {
        /// Written if it could be read.
        to: V,
        /// Address.
        at: Val,
        /// Added to it.
        offset: i32,
        /// Bytes.
        width: Width,
        /// Extended with copies of the sign.
        signed: bool,
        /// Where to go on if not.
        fault: Label,
    },
    /// Writes memory that may not be there, or may be read-only: goes to `fault` if it cannot be written, or is no kernel memory
    /// (unsafe programs only).
    ProbeStore {
        /// Address.
        at: Val,
        /// Added to it.
        offset: i32,
        /// Bytes.
        width: Width,
        /// The value.
        value: Val,
        /// Where to go on if not.
        fault: Label,
    },
    /// Reads memory that is there for sure.
    Load {
        /// Written.
        to: V,
        /// Address.
        base: Base,
        /// Added to it.
        offset: i32,
        /// Bytes.
        width: Width,
        /// Extended with copies of the sign.
        signed: bool,
    },
    /// Writes memory that is there for sure.
    Store {
        /// Address.
        base: Base,
        /// Added to it.
        offset: i32,
        /// Bytes.
        width: Width,
        /// The value.
        value: Val,
    },
    /// `to` = address of the frame plus `offset`.
    FrameAddress {
        /// Written.
        to: V,
        /// From its start.
        offset: u32,
    },
    /// Reads this CPU's copy of per-CPU memory.
    CpuLoad {
        /// Written.
        to: V,
        /// The per-CPU pointer (`gs:pointer`).
        pointer: Val,
        /// Bytes.
        width: Width,
    },
    /// Adds to 64 bits of this CPU's copy of per-CPU memory, in one instruction: exact in every context.
    CpuAdd {
        /// The per-CPU pointer.
        pointer: Val,
        /// What is added.
        value: Val,
    },
    /// Replaces 64 bits of this CPU's copy of per-CPU memory, if they are `old`, in one instruction; otherwise goes to `fail`.
    CpuSwap {
        /// The per-CPU pointer.
        pointer: Val,
        /// What must be there.
        old: Val,
        /// What is to be there.
        new: Val,
        /// Where to go on if it is not.
        fail: Label,
    },
    /// The same for 64 bits that all CPUs share (`lock cmpxchg`).
    Swap {
        /// Address.
        base: Base,
        /// Added to it.
        offset: i32,
        /// What must be there.
        old: Val,
        /// What is to be there.
        new: Val,
        /// Where to go on if it is not.
        fail: Label,
    },
    /// The processor's time stamp counter (`rdtsc`): for the order of events of different CPUs.
    Clock {
        /// Written.
        to: V,
    },
    /// Calls a function of the driver that was made for it (a callout): System V calling convention, at most six arguments.
    Call {
        /// Its address.
        function: u64,
        /// Arguments.
        args: Vec<Val>,
        /// Its result.
        to: Option<V>,
    },
    /// Gives a register of the interrupted code another value (only in programs that the user called unsafe). Never `rsp`.
    SetReg {
        /// Which one.
        reg: Reg,
        /// Its value from the point on.
        value: Val,
    },
    /// Goes on at this kernel address in place of the point, with the stack as it is at the point (unsafe programs only). At a
    /// function's entry the address of the kernel's return thunk skips its body.
    Leave {
        /// Where the interrupted code goes on.
        address: u64,
    },
    /// The region is done: of a filter, it holds not; of a body, the program ends.
    End,
}

/// A piece of code: virtual registers and labels are its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Region {
    /// Its steps. Falling out at the end: of a filter, it holds; of a body, the program ends.
    pub ops: Vec<Op>,
    /// Virtual registers are numbered below this.
    pub registers: u32,
    /// Labels are numbered below this.
    pub labels: u32,
    /// Bytes of scratch memory, a multiple of 8, at most [`MAX_FRAME`].
    pub frame: u32,
}

/// Most scratch memory of a program: kernel stacks are 16 KiB, of which the interrupted code needs some.
pub const MAX_FRAME: u32 = 512;

/// First address that [`Op::Probe`] takes for kernel memory: the upper half of the 48-bit address space.
pub const PROBE_START: u64 = 0xffff_8000_0000_0000;

/// One after the last address that [`Op::Probe`] takes for kernel memory: the page of vsyscalls (`VSYSCALL_ADDR` in
/// arch/x86/include/uapi/asm/vsyscall.h), which is user memory, less 16 bytes, so that no access reaches into it. Error values
/// that stand for pointers lie above.
pub const PROBE_END: u64 = 0xffff_ffff_ff60_0000 - 16;

/// What one clause does at one point.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Program {
    /// Runs first, with as little saved as possible; ends the program if it comes to [`Op::End`].
    pub filter: Region,
    /// Runs then.
    pub body: Region,
}

impl Program {
    /// Registers of the interrupted code that it reads, as bits by hardware number: nothing that is inserted before in the same
    /// function may change them, dead or not.
    pub fn reads(&self) -> u16 {
        crate::ranges::read_regs(&self.filter) | crate::ranges::read_regs(&self.body)
    }

    /// Registers of the interrupted code that it gives another value.
    pub fn sets(&self) -> u16 {
        crate::ranges::set_regs(&self.filter) | crate::ranges::set_regs(&self.body)
    }

    /// Whether it may go on elsewhere than at the point.
    pub fn leaves(&self) -> bool {
        let mut ops = self.filter.ops.iter().chain(&self.body.ops);
        ops.any(|op| matches!(op, Op::Leave { .. }))
    }
}
