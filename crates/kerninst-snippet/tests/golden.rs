//! Snippets as text: what is free in, instructions out.

use expect_test::{Expect, expect};
use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter};
use kerninst_snippet::{Code, Features, Flags, Free, Snippet, compile};

const NEAR: u64 = 0x3_1a40;
const FAR: u64 = 0x6075_7fc0_1238;
const RAX: u16 = 1;
const RBP: u16 = 1 << 5;
const RDI: u16 = 1 << 7;
const R12: u16 = 1 << 12;
const R13: u16 = 1 << 13;

fn listing(code: &Code) -> String {
    let mut out = String::new();
    let mut steps = code.stack.iter().peekable();
    let mut f = GasFormatter::new();
    for i in Decoder::with_ip(64, &code.bytes, 0, DecoderOptions::NONE).iter() {
        let mut text = String::new();
        f.format(&i, &mut text);
        let depth = steps.next_if(|s| u64::from(s.offset) == i.next_ip());
        let depth = depth.map_or(String::new(), |s| format!("  ; +{}", s.pushed));
        out.push_str(&format!("{text}{depth}\n"));
    }
    assert!(
        steps.next().is_none(),
        "a stack step that is not at the end of an instruction"
    );
    out.push_str(&format!("cost {}\n", code.cost));
    out
}

fn counts(slots: &[u64]) -> Vec<Snippet> {
    slots
        .iter()
        .map(|percpu| Snippet::Count { percpu: *percpu })
        .collect()
}

fn check(slots: &[u64], regs: u16, flags: Flags, lahf: bool, expected: Expect) {
    let code = compile(&counts(slots), Free::new(regs, flags), Features { lahf });
    expected.assert_eq(&listing(&code));
}

