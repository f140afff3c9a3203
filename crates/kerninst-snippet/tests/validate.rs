//! What is no program: each rule of `validate` by a program that breaks it, and nothing else.

use kerninst_snippet::Reg;
use kerninst_snippet::ir::{
    Base, Cond, Label, Op, Program, Region, V, Val, What, Width, validate, worst_cost,
};

fn body(ops: Vec<Op>) -> Program {
    let body = Region {
        ops,
        registers: 4,
        labels: 4,
        frame: 16,
    };
    Program {
        body,
        ..Program::default()
    }
}

fn copy(to: u32, from: u64) -> Op {
    Op::Copy {
        to: V(to),
        from: Val::Imm(from),
    }
}

fn label(n: u32) -> Op {
    Op::Label(Label(n))
}

fn jump(n: u32) -> Op {
    Op::Jump(Label(n))
}

fn again(left: u32, to: u32, rounds: u32) -> Op {
    Op::Again {
        left: V(left),
        to: Label(to),
        rounds,
    }
}

fn branch(v: u32, to: u32) -> Op {
    Op::Branch {
        cond: Cond::Eq,
        a: Val::V(V(v)),
        b: Val::Imm(0),
        to: Label(to),
    }
}

fn add(v: u32) -> Op {
    Op::CpuAdd {
        pointer: Val::Imm(0),
        value: Val::V(V(v)),
    }
}

fn refused(ops: Vec<Op>, at: usize, what: What) {
    let e = validate(&body(ops)).expect_err("it is no program");
    assert_eq!((e.region, e.at, e.what), ("body", at, what), "{e}");
}

#[test]
fn each_rule() {
    refused(vec![copy(4, 0)], 0, What::Register(V(4)));
    refused(vec![label(4)], 0, What::Label(Label(4)));
    refused(vec![label(0), label(0)], 0, What::Twice(Label(0)));
    refused(vec![label(0), jump(0)], 1, What::Backward(Label(0)));
    refused(vec![jump(1)], 0, What::Backward(Label(1)));
    refused(vec![add(0)], 0, What::Unwritten(V(0)));
    // Written on one way only.
    let one_way = vec![copy(1, 0), branch(1, 0), copy(0, 0), label(0), add(0)];
    refused(one_way, 4, What::Unwritten(V(0)));
    // What a probe reads is not there when it faults.
    let probe = Op::Probe {
        to: V(0),
        at: Val::Imm(0),
        offset: 0,
        width: Width::B8,
        signed: false,
        fault: Label(0),
    };
    refused(vec![probe, label(0), add(0)], 2, What::Unwritten(V(0)));
    let store = Op::Store {
        base: Base::Frame,
        offset: 12,
        width: Width::B8,
        value: Val::Imm(0),
    };
    refused(vec![store], 0, What::Frame);
    let set = Op::SetReg {
        reg: Reg::RSP,
        value: Val::Imm(0),
    };
    refused(vec![set], 0, What::StackPointer);
    let call = Op::Call {
        function: 0,
        args: vec![Val::Imm(0); 7],
        to: None,
    };
    refused(vec![call], 0, What::Arguments(7));
    let far = Op::ProbeStore {
        at: Val::Imm(0),
        offset: i32::MAX,
        width: Width::B8,
        value: Val::Imm(0),
        fault: Label(0),
    };
    refused(vec![far, label(0)], 0, What::Offset(i32::MAX));
}

#[test]
fn loops() {
    let good = vec![copy(0, 3), label(0), copy(1, 1), add(1), again(0, 0, 3)];
    assert_eq!(validate(&body(good)), Ok(()));
    let unset = vec![copy(0, 4), label(0), again(0, 0, 3)];
    refused(unset, 2, What::Rounds(V(0)));
    let written = vec![copy(0, 3), label(0), copy(0, 3), again(0, 0, 3)];
    refused(written, 3, What::Counter(V(0)));
    refused(
        vec![copy(0, 1), again(0, 0, 1), label(0)],
        1,
        What::Forward(Label(0)),
    );
    let into = vec![
        copy(1, 0),
        branch(1, 1),
        copy(0, 3),
        label(0),
        label(1),
        again(0, 0, 3),
    ];
    refused(into, 1, What::IntoLoop(Label(0)));
    let crossed = vec![
        copy(0, 2),
        label(0),
        copy(1, 2),
        label(1),
        again(0, 0, 2),
        again(1, 1, 2),
    ];
    let e = validate(&body(crossed)).expect_err("loops that cross");
    assert!(matches!(e.what, What::Crossed | What::Counter(_)), "{e}");
}

#[test]
fn the_size_is_bounded() {
    let mut frame = body(vec![]);
    frame.body.frame = 520;
    let e = validate(&frame).expect_err("too large a frame");
    assert_eq!(e.what, What::FrameSize(520));
    // Seventy values at the same time.
    let mut ops: Vec<Op> = (0..70).map(|n| copy(n, 0)).collect();
    ops.extend((0..70).map(add));
    let mut many = body(ops);
    many.body.registers = 70;
    let e = validate(&many).expect_err("too many values");
    assert_eq!(e.what, What::Pressure);
    let long = body(vec![label(0); 20_001]);
    assert_eq!(validate(&long).expect_err("too long").what, What::TooLong);
}

#[test]
fn the_worst_case_multiplies_nested_loops() {
    let inner = [copy(1, 5), label(1), add(1), again(1, 1, 5)];
    let outer = [copy(0, 3), label(0)];
    let ops = outer.into_iter().chain(inner).chain([again(0, 0, 3)]);
    // 1 + 3 * (1 + 5 * 2 + 1)
    let p = body(ops.collect());
    assert_eq!(validate(&p), Ok(()));
    assert_eq!(worst_cost(&p), 37);
}
