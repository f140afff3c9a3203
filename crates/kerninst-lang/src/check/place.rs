//! Memory: members, elements, what pointers point to; reading it and taking its address.

use super::Checker;
use super::arith::scaled;
use super::convert::describe;
use super::expr::is_args;
use super::load::address;
use crate::ast::{self, ExprKind as Ast};
use crate::diag::{Diagnostic, nearest};
use crate::hir::{Binary, Expr, Pointee, Span, Type};
use crate::types::Shape;

/// A place in memory, of a known type.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// An address.
    pub base: Expr,
    /// Added to it.
    pub offset: i64,
    /// Of a bit field: first bit from `base + offset`, and width.
    pub bits: Option<(u64, u32)>,
    /// What is there.
    pub ty: Pointee,
    pub user: bool,
    pub span: Span,
}

impl Checker<'_> {
    /// The place that `*p`, `p->a`, `p->a.b`, `p[i]` mean.
    pub(super) fn place(&mut self, e: &ast::Expr) -> Option<Place> {
        match &e.kind {
            Ast::Deref(a) => {
                let p = self.value(a)?;
                self.behind(p, e.span)
            }
            Ast::Member {
                of,
                arrow,
                name,
                name_span,
            } => {
                self.count_node();
                let of_place = self.structure(of, *arrow, name, e.span)?;
                self.member(of_place, name, *name_span, e.span)
            }
            Ast::Index(of, index) => {
                self.count_node();
                let index = self.number(index, "an index");
                self.element(of, index?, e.span)
            }
            _ => self.fail(Diagnostic::error(e.span, "this is no place in memory")),
        }
    }

    /// What a pointer points to.
    fn behind(&mut self, p: Expr, span: Span) -> Option<Place> {
        let Type::Pointer { to, user } = p.ty.clone() else {
            let is = describe(&p.ty, self.types);
            return self.fail(
                Diagnostic::error(
                    p.span,
                    format!("only pointers point to something, and this is {is}"),
                )
                .help("say what is there: `*(uint64 *)x`, `((struct sock *)x)->...`"),
            );
        };
        if to == Pointee::Void {
            return self.fail(
                Diagnostic::error(
                    p.span,
                    "what is there is not known: the pointer is `void *`",
                )
                .help("say what is there: `*(uint64 *)p`, `((struct sock *)p)->...`"),
            );
        }
        Some(Place {
            base: p,
            offset: 0,
            bits: None,
            ty: to,
            user,
            span,
        })
    }

    /// Left side of `.` and `->`: a structure, or a pointer to one.
    fn structure(&mut self, of: &ast::Expr, arrow: bool, name: &str, span: Span) -> Option<Place> {
        let place = if is_place(of) {
            let place = self.place(of)?;
            match self.shape_of(&place.ty) {
                Shape::Pointer(_) => {
                    let p = self.load(place)?;
                    if !arrow {
                        return self.arrow_wanted(of.span, name);
                    }
                    self.behind(p, span)?
                }
                Shape::Array { .. } if arrow => {
                    let p = self.load(place)?;
                    self.behind(p, span)?
                }
                Shape::Aggregate if arrow => {
                    return self.fail(
                        Diagnostic::error(of.span, "this is a structure, not a pointer to one")
                            .help(format!("write `.{name}`")),
                    );
                }
                _ => place,
            }
        } else {
            let p = self.value(of)?;
            if !arrow && matches!(p.ty, Type::Pointer { .. }) {
                return self.arrow_wanted(of.span, name);
            }
            if let Type::Int { .. } = p.ty {
                let is = describe(&p.ty, self.types);
                return self.fail(
                    Diagnostic::error(of.span, format!("{is} has no members"))
                        .help(format!("cast it: `((struct NAME *)x)->{name}`")),
                );
            }
            self.behind(p, span)?
        };
        if self.shape_of(&place.ty) == Shape::Aggregate {
            return Some(place);
        }
        let is = describe_pointee(&place.ty, self);
        self.fail(Diagnostic::error(of.span, format!("`{is}` has no members")))
    }

    fn arrow_wanted<T>(&mut self, span: Span, name: &str) -> Option<T> {
        self.fail(
            Diagnostic::error(span, "this is a pointer to a structure")
                .help(format!("write `->{name}`")),
        )
    }

    fn member(&mut self, of: Place, name: &str, name_span: Span, span: Span) -> Option<Place> {
        let Pointee::Btf(id) = of.ty else {
            return None;
        };
        let Some(field) = self.types.member(id, name) else {
            let names = self.types.member_names(id);
            let what = self.types.type_name(id);
            if names.is_empty() {
                return self.fail(Diagnostic::error(
                    name_span,
                    format!("the kernel's types do not tell the members of `{what}`"),
                ));
            }
            let mut d = Diagnostic::error(name_span, format!("`{what}` has no member `{name}`"));
            if nearest(name, names.iter().map(String::as_str)).is_some() {
                d = d.nearest(name, names.iter().map(String::as_str));
            } else if names.len() <= 12 {
                d = d.help(format!("it has {}", names.join(", ")));
            }
            return self.fail(d);
        };
        let bytes = i64::try_from(field.bit_offset / 8).ok()?;
        Some(Place {
            offset: of.offset.checked_add(bytes)?,
            bits: (field.bits > 0).then_some((field.bit_offset % 8, field.bits)),
            ty: self.pointee(field.ty),
            span,
            ..of
        })
    }

    fn element(&mut self, of: &ast::Expr, index: Expr, span: Span) -> Option<Place> {
        let known = super::convert::constant(&index);
        if is_place(of) {
            let place = self.place(of)?;
            if let (Shape::Array { of: ty, count }, None) = (self.shape_of(&place.ty), place.bits) {
                let inside = known.is_none_or(|n| n < u64::from(count));
                if !inside && count > 0 {
                    let d = Diagnostic::error(
                        index.span,
                        format!("the array has {count} elements, counted from 0"),
                    );
                    return self.fail(d);
                }
                let ty = self.pointee(ty);
                return self.nth(place, ty, index, span);
            }
            let p = self.load(place)?;
            return self.nth_behind(p, index, span);
        }
        let p = self.value(of)?;
        self.nth_behind(p, index, span)
    }

    fn nth_behind(&mut self, p: Expr, index: Expr, span: Span) -> Option<Place> {
        if !matches!(p.ty, Type::Pointer { .. }) {
            let is = describe(&p.ty, self.types);
            return self.fail(
                Diagnostic::error(
                    p.span,
                    format!("only arrays and pointers have elements, and this is {is}"),
                )
                .help("say what is there: `((uint64 *)x)[1]`"),
            );
        }
        let place = self.behind(p, span)?;
        let ty = place.ty.clone();
        self.nth(place, ty, index, span)
    }

    /// The `index`-th element from a place on.
    fn nth(&mut self, place: Place, ty: Pointee, index: Expr, span: Span) -> Option<Place> {
        let Some(size) = self.pointee_size(&ty) else {
            return self.fail(Diagnostic::error(
                span,
                "the size of the elements is not known",
            ));
        };
        if let Some(n) = super::convert::constant(&index) {
            let offset = (n as i64)
                .checked_mul(size as i64)?
                .checked_add(place.offset);
            return match offset.filter(|o| i32::try_from(*o).is_ok()) {
                Some(offset) => Some(Place {
                    offset,
                    ty,
                    span,
                    ..place
                }),
                None => self.fail(Diagnostic::error(
                    span,
                    "the element is more than 2 GiB away",
                )),
            };
        }
        let user = place.user;
        let mut base = address(place, Pointee::Void);
        base = scaled(Binary::Add, base, index, size, span);
        Some(Place {
            base,
            offset: 0,
            bits: None,
            ty,
            user,
            span,
        })
    }

    pub(super) fn shape_of(&self, ty: &Pointee) -> Shape {
        match ty {
            Pointee::Void => Shape::Void,
            Pointee::Int { bits, signed } => Shape::Int {
                bits: *bits,
                signed: *signed,
                char: false,
            },
            Pointee::Btf(id) => self.types.shape(*id),
        }
    }

    /// A type of the kernel as what a pointer points to.
    pub(super) fn pointee(&self, id: u32) -> Pointee {
        match self.types.shape(id) {
            Shape::Void => Pointee::Void,
            Shape::Int { bits, signed, .. } => Pointee::Int { bits, signed },
            _ => Pointee::Btf(id),
        }
    }

    /// `sizeof(a)`.
    pub(super) fn size_of(&mut self, a: &ast::Expr) -> Option<u64> {
        let size = if is_place(a) {
            let place = self.place(a)?;
            self.pointee_size(&place.ty)
        } else {
            match self.value(a)?.ty {
                Type::Int { bits, .. } => Some(u64::from(bits) / 8),
                Type::Str(n) | Type::Bytes(n) => Some(u64::from(n)),
                ty => Some(u64::from(ty.size())),
            }
        };
        if size.is_none() {
            self.error(a.span, "its size is not known");
        }
        size
    }
}

/// Whether an expression means a place in memory.
pub(super) fn is_place(e: &ast::Expr) -> bool {
    match &e.kind {
        Ast::Deref(_) | Ast::Index(..) => true,
        Ast::Member { of, .. } => !is_args(of),
        _ => false,
    }
}

pub(super) fn describe_pointee(ty: &Pointee, checker: &Checker<'_>) -> String {
    match ty {
        Pointee::Void => "void".into(),
        Pointee::Int { bits, signed } => format!("{}int{bits}", if *signed { "" } else { "u" }),
        Pointee::Btf(id) => checker.types.type_name(*id),
    }
}
