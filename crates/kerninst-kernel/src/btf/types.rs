//! Looking up types by id, name and member path.

use super::Btf;
use super::raw::{kind, u32_at, vlen};

/// Kind of a type (`BTF_KIND_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are BTF's own
#[repr(u32)]
pub enum Kind {
    Int = 1,
    Ptr = 2,
    Array = 3,
    Struct = 4,
    Union = 5,
    Enum = 6,
    Fwd = 7,
    Typedef = 8,
    Volatile = 9,
    Const = 10,
    Restrict = 11,
    Func = 12,
    FuncProto = 13,
    Var = 14,
    DataSec = 15,
    Float = 16,
    DeclTag = 17,
    TypeTag = 18,
    Enum64 = 19,
}

const KINDS: [Kind; 19] = [
    Kind::Int,
    Kind::Ptr,
    Kind::Array,
    Kind::Struct,
    Kind::Union,
    Kind::Enum,
    Kind::Fwd,
    Kind::Typedef,
    Kind::Volatile,
    Kind::Const,
    Kind::Restrict,
    Kind::Func,
    Kind::FuncProto,
    Kind::Var,
    Kind::DataSec,
    Kind::Float,
    Kind::DeclTag,
    Kind::TypeTag,
    Kind::Enum64,
];

/// A member of a struct, found by path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Offset in bits from the start of the outermost struct.
    pub bit_offset: u64,
    /// Width in bits if it is a bit field; 0 otherwise.
    pub bits: u32,
    /// Size in bytes, if its type has one.
    pub size: Option<u64>,
    /// BTF type id of its type.
    pub type_id: u32,
}

impl Member {
    /// Offset in bytes; `None` for a bit field that does not start at a byte.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.bit_offset
            .is_multiple_of(8)
            .then_some(self.bit_offset / 8)
    }
}

/// A function's prototype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// BTF type id of what it returns; 0 is void.
    pub returns: u32,
    /// Takes further arguments (`...`).
    pub variadic: bool,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name; empty if unknown.
    pub name: String,
    /// BTF type id.
    pub type_id: u32,
}

/// Longest chain of typedefs, arrays or nested structs that is followed: corrupt data may have circles.
pub(super) const MAX_DEPTH: u32 = 64;

/// Most members that one look-up visits; the largest kernel structs have some hundreds.
pub(super) const MAX_MEMBERS: u32 = 4096;

/// The three common words of a type and where its members start.
pub(super) struct Raw {
    pub(super) name: u32,
    pub(super) info: u32,
    /// Size in bytes, or a type id, by kind.
    pub(super) word: u32,
    pub(super) body: usize,
}

impl Btf {
    pub(super) fn raw(&self, id: u32) -> Option<Raw> {
        let at = *self.types.get(id.checked_sub(1)? as usize)? as usize;
        Some(Raw {
            name: u32_at(&self.bytes, at)?,
            info: u32_at(&self.bytes, at + 4)?,
            word: u32_at(&self.bytes, at + 8)?,
            body: at + 12,
        })
    }

    pub(super) fn word(&self, at: usize) -> Option<u32> {
        u32_at(&self.bytes, at)
    }

    pub(super) fn string(&self, offset: u32) -> &str {
        let strings = self.bytes.get(self.header.strings.clone()).unwrap_or(&[]);
        let from = strings.get(offset as usize..).unwrap_or(&[]);
        let len = memchr::memchr(0, from).unwrap_or(0);
        from.get(..len)
            .and_then(|s| std::str::from_utf8(s).ok())
            .unwrap_or("")
    }

    /// Does the string section hold exactly `name` at this offset?
    pub(super) fn is_string(&self, offset: u32, name: &str) -> bool {
        let strings = self.bytes.get(self.header.strings.clone()).unwrap_or(&[]);
        let rest = strings
            .get(offset as usize..)
            .and_then(|s| s.strip_prefix(name.as_bytes()));
        rest.is_some_and(|r| r.first() == Some(&0))
    }

    /// Kind of a type.
    #[must_use]
    pub fn kind(&self, id: u32) -> Option<Kind> {
        KINDS
            .get(kind(self.raw(id)?.info).checked_sub(1)? as usize)
            .copied()
    }

    /// Name of a type; empty for an unnamed one.
    #[must_use]
    pub fn name(&self, id: u32) -> &str {
        self.raw(id).map_or("", |t| self.string(t.name))
    }

    /// Ids of all types of this kind and name.
    #[must_use]
    pub fn find_all(&self, wanted: Kind, name: &str) -> Vec<u32> {
        if name.is_empty() {
            return Vec::new();
        }
        self.ids_of(wanted)
            .filter(|&id| self.raw(id).is_some_and(|t| self.is_string(t.name, name)))
            .collect()
    }

