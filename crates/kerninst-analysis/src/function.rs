//! What is known about one function: instructions, blocks, edges.

use std::ops::Range;

use crate::live::Live;

bitflags::bitflags! {
    /// What the kernel's own tables say about an instruction (or a part of it).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Sites: u16 {
        /// The function's fentry nop or call (`__mcount_loc`): ftrace owns it.
        const FENTRY = 1;
        /// A jump label (static key): the kernel rewrites it between nop and jump.
        const JUMP_LABEL = 1 << 1;
        /// A static call site: the kernel rewrites it.
        const STATIC_CALL = 1 << 2;
        /// It may fault and has an exception table entry.
        const EXTABLE = 1 << 3;
        /// A `ud2` with a bug table entry (BUG or WARN).
        const BUG = 1 << 4;
        /// An indirect call or jump that the kernel patched, or may patch, at boot (`.retpoline_sites`).
        const RETPOLINE = 1 << 5;
        /// A return that the kernel patched, or may patch, at boot (`.return_sites`).
        const RETURN = 1 << 6;
        /// Inside the range of an alternative (`.altinstructions`).
        const ALTERNATIVE = 1 << 7;
        /// Inside the range of a paravirt patch site (`.parainstructions`).
        const PARAVIRT = 1 << 8;
        /// `endbr64`, or one that the kernel sealed: an indirect call may land here.
        const ENDBR = 1 << 9;
        /// A lock prefix that the kernel may rewrite (`.smp_locks`).
        const SMP_LOCK = 1 << 10;
        /// The displaced code of these sites is rewritten by the kernel while it runs:
        /// a splice must neither displace nor overlap them.
        const MANAGED = Self::FENTRY.bits() | Self::JUMP_LABEL.bits() | Self::STATIC_CALL.bits();
    }
}

/// What kind of instruction this is, as far as control flow is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum InsnKind {
    /// Falls through to the next instruction.
    Plain,
    /// A nop (fentry and jump label nops too; an fentry *call* while ftrace is on counts as one).
    Nop,
    /// Conditional jump; `target` may lie outside of the function (a conditional tail call).
    Jcc,
    /// A jump label (static key site): goes on, or to `target`, as the key says, whatever its bytes are now.
    JumpLabel,
    /// `loop`, `loope`, `loopne`, `jrcxz`, `jecxz`.
    Loop,
    /// Direct jump within the function (its `.cold` part included).
    Jmp,
    /// Direct jump to another function (also a static tail call, whatever its bytes are now).
    TailCall,
    /// Indirect jump: a tail call through a pointer, raw or by a retpoline thunk.
    IndirectJmp,
    /// Direct call (also a static call site, whatever its bytes are now).
    Call,
    /// Indirect call, raw or by a retpoline thunk.
    IndirectCall,
    /// `ret`, or a jump to a return thunk.
    Return,
    /// `ud2` and its relatives.
    Trap,
    /// `int3` that control flow reaches: someone's breakpoint (the real instruction is unknown).
    Int3,
    /// iret, sysret, far jumps and the like: not to be displaced.
    Special,
}

impl InsnKind {
    /// Does control never go on to the next instruction? (Calls that do not return are not seen here:
    /// their block has no successor block.)
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Jmp | Self::TailCall | Self::IndirectJmp | Self::Return | Self::Special
        )
    }
}

bitflags::bitflags! {
    /// What the bytes of an instruction say of it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Shape: u8 {
        /// It moves, compares or computes with general registers, memory and constants, goes on to the next instruction and does
        /// nothing else: it has to do neither with segments, interrupts, modes or other registers, nor (unless
        /// [`Shape::OWN_ADDRESS`] is set too) with its own address.
        const ORDINARY = 1;
        /// Its memory operand is relative to its address.
        const OWN_ADDRESS = 1 << 1;
    }
}

/// One reachable instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Insn {
    /// Address of its first byte.
    pub addr: u64,
    /// Length in bytes, 1..=15.
    pub len: u8,
    /// Its kind.
    pub kind: InsnKind,
    /// What its bytes alone say, for who emits it elsewhere.
    pub shape: Shape,
    /// Direct branch or call target (for a jump label: the other side, whatever the bytes are now).
    pub target: Option<u64>,
    /// What the kernel's tables say about it.
    pub sites: Sites,
    /// It may be reached otherwise than by falling through from the previous instruction: it is a
    /// branch target, a table target (jump label, exception fixup), address-taken, or the entry.
    pub joins: bool,
    /// The previous instruction is a call (or the fentry site): this is a return address.
    pub after_call: bool,
    /// The previous instruction is a trap: execution may resume here.
    pub after_trap: bool,
    /// Registers and flags that are live before it.
    pub live: Live,
    /// Index of its block in [`Function::blocks`].
    pub block: u32,
}

