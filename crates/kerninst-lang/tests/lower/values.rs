//! Expressions, statements, and what points give.

use std::sync::Mutex;

use kerninst_lang::hir::*;
use kerninst_lang::layout::Loss;
use kerninst_lang::lower::{At, Callee, Events, LowerError, Reason, Session, lower};
use kerninst_lang::read::RingReader;
use kerninst_lang::value::{Value, extend};
use kerninst_snippet::eval::Ended;
use proptest::prelude::*;

use crate::hir::*;
use crate::sim::*;

/// Runs a clause once: what it sent, how it ended, and the machine.
fn once(
    c: Clause,
    at: &At,
    regs: [u64; 16],
    setup: impl FnOnce(&mut World),
) -> (Vec<Vec<Value>>, Ended, World) {
    let script = script(vec![], vec![c]);
    let places = places(&script, 1, 1 << 12);
    let mut events = Events::default();
    let program = lowered(&script, 0, at, &places, &mut events).unwrap();
    let mut world = World::new(&script, &places, 3);
    setup(&mut world);
    let still = Mutex::new(run_alone(world, &program, &[regs]));
    let mut sent = Vec::new();
    RingReader::new(places.ring)
        .drain(&Still(&still, places.ring.area), &events, 99, |r| {
            sent.push(r.values)
        })
        .unwrap();
    let world = still.into_inner().unwrap();
    let ended = world.runs[0].1;
    (sent, ended, world)
}

/// Words that a clause prints.
fn words(body: Vec<Stmt>, locals: Vec<Type>, regs: [u64; 16]) -> Vec<u64> {
    let (sent, ..) = once(clause(None, body, locals), &entry(), regs, |_| {});
    sent.iter()
        .flatten()
        .map(|v| v.as_word().unwrap())
        .collect()
}

fn losses(world: &World, loss: Loss) -> u64 {
    world.loss(&places(&script(vec![], vec![]), 1, 1 << 12), loss)
}

fn refused(c: Clause, at: &At) -> Reason {
    let script = script(vec![], vec![c]);
    let places = places(&script, 1, 1 << 12);
    let result: Result<_, LowerError> = lowered(&script, 0, at, &places, &mut Events::default());
    let error = result.unwrap_err();
    assert!(!error.to_string().is_empty());
    error.reason
}

// ---- arithmetic

fn cast(a: Expr, ty: Type) -> Expr {
    e(ExprKind::Cast(Box::new(a)), ty)
}

fn typed_bin(op: Binary, a: Expr, b: Expr, ty: Type) -> Expr {
    let (a, b) = (Box::new(a), Box::new(b));
    e(ExprKind::Binary { op, a, b }, ty)
}

fn types() -> impl Strategy<Value = Type> {
    (prop::sample::select(vec![8u8, 16, 32, 64]), any::<bool>())
        .prop_map(|(bits, signed)| Type::Int { bits, signed })
}

fn bits_of(ty: &Type) -> (u8, bool) {
    match ty {
        Type::Int { bits, signed } => (*bits, *signed),
        _ => (64, false),
    }
}

fn interesting() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..70,
        prop::sample::select(vec![
            0,
            1,
            u64::MAX,
            1 << 63,
            (1 << 63) - 1,
            1 << 31,
            0x80,
            0xffff_ffff
        ])
    ]
}

