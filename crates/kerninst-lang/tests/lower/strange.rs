//! Scripts that no checker lets through, and all kinds of statements mixed: an error or a valid program, never a panic.

use kerninst_lang::hir::*;
use kerninst_lang::lower::{At, Callee, Events};
use proptest::prelude::*;

use crate::hir::*;
use crate::sim::places;

fn any_type() -> impl Strategy<Value = Type> {
    prop::sample::select(vec![
        Type::U64,
        Type::I64,
        Type::Int {
            bits: 8,
            signed: true,
        },
        Type::Int {
            bits: 7,
            signed: false,
        },
        Type::Str(5),
        Type::Str(64),
        Type::Bytes(0),
        Type::Bytes(16),
        Type::KernelStack,
        Type::UserStack,
        Type::Name,
        Type::None,
    ])
}

fn any_builtin() -> impl Strategy<Value = Builtin> {
    prop::sample::select(vec![
        Builtin::Pid,
        Builtin::Comm,
        Builtin::Nsecs,
        Builtin::Arg(0),
        Builtin::Arg(9),
        Builtin::Reg(4),
        Builtin::Reg(99),
        Builtin::Callee,
        Builtin::Caller,
        Builtin::KernelStack(0),
        Builtin::UserStack(255),
    ])
}

fn expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        any::<u64>().prop_map(ExprKind::Int),
        "[a-c]{0,9}".prop_map(ExprKind::Text),
        any_builtin().prop_map(ExprKind::Builtin),
        (0u32..4).prop_map(ExprKind::Local),
    ];
    let typed = |(kind, ty)| e(kind, ty);
    let leaf = (leaf, any_type()).prop_map(typed);
    leaf.prop_recursive(4, 24, 3, move |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        let unary = prop::sample::select(vec![Unary::Neg, Unary::Not, Unary::Invert]);
        let binary = prop::sample::select(vec![
            Binary::Add,
            Binary::Div,
            Binary::Shr,
            Binary::Eq,
            Binary::Lt,
            Binary::Both,
            Binary::Either,
        ]);
        let kind =
            prop_oneof![
                (0u32..5, prop::collection::vec(inner.clone(), 0..3))
                    .prop_map(|(map, key)| ExprKind::Map { map, key }),
                (unary, boxed.clone()).prop_map(|(op, a)| ExprKind::Unary { op, a }),
                (binary, boxed.clone(), boxed.clone()).prop_map(|(op, a, b)| ExprKind::Binary {
                    op,
                    a,
                    b
                }),
                (boxed.clone(), boxed.clone(), boxed.clone())
                    .prop_map(|(c, a, b)| ExprKind::Choice { c, a, b }),
                boxed.clone().prop_map(ExprKind::Cast),
                boxed.clone().prop_map(|at| ExprKind::Str { at }),
                boxed.clone().prop_map(|at| ExprKind::Buf { at }),
                (
                    boxed,
                    any::<i32>(),
                    any::<u8>(),
                    any::<bool>(),
                    any::<Option<(u8, u8)>>(),
                    any::<bool>()
                )
                    .prop_map(|(address, offset, bytes, signed, bits, user)| {
                        ExprKind::Load {
                            address,
                            offset,
                            bytes,
                            signed,
                            bits,
                            user,
                        }
                    },),
            ];
        (kind, any_type()).prop_map(typed)
    })
}

