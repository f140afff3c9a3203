//! Values as user space sees them: read out of shared memory (or computed by clauses that run in user space), printed by `show`.

use crate::hir::Type;

/// A value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// An integer, in 64 bits extended as its sign says.
    Int {
        /// The 64 bits.
        value: u64,
        /// Width of its type: 8, 16, 32 or 64.
        bits: u8,
        /// Whether it has a sign.
        signed: bool,
    },
    /// Text, without its NUL; not always UTF-8.
    Text(Vec<u8>),
    /// Bytes as they are.
    Bytes(Vec<u8>),
    /// Id of a captured stack of the kernel; as the callout gave it, so negative if there is none.
    KernelStack(u64),
    /// A captured stack of user space.
    UserStack {
        /// Its id; as the callout gave it, so negative if there is none.
        id: u64,
        /// The process that it is of.
        pid: u64,
    },
    /// An address of kernel code.
    Symbol(u64),
    /// The text of `func` or `probe`: an index into the session's table of names.
    Name(u32),
    /// An address.
    Pointer(u64),
    /// No value.
    #[default]
    None,
}

impl Value {
    /// A signed integer of 64 bits: what literals are.
    pub fn int(value: i64) -> Value {
        Value::Int {
            value: value as u64,
            bits: 64,
            signed: true,
        }
    }

    /// An unsigned integer of 64 bits.
    pub fn uint(value: u64) -> Value {
        Value::Int {
            value,
            bits: 64,
            signed: false,
        }
    }

    /// What a variable of this type is before anything was assigned to it, and a map without entry.
    pub fn zero(ty: &Type) -> Value {
        Value::word(ty, 0).unwrap_or_else(|| match ty {
            Type::Str(_) => Value::Text(Vec::new()),
            Type::Bytes(n) => Value::Bytes(vec![0; *n as usize]),
            Type::UserStack => Value::UserStack { id: 0, pid: 0 },
            _ => Value::None,
        })
    }

    /// The value of a type that is held in one register; `None` of others. An integer is cut off and extended as its type says.
    pub fn word(ty: &Type, word: u64) -> Option<Value> {
        Some(match *ty {
            Type::Int { bits, signed } => Value::Int {
                value: extend(word, bits, signed),
                bits,
                signed,
            },
            Type::Pointer { .. } => Value::Pointer(word),
            Type::KernelStack => Value::KernelStack(word),
            Type::Symbol => Value::Symbol(word),
            Type::Name => Value::Name(word as u32),
            Type::Str(_) | Type::Bytes(_) | Type::UserStack | Type::None => return None,
        })
    }

    /// The number that an integer is.
    pub fn number(&self) -> Option<i128> {
        match *self {
            Value::Int {
                value,
                signed: true,
                ..
            } => Some(i128::from(value as i64)),
            Value::Int { value, .. } => Some(i128::from(value)),
            _ => None,
        }
    }

    /// The 64 bits of what is held in one register.
    pub fn as_word(&self) -> Option<u64> {
        match *self {
            Value::Int { value, .. } => Some(value),
            Value::KernelStack(id) => Some(id),
            Value::Symbol(a) | Value::Pointer(a) => Some(a),
            Value::Name(n) => Some(u64::from(n)),
            _ => None,
        }
    }
}

/// The low `bits` of a word, extended to 64 as the sign says.
pub fn extend(word: u64, bits: u8, signed: bool) -> u64 {
    let unused = 64 - u32::from(bits.clamp(1, 64));
    let high = word << unused;
    if signed {
        ((high as i64) >> unused) as u64
    } else {
        high >> unused
    }
}

/// What a map holds for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// What was assigned last.
    Plain(Value),
    /// `count`, `sum`, `min`, `max`.
    Number {
        /// The number, with the sign that the map says.
        value: i128,
    },
    /// `avg`.
    Average {
        /// So many values.
        count: u64,
        /// Their sum.
        sum: i128,
    },
    /// `stats`.
    Stats {
        /// So many values.
        count: u64,
        /// Their sum.
        sum: i128,
    },
    /// `hist`: [`crate::layout::HIST_BUCKETS`] counts.
    Hist(Vec<u64>),
    /// `lhist`: [`crate::layout::lhist_buckets`] counts.
    LHist(Vec<u64>),
}

/// An entry of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Parts of the key; none of a map without key.
    pub key: Vec<Value>,
    /// What is there.
    pub cell: Cell,
}
