//! What is shown of a function, whatever the form: text, JSON, Graphviz or a picture.

use serde::Serialize;

use crate::json::Hex;

/// A function, ready to be shown. Serialised, it is the body of schema `kerninst.show/1`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct View {
    /// Unique name.
    pub id: String,
    /// Symbol name.
    pub name: String,
    /// Other names of the entry.
    pub aliases: Vec<String>,
    /// Module; none: the core kernel.
    pub module: Option<String>,
    /// Entry address.
    pub entry: Addr,
    /// Ranges of its code: main part, then `.cold` parts.
    pub ranges: Vec<[Addr; 2]>,
    /// Bytes in these ranges.
    pub size: u64,
    /// Address of the fentry site.
    pub fentry: Option<Addr>,
    /// It follows the C calling convention.
    pub abi: bool,
    /// Its control flow is fully known.
    pub complete: bool,
    /// Why it is not.
    pub incomplete: Vec<String>,
    /// Number of instructions.
    pub instructions: usize,
    /// Number of them before which code can be inserted.
    pub points: usize,
    /// The one reason why none of them can, if it is the same for all.
    pub refused: Option<Refused>,
    /// By address; [`Edge`] and [`Loop`] name them by their place here.
    pub blocks: Vec<Block>,
    /// By the block that they leave.
    pub edges: Vec<Edge>,
    /// Natural loops, outer ones before those inside.
    pub loops: Vec<Loop>,
    /// What was counted, if it was: then a block or edge without a count is one whose count is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Counted>,
}

/// What was counted of a function as a whole.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counted {
    /// Visits that began.
    pub entered: Option<u64>,
    /// Visits that ended.
    pub left: Option<u64>,
    /// Visits that were inside at the end.
    pub in_flight: u64,
    /// Number of counters.
    pub counters: usize,
    /// All counts are known, and all checks were passed.
    pub exact: bool,
    /// What does not add up, in sentences.
    pub violations: Vec<String>,
    /// Counters that could not be put in, in sentences.
    pub missing: Vec<String>,
}

/// An address, written in hexadecimal.
pub type Addr = Hex;

/// A basic block.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Block {
    /// First byte.
    pub start: Addr,
    /// After the last byte.
    pub end: Addr,
    /// The function's entry.
    pub entry: bool,
    /// It can be entered in a way that no edge shows.
    pub root: bool,
    /// In a `.cold` part.
    pub cold: bool,
    /// Not expected to run: in a cold part, or leading only to traps and calls that do not return.
    pub unlikely: bool,
    /// Number of loops around it.
    pub depth: u32,
    /// Executions, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Those of them that had not left it when they were counted.
    #[serde(skip)]
    pub inside: u64,
    /// Its instructions.
    pub insns: Vec<Insn>,
}

/// An instruction.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Insn {
    /// First byte.
    pub addr: Addr,
    /// How to name it: `function+0x1c`.
    pub point: String,
    /// Offset from the entry, printed: `+0x1c`, or `cold+0x4`.
    #[serde(skip)]
    pub offset: String,
    /// Its bytes, in hexadecimal.
    pub bytes: String,
    /// Disassembly.
    pub text: String,
    /// Kind, as far as control flow is concerned.
    pub kind: String,
    /// What the kernel's tables say of it.
    pub sites: Vec<String>,
    /// The tactic that it would get as the only point.
    pub tactic: Option<&'static str>,
    /// Or the reason why not.
    pub refused: Option<Refused>,
    /// Registers and flags that are live before it.
    pub live: Vec<&'static str>,
    /// Registers and flags that are dead before it.
    pub dead: Vec<&'static str>,
    /// Remarks from the kernel's tables.
    pub notes: Vec<String>,
}

/// A refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The reason's short name.
    pub reason: &'static str,
    /// The reason, as a sentence without a full stop.
    pub text: String,
    /// The nearest instruction of the function that works.
    pub nearest: Option<Addr>,
}

/// An edge.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Edge {
    /// Block that it leaves.
    pub from: usize,
    /// Block that it enters; none: it leaves the function.
    pub to: Option<usize>,
    /// How it leaves the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
    /// How it is taken.
    pub kind: &'static str,
    /// It closes a loop: its target dominates its source.
    pub back: bool,
    /// Times it was taken, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// A natural loop.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Loop {
    /// The block that every round passes.
    pub header: usize,
    /// The blocks that lead back to it.
    pub latches: Vec<usize>,
    /// All its blocks.
    pub blocks: Vec<usize>,
    /// The innermost loop around it.
    pub parent: Option<usize>,
    /// 1: no loop is around it.
    pub depth: u32,
}
