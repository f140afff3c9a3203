//! The rules of programs that lowering must keep, checked on every one that a test makes.

use std::collections::HashSet;

use kerninst_snippet::ir::{Base, Op, Program, Region, V, Val};

pub fn check(program: &Program) {
    kerninst_snippet::ir::validate(program).unwrap();
    for region in [&program.filter, &program.body] {
        check_region(region);
    }
}

fn check_region(region: &Region) {
    let place = |l| region.ops.iter().position(|op| *op == Op::Label(l));
    // What is written for sure, by way: the meet of all that jump to a label.
    let mut at: std::collections::HashMap<usize, HashSet<V>> = Default::default();
    let mut known: Option<HashSet<V>> = Some(HashSet::new());
    for (n, op) in region.ops.iter().enumerate() {
        if let Some(other) = at.get(&n) {
            known = Some(match known {
                Some(k) => k.intersection(other).copied().collect(),
                None => other.clone(),
            });
        }
        let k = known
            .as_mut()
            .unwrap_or_else(|| panic!("unreachable: {n} {op:?}"));
        for v in reads(op) {
            assert!(
                k.contains(&v),
                "{v:?} is read before it is written: {n} {op:?}"
            );
        }
        for target in targets(op) {
            let to = place(target).unwrap_or_else(|| panic!("no label: {op:?}"));
            if matches!(op, Op::Again { .. }) {
                assert!(to < n, "forward: {op:?}");
                continue;
            }
            assert!(to > n, "backward: {op:?}");
            let here = k.clone();
            at.entry(to)
                .and_modify(|o| *o = o.intersection(&here).copied().collect())
                .or_insert(here);
        }
        k.extend(writes(op));
        if matches!(op, Op::Jump(_) | Op::End | Op::Leave { .. }) {
            known = None;
        }
        for v in writes(op).into_iter().chain(reads(op)) {
            assert!(v.0 < region.registers);
        }
    }
    assert!(region.frame.is_multiple_of(8));
}

fn targets(op: &Op) -> Vec<kerninst_snippet::ir::Label> {
    match op {
        Op::Jump(to) | Op::Branch { to, .. } | Op::Again { to, .. } => vec![*to],
        Op::Probe { fault, .. } | Op::ProbeStore { fault, .. } => vec![*fault],
        Op::CpuSwap { fail, .. } | Op::Swap { fail, .. } => vec![*fail],
        _ => vec![],
    }
}

fn writes(op: &Op) -> Vec<V> {
    match op {
        Op::Copy { to, .. }
        | Op::Reg { to, .. }
        | Op::Bin { to, .. }
        | Op::Set { to, .. }
        | Op::Extend { to, .. }
        | Op::HighBit { to, .. }
        | Op::Load { to, .. }
        | Op::FrameAddress { to, .. }
        | Op::CpuLoad { to, .. }
        | Op::Clock { to }
        | Op::Call { to: Some(to), .. } => vec![*to],
        Op::Probe { to, .. } => vec![*to],
        _ => vec![],
    }
}

fn reads(op: &Op) -> Vec<V> {
    let mut all: Vec<Val> = match op {
        Op::Copy { from, .. } | Op::Extend { from, .. } | Op::HighBit { from, .. } => vec![*from],
        Op::Bin { a, b, .. } | Op::Set { a, b, .. } | Op::Branch { a, b, .. } => vec![*a, *b],
        Op::Again { left, .. } => vec![Val::V(*left)],
        Op::Probe { at, .. } => vec![*at],
        Op::ProbeStore { at, value, .. } => vec![*at, *value],
        Op::Store { value, .. } => vec![*value],
        Op::CpuLoad { pointer, .. } => vec![*pointer],
        Op::CpuAdd { pointer, value } => vec![*pointer, *value],
        Op::CpuSwap {
            pointer, old, new, ..
        } => vec![*pointer, *old, *new],
        Op::Swap { old, new, .. } => vec![*old, *new],
        Op::Call { args, .. } => args.clone(),
        Op::SetReg { value, .. } => vec![*value],
        _ => vec![],
    };
    if let Op::Load { base, .. } | Op::Store { base, .. } | Op::Swap { base, .. } = op
        && let Base::At(at) = base
    {
        all.push(*at);
    }
    let v = |val| match val {
        Val::V(v) => Some(v),
        Val::Imm(_) => None,
    };
    all.into_iter().filter_map(v).collect()
}
