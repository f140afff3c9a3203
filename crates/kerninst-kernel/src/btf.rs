//! BTF: the kernel's own type information (Documentation/bpf/btf.rst).

/// Why BTF data cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The data is damaged.
    #[error("BTF is damaged: {0}")]
    Corrupt(String),
}

/// A parsed set of types.
pub struct Btf {
    #[allow(dead_code)]
    bytes: Vec<u8>,
}

/// A member of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Offset in bytes from the start of the outermost struct.
    pub offset: u64,
    /// Size in bytes, if its type has one.
    pub size: Option<u64>,
    /// BTF type id of its type.
    pub type_id: u32,
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
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name; empty if unknown.
    pub name: String,
    /// BTF type id.
    pub type_id: u32,
}

impl Btf {
    /// Size of a struct or union in bytes.
    #[must_use]
    pub fn struct_size(&self, name: &str) -> Option<u64> {
        let _ = name;
        None
    }
    /// The member at a path such as `arch.num_orcs`, through nested and unnamed structs.
    #[must_use]
    pub fn member(&self, structure: &str, path: &str) -> Option<Member> {
        let _ = (structure, path);
        None
    }
    /// Offset in bytes of a member; `None` if there is none, or it is a bit field that does not start at a byte.
    #[must_use]
    pub fn offset(&self, structure: &str, path: &str) -> Option<u64> {
        self.member(structure, path).map(|m| m.offset)
    }
    /// The prototype of a function.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<Function> {
        let _ = name;
        None
    }
}
