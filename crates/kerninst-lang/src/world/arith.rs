//! Arithmetic on 64-bit words that are extended as their type says: that of the generated code.

use crate::hir::{Binary, Type, Unary};
use crate::value::extend;

/// `a op b`, before it is cut off to the width of its result. The operands' sign decides on comparisons, divisions and shifts to the right.
/// `Both` and `Either` are not lazy here: both sides are known.
pub fn binary(op: Binary, signed: bool, a: u64, b: u64) -> u64 {
    let (sa, sb) = (a as i64, b as i64);
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        // By 0 gives 0; the smallest number by -1 gives itself.
        Binary::Div if b == 0 => 0,
        Binary::Div if signed => sa.wrapping_div(sb) as u64,
        Binary::Div => a.checked_div(b).unwrap_or(0),
        Binary::Rem if b == 0 => 0,
        Binary::Rem if signed => sa.wrapping_rem(sb) as u64,
        Binary::Rem => a.checked_rem(b).unwrap_or(0),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        // Counts of 64 and more shift everything out.
        Binary::Shl => shift(b).and_then(|n| a.checked_shl(n)).unwrap_or(0),
        Binary::Shr if signed => (sa >> shift(b).unwrap_or(63)) as u64,
        Binary::Shr => shift(b).and_then(|n| a.checked_shr(n)).unwrap_or(0),
        Binary::Eq => u64::from(a == b),
        Binary::Ne => u64::from(a != b),
        Binary::Lt if signed => u64::from(sa < sb),
        Binary::Lt => u64::from(a < b),
        Binary::Le if signed => u64::from(sa <= sb),
        Binary::Le => u64::from(a <= b),
        Binary::Gt if signed => u64::from(sa > sb),
        Binary::Gt => u64::from(a > b),
        Binary::Ge if signed => u64::from(sa >= sb),
        Binary::Ge => u64::from(a >= b),
        Binary::Both => u64::from(a != 0 && b != 0),
        Binary::Either => u64::from(a != 0 || b != 0),
    }
}

/// A count of bits that is less than 64.
fn shift(b: u64) -> Option<u32> {
    u32::try_from(b).ok().filter(|&n| n < 64)
}

/// `op a`, before it is cut off.
pub fn unary(op: Unary, a: u64) -> u64 {
    match op {
        Unary::Neg => a.wrapping_neg(),
        Unary::Invert => !a,
        Unary::Not => u64::from(a == 0),
    }
}

/// Operands of this type have a sign.
pub fn is_signed(ty: &Type) -> bool {
    matches!(ty, Type::Int { signed: true, .. })
}

/// Cut off and extended as a type says. Of what is no integer: all 64 bits.
pub fn fit(word: u64, ty: &Type) -> u64 {
    match *ty {
        Type::Int { bits, signed } => extend(word, bits, signed),
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OPS: [Binary; 16] = [
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Rem,
        Binary::And,
        Binary::Or,
        Binary::Xor,
        Binary::Shl,
        Binary::Shr,
        Binary::Eq,
        Binary::Ne,
        Binary::Lt,
        Binary::Le,
        Binary::Gt,
        Binary::Ge,
    ];

    /// The mathematics of it, on whole numbers, then reduced to the type.
    fn reference(op: Binary, ty: &Type, a: i128, b: i128) -> i128 {
        let Type::Int { bits, signed } = *ty else {
            panic!("integers only")
        };
        let exact = match op {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a.wrapping_mul(b),
            Binary::Div => a.checked_div(b).unwrap_or(0),
            Binary::Rem => a.checked_rem(b).unwrap_or(0),
            Binary::And => a & b,
            Binary::Or => a | b,
            Binary::Xor => a ^ b,
            Binary::Shl if !(0..64).contains(&b) => 0,
            Binary::Shl => a << b,
            Binary::Shr if !(0..64).contains(&b) => a >> 127,
            Binary::Shr => a >> b,
            Binary::Eq => (a == b).into(),
            Binary::Ne => (a != b).into(),
            Binary::Lt => (a < b).into(),
            Binary::Le => (a <= b).into(),
            Binary::Gt => (a > b).into(),
            Binary::Ge => (a >= b).into(),
            Binary::Both | Binary::Either => panic!("not of this kind"),
        };
        let modulus = 1i128 << bits;
        let low = exact.rem_euclid(modulus);
        if signed && low >= modulus / 2 {
            low - modulus
        } else {
            low
        }
    }

    fn number(word: u64, signed: bool) -> i128 {
        if signed {
            i128::from(word as i64)
        } else {
            i128::from(word)
        }
    }

    proptest! {
        /// Would catch: an operation that wraps, divides, shifts or compares otherwise than its type says, or that panics.
        #[test]
        fn as_the_mathematics_say(
            op in proptest::sample::select(&OPS[..]),
            bits in proptest::sample::select(&[8u8, 16, 32, 64][..]),
            signed: bool,
            a in word(), b in word(),
        ) {
            let ty = Type::Int { bits, signed };
            let (a, b) = (fit(a, &ty), fit(b, &ty));
            let ours = number(fit(binary(op, signed, a, b), &ty), signed);
            let theirs = reference(op, &ty, number(a, signed), number(b, signed));
            prop_assert_eq!(ours, theirs, "{:?} {} {}", op, a, b);
        }

        /// Would catch: a unary operator that is another one.
        #[test]
        fn one_operand(a in word()) {
            prop_assert_eq!(unary(Unary::Neg, a), 0u64.wrapping_sub(a));
            prop_assert_eq!(unary(Unary::Invert, a) ^ a, u64::MAX);
            prop_assert_eq!(unary(Unary::Not, a) == 1, a == 0);
        }
    }

    fn word() -> impl Strategy<Value = u64> {
        let edges = [
            0,
            1,
            2,
            63,
            64,
            65,
            127,
            128,
            255,
            u64::MAX,
            1 << 63,
            i64::MAX as u64,
        ];
        prop_oneof![
            any::<u64>(),
            proptest::sample::select(edges.to_vec()),
            (-70i64..70).prop_map(|n| n as u64),
        ]
    }
}
