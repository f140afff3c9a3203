//! The programs of typical clauses, step by step: what would make them longer, or change what they do to memory, shows here.

use std::fmt::Write;

use expect_test::{Expect, expect};
use kerninst_lang::hir::*;
use kerninst_lang::lower::Events;
use kerninst_snippet::ir::{Base, Op, Program, Region, V, Val};

use crate::hir::*;
use crate::sim::places;

fn val(v: Val) -> String {
    match v {
        Val::V(V(n)) => format!("v{n}"),
        Val::Imm(n) if n < 10_000 => format!("{n}"),
        Val::Imm(n) => format!("{n:#x}"),
    }
}

fn place(base: Base, offset: i32) -> String {
    match base {
        Base::At(at) => format!("[{}{offset:+}]", val(at)),
        Base::Frame => format!("[frame{offset:+}]"),
    }
}

fn step(op: &Op) -> String {
    match op {
        Op::Copy { to, from } => format!("v{} = {}", to.0, val(*from)),
        Op::Reg { to, reg } => format!("v{} = {reg:?}", to.0),
        Op::Bin { op, to, a, b } => format!("v{} = {op:?} {} {}", to.0, val(*a), val(*b)),
        Op::Set { to, cond, a, b } => format!("v{} = {cond:?} {} {}", to.0, val(*a), val(*b)),
        Op::Extend {
            to,
            from,
            width,
            signed,
        } => {
            format!("v{} = extend {} {width:?} {signed}", to.0, val(*from))
        }
        Op::HighBit { to, from } => format!("v{} = high bit {}", to.0, val(*from)),
        Op::Label(l) => format!("L{}:", l.0),
        Op::Jump(l) => format!("jump L{}", l.0),
        Op::Branch { cond, a, b, to } => format!("if {} {cond:?} {} L{}", val(*a), val(*b), to.0),
        Op::Again { left, to, rounds } => format!("again L{} (v{}, {rounds})", to.0, left.0),
        Op::Load {
            to,
            base,
            offset,
            width,
            ..
        } => {
            format!("v{} = {width:?} {}", to.0, place(*base, *offset))
        }
        Op::Store {
            base,
            offset,
            value,
            ..
        } => format!("{} = {}", place(*base, *offset), val(*value)),
        Op::Swap {
            base,
            offset,
            old,
            new,
            fail,
        } => {
            format!(
                "swap {} {} {} else L{}",
                place(*base, *offset),
                val(*old),
                val(*new),
                fail.0
            )
        }
        Op::CpuLoad { to, pointer, width } => {
            format!("v{} = {width:?} cpu[{}]", to.0, val(*pointer))
        }
        Op::CpuAdd { pointer, value } => format!("cpu[{}] += {}", val(*pointer), val(*value)),
        Op::Call { function, args, to } => {
            let args: Vec<String> = args.iter().map(|a| val(*a)).collect();
            let to = to.map_or(String::new(), |v| format!("v{} = ", v.0));
            format!("{to}call {function:#x}({})", args.join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn check(program: &Program, expected: &Expect) {
    let mut out = String::new();
    let mut region = |name: &str, r: &Region| {
        writeln!(out, "{name}:").unwrap();
        for op in &r.ops {
            let indent = if matches!(op, Op::Label(_)) {
                " "
            } else {
                "   "
            };
            writeln!(out, "{indent}{}", step(op)).unwrap();
        }
    };
    region("filter", &program.filter);
    region("body", &program.body);
    expected.assert_eq(&out);
}

fn of(maps: Vec<Map>, c: Clause) -> Program {
    let script = script(maps, vec![c]);
    let places = places(&script, 1024, 4096);
    lowered(&script, 0, &entry(), &places, &mut Events::default()).unwrap()
}

#[test]
fn keyed_count() {
    let c = clause(None, vec![update(0, vec![arg(0)], None)], vec![]);
    check(
        &of(vec![map(vec![Type::U64], MapValue::Count)], c),
        &expect![[r#"
            filter:
            body:
               v0 = rdi
               v1 = Mul v0 0x9e3779b97f4a7c15
               v2 = Shr v1 54
               v3 = Mul v2 24
               v4 = Add v3 0xffffc90000000000
               v5 = B8 [v4+8]
               if v5 Ne v0 L2
               if v0 Eq 0 L2
               jump L1
             L2:
               v6 = Mul v0 0x9e3779b97f4a7c15
               v7 = Shr v6 54
               v8 = v7
               v9 = 32
             L3:
               v10 = And v8 1023
               v11 = Mul v10 24
               v12 = Add v11 0xffffc90000000000
               v13 = B8 [v12+8]
               if v13 Ne v0 L5
               if v0 Ne 0 L4
               v14 = B8 [v12+0]
               v15 = And v14 2
               if v15 Ne 0 L4
             L5:
               v16 = B8 [v12+0]
               if v16 Ne 0 L6
               v17 = Mul v0 0x9e3779b97f4a7c15
               v18 = Shr v17 32
               v19 = Shl v18 32
               v20 = Or v19 1
               swap [v12+0] 0 v20 else L7
               [v12+8] = v0
               v21 = Or v19 2
               [v12+0] = v21
               jump L4
             L6:
               v8 = Add v8 1
             L7:
               again L3 (v9, 32)
               cpu[520] += 1
               jump L0
             L4:
               v4 = v12
             L1:
               v22 = B8 [v4+16]
               cpu[v22] += 1
             L0:
        "#]],
    );
}

/// `@[arg0] = count()` that finds its key at once: a handful of steps, most of which are one instruction.
#[test]
fn cost_of_a_keyed_count() {
    let c = clause(None, vec![update(0, vec![arg(0)], None)], vec![]);
    let program = of(vec![map(vec![Type::U64], MapValue::Count)], c);
    let jump = |op: &Op| matches!(op, Op::Jump(_));
    let to_hit = program.body.ops.iter().position(jump).unwrap();
    let hit = program
        .body
        .ops
        .iter()
        .rev()
        .take_while(|op| !matches!(op, Op::Label(l) if l.0 == 1));
    assert!(to_hit + 1 + hit.count() <= 13, "{to_hit}");
}

#[test]
fn filters() {
    let pid = bin(Binary::Eq, builtin(Builtin::Pid), int(5));
    let either = bin(
        Binary::Either,
        bin(Binary::Gt, arg(0), int(7)),
        bin(Binary::Eq, builtin(Builtin::Comm), text("a")),
    );
    let late = bin(Binary::Ne, str_at(arg(1), 8), text("b"));
    let both = bin(Binary::Both, bin(Binary::Both, pid, either), late);
    let c = clause(Some(both), vec![update(0, vec![], None)], vec![]);
    check(
        &of(vec![map(vec![], MapValue::Count)], c),
        &expect![[r#"
        filter:
           v0 = B8 cpu[256]
           v1 = B4 [v0+12]
           if v1 Eq 5 L0
           End
         L0:
           v2 = rdi
           if v2 GtU 7 L1
           v3 = B8 cpu[256]
           v4 = B8 [v3+32]
           v5 = B8 [v3+40]
           if v4 Ne 97 L2
           if v5 Ne 0 L2
           jump L1
         L2:
           End
         L1:
        body:
           v0 = rsi
           FrameAddress { to: V(1), offset: 0 }
           v2 = call 0x1001(v1, v0, 8)
           if v2 GeS 0 L1
           if v2 Ne 0xffffffffffffffff L2
           cpu[536] += 1
           End
         L2:
           cpu[552] += 1
         L1:
           v3 = B8 [frame+0]
           if v3 Ne 98 L0
           End
         L0:
           cpu[0x100000000] += 1
    "#]],
    );
}

#[test]
fn event() {
    let c = clause(None, vec![printf(vec![arg(0), str_at(arg(1), 16)])], vec![]);
    check(
        &of(vec![], c),
        &expect![[r#"
        filter:
        body:
           v0 = rdi
           v1 = rsi
           v2 = B4 cpu[264]
           v3 = Shl v2 6
           v4 = Add v3 0xffffc8ff00000000
           v5 = 32
         L4:
           v6 = B8 [v4+0]
           v7 = B8 [v4+32]
           v8 = Sub v6 v7
           if v8 LeU 4056 L1
           if v8 LtS 0 L3
           cpu[512] += 1
           jump L0
         L1:
           v9 = Add v6 40
           swap [v4+0] v6 v9 else L3
           jump L2
         L3:
           again L4 (v5, 32)
           cpu[544] += 1
           jump L0
         L2:
           v10 = And v6 4095
           v11 = Mul v2 6144
           v12 = Add v11 0xffffc8ff00001000
           v13 = Add v12 v10
           Clock { to: V(14) }
           [v13+8] = v14
           [v13+16] = v0
           v15 = Add v13 24
           v16 = call 0x1001(v15, v1, 16)
           if v16 GeS 0 L6
           if v16 Ne 0xffffffffffffffff L7
           cpu[536] += 1
           jump L5
         L7:
           cpu[552] += 1
         L6:
           v17 = Shl v2 32
           v18 = Or v17 0x8000000000000028
           [v13+0] = v18
           jump L0
         L5:
           v19 = Shl v2 32
           v20 = Or v19 0x80000000ffff0028
           [v13+0] = v20
           End
         L0:
    "#]],
    );
}

#[test]
fn assigned_word() {
    let key = || vec![builtin(Builtin::Tid)];
    let start = get(0, key(), Type::U64);
    let c = clause(
        Some(start),
        vec![Stmt::Delete { map: 0, key: key() }],
        vec![],
    );
    check(
        &of(vec![map(vec![Type::U64], MapValue::Plain(Type::U64))], c),
        &expect![[r#"
            filter:
               v1 = B8 cpu[256]
               v2 = B4 [v1+8]
               v3 = Mul v2 0x9e3779b97f4a7c15
               v4 = 8
             L4:
               v5 = Shr v3 54
               v6 = v5
               v7 = 32
             L5:
               v8 = And v6 1023
               v9 = Mul v8 24
               v10 = Add v9 0xffffc90000000000
               v11 = B8 [v10+0]
               if v11 Eq 0 L2
               v12 = Xor v11 v3
               v13 = Shr v12 32
               if v13 Ne 0 L6
               v14 = And v11 3
               if v14 Eq 3 L6
               if v14 Eq 1 L3
               v15 = B8 [v10+8]
               if v15 Ne v2 L6
               v16 = B8 [v10+16]
               v0 = v16
               v17 = B8 [v10+0]
               if v17 Eq v11 L1
               jump L3
             L6:
               v6 = Add v6 1
               again L5 (v7, 32)
               jump L2
             L3:
               again L4 (v4, 8)
               cpu[544] += 1
             L2:
               v0 = 0
             L1:
               if v0 Ne 0 L0
               End
             L0:
            body:
               v0 = B8 cpu[256]
               v1 = B4 [v0+8]
               v2 = Mul v1 0x9e3779b97f4a7c15
               v3 = 8
             L2:
               v4 = Shr v2 54
               v5 = v4
               v6 = 32
             L3:
               v7 = And v5 1023
               v8 = Mul v7 24
               v9 = Add v8 0xffffc90000000000
               v10 = B8 [v9+0]
               if v10 Eq 0 L0
               v11 = Xor v10 v2
               v12 = Shr v11 32
               if v12 Ne 0 L4
               v13 = And v10 3
               if v13 Eq 3 L4
               if v13 Eq 1 L1
               v14 = B8 [v9+8]
               if v14 Ne v1 L4
               v15 = Or v10 3
               swap [v9+0] v10 v15 else L1
               jump L0
             L4:
               v5 = Add v5 1
               again L3 (v6, 32)
               jump L0
             L1:
               again L2 (v3, 8)
               cpu[544] += 1
             L0:
        "#]],
    );
}
