//! Clauses that are run in a world of vectors.

use std::collections::BTreeMap;
use std::convert::Infallible;

use expect_test::{Expect, expect};

use super::*;
use crate::hir::{Binary, Clause, Expr, ExprKind, MapValue, On, Span, Stmt, Type, Unary};
use crate::value::Entry;

/// Remembers what was asked of it.
struct Made {
    maps: Vec<MapValue>,
    cells: BTreeMap<(u32, Vec<Value>), Cell>,
    log: String,
}

impl Made {
    fn new(maps: impl IntoIterator<Item = MapValue>) -> Made {
        Made {
            maps: maps.into_iter().collect(),
            cells: BTreeMap::new(),
            log: String::new(),
        }
    }

    fn entries(&self, map: u32) -> Vec<Entry> {
        let of = self.cells.iter().filter(|((m, _), _)| *m == map);
        of.map(|((_, key), cell)| Entry {
            key: key.clone(),
            cell: cell.clone(),
        })
        .collect()
    }
}

impl World for Made {
    type Error = Infallible;

    fn builtin(&mut self, which: Builtin) -> Value {
        match which {
            Builtin::Comm => Value::Text(b"kerninst".to_vec()),
            _ => Value::uint(1234),
        }
    }

    fn get(&mut self, map: u32, key: &[Value]) -> Option<Cell> {
        self.cells.get(&(map, key.to_vec())).cloned()
    }

    fn set(&mut self, map: u32, key: Vec<Value>, value: Value) -> Result<(), Infallible> {
        self.cells.insert((map, key), Cell::Plain(value));
        Ok(())
    }

    fn update(&mut self, map: u32, key: Vec<Value>, value: Value) -> Result<(), Infallible> {
        let kind = &self.maps[map as usize];
        let old = self.cells.remove(&(map, key.clone()));
        self.cells.insert((map, key), update(kind, old, &value));
        Ok(())
    }

    fn delete(&mut self, map: u32, key: &[Value]) -> Result<(), Infallible> {
        self.cells.remove(&(map, key.to_vec()));
        Ok(())
    }

    fn act(&mut self, what: &What, values: Vec<Value>) -> Result<(), Infallible> {
        let shown: Vec<_> = values.iter().map(shown).collect();
        self.log += &format!("{what:?} {}\n", shown.join(" "));
        Ok(())
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Int { bits, signed, .. } => {
            let letter = if *signed { 'i' } else { 'u' };
            format!("{}{letter}{bits}", value.number().unwrap())
        }
        Value::Text(t) => format!("{:?}", String::from_utf8_lossy(t)),
        other => format!("{other:?}"),
    }
}

fn e(kind: ExprKind, ty: Type) -> Expr {
    let span = Span { start: 3, end: 7 };
    Expr { kind, ty, span }
}

fn int(n: i64) -> Expr {
    e(ExprKind::Int(n as u64), Type::I64)
}

fn local(n: u32, ty: Type) -> Expr {
    e(ExprKind::Local(n), ty)
}

fn op(op: Binary, a: Expr, b: Expr) -> Expr {
    let ty = a.ty.clone();
    let (a, b) = (Box::new(a), Box::new(b));
    e(ExprKind::Binary { op, a, b }, ty)
}

fn text(t: &str, size: u32) -> Expr {
    e(ExprKind::Text(t.into()), Type::Str(size))
}

fn set(local: u32, value: Expr) -> Stmt {
    Stmt::SetLocal { local, value }
}

fn clause(locals: &[Type], body: Vec<Stmt>) -> Clause {
    Clause {
        on: vec![On::End],
        filter: None,
        body,
        locals: locals.to_vec(),
        span: Span { start: 0, end: 99 },
    }
}

fn check(world: &mut Made, clause: &Clause, ended: Ended, expected: Expect) {
    assert_eq!(allowed(clause), Ok(()));
    assert_eq!(run(clause, world).unwrap(), ended);
    expected.assert_eq(&world.log);
}

