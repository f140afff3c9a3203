//! Types: how they come together, how values change from one to another, how they are called.

use crate::hir::{Binary, Expr, ExprKind, Pointee, Type, Unary};
use crate::types::Types;

/// Arithmetic is done on 64 bits. Narrower integers fit into signed 64 bits whatever their sign, as in C's promotions.
pub(super) fn promoted(ty: &Type) -> Type {
    match ty {
        Type::Int {
            bits: 64,
            signed: false,
        } => Type::U64,
        _ => Type::I64,
    }
}

/// The type that a variable or map has to keep a value of this type.
pub(super) fn stored(ty: &Type) -> Type {
    match ty {
        Type::Int { .. } => promoted(ty),
        other => other.clone(),
    }
}

/// The type that holds both: unsigned if one is, the longer text. `lenient`: also a pointer and an integer.
pub(super) fn merge(a: &Type, b: &Type, lenient: bool) -> Option<Type> {
    Some(match (a, b) {
        (a, b) if a == b => a.clone(),
        (Type::Int { .. }, Type::Int { .. }) => {
            if promoted(a) == Type::U64 || promoted(b) == Type::U64 {
                Type::U64
            } else {
                Type::I64
            }
        }
        (Type::Str(a), Type::Str(b)) => Type::Str(*a.max(b)),
        (Type::Bytes(a), Type::Bytes(b)) => Type::Bytes(*a.max(b)),
        (Type::Pointer { user: a, .. }, Type::Pointer { user: b, .. }) if lenient && a == b => {
            Type::Pointer {
                to: Pointee::Void,
                user: *a,
            }
        }
        (Type::Pointer { .. } | Type::Int { .. }, Type::Pointer { .. } | Type::Int { .. })
            if lenient =>
        {
            Type::U64
        }
        _ => return None,
    })
}

/// A value as another type that [`merge`] gave for it. Text is not changed: whoever stores it fills up with NULs.
pub(super) fn convert(e: Expr, ty: &Type) -> Expr {
    if e.ty == *ty {
        return e;
    }
    match (&e.kind, &e.ty, ty) {
        (ExprKind::Int(v), Type::Int { .. }, Type::Int { .. } | Type::Pointer { .. }) => Expr {
            kind: ExprKind::Int(cut(*v, ty)),
            ty: ty.clone(),
            span: e.span,
        },
        (ExprKind::Text(_), Type::Str(a), Type::Str(b)) if a < b => Expr {
            ty: ty.clone(),
            ..e
        },
        (_, Type::Str(_) | Type::Bytes(_), _) => e,
        _ => Expr {
            ty: ty.clone(),
            span: e.span,
            kind: ExprKind::Cast(e.into()),
        },
    }
}

/// The low bits of a value, extended as the type says.
pub(super) fn cut(v: u64, ty: &Type) -> u64 {
    match ty {
        Type::Int { bits: 8, signed } => extend(v as u8 as u64, v as i8 as i64, *signed),
        Type::Int { bits: 16, signed } => extend(v as u16 as u64, v as i16 as i64, *signed),
        Type::Int { bits: 32, signed } => extend(v as u32 as u64, v as i32 as i64, *signed),
        _ => v,
    }
}

fn extend(unsigned: u64, signed: i64, sign: bool) -> u64 {
    if sign { signed as u64 } else { unsigned }
}

/// An expression's value, if it needs nothing to compute it. As the generated code computes it: wrapping.
pub(super) fn constant(e: &Expr) -> Option<u64> {
    Some(match &e.kind {
        ExprKind::Int(v) => *v,
        ExprKind::Cast(a) => cut(constant(a)?, &e.ty),
        ExprKind::Unary { op, a } => {
            let a = constant(a)?;
            match op {
                Unary::Neg => a.wrapping_neg(),
                Unary::Invert => !a,
                Unary::Not => u64::from(a == 0),
            }
        }
        ExprKind::Choice { c, a, b } => {
            if constant(c)? != 0 {
                constant(a)?
            } else {
                constant(b)?
            }
        }
        ExprKind::Binary { op, a, b } => {
            let signed = matches!(a.ty, Type::Int { signed: true, .. });
            binary(*op, constant(a)?, constant(b)?, signed)?
        }
        _ => return None,
    })
}

fn binary(op: Binary, a: u64, b: u64, signed: bool) -> Option<u64> {
    let (x, y) = (a as i64, b as i64);
    let order = if signed { x.cmp(&y) } else { a.cmp(&b) };
    let shift = u32::try_from(b).ok().filter(|n| *n < 64);
    Some(match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div if b == 0 => return None,
        Binary::Rem if b == 0 => return None,
        Binary::Div if signed => x.wrapping_div(y) as u64,
        Binary::Rem if signed => x.wrapping_rem(y) as u64,
        Binary::Div => a / b,
        Binary::Rem => a % b,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => shift.map_or(0, |n| a << n),
        Binary::Shr if signed => (x >> shift.unwrap_or(63)) as u64,
        Binary::Shr => shift.map_or(0, |n| a >> n),
        Binary::Eq => u64::from(a == b),
        Binary::Ne => u64::from(a != b),
        Binary::Lt => u64::from(order.is_lt()),
        Binary::Le => u64::from(order.is_le()),
        Binary::Gt => u64::from(order.is_gt()),
        Binary::Ge => u64::from(order.is_ge()),
        Binary::Both => u64::from(a != 0 && b != 0),
        Binary::Either => u64::from(a != 0 || b != 0),
    })
}

/// What a type is called in messages.
pub(super) fn describe(ty: &Type, types: &dyn Types) -> String {
    match ty {
        Type::Int { bits, signed } => format!("{}int{bits}", if *signed { "" } else { "u" }),
        Type::Pointer { to, user } => {
            let to = match to {
                Pointee::Void => "void".to_string(),
                Pointee::Int { bits, signed } => {
                    format!("{}int{bits}", if *signed { "" } else { "u" })
                }
                Pointee::Btf(id) => types.type_name(*id),
            };
            let star = if to.ends_with('*') { "*" } else { " *" };
            format!("`{to}{star}`{}", if *user { " of user space" } else { "" })
        }
        Type::Str(_) => "text".into(),
        Type::Bytes(_) => "bytes".into(),
        Type::KernelStack => "a kernel stack".into(),
        Type::UserStack => "a user stack".into(),
        Type::Symbol => "a place in the kernel".into(),
        Type::Name => "a name".into(),
        Type::None => "nothing".into(),
    }
}