impl Insn {
    /// Address after its last byte.
    pub const fn end(&self) -> u64 {
        self.addr.wrapping_add(self.len as u64)
    }
}

/// A basic block: entered only at its first instruction, left only at its last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Index of the first instruction in [`Function::insns`].
    pub first: u32,
    /// Number of instructions, at least 1.
    pub count: u32,
    /// Indexes of the outgoing edges: `edges[edges.start..edges.end]`.
    pub edges: Range<u32>,
    /// It can be entered in a way that has no edge in this function: the function's entry, an address
    /// that is taken, a jump from another function.
    pub root: bool,
}

/// A control flow edge. Sorted by `from` in [`Function::edges`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// Index of the block it leaves.
    pub from: u32,
    /// Where it leads.
    pub to: EdgeTarget,
    /// How it is taken.
    pub kind: EdgeKind,
}

/// Where an edge leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EdgeTarget {
    /// A block of the function.
    Block(u32),
    /// Out of the function.
    Exit(ExitKind),
}

/// How a function is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ExitKind {
    /// By a return.
    Return,
    /// By a direct jump to another function, at this address.
    TailCall(u64),
    /// By a jump through a pointer.
    IndirectTailCall,
    /// By a jump into the middle of another function, at this address.
    JumpInto(u64),
    /// By a call that does not return.
    NoReturn,
    /// By a trap that is not resumed (BUG).
    Trap,
    /// By iret, sysret or the like.
    Special,
    /// Not known: the function is incomplete.
    Unknown,
}

/// How an edge is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum EdgeKind {
    /// No branch: the next instruction is a leader; or a conditional branch is not taken.
    FallThrough,
    /// A conditional branch is taken.
    Taken,
    /// An unconditional direct jump.
    Jump,
    /// The side of a jump label that runs while its static key is enabled.
    StaticKeyOn,
    /// The side of a jump label that runs while its static key is disabled.
    StaticKeyOff,
    /// A fault whose exception table entry leads there.
    Fixup,
    /// The call that ends the block returns.
    CallReturn,
    /// Execution resumes after a WARN.
    TrapResume,
    /// Leaves the function.
    Exit,
}

/// A place where the function is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exit {
    /// Index of the instruction in [`Function::insns`].
    pub insn: u32,
    /// How.
    pub kind: ExitKind,
    /// Only if the instruction's condition holds (a conditional tail call).
    pub conditional: bool,
}

/// A call or tail call that the function makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallSite {
    /// Index of the instruction in [`Function::insns`].
    pub insn: u32,
    /// The callee's address; none if it is called through a pointer.
    pub target: Option<u64>,
    /// A jump, not a call.
    pub tail: bool,
}

/// Why the control flow of a function is not fully known.
#[derive(Clone, PartialEq, Eq, Debug, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Incomplete {
    /// Control reaches bytes that are no instruction.
    #[error("control flow reaches {addr:#x}, where there is no valid instruction")]
    BadInstruction {
        /// Where.
        addr: u64,
    },
    /// Control runs out of the text that is known.
    #[error("control flow runs off the known text at {addr:#x}")]
    OffText {
        /// The first address that is not known.
        addr: u64,
    },
    /// Two overlapping instructions are both reached.
    #[error(
        "control flow reaches {addr:#x}, which lies inside another instruction that is also reached"
    )]
    Overlap {
        /// The later of the two instructions.
        addr: u64,
    },
    /// An indirect jump that is not known to be a tail call.
    #[error("an indirect jump at {addr:#x} has targets that are not known")]
    IndirectJump {
        /// Address of the jump.
        addr: u64,
    },
    /// A table entry that does not fall on an instruction boundary.
    #[error("the kernel's {table} table names {addr:#x}, which is not the start of an instruction")]
    TableMismatch {
        /// Which table.
        table: &'static str,
        /// The address that it names.
        addr: u64,
    },
    /// Somebody has overwritten an instruction with a jump of their own.
    #[error(
        "someone's jump at {addr:#x} leads out of the kernel's text to {to:#x} (an optimised kprobe, or a splice of another kerninst): the instructions under it are not known"
    )]
    ForeignJump {
        /// Where.
        addr: u64,
        /// Where it leads.
        to: u64,
    },
    /// An int3: a breakpoint of someone else hides an instruction, or the code is not meant to run.
    #[error(
        "control flow reaches an int3 at {addr:#x}: a breakpoint there hides the instruction, or it is not meant to be reached"
    )]
    Breakpoint {
        /// Where.
        addr: u64,
    },
    /// A cold part on its own.
    #[error(
        "{addr:#x} starts the cold part of a function that was not found: where it is entered is not known"
    )]
    ColdPart {
        /// Start of the part.
        addr: u64,
    },
    /// More code than is ever one function.
    #[error("more than {limit} instructions are reachable from its entry")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
}