fn stmt() -> impl Strategy<Value = Stmt> {
    let key = || prop::collection::vec(expr(), 0..3);
    let leaf = prop_oneof![
        (0u32..4, expr()).prop_map(|(local, value)| Stmt::SetLocal { local, value }),
        (0u32..5, key(), expr()).prop_map(|(map, key, value)| Stmt::SetMap { map, key, value }),
        (0u32..5, key(), prop::option::of(expr())).prop_map(|(map, key, value)| Stmt::Update {
            map,
            key,
            value
        }),
        (0u32..5, key()).prop_map(|(map, key)| Stmt::Delete { map, key }),
        key().prop_map(printf),
        expr().prop_map(Stmt::PrintValue),
        expr().prop_map(Stmt::Eval),
        expr().prop_map(Stmt::Return),
        (any::<u8>(), expr()).prop_map(|(reg, value)| Stmt::SetReg { reg, value }),
        (expr(), any::<i32>(), any::<u8>(), expr()).prop_map(|(address, offset, bytes, value)| {
            Stmt::SetMemory {
                address,
                offset,
                bytes,
                value,
            }
        }),
        prop::sample::select(vec![
            Stmt::Break,
            Stmt::Continue,
            Stmt::Done,
            Stmt::Skip,
            Stmt::Exit,
            Stmt::Clear(9)
        ]),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let body = || prop::collection::vec(inner.clone(), 0..3);
        let boxed = || expr().prop_map(Box::new);
        prop_oneof![
            (expr(), body(), body()).prop_map(|(c, then, other)| Stmt::If { c, then, other }),
            (
                prop::option::of(0u32..4),
                boxed(),
                boxed(),
                any::<u32>(),
                body()
            )
                .prop_map(|(local, from, to, rounds, body)| Stmt::Repeat {
                    local,
                    from,
                    to,
                    rounds,
                    body
                }),
            (expr(), any::<u32>(), body()).prop_map(|(c, rounds, body)| Stmt::While {
                c,
                rounds,
                body
            }),
        ]
    })
}

/// Follows the types that the checker would give, as far as that is easy, so that much of it is lowered.
fn mend(x: &mut Expr) {
    match &mut x.kind {
        ExprKind::Int(_) | ExprKind::Load { .. } => x.ty = Type::U64,
        ExprKind::Text(t) => x.ty = Type::Str(t.len() as u32 + 1),
        ExprKind::Builtin(Builtin::Comm) => x.ty = Type::Str(16),
        ExprKind::Builtin(Builtin::UserStack(_)) => x.ty = Type::UserStack,
        ExprKind::Builtin(_) | ExprKind::Unary { .. } => x.ty = Type::U64,
        ExprKind::Local(n) => {
            x.ty = [Type::U64, Type::Str(16), Type::Bytes(9)][*n as usize % 3].clone()
        }
        ExprKind::Binary { a, b, .. } => {
            mend(a);
            mend(b);
            x.ty = Type::U64;
        }
        ExprKind::Choice { c, a, b } => {
            mend(c);
            mend(a);
            *b = a.clone();
            x.ty = a.ty.clone();
        }
        ExprKind::Str { at } => {
            mend(at);
            x.ty = Type::Str(20);
        }
        ExprKind::Buf { at } => {
            mend(at);
            x.ty = Type::Bytes(12);
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn anything(
        mut filter in prop::option::of(expr()),
        mut body in prop::collection::vec(stmt(), 0..4),
        mended: bool,
        entry_point: bool,
    ) {
        if mended {
            filter.iter_mut().for_each(mend);
            for s in &mut body {
                match s {
                    Stmt::SetLocal { value, .. } | Stmt::PrintValue(value) | Stmt::Eval(value) => mend(value),
                    Stmt::Printf { args, .. } => args.iter_mut().for_each(mend),
                    Stmt::SetMap { key, value, .. } => {
                        key.iter_mut().for_each(mend);
                        mend(value);
                    }
                    Stmt::Update { key, value, .. } => key.iter_mut().chain(value).for_each(mend),
                    Stmt::Delete { key, .. } => key.iter_mut().for_each(mend),
                    _ => {}
                }
            }
        }
        let maps = vec![
            map(vec![], MapValue::Count),
            map(vec![Type::U64], MapValue::Plain(Type::U64)),
            map(vec![Type::U64, Type::Str(16)], MapValue::Plain(Type::Str(16))),
            map(vec![Type::U64], MapValue::LHist { min: i64::MIN, max: i64::MAX, step: 0 }),
        ];
        let locals = vec![Type::U64, Type::Str(16), Type::Bytes(9)];
        let script = script(maps, vec![clause(filter, body, locals)]);
        let places = places(&script, 16, 1 << 12);
        let memory = Callee::Memory { base: Some(77), index: Some((2, 3)), disp: i64::MIN };
        let at = if entry_point {
            At { next: Some(1), ..entry() }
        } else {
            At { callee: Some(memory), exit: true, entry: false, ..entry() }
        };
        // A program that it makes is checked there.
        lowered(&script, 0, &at, &places, &mut Events::default()).ok();
    }
}
