//! Programs in code patches and in versions: their calls, faults and unwind data, and what they read of the interrupted code.

mod common;

use common::{Case, F, show};
use expect_test::{Expect, expect};
use kerninst_analysis::Analysis;
use kerninst_patch::{Boards, Fixup, Options, Plan, Planner, Reloc, RelocKind, Request, Spot};
use kerninst_snippet::ir::{Label, Op, Program, Region, V, Val, Width};
use kerninst_snippet::{Reg, Snippet};

const CALLOUT: u64 = 0xffff_ffff_c000_8000;
const RDI: u8 = 7;

fn program(ops: Vec<Op>) -> Snippet {
    let body = Region {
        ops,
        registers: 4,
        labels: 4,
        frame: 0,
    };
    let program = Program {
        body,
        ..Program::default()
    };
    Snippet::Program(program.into())
}

fn reg(number: u8) -> Op {
    Op::Reg {
        to: V(0),
        reg: Reg::new(number).expect("a register"),
    }
}

/// Counts what the argument points to; if that cannot be read, calls.
fn sum() -> Snippet {
    program(vec![
        reg(RDI),
        Op::Probe {
            to: V(1),
            at: Val::V(V(0)),
            offset: 8,
            width: Width::B4,
            signed: false,
            fault: Label(0),
        },
        Op::CpuAdd {
            pointer: Val::Imm(0x1000),
            value: Val::V(V(1)),
        },
        Op::End,
        Op::Label(Label(0)),
        Op::Call {
            function: CALLOUT,
            args: vec![Val::V(V(0))],
            to: None,
        },
    ])
}

/// Adds the argument to a counter.
fn add(number: u8) -> Snippet {
    let value = Val::V(V(0));
    let pointer = Val::Imm(0x1000);
    program(vec![reg(number), Op::CpuAdd { pointer, value }])
}

fn request(at: Spot, snippet: Snippet) -> Request {
    Request {
        at,
        snippets: vec![snippet],
    }
}

fn check(case: &Case, requests: &[Request], expected: Expect) -> Plan {
    let kernel = case.kernel();
    let analysis = Analysis::new(&kernel);
    let planner = Planner::new(&analysis, Options::default());
    let plan = planner.plan(requests, &mut Boards::new());
    expected.assert_eq(&show(&kernel, &plan));
    plan
}

/// fentry site; mov $1,%eax; ret: rdi is dead, all flags are.
const CODE: &str = "0f1f440000 b801000000 c3";

#[test]
fn calls_faults_and_the_stack_in_a_patch() {
    let case = Case::new(CODE).orc(0, 8);
    let requests = [request(Spot::Before(F + 5), sum())];
    let plan = check(
        &case,
        &requests,
        expect![[r#"
            f+0x5 in-place | f+0x5 in-place cost 9 | runs 1 overhead 2
              site:
                was b8 01 00 00 00
                f+0x5: jmp patch0x0
              patch:
                push %rdx  ; orc 08 00 00 00 05 02
                push %rdi  ; orc 10 00 00 00 05 02
                cmp $0xFFFFFFFFFF5FFFE8,%rdi  ; orc 18 00 00 00 05 02
                jge patch0x19
                mov 8(%rdi),%eax  ; fault -> patch+0x19 data 1
                add %rax,%gs:0x1000
                jmp patch0x1e
                call patch0x8000
                pop %rdi
                pop %rdx  ; orc 10 00 00 00 05 02
                mov $1,%eax  ; orc 08 00 00 00 05 02
                jmp f+0xa
        "#]],
    );
    let patch = &plan.splices[0].patch;
    let call = patch.relocs.iter().find(|r| r.target == CALLOUT);
    let expected = Reloc {
        offset: call.expect("a call").offset,
        kind: RelocKind::Pc32,
        target: CALLOUT,
        addend: -4,
    };
    assert_eq!(call, Some(&expected));
    assert_eq!(patch.extable.len(), 1);
}

/// Would catch offsets of calls and faults that forget what stands before the program.
#[test]
fn calls_and_faults_in_a_version() {
    let case = Case::new(CODE).orc(0, 8);
    let kernel = case.kernel();
    let analysis = Analysis::new(&kernel);
    let f = analysis.function_at(F).expect("a function");
    let planner = Planner::new(&analysis, Options::default());
    let requests = [
        request(Spot::Before(F + 5), add(RDI)),
        request(Spot::Before(F + 10), sum()),
    ];
    let made = planner.version(&f, &requests, None, &mut Boards::new());
    let (version, refused) = made.expect("a version");
    assert!(refused.is_empty());
    let patch = &version.splice.patch;
    let call = patch.relocs.iter().find(|r| r.target == CALLOUT);
    let field = call.expect("a call").offset as usize;
    assert_eq!(patch.bytes[field - 1..field + 4], [0xe8, 0, 0, 0, 0]);
    let [e] = &patch.extable[..] else {
        panic!("{:?}", patch.extable);
    };
    assert_eq!(e.data, 1, "EX_TYPE_DEFAULT");
    // mov 8(%rdi), %r32
    assert_eq!(patch.bytes[e.offset as usize], 0x8b);
    let Fixup::Inside(fixup) = e.fixup else {
        panic!("a fixup elsewhere");
    };
    assert!(fixup > e.offset && (fixup as usize) < field);
}

/// The first program could use rdi, which is dead there; the second one reads it.
#[test]
fn what_another_program_of_the_function_reads_is_kept() {
    // fentry site; mov $1,%eax; mov $2,%ecx; ret
    let case = Case::new("0f1f440000 b801000000 b902000000 c3");
    let far = Snippet::Count {
        percpu: 0x6075_0000_0000,
    };
    let first = request(Spot::Before(F + 5), far);
    for number in [0, 1, 2, 6, 7, 8, 9, 11, 10] {
        let requests = [first.clone(), request(Spot::Before(F + 10), add(number))];
        let kernel = case.kernel();
        let analysis = Analysis::new(&kernel);
        let planner = Planner::new(&analysis, Options::default());
        let plan = planner.plan(&requests, &mut Boards::new());
        let code = &plan.splices[0].patch.bytes;
        // movabs $slot, %reg
        let used = (code[0] & 1) << 3 | code[1] & 7;
        assert_ne!(used, number, "{code:02x?}");
    }
}

/// A program that skips an instruction makes live what is dead before that: a counter further up must save it. Would catch a
/// register that somebody reads after all.
#[test]
fn nothing_is_free_where_a_program_leaves() {
    // fentry site; mov $1,%eax; mov $2,%ecx; ret
    let case = Case::new("0f1f440000 b801000000 b902000000 c3");
    let skip = program(vec![Op::Leave { address: F + 15 }]);
    let far = Snippet::Count {
        percpu: 0x6075_0000_0000,
    };
    let requests = [
        request(Spot::Before(F + 5), far),
        request(Spot::Before(F + 10), skip),
    ];
    check(
        &case,
        &requests,
        expect![[r#"
        f+0x5 in-place | f+0x5 in-place cost 6 | f+0xa hoist cost 1 | runs 1 overhead 2
          site:
            was b8 01 00 00 00
            f+0x5: jmp patch0x0
          patch:
            push %rax
            pushf
            movabs $0x607500000000,%rax
            incq %gs:(%rax)
            popf
            pop %rax
            mov $1,%eax
            jmp f+0xf
            jmp f+0xa
    "#]],
    );
}
