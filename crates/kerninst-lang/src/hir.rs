//! A checked script: every name is resolved, every expression has a type, every member of a structure is an offset. Lowering
//! (`lower`) and the part that runs in user space (`world`) need neither the source nor BTF any more.

/// Where something stands in the source: byte offsets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One after the last.
    pub end: u32,
}

/// Type of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// An integer. In a 64-bit register it is kept extended as its sign says.
    Int {
        /// 8, 16, 32 or 64.
        bits: u8,
        /// Whether it has a sign.
        signed: bool,
    },
    /// An address. Of kernel memory unless `user`.
    Pointer {
        /// What it points to.
        to: Pointee,
        /// It is an address of the task's own memory.
        user: bool,
    },
    /// Text of at most this many bytes, its final NUL included: NUL-padded memory.
    Str(u32),
    /// So many bytes as they are.
    Bytes(u32),
    /// A captured stack of the kernel: its id.
    KernelStack,
    /// A captured stack of user space: its id, and the process it is of.
    UserStack,
    /// An address of kernel code, shown as symbol and offset.
    Symbol,
    /// The text of `func` or `probe`: an index into the session's table of names.
    Name,
    /// No value.
    None,
}

impl Type {
    /// Unsigned 64 bits.
    pub const U64: Type = Type::Int {
        bits: 64,
        signed: false,
    };
    /// Signed 64 bits: the type of literals.
    pub const I64: Type = Type::Int {
        bits: 64,
        signed: true,
    };

    /// Bytes that a value takes as (part of) a key, of a record, or as a map's value: a multiple of 8. Integers, pointers,
    /// symbols, names and stack ids: 8. A user stack: 16 (id, process).
    pub fn size(&self) -> u32 {
        match self {
            Type::None => 0,
            Type::UserStack => 16,
            Type::Str(n) | Type::Bytes(n) => n.next_multiple_of(8),
            _ => 8,
        }
    }

    /// Held in one register.
    pub fn is_word(&self) -> bool {
        !matches!(
            self,
            Type::Str(_) | Type::Bytes(_) | Type::UserStack | Type::None
        )
    }
}

/// What a pointer points to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pointee {
    /// Nothing that is known.
    Void,
    /// An integer.
    Int {
        /// 8, 16, 32 or 64.
        bits: u8,
        /// Whether it has a sign.
        signed: bool,
    },
    /// A type of the kernel, by its number in BTF (structures, unions, pointers, arrays).
    Btf(u32),
}

/// A checked script.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Script {
    /// Its clauses, in order: where several are at one point they run in this order.
    pub clauses: Vec<Clause>,
    /// Its maps, by number.
    pub maps: Vec<Map>,
    /// Its `printf` formats, by number.
    pub formats: Vec<Format>,
    /// It does what only `--unsafe` allows.
    pub is_unsafe: bool,
}

/// Probes, a filter, and what is done.
#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    /// Where it runs.
    pub on: Vec<On>,
    /// It runs only where this is not 0.
    pub filter: Option<Expr>,
    /// What is done.
    pub body: Vec<Stmt>,
    /// Types of its `$` variables, by number. They are 0 (or empty) at the start.
    pub locals: Vec<Type>,
    /// The whole of it.
    pub span: Span,
}

/// Where a clause runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum On {
    /// In the kernel: text of a probe (`entry:vfs_read`), with bpftrace's aliases turned into our own kinds.
    Probe {
        /// The text, without whitespace around it.
        text: String,
        /// Where it stands.
        span: Span,
    },
    /// In user space, before arming.
    Begin,
    /// In user space, after disarming.
    End,
    /// In user space, again and again: so many nanoseconds apart.
    Interval(u64),
}

/// A map.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    /// With its `@`; of the nameless one: `@`.
    pub name: String,
    /// Types of its key's parts; none: a single value.
    pub key: Vec<Type>,
    /// What it holds.
    pub value: MapValue,
    /// Where it was first used.
    pub span: Span,
}