#[test]
fn near_slot_and_dead_flags_is_one_instruction() {
    check(
        &[NEAR],
        0,
        Flags::ALL,
        false,
        expect![[r#"
        incq %gs:0x31A40
        cost 1
    "#]],
    );
}

#[test]
fn the_carry_may_be_live_because_inc_leaves_it() {
    check(
        &[NEAR],
        0,
        Flags::INC,
        false,
        expect![[r#"
        incq %gs:0x31A40
        cost 1
    "#]],
    );
}

#[test]
fn near_slot_and_live_flags() {
    check(
        &[NEAR],
        0,
        Flags::NONE,
        false,
        expect![[r#"
        pushf  ; +8
        incq %gs:0x31A40
        popf  ; +0
        cost 3
    "#]],
    );
    check(
        &[NEAR],
        RAX,
        Flags::NONE,
        true,
        expect![[r#"
        lahf
        seto %al
        incq %gs:0x31A40
        add $0x7F,%al
        sahf
        cost 5
    "#]],
    );
    check(
        &[NEAR],
        RAX,
        Flags::OF,
        true,
        expect![[r#"
        lahf
        incq %gs:0x31A40
        sahf
        cost 3
    "#]],
    );
    check(
        &[NEAR],
        RBP,
        Flags::OF,
        true,
        expect![[r#"
        pushf  ; +8
        incq %gs:0x31A40
        popf  ; +0
        cost 3
    "#]],
    );
}

#[test]
fn one_live_flag_is_enough_to_save_them() {
    for live in [Flags::PF, Flags::AF, Flags::ZF, Flags::SF, Flags::OF] {
        let free = Free::new(0, Flags::from_bits(!live.bits()));
        assert_eq!(
            compile(&counts(&[NEAR]), free, Features::default()).cost,
            3,
            "{live:?}"
        );
    }
}

#[test]
fn far_slot_takes_a_dead_register() {
    check(
        &[FAR],
        RAX,
        Flags::ALL,
        false,
        expect![[r#"
        movabs $0x60757FC01238,%rax
        incq %gs:(%rax)
        cost 2
    "#]],
    );
    check(
        &[FAR],
        RDI,
        Flags::ALL,
        false,
        expect![[r#"
        movabs $0x60757FC01238,%rdi
        incq %gs:(%rdi)
        cost 2
    "#]],
    );
    check(
        &[FAR],
        R12,
        Flags::ALL,
        false,
        expect![[r#"
        movabs $0x60757FC01238,%r12
        incq %gs:(%r12)
        cost 2
    "#]],
    );
    check(
        &[FAR],
        R13,
        Flags::ALL,
        false,
        expect![[r#"
        movabs $0x60757FC01238,%r13
        incq %gs:(%r13)
        cost 2
    "#]],
    );
}

#[test]
fn rbp_is_left_to_the_unwinder() {
    check(
        &[FAR],
        RBP,
        Flags::ALL,
        false,
        expect![[r#"
        push %rax  ; +8
        movabs $0x60757FC01238,%rax
        incq %gs:(%rax)
        pop %rax  ; +0
        cost 4
    "#]],
    );
}

#[test]
fn far_slot_with_nothing_free_is_the_worst_case() {
    check(
        &[FAR],
        0,
        Flags::NONE,
        true,
        expect![[r#"
        push %rax  ; +8
        pushf  ; +16
        movabs $0x60757FC01238,%rax
        incq %gs:(%rax)
        popf  ; +8
        pop %rax  ; +0
        cost 6
    "#]],
    );
    check(
        &[FAR],
        1 << 4,
        Flags::ALL,
        true,
        expect![[r#"
        push %rax  ; +8
        movabs $0x60757FC01238,%rax
        incq %gs:(%rax)
        pop %rax  ; +0
        cost 4
    "#]],
    );
}

#[test]
fn lahf_occupies_rax() {
    check(
        &[FAR],
        RAX | RDI,
        Flags::NONE,
        true,
        expect![[r#"
        lahf
        seto %al
        movabs $0x60757FC01238,%rdi
        incq %gs:(%rdi)
        add $0x7F,%al
        sahf
        cost 6
    "#]],
    );
    check(
        &[FAR],
        RAX,
        Flags::NONE,
        true,
        expect![[r#"
        pushf  ; +8
        movabs $0x60757FC01238,%rax
        incq %gs:(%rax)
        popf  ; +0
        cost 4
    "#]],
    );
}

#[test]
fn several_counters_share_what_is_saved() {
    check(
        &[NEAR, FAR, FAR + 8],
        0,
        Flags::NONE,
        false,
        expect![[r#"
        push %rax  ; +8
        pushf  ; +16
        incq %gs:0x31A40
        movabs $0x60757FC01238,%rax
        incq %gs:(%rax)
        movabs $0x60757FC01240,%rax
        incq %gs:(%rax)
        popf  ; +8
        pop %rax  ; +0
        cost 9
    "#]],
    );
}

#[test]
fn the_displacement_is_sign_extended() {
    check(
        &[0x7fff_ffff],
        RAX,
        Flags::ALL,
        false,
        expect![[r#"
        incq %gs:0x7FFFFFFF
        cost 1
    "#]],
    );
    check(
        &[0x8000_0000],
        RAX,
        Flags::ALL,
        false,
        expect![[r#"
        movabs $0x80000000,%rax
        incq %gs:(%rax)
        cost 2
    "#]],
    );
    check(
        &[0xffff_ffff_8000_0000],
        RAX,
        Flags::ALL,
        false,
        expect![[r#"
        incq %gs:0xFFFFFFFF80000000
        cost 1
    "#]],
    );
}

#[test]
fn nothing_to_do_is_no_code() {
    check(
        &[],
        0,
        Flags::NONE,
        false,
        expect![[r#"
        cost 0
    "#]],
    );
}

/// Would catch a mark that needs a register or flags, or whose displacement is told at the wrong place.
#[test]
fn marks() {
    let nothing = Free::new(0, Flags::NONE);
    let code = compile(
        &[Snippet::Hit { flag: 3 }, Snippet::Hit { flag: 70_000 }],
        nothing,
        Features::default(),
    );
    expect![[r#"
        movb $1,7
        movb $1,0xE
        cost 2
    "#]]
    .assert_eq(&listing(&code));
    let hits: Vec<(u32, u32)> = code.hits.iter().map(|h| (h.offset, h.flag)).collect();
    assert_eq!(hits, [(0, 3), (7, 70_000)]);
    // Beside a counter, which may push: the stack is told from the right place on.
    let both = [Snippet::Hit { flag: 1 }, Snippet::Count { percpu: FAR }];
    let code = compile(&both, nothing, Features::default());
    expect![[r#"
        movb $1,7
        push %rax  ; +8
        pushf  ; +16
        movabs $0x60757FC01238,%rax
        incq %gs:(%rax)
        popf  ; +8
        pop %rax  ; +0
        cost 7
    "#]]
    .assert_eq(&listing(&code));
}
