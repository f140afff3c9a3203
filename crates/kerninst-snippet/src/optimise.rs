//! Shorter programs that do the same: constants and copies carried forward, results that nobody reads and steps that nothing
//! reaches left out, jumps to jumps shortened. Lowering may write plainly what it means.

use std::collections::HashMap;

use crate::eval::{binary, extend, high_bit, holds};
use crate::ir::{BinOp, Label, Op, Program, Region, V, Val, Width};

/// A program that does the same with fewer steps. Of a valid program it is valid; of any other it is the same.
pub fn optimise(program: &Program) -> Program {
    let mut out = program.clone();
    for region in [&mut out.filter, &mut out.body] {
        // Each round makes it shorter or simpler; most need two.
        for _ in 0..8 {
            let before = region.ops.clone();
            propagate(region);
            thread(region);
            unreached(region);
            unread(region);
            if region.ops == before {
                break;
            }
        }
    }
    // A copy that is spared may make its original live longer: too many at the same time.
    match crate::ir::validate(program).and_then(|()| crate::ir::validate(&out)) {
        Ok(()) => out,
        Err(_) => program.clone(),
    }
}

/// What is known of a virtual register wherever it may be read.
#[derive(Clone, Copy, Default)]
struct Known {
    writes: u32,
    /// What its only write copies.
    copies: Option<Val>,
    /// Bits that hold an unsigned value, and a signed one.
    unsigned: u32,
    signed: u32,
}

fn known(region: &Region) -> Vec<Known> {
    let mut all = vec![Known::default(); region.registers as usize];
    for op in &region.ops {
        let (unsigned, signed) = bits(op);
        if let Some(k) = op.writes().and_then(|v| all.get_mut(v.0 as usize)) {
            k.writes += 1;
            k.copies = match op {
                Op::Copy { from, .. } if k.writes == 1 => Some(*from),
                _ => None,
            };
            k.unsigned = k.unsigned.max(unsigned);
            k.signed = k.signed.max(signed);
        }
    }
    // A copy of what is written more than once may differ from it later.
    let copies: Vec<Option<Val>> = all
        .iter()
        .map(|k| match k.copies {
            Some(Val::V(v)) if all.get(v.0 as usize).is_none_or(|k| k.writes != 1) => None,
            copies => copies,
        })
        .collect();
    all.iter_mut().zip(copies).for_each(|(k, c)| k.copies = c);
    all
}

/// Bits that the result fits in: as an unsigned, as a signed value.
fn bits(op: &Op) -> (u32, u32) {
    let extended = |width: Width, signed: bool| match (8 * width.bytes(), signed) {
        (64, _) => (64, 64),
        (n, false) => (n, n + 1),
        (n, true) => (64, n),
    };
    let constant = |n: u64| {
        let unsigned = 64 - n.leading_zeros();
        let signed = 65 - n.leading_zeros().max(n.leading_ones());
        (unsigned, signed.min(64))
    };
    match op {
        Op::Copy {
            from: Val::Imm(n), ..
        } => constant(*n),
        Op::Load { width, signed, .. }
        | Op::Probe { width, signed, .. }
        | Op::Extend { width, signed, .. } => extended(*width, *signed),
        Op::CpuLoad { width, .. } => extended(*width, false),
        Op::Set { .. } => (1, 2),
        Op::HighBit { .. } => (6, 7),
        Op::Bin {
            op: BinOp::And,
            b: Val::Imm(n),
            ..
        } => {
            let n = constant(*n).0;
            (n, (n + 1).min(64))
        }
        _ => (64, 64),
    }
}

/// Operands that are known, and what follows.
fn propagate(region: &mut Region) {
    let known = known(region);
    let everywhere = |v: V| known.get(v.0 as usize).and_then(|k| k.copies);
    // Known until the next label.
    let mut here: HashMap<V, Val> = HashMap::new();
    for op in &mut region.ops {
        if matches!(op, Op::Label(_)) {
            here.clear();
        }
        for val in op.reads_mut() {
            if let Val::V(v) = *val
                && let Some(better) = here.get(&v).copied().or_else(|| everywhere(v))
            {
                *val = better;
            }
        }
        fold(op, &known);
        if let Some(to) = op.writes() {
            here.remove(&to);
            here.retain(|_, val| *val != Val::V(to));
            if let Op::Copy { from, .. } = op
                && *from != Val::V(to)
            {
                here.insert(to, *from);
            }
        }
    }
}

/// The step in its simplest form.
fn fold(op: &mut Op, known: &[Known]) {
    let simple = match &*op {
        Op::Bin { op, to, a, b } => bin(*op, *to, *a, *b),
        Op::Set {
            to,
            cond,
            a: Val::Imm(a),
            b: Val::Imm(b),
        } => Some(copy(*to, Val::Imm(u64::from(holds(*cond, *a, *b))))),
        Op::Extend {
            to,
            from: Val::Imm(n),
            width,
            signed,
        } => Some(copy(*to, Val::Imm(extend(*n, *width, *signed)))),
        Op::Extend {
            to,
            from: from @ Val::V(v),
            width,
            signed,
        } => {
            let fits = known.get(v.0 as usize).is_some_and(|k| {
                let bits = if *signed { k.signed } else { k.unsigned };
                bits <= 8 * width.bytes()
            });
            fits.then(|| copy(*to, *from))
        }
        Op::HighBit {
            to,
            from: Val::Imm(n),
        } => Some(copy(*to, Val::Imm(high_bit(*n)))),
        Op::Branch {
            cond,
            a: Val::Imm(a),
            b: Val::Imm(b),
            to,
        } if holds(*cond, *a, *b) => Some(Op::Jump(*to)),
        _ => None,
    };
    if let Some(simple) = simple {
        *op = simple;
    }
}