/// What a map holds for each key.
#[derive(Debug, Clone, PartialEq)]
pub enum MapValue {
    /// What was assigned last.
    Plain(Type),
    /// `count()`, also `@x++` where nothing else is done with it.
    Count,
    /// `sum(x)`.
    Sum {
        /// Shown with a sign.
        signed: bool,
    },
    /// `min(x)`.
    Min {
        /// Compared with a sign.
        signed: bool,
    },
    /// `max(x)`.
    Max {
        /// Compared with a sign.
        signed: bool,
    },
    /// `avg(x)`: count and sum.
    Avg {
        /// Shown with a sign.
        signed: bool,
    },
    /// `stats(x)`: count, sum (bpftrace shows count, average, total).
    Stats {
        /// Shown with a sign.
        signed: bool,
    },
    /// `hist(x)`: by power of two.
    Hist,
    /// `lhist(x, min, max, step)`.
    LHist {
        /// Lower end of the first bucket.
        min: i64,
        /// Upper end of the last.
        max: i64,
        /// Width of one.
        step: i64,
    },
}

/// A parsed `printf` format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// Literal text and conversions, in order.
    pub pieces: Vec<Piece>,
    /// Types of the arguments.
    pub args: Vec<Type>,
}

/// A piece of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text as it is (escapes resolved).
    Text(String),
    /// The next argument, formatted.
    Conversion(Conversion),
}

/// A conversion of `printf`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conversion {
    /// `-`.
    pub left: bool,
    /// `0`.
    pub zeros: bool,
    /// `+`.
    pub plus: bool,
    /// `#`.
    pub alternate: bool,
    /// Least number of characters.
    pub width: u32,
    /// Digits after the dot, most characters of text.
    pub precision: Option<u32>,
    /// The letter: d i u x X o c s p, r (bytes).
    pub letter: char,
}

/// An expression with its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// What.
    pub kind: ExprKind,
    /// Its type.
    pub ty: Type,
    /// Where it stands.
    pub span: Span,
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// A constant; of a signed type as two's complement.
    Int(u64),
    /// A text constant, without NUL, shorter than its type's size.
    Text(String),
    /// What the point, the task or the machine gives.
    Builtin(Builtin),
    /// A `$` variable.
    Local(u32),
    /// What a plain map holds, 0 if nothing. (Of aggregations only user space reads: `print`, END, interval.)
    Map {
        /// Which.
        map: u32,
        /// Parts of the key.
        key: Vec<Expr>,
    },
    /// `-a`, `~a`, `!a`.
    Unary {
        /// Which.
        op: Unary,
        /// Of what.
        a: Box<Expr>,
    },
    /// `a op b`; integers of both sides are of the same width and sign after checking (or `ty` says what the result is). Of two
    /// texts: `Eq` and `Ne` only.
    Binary {
        /// Which.
        op: Binary,
        /// Left.
        a: Box<Expr>,
        /// Right.
        b: Box<Expr>,
    },
    /// `c ? a : b`.
    Choice {
        /// The condition.
        c: Box<Expr>,
        /// If it is not 0.
        a: Box<Expr>,
        /// If it is.
        b: Box<Expr>,
    },
    /// The same bits as another integer or pointer type: cut off or extended.
    Cast(Box<Expr>),
    /// Reads memory at `address + offset`. What cannot be read gives 0, and is counted.
    Load {
        /// A pointer or an integer.
        address: Box<Expr>,
        /// Added to it.
        offset: i32,
        /// Bytes that are read: 1, 2, 4, 8.
        bytes: u8,
        /// Extended with its sign.
        signed: bool,
        /// Of a bit field: lowest bit and number of bits, in what was read.
        bits: Option<(u8, u8)>,
        /// It is memory of the task.
        user: bool,
    },
    /// `str(p)`, `str(p, n)`: text at an address, of user space or the kernel as the address says.
    Str {
        /// A pointer.
        at: Box<Expr>,
    },
    /// `buf(p, n)`: bytes at an address.
    Buf {
        /// A pointer.
        at: Box<Expr>,
    },
}

/// Operators with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Unary {
    Neg,
    /// `~`
    Invert,
    /// `!`: 1 if the operand is 0, otherwise 0.
    Not,
}

/// Operators with two operands. Of comparisons and divisions the operands' type says whether they are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// `&&`: the right side is not evaluated if the left is 0.
    Both,
    /// `||`: the right side is not evaluated if the left is not 0.
    Either,
}

