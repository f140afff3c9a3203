//! Typical programs as text: what their code costs, and what it looks like.

use expect_test::{Expect, expect};
use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter};
use kerninst_snippet::ir::{Base, BinOp, Cond, Label, Op, Program, Region, V, Val, Width};
use kerninst_snippet::{Code, Features, Flags, Free, Reg, Snippet, compile};

const NEAR: u64 = 0x3_1a40;
const CURRENT: u64 = 0x3_2d00;
const TGID: i32 = 0x984;
/// rax, rcx, rdx, rsi, rdi, r8 to r11.
const CALLER_SAVED: u16 = 0x0fc7;

fn v(n: u32) -> Val {
    Val::V(V(n))
}

fn reg(to: u32, number: u8) -> Op {
    Op::Reg {
        to: V(to),
        reg: Reg::new(number).expect("a register"),
    }
}

fn bin(op: BinOp, to: u32, a: Val, b: Val) -> Op {
    Op::Bin {
        op,
        to: V(to),
        a,
        b,
    }
}

fn branch(cond: Cond, a: Val, b: Val, to: u32) -> Op {
    let to = Label(to);
    Op::Branch { cond, a, b, to }
}

fn load(to: u32, at: Val, offset: i32) -> Op {
    Op::Load {
        to: V(to),
        base: Base::At(at),
        offset,
        width: Width::B8,
        signed: false,
    }
}

fn store(base: Base, offset: i32, value: Val) -> Op {
    Op::Store {
        base,
        offset,
        width: Width::B8,
        value,
    }
}

fn region(ops: Vec<Op>, registers: u32, frame: u32) -> Region {
    Region {
        ops,
        registers,
        labels: 8,
        frame,
    }
}

/// `/pid == 1234/`
fn pid_filter() -> Region {
    let ops = vec![
        Op::CpuLoad {
            to: V(0),
            pointer: Val::Imm(CURRENT),
            width: Width::B8,
        },
        Op::Load {
            to: V(1),
            base: Base::At(v(0)),
            offset: TGID,
            width: Width::B4,
            signed: false,
        },
        branch(Cond::Eq, v(1), Val::Imm(1234), 0),
        Op::End,
        Op::Label(Label(0)),
    ];
    region(ops, 2, 0)
}

fn count() -> Op {
    Op::CpuAdd {
        pointer: Val::Imm(NEAR),
        value: Val::Imm(1),
    }
}

fn listing(code: &Code) -> String {
    let mut out = String::new();
    let mut steps = code.stack.iter().peekable();
    let mut f = GasFormatter::new();
    for i in Decoder::with_ip(64, &code.bytes, 0, DecoderOptions::NONE).iter() {
        let mut text = String::new();
        f.format(&i, &mut text);
        if let Some(call) = code
            .calls
            .iter()
            .find(|c| u64::from(c.offset) == i.ip() + 1)
        {
            text = format!(
                "{} {:#x}",
                text.split(' ').next().unwrap_or(""),
                call.target
            );
        }
        if let Some(f) = code.faults.iter().find(|f| u64::from(f.offset) == i.ip()) {
            text += &format!("  ; faults to {:#x}", f.fixup);
        }
        if let Some(s) = steps.next_if(|s| u64::from(s.offset) == i.next_ip()) {
            text += &format!("  ; +{}", s.pushed);
        }
        out.push_str(&format!("{:3x} {text}\n", i.ip()));
    }
    out + &format!("cost {}, filtered {}\n", code.cost, code.cost_filtered)
}

fn check(program: Program, free: Free, expected: Expect) {
    let code = compile(
        &[Snippet::Program(program.into())],
        free,
        Features::default(),
    );
    expected.assert_eq(&listing(&code));
}