/// A function as it can be listed without decoding anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionId {
    /// Address of its first byte.
    pub start: u64,
    /// End of its region: the next symbol, or the end of the text.
    pub end: u64,
    /// Symbol name.
    pub name: String,
    /// Unique printable name: `name`, `name#2`, `module:name`.
    pub id: String,
    /// The module it belongs to; none for the core kernel.
    pub module: Option<String>,
}

/// One function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Symbol name.
    pub name: String,
    /// Unique printable name: `name`, `name#2`, `module:name`.
    pub id: String,
    /// The module it belongs to; none for the core kernel.
    pub module: Option<String>,
    /// Address ranges of its code: `[0]` is the main part and starts at the entry; then `.cold` parts.
    pub ranges: Vec<Range<u64>>,
    /// The reachable instructions, by address.
    pub insns: Vec<Insn>,
    /// The basic blocks, by address.
    pub blocks: Vec<Block>,
    /// The edges, by the block that they leave.
    pub edges: Vec<Edge>,
    /// Address of its fentry site, if it has one.
    pub fentry: Option<u64>,
    /// It follows the C ABI: it has an fentry site (or is the cold part of a function that has).
    pub abi: bool,
    /// Why its control flow is not fully known; empty: it is.
    pub incomplete: Vec<Incomplete>,
}

impl Function {
    /// Address of the entry.
    #[inline]
    pub fn entry(&self) -> u64 {
        self.ranges.first().map_or(0, |r| r.start)
    }

    /// Is the control flow fully known?
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.incomplete.is_empty()
    }

    /// Does `addr` lie in one of the function's ranges?
    pub fn contains(&self, addr: u64) -> bool {
        self.ranges.iter().any(|r| r.contains(&addr))
    }

    /// Index of the instruction that starts at `addr`.
    #[inline]
    pub fn index_at(&self, addr: u64) -> Option<usize> {
        self.insns.binary_search_by_key(&addr, |i| i.addr).ok()
    }

    /// The instruction that starts at `addr`.
    #[inline]
    pub fn insn_at(&self, addr: u64) -> Option<&Insn> {
        self.insns.get(self.index_at(addr)?)
    }

    /// The instruction that has `addr` among its bytes.
    pub fn insn_containing(&self, addr: u64) -> Option<&Insn> {
        let next = self.insns.partition_point(|i| i.addr <= addr);
        let insn = self.insns.get(next.checked_sub(1)?)?;
        (addr < insn.end()).then_some(insn)
    }

    /// The block that has `addr` among its bytes.
    pub fn block_of(&self, addr: u64) -> Option<&Block> {
        self.blocks.get(self.insn_containing(addr)?.block as usize)
    }

    /// The instructions of a block.
    #[inline]
    pub fn block_insns(&self, block: &Block) -> &[Insn] {
        let first = block.first as usize;
        let end = first.saturating_add(block.count as usize);
        self.insns.get(first..end).unwrap_or(&[])
    }

    /// The outgoing edges of a block.
    #[inline]
    pub fn block_edges(&self, block: &Block) -> &[Edge] {
        let range = block.edges.start as usize..block.edges.end as usize;
        self.edges.get(range).unwrap_or(&[])
    }

    /// Every place where the function is left, by address.
    pub fn exits(&self) -> Vec<Exit> {
        let mut exits = Vec::new();
        for edge in &self.edges {
            let EdgeTarget::Exit(kind) = edge.to else {
                continue;
            };
            let Some(block) = self.blocks.get(edge.from as usize) else {
                continue;
            };
            let insn = block.first.saturating_add(block.count).saturating_sub(1);
            let conditional = block.edges.end.saturating_sub(block.edges.start) > 1;
            exits.push(Exit {
                insn,
                kind,
                conditional,
            });
        }
        exits
    }

    /// Every call and tail call, by address.
    pub fn calls(&self) -> Vec<CallSite> {
        let mut calls = Vec::new();
        for (n, insn) in self.insns.iter().enumerate() {
            let (tail, target) = match insn.kind {
                InsnKind::Call => (false, insn.target),
                InsnKind::IndirectCall => (false, None),
                InsnKind::TailCall => (true, insn.target),
                InsnKind::IndirectJmp => (true, None),
                InsnKind::Jcc | InsnKind::Loop => match insn.target {
                    Some(t) if self.insn_at(t).is_none() => (true, Some(t)),
                    _ => continue,
                },
                _ => continue,
            };
            calls.push(CallSite {
                insn: n as u32,
                target,
                tail,
            });
        }
        calls
    }
}