fn copy(to: V, from: Val) -> Op {
    Op::Copy { to, from }
}

fn bin(op: BinOp, to: V, a: Val, b: Val) -> Option<Op> {
    let power = |n: u64| n.is_power_of_two().then(|| u64::from(n.trailing_zeros()));
    let other = |op, b| Op::Bin {
        op,
        to,
        a,
        b: Val::Imm(b),
    };
    use BinOp::*;
    match (op, a, b) {
        (_, Val::Imm(a), Val::Imm(b)) => Some(copy(to, Val::Imm(binary(op, a, b)))),
        // A constant comes second.
        (Add | Mul | And | Or | Xor, Val::Imm(_), _) => Some(Op::Bin { op, to, a: b, b: a }),
        (Add | Sub | Or | Xor | Shl | Shr | Sar, _, Val::Imm(0)) => Some(copy(to, a)),
        (Mul | DivU | DivS, _, Val::Imm(1)) | (And, _, Val::Imm(u64::MAX)) => Some(copy(to, a)),
        (Mul | And | DivU | RemU | DivS | RemS, _, Val::Imm(0)) | (RemU | RemS, _, Val::Imm(1)) => {
            Some(copy(to, Val::Imm(0)))
        }
        (Shl | Shr, _, Val::Imm(n)) if n >= 64 => Some(copy(to, Val::Imm(0))),
        (Sub | Xor, Val::V(x), Val::V(y)) if x == y => Some(copy(to, Val::Imm(0))),
        (And | Or, Val::V(x), Val::V(y)) if x == y => Some(copy(to, a)),
        (Mul, _, Val::Imm(n)) => power(n).map(|n| other(Shl, n)),
        (DivU, _, Val::Imm(n)) => power(n).map(|n| other(Shr, n)),
        (RemU, _, Val::Imm(n)) => power(n).map(|_| other(And, n - 1)),
        _ => None,
    }
}

/// Jumps to where jumps lead.
fn thread(region: &mut Region) {
    let ops = region.ops.clone();
    let places = crate::validate::places(region);
    let end = |mut label: Label| {
        // Jumps lead forward.
        for _ in 0..ops.len() {
            let place = places.get(label.0 as usize).copied().flatten();
            let rest = place.and_then(|p| ops.get(p..)).unwrap_or_default();
            match rest.iter().find(|op| !matches!(op, Op::Label(_))) {
                Some(Op::Jump(to)) => label = *to,
                _ => break,
            }
        }
        label
    };
    for op in &mut region.ops {
        if let Some(to) = op.branch_mut() {
            *to = end(*to);
        }
    }
    // Branches that never go, and jumps to what comes next anyway.
    let keep: Vec<bool> = (0..region.ops.len())
        .map(|i| !pointless(region, i))
        .collect();
    let mut keep = keep.into_iter();
    region.ops.retain(|_| keep.next().unwrap_or(true));
}

fn pointless(region: &Region, i: usize) -> bool {
    let rest = region.ops.get(i + 1..).unwrap_or_default();
    let next = |to: Label| {
        let mut labels = rest.iter().take_while(|op| matches!(op, Op::Label(_)));
        labels.any(|op| *op == Op::Label(to))
    };
    match region.ops.get(i) {
        Some(Op::Branch {
            cond,
            a: Val::Imm(a),
            b: Val::Imm(b),
            ..
        }) => !holds(*cond, *a, *b),
        Some(Op::Jump(to) | Op::Branch { to, .. }) => next(*to),
        Some(Op::Copy { to, from }) => *from == Val::V(*to),
        _ => false,
    }
}

/// Leaves out what control never comes to, and labels that nobody jumps to. Loops are entered from above, so one pass sees all ways.
fn unreached(region: &mut Region) {
    let mut named = vec![false; region.labels as usize];
    let mut reached = true;
    region.ops.retain(|op| {
        if let Op::Label(l) = op {
            reached |= named.get(l.0 as usize) == Some(&true);
        }
        if !reached {
            return false;
        }
        if let Some(named) = op.branch().and_then(|to| named.get_mut(to.0 as usize)) {
            *named = true;
        }
        reached = !op.ends_way();
        true
    });
    let mut named = vec![false; region.labels as usize];
    for op in &region.ops {
        let to = match op {
            Op::Again { to, .. } => Some(*to),
            _ => op.branch(),
        };
        if let Some(named) = to.and_then(|to| named.get_mut(to.0 as usize)) {
            *named = true;
        }
    }
    let is_named = |l: &Label| named.get(l.0 as usize) == Some(&true);
    region
        .ops
        .retain(|op| !matches!(op, Op::Label(l) if !is_named(l)));
}

/// Leaves out what only writes registers that nobody reads.
fn unread(region: &mut Region) {
    loop {
        let mut read = vec![false; region.registers as usize];
        for op in &region.ops {
            for val in op.reads() {
                if let Val::V(v) = val
                    && let Some(read) = read.get_mut(v.0 as usize)
                {
                    *read = true;
                }
            }
        }
        let before = region.ops.len();
        let wanted = |v: V| read.get(v.0 as usize) == Some(&true);
        region
            .ops
            .retain(|op| !op.is_pure() || op.writes().is_some_and(wanted));
        if region.ops.len() == before {
            break;
        }
    }
}
