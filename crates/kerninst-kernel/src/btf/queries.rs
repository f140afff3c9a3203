//! What a checker of expressions asks: members, targets, elements, integers, constants, names.

use super::raw::vlen;
use super::types::{MAX_DEPTH, MAX_MEMBERS};
use super::{Btf, Kind, Member};

/// An integer or enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer {
    /// Width in bits.
    pub bits: u32,
    /// Has a sign.
    pub signed: bool,
}

impl Btf {
    /// A member of the struct or union with this type id (typedefs are looked through), also one of an unnamed inner one.
    #[must_use]
    pub fn member_of_type(&self, id: u32, name: &str) -> Option<Member> {
        if name.is_empty() {
            return None;
        }
        let mut budget = MAX_MEMBERS;
        let mut found = self.member_of(id, name, &mut budget, 0)?;
        found.size = self.size_of(found.type_id);
        Some(found)
    }

    /// Names of all members of a struct or union, those of unnamed inner ones too.
    #[must_use]
    pub fn member_names(&self, id: u32) -> Vec<String> {
        let mut names = Vec::new();
        let mut budget = MAX_MEMBERS;
        self.collect_names(id, &mut names, &mut budget, 0);
        names
    }

    fn collect_names(&self, id: u32, names: &mut Vec<String>, budget: &mut u32, depth: u32) {
        let id = self.resolve(id);
        let is_struct = matches!(self.kind(id), Some(Kind::Struct | Kind::Union));
        let Some(t) = self.raw(id).filter(|_| is_struct && depth <= MAX_DEPTH) else {
            return;
        };
        for i in 0..vlen(t.info) as usize {
            let Some(left) = budget.checked_sub(1) else {
                return;
            };
            *budget = left;
            let at = t.body + i * 12;
            match (self.word(at), self.word(at + 4)) {
                (Some(0), Some(inner)) => self.collect_names(inner, names, budget, depth + 1),
                (Some(name), _) => names.push(self.string(name).to_string()),
                _ => return,
            }
        }
    }

    /// What a pointer points to (typedefs are looked through); 0 is void.
    #[must_use]
    pub fn target(&self, id: u32) -> Option<u32> {
        let id = self.resolve(id);
        (self.kind(id)? == Kind::Ptr).then(|| self.raw(id).map(|t| t.word))?
    }

    /// Type of the elements of an array, and their number.
    #[must_use]
    pub fn array(&self, id: u32) -> Option<(u32, u32)> {
        let id = self.resolve(id);
        let t = self
            .raw(id)
            .filter(|_| self.kind(id) == Some(Kind::Array))?;
        Some((self.word(t.body)?, self.word(t.body + 8)?))
    }

    /// Width and sign of an integer or enumeration.
    #[must_use]
    pub fn integer(&self, id: u32) -> Option<Integer> {
        let id = self.resolve(id);
        let t = self.raw(id)?;
        match self.kind(id)? {
            Kind::Int => {
                let encoding = self.word(t.body)?;
                Some(Integer {
                    bits: encoding & 0xff,
                    // BTF_INT_SIGNED.
                    signed: encoding >> 24 & 1 != 0,
                })
            }
            Kind::Enum | Kind::Enum64 => Some(Integer {
                bits: t.word.checked_mul(8)?,
                signed: t.info >> 31 != 0,
            }),
            _ => None,
        }
    }

    /// The value of a constant of any enumeration.
    #[must_use]
    pub fn constant(&self, name: &str) -> Option<i128> {
        let mut found = None;
        self.constants(|n, value| {
            if found.is_none() && self.is_string(n, name) {
                found = Some(value);
            }
        });
        found
    }

    /// Names of the constants of all enumerations.
    #[must_use]
    pub fn constant_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.constants(|name, _| names.push(self.string(name).to_string()));
        names
    }

    fn constants(&self, mut each: impl FnMut(u32, i128)) {
        for kind in [Kind::Enum, Kind::Enum64] {
            let size = if kind == Kind::Enum { 8 } else { 12 };
            for t in self.ids_of(kind).filter_map(|id| self.raw(id)) {
                let signed = t.info >> 31 != 0;
                for at in (0..vlen(t.info) as usize).map(|i| t.body + i * size) {
                    let (Some(name), Some(low)) = (self.word(at), self.word(at + 4)) else {
                        break;
                    };
                    let high = if kind == Kind::Enum64 {
                        self.word(at + 8)
                    } else {
                        None
                    };
                    each(
                        name,
                        match (high, signed) {
                            (None, true) => i128::from(low as i32),
                            (None, false) => i128::from(low),
                            (Some(h), true) => {
                                i128::from((u64::from(h) << 32 | u64::from(low)) as i64)
                            }
                            (Some(h), false) => i128::from(u64::from(h) << 32 | u64::from(low)),
                        },
                    );
                }
            }
        }
    }

    /// A pointer type to this type, if there is one; else one to it with qualifiers.
    #[must_use]
    pub fn pointer_to(&self, id: u32) -> Option<u32> {
        let mut near = None;
        for p in self.ids_of(Kind::Ptr) {
            match self.raw(p).map(|t| t.word) {
                Some(to) if to == id => return Some(p),
                Some(to) if near.is_none() && self.resolve(to) == self.resolve(id) => {
                    near = Some(p)
                }
                _ => {}
            }
        }
        near
    }

    /// Names of all types of a kind.
    pub fn names_of(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.ids_of(kind)
            .map(|id| self.name(id))
            .filter(|name| !name.is_empty())
    }
}