/// An expression of a type.
fn tree(ty: Type, depth: u32) -> BoxedStrategy<Expr> {
    let (bits, signed) = bits_of(&ty);
    let t = ty.clone();
    let constant =
        interesting().prop_map(move |v| e(ExprKind::Int(extend(v, bits, signed)), t.clone()));
    let t = ty.clone();
    let argument = (0u8..3).prop_map(move |n| e(ExprKind::Builtin(Builtin::Arg(n)), t.clone()));
    if depth == 0 {
        return prop_oneof![constant, argument].boxed();
    }
    let own = || tree(ty.clone(), depth - 1);
    let t = ty.clone();
    let ops = prop::sample::select(vec![
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
    ]);
    let arithmetic = (ops, own(), own()).prop_map(move |(op, a, b)| typed_bin(op, a, b, t.clone()));
    let t = ty.clone();
    let casts = types().prop_flat_map(move |other| {
        let t = t.clone();
        tree(other, depth - 1).prop_map(move |a| cast(a, t.clone()))
    });
    let t = ty.clone();
    let choice = (own(), own(), own()).prop_map(move |(c, a, b)| {
        let (c, a, b) = (Box::new(c), Box::new(a), Box::new(b));
        e(ExprKind::Choice { c, a, b }, t.clone())
    });
    let t = ty.clone();
    let unary = (own(), any::<bool>()).prop_map(move |(a, neg)| {
        let op = if neg { Unary::Neg } else { Unary::Invert };
        e(ExprKind::Unary { op, a: Box::new(a) }, t.clone())
    });
    if ty != Type::I64 {
        return prop_oneof![1 => constant, 1 => argument, 4 => arithmetic, 2 => casts, 1 => choice, 1 => unary].boxed();
    }
    let logic = types().prop_flat_map(move |other| {
        let ops = prop::sample::select(vec![
            Binary::Eq,
            Binary::Ne,
            Binary::Lt,
            Binary::Le,
            Binary::Gt,
            Binary::Ge,
            Binary::Both,
            Binary::Either,
        ]);
        (
            ops,
            tree(other.clone(), depth - 1),
            tree(other, depth - 1),
            any::<bool>(),
        )
            .prop_map(|(op, a, b, not)| {
                let value = typed_bin(op, a, b, Type::I64);
                if not {
                    e(
                        ExprKind::Unary {
                            op: Unary::Not,
                            a: Box::new(value),
                        },
                        Type::I64,
                    )
                } else {
                    value
                }
            })
    });
    prop_oneof![1 => constant, 1 => argument, 3 => arithmetic, 1 => casts, 1 => choice, 1 => unary, 4 => logic].boxed()
}