/// What is there without being computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// Process id (thread group) in the initial namespace.
    Pid,
    /// Thread id in the initial namespace.
    Tid,
    /// Number of the CPU.
    Cpu,
    /// Name of the task, 16 bytes.
    Comm,
    /// Nanoseconds of the monotonic clock.
    Nsecs,
    /// Nanoseconds since the session was armed.
    Elapsed,
    /// Address of the running `task_struct`.
    CurTask,
    /// Name of the function that the point is in.
    Func,
    /// The probe as resolved: `entry:vfs_read`.
    Probe,
    /// Argument of the function, 0 to 5 (entry points only).
    Arg(u8),
    /// What the function returns (exits only).
    RetVal,
    /// A register at the point, by hardware number.
    Reg(u8),
    /// Address of the instruction at the point.
    Ip,
    /// The function that is called (`call:` probes; known at run time).
    Callee,
    /// The function that called the one that the point is in (entries only): its return address.
    Caller,
    /// Stack of the kernel, this deep at most.
    KernelStack(u8),
    /// Stack of the user program, this deep at most.
    UserStack(u8),
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Stmt {
    /// `$x = e`.
    SetLocal {
        /// Which.
        local: u32,
        /// The value, of the local's type.
        value: Expr,
    },
    /// `@x[k] = e`.
    SetMap {
        /// Which; plain.
        map: u32,
        /// Parts of the key.
        key: Vec<Expr>,
        /// The value, of the map's type.
        value: Expr,
    },
    /// `@x[k] = count()`, `sum(e)` and so on: as the map says.
    Update {
        /// Which; not plain.
        map: u32,
        /// Parts of the key.
        key: Vec<Expr>,
        /// The argument (none of `count`), 64 bits.
        value: Option<Expr>,
    },
    /// `delete(@x[k])`.
    Delete {
        /// Which; in the kernel plain.
        map: u32,
        /// Parts of the key.
        key: Vec<Expr>,
    },
    /// `printf(...)`.
    Printf {
        /// Number of its format.
        format: u32,
        /// Arguments.
        args: Vec<Expr>,
    },
    /// `print(e)` of a value: shown as its type says.
    PrintValue(Expr),
    /// `print(@x)`, `print(@x, top)`, `print(@x, top, div)`: what is in the map when user space gets to it.
    PrintMap {
        /// Which.
        map: u32,
        /// So many with the largest values; 0: all.
        top: u32,
        /// Values are divided by it; 1.
        div: u64,
    },
    /// `clear(@x)`: all entries go, when user space gets to it.
    Clear(u32),
    /// `zero(@x)`: all values become 0, when user space gets to it.
    Zero(u32),
    /// `time("%H:%M:%S\n")`: the time when user space gets to it, by this strftime format.
    Time(String),
    /// `cat("/proc/loadavg")`: a file, when user space gets to it.
    Cat(String),
    /// `exit()`: the session ends.
    Exit,
    /// `if`.
    If {
        /// The condition.
        c: Expr,
        /// If it is not 0.
        then: Vec<Stmt>,
        /// If it is.
        other: Vec<Stmt>,
    },
    /// A loop over `from..to` (at most `rounds` of them, a constant), or with `local: None`, `rounds` times.
    Repeat {
        /// Has the number of the round.
        local: Option<u32>,
        /// First value.
        from: Box<Expr>,
        /// One after the last.
        to: Box<Expr>,
        /// Most rounds.
        rounds: u32,
        /// What is done in each.
        body: Vec<Stmt>,
    },
    /// `while (c) { }` with a bound: see [`crate::MAX_ROUNDS`].
    While {
        /// The condition.
        c: Expr,
        /// Most rounds.
        rounds: u32,
        /// What is done in each.
        body: Vec<Stmt>,
    },
    /// `break`.
    Break,
    /// `continue`.
    Continue,
    /// `return`: the clause is done.
    Done,
    /// An expression for its effect on nothing: kept for its checks only.
    Eval(Expr),
    /// `reg("rax") = e` (unsafe).
    SetReg {
        /// By hardware number.
        reg: u8,
        /// 64 bits.
        value: Expr,
    },
    /// `*p = e` (unsafe): kernel memory. What cannot be written is left alone, and counted.
    SetMemory {
        /// The address.
        address: Expr,
        /// Added to it.
        offset: i32,
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// The value.
        value: Expr,
    },
    /// `return e` (unsafe): the function is not run; it returns this. Entries only.
    Return(Expr),
    /// `skip()` (unsafe): the instruction at the point is not run. `insn:` probes only.
    Skip,
}