#[test]
fn a_pid_filter_that_matches_not_costs_three_instructions_more_than_a_counter() {
    let program = Program {
        filter: pid_filter(),
        body: region(vec![count()], 0, 0),
    };
    check(
        program.clone(),
        Free::new(1, Flags::ALL),
        expect![[r#"
          0 mov %gs:0x32D00,%rax
          9 mov 0x984(%rax),%eax
          f cmp $0x4D2,%rax
         16 jne 0x0000000000000021
         18 incq %gs:0x31A40
        cost 5, filtered 4
    "#]],
    );
    check(
        program,
        Free::NOTHING,
        expect![[r#"
          0 push %rax  ; +8
          1 pushf  ; +16
          2 mov %gs:0x32D00,%rax
          b mov 0x984(%rax),%eax
         11 cmp $0x4D2,%rax
         18 jne 0x0000000000000023
         1a incq %gs:0x31A40
         23 popf  ; +8
         24 pop %rax  ; +0
        cost 9, filtered 8
    "#]],
    );
}

/// `@[arg1] = count()`: a table of entries of three words (state, key, pointer of the cell), looked at once.
#[test]
fn a_keyed_count() {
    const TABLE: u64 = 0xffff_c900_0123_0000;
    let ops = vec![
        reg(0, 6),
        bin(BinOp::Mul, 1, v(0), Val::Imm(0x9e37_79b9_7f4a_7c15)),
        bin(BinOp::Shr, 2, v(1), Val::Imm(32)),
        bin(BinOp::Xor, 1, v(1), v(2)),
        bin(BinOp::Shr, 3, v(1), Val::Imm(16)),
        bin(BinOp::And, 3, v(3), Val::Imm(1023)),
        bin(BinOp::Mul, 3, v(3), Val::Imm(24)),
        bin(BinOp::Add, 3, v(3), Val::Imm(TABLE)),
        Op::Load {
            to: V(4),
            base: Base::At(v(3)),
            offset: 0,
            width: Width::B1,
            signed: false,
        },
        bin(BinOp::And, 4, v(4), Val::Imm(3)),
        branch(Cond::Ne, v(4), Val::Imm(2), 0),
        load(5, v(3), 8),
        branch(Cond::Ne, v(5), v(0), 0),
        load(6, v(3), 16),
        Op::CpuAdd {
            pointer: v(6),
            value: Val::Imm(1),
        },
        Op::End,
        Op::Label(Label(0)),
        count(),
    ];
    let program = Program {
        body: region(ops, 7, 0),
        ..Program::default()
    };
    check(
        program.clone(),
        Free::new(CALLER_SAVED & !0xc0, Flags::ALL),
        expect![[r#"
              0 mov %rsi,%rcx
              3 movabs $0x9E3779B97F4A7C15,%rax
              d imul %rax,%rcx
             11 mov %rcx,%rax
             14 shr $0x20,%rax
             18 xor %rax,%rcx
             1b mov %rcx,%rax
             1e shr $0x10,%rax
             22 and $0x3FF,%rax
             29 imul $0x18,%rax
             30 movabs $0xFFFFC90001230000,%rcx
             3a add %rcx,%rax
             3d movzbl (%rax),%ecx
             40 and $3,%rcx
             44 cmp $2,%rcx
             48 jne 0x000000000000005D
             4a mov 8(%rax),%rcx
             4e cmp %rsi,%rcx
             51 jne 0x000000000000005D
             53 mov 0x10(%rax),%rax
             57 incq %gs:(%rax)
             5b jmp 0x0000000000000066
             5d incq %gs:0x31A40
            cost 22, filtered 22
        "#]],
    );
    check(
        program,
        Free::new(1, Flags::NONE),
        expect![[r#"
              0 push %rcx  ; +8
              1 pushf  ; +16
              2 mov %rsi,%rcx
              5 movabs $0x9E3779B97F4A7C15,%rax
              f imul %rax,%rcx
             13 mov %rcx,%rax
             16 shr $0x20,%rax
             1a xor %rax,%rcx
             1d mov %rcx,%rax
             20 shr $0x10,%rax
             24 and $0x3FF,%rax
             2b imul $0x18,%rax
             32 movabs $0xFFFFC90001230000,%rcx
             3c add %rcx,%rax
             3f movzbl (%rax),%ecx
             42 and $3,%rcx
             46 cmp $2,%rcx
             4a jne 0x000000000000005F
             4c mov 8(%rax),%rcx
             50 cmp %rsi,%rcx
             53 jne 0x000000000000005F
             55 mov 0x10(%rax),%rax
             59 incq %gs:(%rax)
             5d jmp 0x0000000000000068
             5f incq %gs:0x31A40
             68 popf  ; +8
             69 pop %rcx  ; +0
            cost 26, filtered 26
        "#]],
    );
}

/// `printf("%d %d %s", arg0, arg1->x, str(arg2))`.
#[test]
fn an_event_with_three_arguments() {
    const TEXT: u64 = 0xffff_ffff_c012_3450;
    let ops = vec![
        reg(0, 7),
        reg(1, 6),
        Op::Copy {
            to: V(2),
            from: Val::Imm(0),
        },
        Op::Probe {
            to: V(2),
            at: v(1),
            offset: 0x20,
            width: Width::B4,
            signed: true,
            fault: Label(0),
        },
        Op::Label(Label(0)),
        // The text first, into scratch memory; then the record is reserved.
        reg(3, 2),
        Op::FrameAddress {
            to: V(4),
            offset: 0,
        },
        Op::Call {
            function: TEXT,
            args: vec![v(4), v(3), Val::Imm(16)],
            to: None,
        },
        Op::CpuLoad {
            to: V(5),
            pointer: Val::Imm(NEAR),
            width: Width::B8,
        },
        load(6, v(5), 0),
        bin(BinOp::Add, 7, v(6), Val::Imm(48)),
        Op::Swap {
            base: Base::At(v(5)),
            offset: 0,
            old: v(6),
            new: v(7),
            fail: Label(1),
        },
        bin(BinOp::And, 6, v(6), Val::Imm(0xffff)),
        bin(BinOp::Add, 6, v(6), v(5)),
        store(Base::At(v(6)), 16, v(0)),
        store(Base::At(v(6)), 24, v(2)),
        Op::Load {
            to: V(8),
            base: Base::Frame,
            offset: 0,
            width: Width::B8,
            signed: false,
        },
        store(Base::At(v(6)), 32, v(8)),
        store(Base::At(v(6)), 0, Val::Imm(0x8000_0000_0000_0028)),
        Op::Label(Label(1)),
    ];
    let program = Program {
        body: region(ops, 9, 16),
        ..Program::default()
    };
    check(
        program,
        Free::new(0x0f03, Flags::ALL),
        expect![[r#"
              0 push %rdx  ; +8
              1 push %rbx  ; +16
              2 push %rsi  ; +24
              3 push %rdi  ; +32
              4 lea -0x18(%rsp),%rsp  ; +56
              9 mov 0x18(%rsp),%rax
              e mov %rax,0x10(%rsp)
             13 mov $0,%ebx
             18 cmp $0xFFFFFFFFFF5FFFD0,%rsi
             1f jge 0x0000000000000025
             21 movslq 0x20(%rsi),%rbx  ; faults to 0x25
             25 lea (%rsp),%rdi
             29 mov %rdx,%rsi
             2c mov $0x10,%edx
             31 call 0xffffffffc0123450
             36 mov %gs:0x31A40,%rcx
             3f mov (%rcx),%rdx
             42 lea 0x30(%rdx),%rsi
             46 mov %rdx,%rax
             49 lock cmpxchg %rsi,(%rcx)
             4e jne 0x000000000000007C
             50 and $0xFFFF,%rdx
             57 add %rcx,%rdx
             5a mov 0x10(%rsp),%rax
             5f mov %rax,0x10(%rdx)
             63 mov %rbx,0x18(%rdx)
             67 mov (%rsp),%rax
             6b mov %rax,0x20(%rdx)
             6f movabs $0x8000000000000028,%rax
             79 mov %rax,(%rdx)
             7c lea 0x18(%rsp),%rsp  ; +32
             81 pop %rdi  ; +24
             82 pop %rsi  ; +16
             83 pop %rbx  ; +8
             84 pop %rdx  ; +0
            cost 35, filtered 35
        "#]],
    );
}

/// `entry:f /arg0 == 0/ { return -12 }`.
#[test]
fn a_function_that_is_skipped() {
    const RETURN: u64 = 0xffff_ffff_8200_1000;
    let filter = region(
        vec![
            reg(0, 7),
            branch(Cond::Eq, v(0), Val::Imm(0), 0),
            Op::End,
            Op::Label(Label(0)),
        ],
        1,
        0,
    );
    let body = vec![
        Op::SetReg {
            reg: Reg::RAX,
            value: Val::Imm(-12i64 as u64),
        },
        Op::Leave { address: RETURN },
    ];
    let program = Program {
        filter,
        body: region(body, 0, 0),
    };
    check(
        program.clone(),
        Free::new(1, Flags::ALL),
        expect![[r#"
              0 pushf  ; +8
              1 test %rdi,%rdi
              4 jne 0x0000000000000013
              6 mov $0xFFFFFFFFFFFFFFF4,%rax
              d popf  ; +0
              e jmp 0xffffffff82001000  ; +8
             13 popf  ; +0
            cost 6, filtered 4
        "#]],
    );
    check(
        program,
        Free::NOTHING,
        expect![[r#"
              0 pushf  ; +8
              1 test %rdi,%rdi
              4 jne 0x0000000000000013
              6 mov $0xFFFFFFFFFFFFFFF4,%rax
              d popf  ; +0
              e jmp 0xffffffff82001000  ; +8
             13 popf  ; +0
            cost 6, filtered 4
        "#]],
    );
}
