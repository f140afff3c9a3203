//! What the checker asks about the kernel's types: a trait, and the kernel's own BTF behind it.

use crate::ast::Tag;
use kerninst_kernel::{Btf, BtfKind as Kind};

/// Types of a kernel. They are known by number; 0 is void.
pub trait Types {
    /// The type of this name: `struct x`, `union x`, `enum x`, or a typedef or base type.
    fn find(&self, tag: Tag, name: &str) -> Option<u32>;
    /// What it is, behind typedefs and qualifiers.
    fn shape(&self, id: u32) -> Shape;
    /// Its size in bytes.
    fn size(&self, id: u32) -> Option<u64>;
    /// A member of a structure or union; also one of an unnamed inner one.
    fn member(&self, id: u32, name: &str) -> Option<Field>;
    /// Names of all members.
    fn member_names(&self, id: u32) -> Vec<String>;
    /// The type of pointers to this type, if the kernel has one.
    fn pointer_to(&self, id: u32) -> Option<u32>;
    /// A function's prototype.
    fn function(&self, name: &str) -> Option<Function>;
    /// The value of a constant of an enumeration.
    fn constant(&self, name: &str) -> Option<i128>;
    /// Names of all constants, for the nearest of them.
    fn constant_names(&self) -> Vec<String>;
    /// Names of all types, for the nearest of them.
    fn names(&self, tag: Tag) -> Vec<String>;
    /// In C's notation: `struct sock *`.
    fn type_name(&self, id: u32) -> String;
}

/// What a type is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Nothing.
    Void,
    /// An integer, enumeration or truth value.
    Int {
        /// 8, 16, 32 or 64.
        bits: u8,
        /// Whether it has a sign.
        signed: bool,
        /// It is C's `char`: arrays of it are text.
        char: bool,
    },
    /// A pointer to this type.
    Pointer(u32),
    /// An array.
    Array {
        /// Type of its elements.
        of: u32,
        /// Their number; 0: not known.
        count: u32,
    },
    /// A structure or union.
    Aggregate,
    /// A function, or anything that no script can handle.
    Other,
}

/// A member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// From the start of the structure, in bits.
    pub bit_offset: u64,
    /// Width of a bit field; 0: it is none.
    pub bits: u32,
    /// Its type.
    pub ty: u32,
}

/// A function's prototype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Names and types of its parameters.
    pub params: Vec<(String, u32)>,
    /// What it returns.
    pub returns: u32,
}

impl Types for Btf {
    fn find(&self, tag: Tag, name: &str) -> Option<u32> {
        match tag {
            Tag::Struct => Btf::find(self, Kind::Struct, name),
            Tag::Union => Btf::find(self, Kind::Union, name),
            Tag::Enum => {
                Btf::find(self, Kind::Enum, name).or_else(|| Btf::find(self, Kind::Enum64, name))
            }
            Tag::Plain => {
                Btf::find(self, Kind::Typedef, name).or_else(|| Btf::find(self, Kind::Int, name))
            }
        }
    }

    fn shape(&self, id: u32) -> Shape {
        let id = self.resolve(id);
        match self.kind(id) {
            None if id == 0 => Shape::Void,
            Some(Kind::Int | Kind::Enum | Kind::Enum64) => match self.integer(id) {
                Some(i) if matches!(i.bits, 8 | 16 | 32 | 64) => Shape::Int {
                    bits: i.bits as u8,
                    signed: i.signed,
                    char: self.name(id) == "char",
                },
                // A _Bool of one bit is a byte in memory.
                Some(i) if i.bits < 8 && self.size_of(id) == Some(1) => Shape::Int {
                    bits: 8,
                    signed: false,
                    char: false,
                },
                _ => Shape::Other,
            },
            Some(Kind::Ptr) => self.target(id).map_or(Shape::Other, Shape::Pointer),
            Some(Kind::Array) => match self.array(id) {
                Some((of, count)) => Shape::Array { of, count },
                None => Shape::Other,
            },
            Some(Kind::Struct | Kind::Union | Kind::Fwd) => Shape::Aggregate,
            _ => Shape::Other,
        }
    }

    fn size(&self, id: u32) -> Option<u64> {
        self.size_of(self.whole(id))
    }

    fn member(&self, id: u32, name: &str) -> Option<Field> {
        let found = self.member_of_type(self.whole(id), name)?;
        Some(Field {
            bit_offset: found.bit_offset,
            bits: found.bits,
            ty: found.type_id,
        })
    }

    fn member_names(&self, id: u32) -> Vec<String> {
        Btf::member_names(self, self.whole(id))
    }

    fn pointer_to(&self, id: u32) -> Option<u32> {
        Btf::pointer_to(self, id)
    }

    fn function(&self, name: &str) -> Option<Function> {
        let f = Btf::function(self, name)?;
        Some(Function {
            params: f.params.into_iter().map(|p| (p.name, p.type_id)).collect(),
            returns: f.returns,
        })
    }

    fn constant(&self, name: &str) -> Option<i128> {
        Btf::constant(self, name)
    }

    fn constant_names(&self) -> Vec<String> {
        Btf::constant_names(self)
    }

    fn names(&self, tag: Tag) -> Vec<String> {
        let kinds: &[Kind] = match tag {
            Tag::Struct => &[Kind::Struct],
            Tag::Union => &[Kind::Union],
            Tag::Enum => &[Kind::Enum, Kind::Enum64],
            Tag::Plain => &[Kind::Typedef, Kind::Int],
        };
        let names = kinds.iter().flat_map(|k| self.names_of(*k));
        names.map(String::from).collect()
    }

    fn type_name(&self, id: u32) -> String {
        Btf::type_name(self, id)
    }
}

/// A type behind typedefs; of a forward declaration the whole type, if it is anywhere.
trait Whole {
    fn whole(&self, id: u32) -> u32;
}

impl Whole for Btf {
    fn whole(&self, id: u32) -> u32 {
        let id = self.resolve(id);
        if self.kind(id) != Some(Kind::Fwd) {
            return id;
        }
        let name = self.name(id);
        Btf::find(self, Kind::Struct, name)
            .or_else(|| Btf::find(self, Kind::Union, name))
            .unwrap_or(id)
    }
}

/// Of a kernel that tells nothing about its types.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTypes;

impl Types for NoTypes {
    fn find(&self, _: Tag, _: &str) -> Option<u32> {
        None
    }
    fn shape(&self, id: u32) -> Shape {
        if id == 0 { Shape::Void } else { Shape::Other }
    }
    fn size(&self, _: u32) -> Option<u64> {
        None
    }
    fn member(&self, _: u32, _: &str) -> Option<Field> {
        None
    }
    fn member_names(&self, _: u32) -> Vec<String> {
        Vec::new()
    }
    fn pointer_to(&self, _: u32) -> Option<u32> {
        None
    }
    fn function(&self, _: &str) -> Option<Function> {
        None
    }
    fn constant(&self, _: &str) -> Option<i128> {
        None
    }
    fn constant_names(&self) -> Vec<String> {
        Vec::new()
    }
    fn names(&self, _: Tag) -> Vec<String> {
        Vec::new()
    }
    fn type_name(&self, _: u32) -> String {
        "void".into()
    }
}
