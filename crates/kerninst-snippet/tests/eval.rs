//! The interpreter on programs whose results are known.

use std::collections::HashMap;

use kerninst_snippet::Reg;
use kerninst_snippet::eval::{Ended, Machine, binary, eval, extend, high_bit};
use kerninst_snippet::ir::{BinOp, Cond, Label, Op, Program, Region, V, Val, Width};

#[derive(Default)]
struct World {
    regs: [u64; 16],
    memory: HashMap<u64, u64>,
    cpu: HashMap<u64, u64>,
    calls: Vec<Vec<u64>>,
}

impl Machine for World {
    fn reg(&mut self, reg: Reg) -> u64 {
        self.regs[usize::from(reg.number())]
    }
    fn set_reg(&mut self, reg: Reg, value: u64) {
        self.regs[usize::from(reg.number())] = value;
    }
    fn probe(&mut self, at: u64, width: Width) -> Option<u64> {
        self.memory.get(&at).map(|v| extend(*v, width, false))
    }
    fn probe_store(&mut self, at: u64, _: Width, value: u64) -> bool {
        self.memory.get_mut(&at).map(|v| *v = value).is_some()
    }
    fn load(&mut self, at: u64, width: Width) -> u64 {
        extend(self.memory.get(&at).copied().unwrap_or(0), width, false)
    }
    fn store(&mut self, at: u64, _: Width, value: u64) {
        self.memory.insert(at, value);
    }
    fn frame(&mut self, _: u32) -> u64 {
        0x7000
    }
    fn cpu_load(&mut self, pointer: u64, _: Width) -> u64 {
        self.cpu.get(&pointer).copied().unwrap_or(0)
    }
    fn cpu_store(&mut self, pointer: u64, value: u64) {
        self.cpu.insert(pointer, value);
    }
    fn clock(&mut self) -> u64 {
        77
    }
    fn call(&mut self, _: u64, args: &[u64]) -> u64 {
        self.calls.push(args.to_vec());
        args.iter().sum()
    }
}

fn body(ops: Vec<Op>) -> Program {
    let body = Region {
        ops,
        registers: 8,
        labels: 8,
        frame: 0,
    };
    Program {
        body,
        ..Program::default()
    }
}

fn v(n: u32) -> Val {
    Val::V(V(n))
}

#[test]
fn a_loop_runs_as_often_as_it_may() {
    let mut w = World::default();
    let add = Op::CpuAdd {
        pointer: Val::Imm(64),
        value: Val::Imm(3),
    };
    let program = body(vec![
        Op::Copy {
            to: V(0),
            from: Val::Imm(5),
        },
        Op::Label(Label(0)),
        add,
        Op::Again {
            left: V(0),
            to: Label(0),
            rounds: 5,
        },
    ]);
    assert_eq!(eval(&program, &mut w), Ended::Done);
    assert_eq!(w.cpu[&64], 15);
}

#[test]
fn a_filter_that_holds_not_ends_the_program() {
    let mut w = World::default();
    let branch = Op::Branch {
        cond: Cond::Eq,
        a: v(0),
        b: Val::Imm(7),
        to: Label(0),
    };
    let mut program = body(vec![Op::CpuAdd {
        pointer: Val::Imm(0),
        value: Val::Imm(1),
    }]);
    program.filter = Region {
        ops: vec![
            Op::Reg {
                to: V(0),
                reg: Reg::RAX,
            },
            branch,
            Op::End,
            Op::Label(Label(0)),
        ],
        registers: 1,
        labels: 1,
        frame: 0,
    };
    assert_eq!(eval(&program, &mut w), Ended::Filtered);
    w.regs[0] = 7;
    assert_eq!(eval(&program, &mut w), Ended::Done);
    assert_eq!(w.cpu[&0], 1);
}

#[test]
fn what_cannot_be_read_goes_to_its_label() {
    for (at, read) in [
        (0xffff_8880_0000_1000, Some(0xffff_ffff_ffff_fff0)),
        (0xffff_8880_0000_2000, None),
        (0x1000, None),
        (0x8000_0000_0000_0000, None),
        (0xffff_ffff_ff60_0000, None),
    ] {
        let mut w = World::default();
        for there in [0xffff_8880_0000_1000, 0x1000, 0xffff_ffff_ff60_0000] {
            w.memory.insert(there, 0xf0);
        }
        let probe = Op::Probe {
            to: V(0),
            at: Val::Imm(at - 8),
            offset: 8,
            width: Width::B1,
            signed: true,
            fault: Label(0),
        };
        let call = Op::Call {
            function: 1,
            args: vec![v(0)],
            to: None,
        };
        let program = body(vec![probe, call, Op::Label(Label(0))]);
        assert_eq!(eval(&program, &mut w), Ended::Done);
        assert_eq!(w.calls.first().and_then(|c| c.first()).copied(), read);
    }
}

#[test]
fn arithmetic_at_its_edges() {
    let min = i64::MIN as u64;
    let minus = u64::MAX;
    for (op, a, b, result) in [
        (BinOp::Shl, 3, 64, 0),
        (BinOp::Shl, 3, 1 << 32, 0),
        (BinOp::Shr, min, 63, 1),
        (BinOp::Sar, min, 64, minus),
        (BinOp::Sar, min, minus, minus),
        (BinOp::Sar, 5, 1 << 40, 0),
        (BinOp::DivU, 5, 0, 0),
        (BinOp::RemU, 5, 0, 0),
        (BinOp::DivS, min, minus, min),
        (BinOp::RemS, min, minus, 0),
        (BinOp::DivS, 5, 0, 0),
        (BinOp::RemS, 5, 0, 0),
        (BinOp::RemS, minus - 6, 4, minus - 2),
    ] {
        assert_eq!(binary(op, a, b), result, "{op:?} {a:#x} {b:#x}");
    }
    assert_eq!([0, 1, 2, 3, min].map(high_bit), [0, 0, 1, 1, 63]);
}

#[test]
fn a_label_that_is_not_there_is_no_program() {
    let program = body(vec![Op::Jump(Label(3))]);
    assert_eq!(eval(&program, &mut World::default()), Ended::Invalid);
}
