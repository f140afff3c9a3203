//! What is known beforehand: the IR's arithmetic on constants, and cheaper forms of operations with one constant.

use kerninst_snippet::eval;
use kerninst_snippet::ir::{BinOp, Val};

/// The result of an operation, if it needs no code.
pub(super) fn bin(op: BinOp, a: Val, b: Val) -> Option<Val> {
    if let (Val::Imm(a), Val::Imm(b)) = (a, b) {
        return Some(Val::Imm(eval::binary(op, a, b)));
    }
    match (op, a, b) {
        (BinOp::Add | BinOp::Or | BinOp::Xor, Val::Imm(0), v)
        | (
            BinOp::Add | BinOp::Sub | BinOp::Or | BinOp::Xor | BinOp::Shl | BinOp::Shr | BinOp::Sar,
            v,
            Val::Imm(0),
        )
        | (BinOp::Mul, Val::Imm(1), v)
        | (BinOp::Mul | BinOp::DivU | BinOp::DivS, v, Val::Imm(1))
        | (BinOp::And, Val::Imm(u64::MAX), v)
        | (BinOp::And, v, Val::Imm(u64::MAX)) => Some(v),
        (BinOp::Mul | BinOp::And, Val::Imm(0), _)
        | (
            BinOp::Mul | BinOp::And | BinOp::DivU | BinOp::DivS | BinOp::RemU | BinOp::RemS,
            _,
            Val::Imm(0),
        ) => Some(Val::Imm(0)),
        _ => None,
    }
}

/// Multiplications, divisions and remainders by a power of two as shifts and masks.
pub(super) fn cheaper(op: BinOp, b: Val) -> (BinOp, Val) {
    match (op, b) {
        (BinOp::Mul, Val::Imm(n)) if n.is_power_of_two() => {
            (BinOp::Shl, Val::Imm(u64::from(n.trailing_zeros())))
        }
        (BinOp::DivU, Val::Imm(n)) if n.is_power_of_two() => {
            (BinOp::Shr, Val::Imm(u64::from(n.trailing_zeros())))
        }
        (BinOp::RemU, Val::Imm(n)) if n.is_power_of_two() => (BinOp::And, Val::Imm(n - 1)),
        other => other,
    }
}