/// What an expression is, in numbers without bounds that are cut off to the type at each step.
fn model(x: &Expr, args: &[u64]) -> i128 {
    let (bits, signed) = bits_of(&x.ty);
    let cut = |v: i128| {
        let word = extend(v as u64, bits, signed);
        if signed {
            i128::from(word as i64)
        } else {
            i128::from(word)
        }
    };
    let truth = |b: bool| i128::from(b);
    match &x.kind {
        ExprKind::Int(v) => cut(i128::from(*v)),
        ExprKind::Builtin(Builtin::Arg(n)) => cut(i128::from(args[usize::from(*n)])),
        ExprKind::Cast(a) => cut(model(a, args)),
        ExprKind::Choice { c, a, b } => model(if model(c, args) != 0 { a } else { b }, args),
        ExprKind::Unary { op, a } => match op {
            Unary::Neg => cut(-model(a, args)),
            Unary::Invert => cut(!model(a, args)),
            Unary::Not => truth(model(a, args) == 0),
        },
        ExprKind::Binary { op, a, b } => {
            let (a, b) = (model(a, args), model(b, args));
            let count = if (0..64).contains(&b) {
                Some(b as u32)
            } else {
                None
            };
            match op {
                Binary::Add => cut(a + b),
                Binary::Sub => cut(a - b),
                Binary::Mul => cut(a.wrapping_mul(b)),
                Binary::Div => cut(a.checked_div(b).unwrap_or(0)),
                Binary::Rem => cut(a.checked_rem(b).unwrap_or(0)),
                Binary::And => cut(a & b),
                Binary::Or => cut(a | b),
                Binary::Xor => cut(a ^ b),
                Binary::Shl => count.map_or(0, |n| cut(((a as u64) << n).into())),
                Binary::Shr => count.map_or(if a < 0 { -1 } else { 0 }, |n| cut(a >> n)),
                Binary::Eq => truth(a == b),
                Binary::Ne => truth(a != b),
                Binary::Lt => truth(a < b),
                Binary::Le => truth(a <= b),
                Binary::Gt => truth(a > b),
                Binary::Ge => truth(a >= b),
                Binary::Both => truth(a != 0 && b != 0),
                Binary::Either => truth(a != 0 || b != 0),
            }
        }
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Arithmetic of every width and sign, as value, as condition and as filter.
    #[test]
    fn arithmetic(x in types().prop_flat_map(|t| tree(t, 4)), a in interesting(), b in interesting(), c in interesting()) {
        let regs = args(&[a, b, c]);
        let expected = model(&x, &[a, b, c]);
        let got = words(vec![printf(vec![x.clone()])], vec![], regs);
        prop_assert_eq!(got, [expected as u64]);
        let branch = vec![Stmt::If { c: x.clone(), then: vec![printf(vec![int(1)])], other: vec![printf(vec![int(2)])] }];
        let got = words(branch, vec![], regs);
        prop_assert_eq!(got, [if expected != 0 { 1 } else { 2 }]);
        let (sent, ended, _) = once(clause(Some(x), vec![printf(vec![int(1)])], vec![]), &entry(), regs, |_| {});
        prop_assert_eq!(sent.len(), usize::from(expected != 0));
        prop_assert_eq!(ended, if expected != 0 { Ended::Done } else { Ended::Filtered });
    }
}

// ---- statements

#[test]
fn loops() {
    let i = || local(0, Type::I64);
    let eq = |n| bin(Binary::Eq, local(0, Type::I64), int(n));
    let when = |c, s| Stmt::If {
        c,
        then: vec![s],
        other: vec![],
    };
    let repeat = |local, from, to, rounds, body| Stmt::Repeat {
        local,
        from: Box::new(from),
        to: Box::new(to),
        rounds,
        body,
    };
    let locals = || vec![Type::I64];
    // The bound, `continue`, `break`; the body may change the variable; what is left in it.
    let body = vec![
        when(eq(2), Stmt::Continue),
        when(eq(5), Stmt::Break),
        printf(vec![i()]),
        set(0, int(77)),
    ];
    let all = vec![
        repeat(Some(0), int(0), signed(0), 100, body),
        printf(vec![i()]),
    ];
    assert_eq!(words(all, locals(), args(&[9])), [0, 1, 3, 4, 5]);
    // Not more than the bound, and not more than from..to.
    let all = |to, rounds| {
        vec![repeat(
            Some(0),
            int(-1),
            int(to),
            rounds,
            vec![printf(vec![i()])],
        )]
    };
    assert_eq!(words(all(5, 3), locals(), args(&[])), [u64::MAX, 0, 1]);
    assert_eq!(words(all(1, 1000), locals(), args(&[])), [u64::MAX, 0]);
    assert!(words(all(-1, 1000), locals(), args(&[])).is_empty());
    assert!(words(all(5, 0), locals(), args(&[])).is_empty());
    assert_eq!(words(all(5, 1), locals(), args(&[])), [u64::MAX]);
    let all = vec![repeat(None, int(0), int(0), 3, vec![printf(vec![int(4)])])];
    assert_eq!(words(all, vec![], args(&[])), [4, 4, 4]);
    let step = vec![set(0, bin(Binary::Add, i(), int(1))), printf(vec![i()])];
    let all = |rounds| {
        vec![Stmt::While {
            c: bin(Binary::Lt, i(), int(3)),
            rounds,
            body: step.clone(),
        }]
    };
    assert_eq!(words(all(9), locals(), args(&[])), [1, 2, 3]);
    assert_eq!(words(all(2), locals(), args(&[])), [1, 2]);
    // Loops within loops begin anew.
    let inner = repeat(None, int(0), int(0), 2, vec![printf(vec![i()])]);
    let all = vec![repeat(Some(0), int(0), int(3), 9, vec![inner])];
    assert_eq!(words(all, locals(), args(&[])), [0, 0, 1, 1, 2, 2]);
    let all = vec![printf(vec![int(1)]), Stmt::Done, printf(vec![int(2)])];
    assert_eq!(words(all, vec![], args(&[])), [1]);
}

#[test]
fn texts() {
    let s = || local(0, Type::Str(16));
    let is = |a, b| bin(Binary::Eq, a, b);
    let choose = |c, a, b| {
        let (c, a, b) = (Box::new(c), Box::new(a), Box::new(b));
        e(ExprKind::Choice { c, a, b }, Type::Str(16))
    };
    let body = vec![
        printf(vec![s(), builtin(Builtin::Comm)]),
        set(0, text("task0")),
        printf(vec![
            is(s(), builtin(Builtin::Comm)),
            is(s(), text("task0 and more than that")),
            bin(Binary::Ne, builtin(Builtin::Comm), text("task1")),
            is(str_at(arg(0), 20), text("from memory")),
        ]),
        set(0, choose(arg(1), str_at(arg(0), 16), s())),
        printf(vec![s()]),
        set(0, choose(arg(2), text("no"), s())),
        printf(vec![s(), choose(arg(2), s(), text("yes"))]),
        printf(vec![e(
            ExprKind::Buf {
                at: Box::new(arg(0)),
            },
            Type::Bytes(5),
        )]),
    ];
    let c = clause(
        Some(is(builtin(Builtin::Comm), text("task0"))),
        body,
        vec![Type::Str(16)],
    );
    let (sent, ..) = once(c, &entry(), args(&[7, 1, 0]), |w| {
        w.texts.insert(7, b"from memory".to_vec());
    });
    let t = |s: &str| Value::Text(s.into());
    assert_eq!(sent[0], [t(""), t("task0")]);
    assert_eq!(
        sent[1]
            .iter()
            .map(|v| v.as_word().unwrap())
            .collect::<Vec<_>>(),
        [1, 0, 1, 1]
    );
    assert_eq!(sent[2], [t("from memory")]);
    assert_eq!(sent[3], [t("from memory"), t("yes")]);
    assert_eq!(sent[4], [Value::Bytes(b"from ".to_vec())]);
}

// ---- memory

fn load(
    address: Expr,
    offset: i32,
    bytes: u8,
    signed: bool,
    bits: Option<(u8, u8)>,
    user: bool,
) -> Expr {
    let ty = Type::Int {
        bits: bytes * 8,
        signed,
    };
    let address = Box::new(address);
    e(
        ExprKind::Load {
            address,
            offset,
            bytes,
            signed,
            bits,
            user,
        },
        ty,
    )
}

#[test]
fn memory() {
    const A: u64 = 0xffff_8880_1234_0000;
    let body = vec![
        printf(vec![
            load(arg(0), 4, 4, true, None, false),
            load(arg(0), 0, 8, false, Some((4, 12)), false),
            load(arg(0), 4, 4, true, Some((28, 4)), false),
            load(
                load(arg(0), 8, 8, false, None, false),
                16,
                2,
                false,
                None,
                false,
            ),
        ]),
        // A chain whose first link cannot be read counts once.
        printf(vec![load(
            load(arg(1), 0, 8, false, None, false),
            0,
            4,
            false,
            None,
            false,
        )]),
        printf(vec![
            load(arg(2), 0, 4, true, None, true),
            load(arg(3), 0, 4, true, None, true),
        ]),
        Stmt::SetMemory {
            address: arg(0),
            offset: 24,
            bytes: 2,
            value: int(-1),
        },
        Stmt::SetMemory {
            address: arg(1),
            offset: 0,
            bytes: 2,
            value: int(-1),
        },
    ];
    let (sent, _, world) = once(
        clause(None, body, vec![]),
        &entry(),
        args(&[A, 16, 5, 6]),
        |w| {
            w.kernel.insert(A, 0xf234_5678_9abc_def0);
            w.kernel.insert(A + 8, A + 0x100);
            w.kernel.insert(A + 0x110, 0xffff_4321);
            w.kernel.insert(A + 24, 0);
            w.texts.insert(5, vec![0xfe, 0xff, 0xff, 0xff]);
        },
    );
    let words: Vec<u64> = sent
        .iter()
        .flatten()
        .map(|v| v.as_word().unwrap())
        .collect();
    let signed = |v: i64| v as u64;
    assert_eq!(
        words,
        [
            signed(-0xdcb_a988),
            0xdef,
            signed(-1),
            0x4321,
            0,
            signed(-2),
            0
        ]
    );
    assert_eq!(losses(&world, Loss::Unreadable), 3);
    assert_eq!(world.kernel[&(A + 24)], 0xffff);
}

// ---- what points give

#[test]
fn builtins() {
    let wide = |b| e(ExprKind::Builtin(b), Type::UserStack);
    let body = vec![
        printf(vec![
            builtin(Builtin::Pid),
            builtin(Builtin::Tid),
            builtin(Builtin::Cpu),
            builtin(Builtin::Func),
            builtin(Builtin::Probe),
            builtin(Builtin::Ip),
            builtin(Builtin::Caller),
            builtin(Builtin::KernelStack(9)),
            e(
                ExprKind::Builtin(Builtin::Arg(1)),
                Type::Int {
                    bits: 32,
                    signed: true,
                },
            ),
        ]),
        printf(vec![wide(Builtin::UserStack(3))]),
        printf(vec![builtin(Builtin::Nsecs), builtin(Builtin::Elapsed)]),
    ];
    let mut regs = args(&[0, 0x1_ffff_ffff]);
    regs[4] = 0xffff_c900_1111_0000;
    let (sent, _, world) = once(clause(None, body, vec![]), &entry(), regs, |w| {
        w.words.insert(0xffff_c900_1111_0000, 4711);
    });
    let words: Vec<u64> = sent[0].iter().map(|v| v.as_word().unwrap()).collect();
    let at = entry();
    let stack = at.ip ^ regs[4] ^ regs[5] ^ 9;
    assert_eq!(
        words,
        [100, 200, words[2], 1, 2, at.ip, 4711, stack, u64::MAX]
    );
    assert_eq!(sent[1], [Value::UserStack { id: 10, pid: 100 }]);
    let now = sent[2][0].as_word().unwrap();
    assert!(now > 5000);
    assert_eq!(sent[2][1].as_word(), Some(now + 1 - 1000));
    assert_eq!(losses(&world, Loss::Stacks), 0);
}

#[test]
fn stacks_that_are_not_there() {
    for (sp, stacks) in [(0, 1), (1, 0)] {
        let body = vec![printf(vec![builtin(Builtin::KernelStack(9))])];
        let mut regs = args(&[]);
        regs[4] = sp;
        let (sent, _, world) = once(clause(None, body, vec![]), &entry(), regs, |_| {});
        assert!((sent[0][0].as_word().unwrap() as i64) < 0);
        assert_eq!(losses(&world, Loss::Stacks), stacks);
    }
}

#[test]
fn callees() {
    let body = || vec![printf(vec![builtin(Builtin::Callee)])];
    let at = |callee| At {
        callee: Some(callee),
        ..entry()
    };
    let memory = Callee::Memory {
        base: Some(3),
        index: Some((1, 8)),
        disp: -8,
    };
    for (callee, expected) in [
        (Callee::Known(5), 5),
        (Callee::Reg(0), 0x5555),
        (memory, 4712),
    ] {
        let mut regs = args(&[]);
        regs[3] = 0xffff_8880_0000_0000;
        regs[1] = 3;
        let (sent, ..) = once(clause(None, body(), vec![]), &at(callee), regs, |w| {
            w.kernel.insert(0xffff_8880_0000_0010, 4712);
        });
        assert_eq!(sent[0][0].as_word(), Some(expected));
    }
}

#[test]
fn refusals() {
    let print = |b| clause(None, vec![printf(vec![builtin(b)])], vec![]);
    let inside = At {
        entry: false,
        ..entry()
    };
    assert_eq!(
        refused(print(Builtin::Arg(0)), &inside),
        Reason::NoArguments
    );
    assert_eq!(refused(print(Builtin::Caller), &inside), Reason::NoCaller);
    assert_eq!(
        refused(print(Builtin::RetVal), &entry()),
        Reason::NoReturnValue
    );
    assert_eq!(refused(print(Builtin::Callee), &entry()), Reason::NoCallee);
    let only = |s| clause(None, vec![s], vec![]);
    assert_eq!(
        refused(only(Stmt::Return(int(0))), &inside),
        Reason::NotEntry
    );
    assert_eq!(refused(only(Stmt::Skip), &entry()), Reason::NoSkip);
    let rsp = Stmt::SetReg {
        reg: 4,
        value: int(0),
    };
    assert_eq!(refused(only(rsp), &entry()), Reason::Register);
    let long = (0..20).map(|_| str_at(arg(0), 200)).collect();
    assert_eq!(refused(only(printf(long)), &entry()), Reason::Record);
    let locals = vec![Type::Str(200); 3];
    assert_eq!(
        refused(clause(None, vec![], locals), &entry()),
        Reason::Frame
    );
    let mut deep = int(1);
    for _ in 0..1000 {
        deep = e(
            ExprKind::Unary {
                op: Unary::Neg,
                a: Box::new(deep),
            },
            Type::I64,
        );
    }
    assert_eq!(refused(only(printf(vec![deep])), &entry()), Reason::Deep);
}

#[test]
fn what_only_unsafe_scripts_do() {
    let at = At {
        next: Some(0xffff_ffff_8100_2345),
        ..entry()
    };
    let body = vec![
        Stmt::SetReg {
            reg: 3,
            value: arg(0),
        },
        Stmt::Skip,
        printf(vec![int(1)]),
    ];
    let (sent, ended, world) = once(clause(None, body, vec![]), &at, args(&[8]), |_| {});
    assert_eq!((sent.len(), ended), (0, Ended::Left(0xffff_ffff_8100_2345)));
    assert_eq!(world.words[&3], 8);
    let body = vec![Stmt::Return(int(-22))];
    let (_, ended, world) = once(clause(None, body, vec![]), &at, args(&[8]), |_| {});
    assert_eq!(ended, Ended::Left(RETURNS));
    assert_eq!(world.words[&0] as i64, -22);
}

/// `-p`: before everything else.
#[test]
fn one_process_only() {
    let body = vec![printf(vec![int(1)])];
    let script = script(vec![], vec![clause(None, body, vec![])]);
    let places = places(&script, 1, 4096);
    for (pid, ended) in [(100, Ended::Done), (101, Ended::Filtered)] {
        let facts = facts();
        let session = Session {
            script: &script,
            places: &places,
            facts: &facts,
            only: Some(pid),
        };
        let program = lower(
            &session,
            &script.clauses[0],
            &entry(),
            &mut Events::default(),
        )
        .unwrap();
        crate::valid::check(&program);
        let world = World::new(&script, &places, 1);
        assert_eq!(run_alone(world, &program, &[args(&[])]).runs[0].1, ended);
    }
}

/// A callout within another: the clause ends where its result is needed, and that is counted.
#[test]
fn nested_callouts() {
    for b in [Builtin::Nsecs, Builtin::KernelStack(3)] {
        let body = vec![set(0, builtin(b)), printf(vec![int(1)])];
        let (sent, _, world) = once(
            clause(None, body, vec![Type::U64]),
            &entry(),
            args(&[]),
            |w| w.nested = 1,
        );
        assert!(sent.is_empty());
        assert_eq!(losses(&world, Loss::Nested), 1);
    }
}
