//! Names of types.

use super::Checker;
use crate::ast::{Tag, TypeName};
use crate::diag::{Diagnostic, nearest};
use crate::hir::{Pointee, Type};
use crate::parse::integer;
use crate::types::Shape;

impl Checker<'_> {
    /// A type that a value can have: an integer or pointer.
    pub(super) fn type_named(&mut self, ty: &TypeName) -> Option<Type> {
        let base = self.base(ty)?;
        let Some(stars) = ty.pointers.checked_sub(1) else {
            return match self.shape_of(&base) {
                Shape::Int { bits, signed, .. } => Some(Type::Int { bits, signed }),
                Shape::Pointer(to) => Some(Type::Pointer {
                    to: self.pointee(to),
                    user: false,
                }),
                _ => {
                    let name = written(ty);
                    self.fail(
                        Diagnostic::error(
                            ty.span,
                            format!("a value cannot be `{name}`, only an integer or a pointer"),
                        )
                        .help(format!("did you mean `({name} *)`?")),
                    )
                }
            };
        };
        let mut to = base;
        for _ in 0..stars {
            to = self.pointer_type(&to, ty)?;
        }
        Some(Type::Pointer { to, user: false })
    }

    /// The kernel's type of pointers to a type.
    fn pointer_type(&mut self, to: &Pointee, ty: &TypeName) -> Option<Pointee> {
        let id = match to {
            Pointee::Void => Some(0),
            Pointee::Btf(id) => Some(*id),
            Pointee::Int { bits, signed } => {
                let names: &[&str] = match (bits, signed) {
                    (8, true) => &["char", "signed char"],
                    (8, false) => &["unsigned char"],
                    (16, true) => &["short", "short int"],
                    (16, false) => &["unsigned short", "short unsigned int"],
                    (32, true) => &["int"],
                    (32, false) => &["unsigned int"],
                    (_, true) => &["long", "long int"],
                    (_, false) => &["unsigned long", "long unsigned int"],
                };
                names.iter().find_map(|n| self.find_type(Tag::Plain, n))
            }
        };
        match id.and_then(|id| self.types.pointer_to(id)) {
            Some(id) => Some(Pointee::Btf(id)),
            None => {
                let name = format!(
                    "{} {}",
                    written(ty),
                    "*".repeat(ty.pointers.min(8) as usize)
                );
                self.fail(
                    Diagnostic::error(ty.span, format!("this kernel has no type `{name}`"))
                        .help("use `(uint64 *)p` and cast what is there"),
                )
            }
        }
    }

    /// `sizeof(type)`.
    pub(super) fn size_named(&mut self, ty: &TypeName) -> Option<u64> {
        if ty.pointers > 0 {
            self.base(ty)?;
            return Some(8);
        }
        let base = self.base(ty)?;
        let size = self.pointee_size(&base);
        if size.is_none() {
            self.error(
                ty.span,
                format!("the size of `{}` is not known", written(ty)),
            );
        }
        size
    }

    /// The type without its stars.
    fn base(&mut self, ty: &TypeName) -> Option<Pointee> {
        if ty.tag == Tag::Plain {
            if ty.name == "void" {
                return Some(Pointee::Void);
            }
            // Whether C's `char` has a sign is the kernel's choice: since 6.2 it has none.
            if ty.name == "char"
                && let Some(id) = self.find_type(Tag::Plain, "char")
            {
                return Some(self.pointee(id));
            }
            if let Some((bits, signed)) = integer(&ty.name) {
                return Some(Pointee::Int { bits, signed });
            }
        }
        if let Some(id) = self.find_type(ty.tag, &ty.name) {
            return Some(self.pointee(id));
        }
        let name = written(ty);
        let d = Diagnostic::error(ty.span, format!("the kernel has no type `{name}`"));
        // Words of another kind first: `(sock *)` is a `struct sock`.
        for (tag, word) in [
            (Tag::Struct, "struct"),
            (Tag::Union, "union"),
            (Tag::Enum, "enum"),
        ] {
            if ty.tag != tag && self.find_type(tag, &ty.name).is_some() {
                return self.fail(d.help(format!("did you mean `{word} {}`?", ty.name)));
            }
        }
        let mut names = self.types.names(ty.tag);
        if ty.tag == Tag::Plain {
            names.extend(
                [
                    "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
                ]
                .map(String::from),
            );
        }
        let near = nearest(&ty.name, names.iter().map(String::as_str));
        let d = match near {
            Some(near) => d.help(format!("did you mean `{}`?", spelled(ty.tag, near))),
            None => d,
        };
        self.fail(d)
    }
}

fn written(ty: &TypeName) -> String {
    spelled(ty.tag, &ty.name)
}

fn spelled(tag: Tag, name: &str) -> String {
    match tag {
        Tag::Struct => format!("struct {name}"),
        Tag::Union => format!("union {name}"),
        Tag::Enum => format!("enum {name}"),
        Tag::Plain => name.to_string(),
    }
}
