//! What is at a place in memory: its value, and its address.

use super::Checker;
use super::arith::node;
use super::convert::{convert, promoted};
use super::expr::constant;
use super::place::{Place, describe_pointee, is_place};
use crate::ast::{self};
use crate::diag::Diagnostic;
use crate::hir::{Binary, Expr, ExprKind, Pointee, Span, Type};
use crate::types::Shape;

/// Most bytes of an array of characters that is taken as text.
const MAX_ARRAY_TEXT: u32 = 200;

impl Checker<'_> {
    /// The value at a place. Arrays of characters are text, other arrays their address.
    pub(super) fn load(&mut self, place: Place) -> Option<Expr> {
        self.kernel_only(place.span, "memory of the kernel")?;
        let (span, user) = (place.span, place.user);
        match self.shape_of(&place.ty) {
            Shape::Int { bits, signed, .. } => {
                let ty = Type::Int { bits, signed };
                self.load_word(place, ty, bits / 8, signed)
            }
            Shape::Pointer(to) => {
                let ty = Type::Pointer {
                    to: self.pointee(to),
                    user,
                };
                self.load_word(place, ty, 8, false)
            }
            Shape::Array { of, count } => {
                let element = self.pointee(of);
                let text = matches!(self.types.shape(of), Shape::Int { char: true, .. });
                let at = address(place, element);
                if !text || count == 0 {
                    return Some(at);
                }
                Some(Expr {
                    kind: ExprKind::Str { at: at.into() },
                    ty: Type::Str(count.min(MAX_ARRAY_TEXT)),
                    span,
                })
            }
            Shape::Aggregate => {
                let what = describe_pointee(&place.ty, self);
                self.fail(
                    Diagnostic::error(span, format!("`{what}` as a whole is no value"))
                        .help("name a member of it, take its address with `&`, or its bytes with `buf(&x, N)`"),
                )
            }
            Shape::Void | Shape::Other => {
                let what = describe_pointee(&place.ty, self);
                self.fail(Diagnostic::error(
                    span,
                    format!("`{what}` cannot be read as a value"),
                ))
            }
        }
    }

    fn load_word(&mut self, place: Place, ty: Type, bytes: u8, signed: bool) -> Option<Expr> {
        let span = place.span;
        let (mut offset, mut bytes) = (place.offset, bytes);
        let mut bits = None;
        if let Some((from, width)) = place.bits {
            let Some((back, size, low)) = container(offset, from, width) else {
                return self.fail(Diagnostic::error(
                    span,
                    "this bit field is not within 8 bytes",
                ));
            };
            offset -= back;
            bytes = size;
            bits = Some((low, width as u8));
        }
        let Ok(offset) = i32::try_from(offset) else {
            return self.fail(Diagnostic::error(
                span,
                "the member is more than 2 GiB away",
            ));
        };
        Some(Expr {
            kind: ExprKind::Load {
                address: place.base.into(),
                offset,
                bytes,
                signed,
                bits,
                user: place.user,
            },
            ty,
            span,
        })
    }

    /// `&a`.
    pub(super) fn address_of(&mut self, a: &ast::Expr, span: Span) -> Option<Expr> {
        if !is_place(a) {
            return self.fail(
                Diagnostic::error(span, "only what is in the kernel's memory has an address")
                    .help("for example `&p->member`"),
            );
        }
        let place = self.place(a)?;
        if place.bits.is_some() {
            return self.fail(Diagnostic::error(span, "a bit field has no address"));
        }
        let ty = place.ty.clone();
        let mut e = address(place, ty);
        e.span = span;
        Some(e)
    }
}

/// The address of a place, as a pointer to what is there.
pub(super) fn address(place: Place, to: Pointee) -> Expr {
    let ty = Type::Pointer {
        to,
        user: place.user,
    };
    let mut base = place.base;
    if place.offset == 0 {
        return if base.ty == ty {
            base
        } else {
            convert(base, &ty)
        };
    }
    let span = place.span;
    if let Type::Int { .. } = base.ty {
        let wide = promoted(&base.ty);
        base = convert(base, &wide);
    }
    node(
        Binary::Add,
        base,
        constant(place.offset as u64, span),
        ty,
        span,
    )
}

/// How a bit field at `from` bits behind `offset` is read: bytes to go back, bytes to read, its lowest bit in them. Aligned as the
/// compiler reads it, if that holds all of it.
fn container(offset: i64, from: u64, width: u32) -> Option<(i64, u8, u8)> {
    let end = from + u64::from(width);
    for size in [1i64, 2, 4, 8] {
        let back = offset.rem_euclid(size);
        if end + back as u64 * 8 <= size as u64 * 8 {
            return Some((back, size as u8, (from + back as u64 * 8) as u8));
        }
    }
    let size = [1u8, 2, 4, 8]
        .into_iter()
        .find(|size| end <= u64::from(*size) * 8);
    size.map(|size| (0, size, from as u8))
}