fn print(e: Expr) -> Stmt {
    Stmt::PrintValue(e)
}

/// Would catch: values that are not cut off to their type, a side that is evaluated though it should not be.
#[test]
fn expressions() {
    let i8s = Type::Int {
        bits: 8,
        signed: true,
    };
    let u8s = Type::Int {
        bits: 8,
        signed: false,
    };
    let cast = |a, ty: &Type| e(ExprKind::Cast(Box::new(a)), ty.clone());
    let key = |a| ExprKind::Unary {
        op: Unary::Not,
        a: Box::new(a),
    };
    let choice = |c, a, b| {
        let (c, a, b) = (Box::new(c), Box::new(a), Box::new(b));
        e(ExprKind::Choice { c, a, b }, Type::Str(8))
    };
    let clause = clause(
        &[i8s.clone(), Type::Str(4)],
        vec![
            set(0, int(200)),
            print(local(0, i8s.clone())),
            print(cast(int(-1), &u8s)),
            print(cast(cast(int(-1), &u8s), &Type::I64)),
            set(1, text("abcdef", 8)),
            print(local(1, Type::Str(4))),
            print(op(Binary::Div, int(7), int(0))),
            print(op(
                Binary::Add,
                local(0, i8s.clone()),
                local(0, i8s.clone()),
            )),
            print(e(key(int(0)), Type::I64)),
            print(choice(
                op(Binary::Lt, int(-1), int(0)),
                text("yes", 8),
                text("no", 8),
            )),
            print(op(Binary::Eq, text("a", 8), text("a", 16))),
            print(op(Binary::Both, int(4), int(2))),
            print(op(Binary::Either, int(0), int(0))),
            print(e(ExprKind::Builtin(Builtin::Comm), Type::Str(16))),
            print(e(
                ExprKind::Builtin(Builtin::Pid),
                Type::Int {
                    bits: 32,
                    signed: false,
                },
            )),
        ],
    );
    check(
        &mut Made::new([]),
        &clause,
        Ended::Done,
        expect![[r#"
        PrintValue -56i8
        PrintValue 255u8
        PrintValue 255i64
        PrintValue "abc"
        PrintValue 0i64
        PrintValue -112i8
        PrintValue 1i64
        PrintValue "yes"
        PrintValue ""
        PrintValue 1i64
        PrintValue 0i64
        PrintValue "kerninst"
        PrintValue 1234u32
    "#]],
    );
}

/// Would catch: loops that run once too often, `break` and `continue` of the wrong loop, `return` that is not heeded.
#[test]
fn control_flow() {
    let i = || local(0, Type::I64);
    let is = |n| op(Binary::Eq, i(), int(n));
    let when = |c, then| Stmt::If {
        c,
        then: vec![then],
        other: Vec::new(),
    };
    let repeat = |local, to, rounds, body| Stmt::Repeat {
        local,
        from: Box::new(int(0)),
        to: Box::new(int(to)),
        rounds,
        body,
    };
    let clause = clause(
        &[Type::I64],
        vec![
            repeat(
                Some(0),
                9,
                1024,
                vec![
                    when(is(1), Stmt::Continue),
                    when(is(4), Stmt::Break),
                    print(i()),
                ],
            ),
            repeat(Some(0), 9, 2, vec![print(i())]),
            repeat(None, 0, 3, vec![print(int(-7))]),
            set(0, int(3)),
            Stmt::While {
                c: i(),
                rounds: 100,
                body: vec![print(i()), set(0, op(Binary::Sub, i(), int(1)))],
            },
            repeat(None, 0, 3, vec![Stmt::Done]),
            print(int(999)),
        ],
    );
    check(
        &mut Made::new([]),
        &clause,
        Ended::Done,
        expect![[r#"
        PrintValue 0i64
        PrintValue 2i64
        PrintValue 3i64
        PrintValue 0i64
        PrintValue 1i64
        PrintValue -7i64
        PrintValue -7i64
        PrintValue -7i64
        PrintValue 3i64
        PrintValue 2i64
        PrintValue 1i64
    "#]],
    );
}

/// Would catch: a clause that goes on after `exit()`, or an action with other values than the script's.
#[test]
fn actions() {
    let clause = clause(
        &[],
        vec![
            Stmt::Printf {
                format: 3,
                args: vec![int(1), text("x", 8)],
            },
            Stmt::PrintMap {
                map: 1,
                top: 5,
                div: 10,
            },
            Stmt::Clear(0),
            Stmt::Zero(1),
            Stmt::Time("%H\n".into()),
            Stmt::Cat("/proc/loadavg".into()),
            Stmt::If {
                c: int(1),
                then: vec![Stmt::Exit],
                other: Vec::new(),
            },
            print(int(1)),
        ],
    );
    check(
        &mut Made::new([]),
        &clause,
        Ended::Exit,
        expect![[r#"
        Printf(3) 1i64 "x"
        PrintMap { map: 1, top: 5, div: 10 } 
        Clear(0) 
        Zero(1) 
        Time("%H\n") 
        Cat("/proc/loadavg") 
        Exit 
    "#]],
    );
}

/// Would catch: keys that are lost, updates of one key that go to another, aggregations that cannot be read.
#[test]
fn maps() {
    let mut world = Made::new([
        MapValue::Plain(Type::I64),
        MapValue::Count,
        MapValue::Avg { signed: true },
    ]);
    let get = |map, key: &[Expr]| {
        e(
            ExprKind::Map {
                map,
                key: key.to_vec(),
            },
            Type::I64,
        )
    };
    let update = |map, key: Expr, value| Stmt::Update {
        map,
        key: vec![key],
        value,
    };
    let clause = clause(
        &[],
        vec![
            print(get(0, &[int(1)])),
            Stmt::SetMap {
                map: 0,
                key: vec![int(1)],
                value: int(5),
            },
            Stmt::SetMap {
                map: 0,
                key: vec![int(2)],
                value: op(Binary::Add, get(0, &[int(1)]), int(1)),
            },
            print(get(0, &[int(2)])),
            Stmt::Delete {
                map: 0,
                key: vec![int(1)],
            },
            print(get(0, &[int(1)])),
            update(1, text("a", 8), None),
            update(1, text("a", 8), None),
            print(get(1, &[text("a", 8)])),
            update(2, text("a", 8), Some(int(-3))),
            update(2, text("a", 8), Some(int(-6))),
            print(get(2, &[text("a", 8)])),
        ],
    );
    check(
        &mut world,
        &clause,
        Ended::Done,
        expect![[r#"
        PrintValue 0i64
        PrintValue 6i64
        PrintValue 0i64
        PrintValue 2i64
        PrintValue -4i64
    "#]],
    );
    assert_eq!(world.entries(0).len(), 1);
}

/// Would catch: a filter that is not heeded.
#[test]
fn a_filter() {
    let mut clause = clause(&[], vec![print(int(1))]);
    clause.filter = Some(int(0));
    check(
        &mut Made::new([]),
        &clause,
        Ended::Filtered,
        expect![[r#""#]],
    );
}

/// Would catch: nested loops that hang kerninst.
#[test]
fn too_many_steps() {
    let mut body = Vec::new();
    for _ in 0..8 {
        body = vec![Stmt::While {
            c: int(1),
            rounds: 1024,
            body,
        }];
    }
    let got = run(&clause(&[], body), &mut Made::new([]));
    assert!(matches!(got, Err(RunError::TooLong)));
}

/// Would catch: something that cannot work in user space and is accepted, wherever it stands.
#[test]
fn what_is_not_allowed() {
    let load = |address| ExprKind::Load {
        address: Box::new(address),
        offset: 0,
        bytes: 8,
        signed: false,
        bits: None,
        user: false,
    };
    let builtin = |b| e(ExprKind::Builtin(b), Type::U64);
    let at = || Box::new(int(0));
    let all = [
        print(builtin(Builtin::CurTask)),
        print(builtin(Builtin::Func)),
        print(builtin(Builtin::Probe)),
        print(op(Binary::Add, int(1), builtin(Builtin::Arg(0)))),
        set(0, builtin(Builtin::RetVal)),
        Stmt::If {
            c: int(1),
            then: Vec::new(),
            other: vec![print(builtin(Builtin::Reg(3)))],
        },
        Stmt::Printf {
            format: 0,
            args: vec![int(0), builtin(Builtin::Ip)],
        },
        Stmt::Delete {
            map: 0,
            key: vec![builtin(Builtin::Callee)],
        },
        Stmt::Update {
            map: 0,
            key: vec![builtin(Builtin::Caller)],
            value: None,
        },
        Stmt::Update {
            map: 0,
            key: Vec::new(),
            value: Some(builtin(Builtin::KernelStack(3))),
        },
        Stmt::While {
            c: builtin(Builtin::UserStack(3)),
            rounds: 1,
            body: Vec::new(),
        },
        print(e(load(int(0)), Type::U64)),
        print(e(ExprKind::Str { at: at() }, Type::Str(64))),
        print(e(ExprKind::Buf { at: at() }, Type::Bytes(64))),
        Stmt::SetReg {
            reg: 0,
            value: int(0),
        },
        Stmt::SetMemory {
            address: int(0),
            offset: 0,
            bytes: 8,
            value: int(0),
        },
        Stmt::Return(int(0)),
        Stmt::Skip,
    ];
    let mut messages = String::new();
    for stmt in all {
        let mut clause = clause(&[Type::I64], vec![stmt]);
        for on in [On::Begin, On::Interval(1), On::End] {
            clause.on = vec![
                On::Probe {
                    text: "entry:f".into(),
                    span: Span::default(),
                },
                on,
            ];
            let (span, message) = allowed(&clause).unwrap_err();
            assert_ne!(span, Span::default());
            if clause.on.contains(&On::End) {
                messages += &format!("{message}\n");
            }
        }
        clause.on.pop();
        assert_eq!(allowed(&clause), Ok(()));
    }
    expect![[r#"
        `curtask` cannot be used in END: it runs in user space
        `func` cannot be used in END: it runs in user space, at no point of the kernel
        `probe` cannot be used in END: it runs in user space, at no point of the kernel
        an argument cannot be used in END: there is no function
        `retval` cannot be used in END: there is no function that returns
        `reg()` cannot be used in END: it runs in user space, at no point of the kernel
        `ip` cannot be used in END: it runs in user space, at no point of the kernel
        `callee` cannot be used in END: it runs in user space, at no point of the kernel
        `caller` cannot be used in END: it runs in user space, at no point of the kernel
        `kstack` cannot be used in END: it runs in user space, at no point of the kernel
        `ustack` cannot be used in END: it runs in user space, at no point of the kernel
        a read of memory cannot be used in END: only probes read the kernel's memory; read it there and keep the value in a map
        `str()` of an address cannot be used in END: only probes read memory; read it there and keep the text in a map
        `buf()` cannot be used in END: only probes read memory
        an assignment to a register cannot be used in END: it runs in user space, where there are no registers of the kernel
        an assignment to kernel memory cannot be used in END: it runs in user space
        `return` with a value cannot be used in END: there is no function to return from; `return` alone ends the clause
        `skip()` cannot be used in END: there is no instruction to skip
    "#]].assert_eq(&messages);
    let mut filtered = clause(&[], Vec::new());
    filtered.filter = Some(builtin(Builtin::Func));
    assert!(allowed(&filtered).is_err());
}
