//! The syntax tree: what was written, before any name is looked up.

use crate::hir::Span;
pub use crate::hir::{Binary, Unary};

/// A script.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Script {
    /// In the order of the text.
    pub clauses: Vec<Clause>,
}

/// Probes, a filter, and what is done.
#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    /// Where it runs; at least one.
    pub probes: Vec<Probe>,
    /// Between slashes.
    pub filter: Option<Expr>,
    /// Between braces.
    pub body: Vec<Stmt>,
    /// From the first probe to the closing brace.
    pub span: Span,
}

/// A probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// What it says.
    pub kind: ProbeKind,
    /// Where it stands.
    pub span: Span,
}

/// What a probe says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeKind {
    /// `BEGIN`.
    Begin,
    /// `END`.
    End,
    /// `interval:UNIT:N`, in nanoseconds.
    Interval(u64),
    /// A place in the kernel.
    Kernel(Place),
}

/// A place in the kernel, as far as the language has to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The probe in kerninst's own words: `entry:vfs_read`.
    pub text: String,
    /// Its first word.
    pub kind: PlaceKind,
    /// The function that it names, without module and without the `#2` of a second of that name; `None` of an address.
    pub function: Option<String>,
    /// The function's name is a pattern.
    pub glob: bool,
}

/// Kinds of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the words of the language
pub enum PlaceKind {
    Entry,
    Exit,
    Insn,
    Block,
    Edge,
    Call,
}

impl PlaceKind {
    /// The word before the colon.
    pub fn word(self) -> &'static str {
        match self {
            PlaceKind::Entry => "entry",
            PlaceKind::Exit => "exit",
            PlaceKind::Insn => "insn",
            PlaceKind::Block => "block",
            PlaceKind::Edge => "edge",
            PlaceKind::Call => "call",
        }
    }
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Stmt {
    /// What.
    pub kind: StmtKind,
    /// Where it stands.
    pub span: Span,
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub enum StmtKind {
    /// `to = value`, or `to op= value`.
    Assign {
        /// A variable, map entry, register or memory.
        to: Expr,
        /// Of `+=` and its like: the operator.
        op: Option<Binary>,
        /// The right side.
        value: Expr,
    },
    /// `to++`, `--to`.
    Step {
        /// A variable or map entry.
        to: Expr,
        /// `++`.
        up: bool,
    },
    /// A call, or an expression that is computed for nothing.
    Expr(Expr),
    /// `if (c) { } else { }`; `else if` is an `If` alone in `other`.
    If {
        /// The condition.
        c: Expr,
        /// If it holds.
        then: Vec<Stmt>,
        /// If not.
        other: Vec<Stmt>,
    },
    /// `unroll (N) { }`.
    Unroll {
        /// How often.
        times: Expr,
        /// What.
        body: Vec<Stmt>,
    },
    /// `for ($i : from..to) limit N { }`.
    For {
        /// Name of the variable, with `$`.
        local: String,
        /// Where it stands.
        local_span: Span,
        /// First value.
        from: Expr,
        /// One after the last.
        to: Expr,
        /// Most rounds.
        limit: Option<Expr>,
        /// What is done in each.
        body: Vec<Stmt>,
    },
    /// `while (c) limit N { }`.
    While {
        /// The condition.
        c: Expr,
        /// Most rounds.
        limit: Option<Expr>,
        /// What is done in each.
        body: Vec<Stmt>,
    },
    /// `break`.
    Break,
    /// `continue`.
    Continue,
    /// `return`, `return e`.
    Return(Option<Expr>),
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// What.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: Span,
    /// Levels of the tree below and with it: bounded by the parser, so that whoever walks the tree may recurse.
    pub depth: u16,
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// A number.
    Int(u64),
    /// Text in quotes, escapes resolved.
    Text(String),
    /// `$1`; `$#` is number 0: how many there are.
    Param(u32),
    /// A word: builtin, constant of the kernel.
    Name(String),
    /// `$x`, with its `$`.
    Local(String),
    /// `@x[k]`.
    Map {
        /// With its `@`.
        name: String,
        /// Parts of the key.
        key: Vec<Expr>,
    },
    /// `f(a, b)`.
    Call {
        /// Its name.
        name: String,
        /// Where the name stands.
        name_span: Span,
        /// Arguments.
        args: Vec<Expr>,
    },
    /// `-a`, `~a`, `!a`.
    Unary(Unary, Box<Expr>),
    /// `a op b`.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `c ? a : b`.
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `(type)a`.
    Cast(TypeName, Box<Expr>),
    /// `sizeof(type)`.
    SizeOfType(TypeName),
    /// `sizeof(a)`.
    SizeOf(Box<Expr>),
    /// `*a`.
    Deref(Box<Expr>),
    /// `&a`.
    Address(Box<Expr>),
    /// `a.name`, `a->name`.
    Member {
        /// Of what.
        of: Box<Expr>,
        /// `->`.
        arrow: bool,
        /// Which.
        name: String,
        /// Where the name stands.
        name_span: Span,
    },
    /// `a[index]`.
    Index(Box<Expr>, Box<Expr>),
    /// `(a, b)`.
    Tuple(Vec<Expr>),
}

/// A type as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeName {
    /// `struct`, `union`, `enum`, or nothing before the name.
    pub tag: Tag,
    /// The name: one word, or C's integers of several, with single blanks between them.
    pub name: String,
    /// Number of stars.
    pub pointers: u32,
    /// Where it stands.
    pub span: Span,
}

/// The name space of a type's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tag {
    /// `struct x`.
    Struct,
    /// `union x`.
    Union,
    /// `enum x`.
    Enum,
    /// An integer or a typedef.
    Plain,
}