    /// Ids of all types of a kind. Structs are looked up most and were noted on the way.
    pub(super) fn ids_of(&self, wanted: Kind) -> impl Iterator<Item = u32> + '_ {
        let structs = if wanted == Kind::Struct {
            self.structs.as_slice()
        } else {
            &[]
        };
        let all = if wanted == Kind::Struct {
            &[]
        } else {
            self.types.as_slice()
        };
        let is_it = move |&at: &u32| self.word(at as usize + 4).map(kind) == Some(wanted as u32);
        let ids = all.iter().enumerate().filter(move |(_, at)| is_it(at));
        structs
            .iter()
            .copied()
            .chain(ids.filter_map(|(i, _)| u32::try_from(i + 1).ok()))
    }

    /// Id of the first type of this kind and name.
    #[must_use]
    pub fn find(&self, kind: Kind, name: &str) -> Option<u32> {
        if name.is_empty() {
            return None;
        }
        self.ids_of(kind)
            .find(|&id| self.raw(id).is_some_and(|t| self.is_string(t.name, name)))
    }

    /// Skips typedefs and qualifiers.
    #[must_use]
    pub fn resolve(&self, mut id: u32) -> u32 {
        for _ in 0..MAX_DEPTH {
            match (self.kind(id), self.raw(id)) {
                (
                    Some(
                        Kind::Typedef
                        | Kind::Volatile
                        | Kind::Const
                        | Kind::Restrict
                        | Kind::TypeTag,
                    ),
                    Some(t),
                ) => id = t.word,
                _ => break,
            }
        }
        id
    }

    /// Size in bytes of a type.
    #[must_use]
    pub fn size_of(&self, id: u32) -> Option<u64> {
        self.size_at(id, 0)
    }

    fn size_at(&self, id: u32, depth: u32) -> Option<u64> {
        if depth > MAX_DEPTH {
            return None;
        }
        let id = self.resolve(id);
        let t = self.raw(id)?;
        match self.kind(id)? {
            Kind::Int | Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 | Kind::Float => {
                Some(u64::from(t.word))
            }
            Kind::Ptr => Some(8),
            Kind::Array => {
                let (element, count) = (self.word(t.body)?, self.word(t.body + 8)?);
                self.size_at(element, depth + 1)?
                    .checked_mul(u64::from(count))
            }
            Kind::Var => self.size_at(t.word, depth + 1),
            _ => None,
        }
    }

    fn find_struct(&self, name: &str) -> Option<u32> {
        self.find(Kind::Struct, name)
            .or_else(|| self.find(Kind::Union, name))
            .or_else(|| {
                let id = self.resolve(self.find(Kind::Typedef, name)?);
                matches!(self.kind(id)?, Kind::Struct | Kind::Union).then_some(id)
            })
    }

    /// Size in bytes of a struct, union or typedef of one.
    #[must_use]
    pub fn struct_size(&self, name: &str) -> Option<u64> {
        self.size_of(self.find_struct(name)?)
    }

    /// The member of a struct at a path such as `arch.num_orcs` or `mem[4].base`; unnamed inner structs need no name.
    #[must_use]
    pub fn member(&self, structure: &str, path: &str) -> Option<Member> {
        let mut at = Member {
            bit_offset: 0,
            bits: 0,
            size: None,
            type_id: self.find_struct(structure)?,
        };
        let mut budget = MAX_MEMBERS;
        for step in path.split('.') {
            let (name, indices) = match step.split_once('[') {
                Some((name, rest)) => (name, Some(rest.strip_suffix(']')?)),
                None => (step, None),
            };
            let found = self.member_of(at.type_id, name, &mut budget, 0)?;
            at = Member {
                bit_offset: at.bit_offset.checked_add(found.bit_offset)?,
                ..found
            };
            for index in indices.into_iter().flat_map(|i| i.split("][")) {
                at = self.element(at, index.parse().ok()?)?;
            }
        }
        at.size = self.size_of(at.type_id);
        Some(at)
    }

    fn element(&self, of: Member, index: u64) -> Option<Member> {
        let id = self.resolve(of.type_id);
        let array = self
            .raw(id)
            .filter(|_| self.kind(id) == Some(Kind::Array))?;
        let (type_id, count) = (self.word(array.body)?, self.word(array.body + 8)?);
        if index >= u64::from(count) {
            return None;
        }
        let skipped = self.size_of(type_id)?.checked_mul(index)?.checked_mul(8)?;
        Some(Member {
            bit_offset: of.bit_offset.checked_add(skipped)?,
            bits: 0,
            size: None,
            type_id,
        })
    }

    /// `budget` bounds the members looked at in all: corrupt data may nest a struct in itself.
    pub(super) fn member_of(
        &self,
        id: u32,
        name: &str,
        budget: &mut u32,
        depth: u32,
    ) -> Option<Member> {
        if depth > MAX_DEPTH {
            return None;
        }
        let id = self.resolve(id);
        let t = self.raw(id)?;
        if !matches!(self.kind(id)?, Kind::Struct | Kind::Union) {
            return None;
        }
        let bit_fields = t.info >> 31 != 0;
        for i in 0..vlen(t.info) as usize {
            *budget = budget.checked_sub(1)?;
            let at = t.body + i * 12;
            let (name_off, type_id, offset) =
                (self.word(at)?, self.word(at + 4)?, self.word(at + 8)?);
            // With the kind flag the upper 8 bits are the width of a bit field.
            let (offset, bits) = if bit_fields {
                (offset & 0xff_ffff, offset >> 24)
            } else {
                (offset, 0)
            };
            if name_off == 0 {
                if let Some(inner) = self.member_of(type_id, name, budget, depth + 1) {
                    return Some(Member {
                        bit_offset: inner.bit_offset + u64::from(offset),
                        ..inner
                    });
                }
            } else if self.string(name_off) == name {
                return Some(Member {
                    bit_offset: u64::from(offset),
                    bits,
                    size: None,
                    type_id,
                });
            }
        }
        None
    }

    /// Offset in bytes of a member; `None` if there is none, or it is a bit field that does not start at a byte.
    #[must_use]
    pub fn offset(&self, structure: &str, path: &str) -> Option<u64> {
        self.member(structure, path)?.offset()
    }

    /// The prototype of a function.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<Function> {
        self.function_by_id(self.find(Kind::Func, name)?)
    }

    /// The prototype of the function with this type id.
    #[must_use]
    pub fn function_by_id(&self, id: u32) -> Option<Function> {
        let f = self.raw(id).filter(|_| self.kind(id) == Some(Kind::Func))?;
        let proto = self
            .raw(f.word)
            .filter(|_| self.kind(f.word) == Some(Kind::FuncProto))?;
        let mut params = Vec::new();
        for i in 0..vlen(proto.info) as usize {
            let at = proto.body + i * 8;
            params.push(Param {
                name: self.string(self.word(at)?).to_string(),
                type_id: self.word(at + 4)?,
            });
        }
        // A last parameter without name and type stands for "...".
        let variadic = params
            .last()
            .is_some_and(|p| p.type_id == 0 && p.name.is_empty());
        if variadic {
            params.pop();
        }
        Some(Function {
            name: self.string(f.name).to_string(),
            params,
            returns: proto.word,
            variadic,
        })
    }

    /// The value of a constant of a named enum.
    #[must_use]
    pub fn enum_value(&self, name: &str, constant: &str) -> Option<i64> {
        let id = self.find(Kind::Enum, name)?;
        let t = self.raw(id)?;
        let constants = (0..vlen(t.info) as usize).map(|i| t.body + i * 8);
        for at in constants {
            if self.string(self.word(at)?) == constant {
                return Some(i64::from(self.word(at + 4)? as i32));
            }
        }
        None
    }

    /// A type in C's notation, as far as it can be written on one line: `const struct file *`.
    #[must_use]
    pub fn type_name(&self, id: u32) -> String {
        self.type_name_at(id, 0)
    }

    fn type_name_at(&self, id: u32, depth: u32) -> String {
        let Some(t) = self.raw(id).filter(|_| depth < MAX_DEPTH) else {
            return if id == 0 { "void".into() } else { "?".into() };
        };
        let name = self.string(t.name);
        let tagged = |tag: &str| {
            if name.is_empty() {
                format!("{tag} {{...}}")
            } else {
                format!("{tag} {name}")
            }
        };
        let inner = || self.type_name_at(t.word, depth + 1);
        match self.kind(id) {
            Some(Kind::Struct) => tagged("struct"),
            Some(Kind::Union) => tagged("union"),
            Some(Kind::Enum | Kind::Enum64) => tagged("enum"),
            Some(Kind::Fwd) => tagged(if t.info >> 31 != 0 { "union" } else { "struct" }),
            Some(Kind::Const) => format!("const {}", inner()),
            Some(Kind::Volatile) => format!("volatile {}", inner()),
            Some(Kind::Restrict | Kind::TypeTag) => inner(),
            Some(Kind::Ptr) => {
                let to = inner();
                if to.ends_with('*') {
                    format!("{to}*")
                } else {
                    format!("{to} *")
                }
            }
            Some(Kind::Array) => {
                let element = self
                    .word(t.body)
                    .map_or_else(|| "?".into(), |e| self.type_name_at(e, depth + 1));
                format!("{element}[{}]", self.word(t.body + 8).unwrap_or(0))
            }
            Some(Kind::FuncProto) => format!("{} (...)", inner()),
            _ => name.to_string(),
        }
    }
}
