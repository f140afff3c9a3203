//! What is refused, and what is only reached from elsewhere, as text.

mod common;

use common::{Case, plan};
use expect_test::{Expect, expect};
use kerninst_patch::{Options, Tactics};

fn check(case: &Case, points: &[u64], expected: Expect) {
    expected.assert_eq(&plan(case, points, Options::default()).1);
}

fn check_with(case: &Case, points: &[u64], tactics: Tactics, expected: Expect) {
    let options = Options {
        tactics,
        ..Options::default()
    };
    expected.assert_eq(&plan(case, points, options).1);
}

#[test]
fn managed_sites_are_reached_by_hoisting_only() {
    let case = Case::new(
        "0f1f440000
         48 8b 87 90 00 00 00  # 05 mov 0x90(%rdi), %rax
         0f 1f 44 00 00        # 0c jump label
         c3                    # 11 ret
         31 c0                 # 12
         c3                    # 14",
    )
    .jump_label(0xc, 0x12);
    check(
        &case,
        &[0xc],
        expect![[r#"
        f+0x5 in-place | f+0xc hoist cost 2 | runs 1 overhead 2
          site:
            was 48 8b 87 90 00 00 00
            f+0x5: jmp patch0x0
            f+0xa: xchg %ax,%ax
          patch:
            mov 0x90(%rdi),%rax
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            jmp f+0xc
    "#]],
    );
    check_with(
        &case,
        &[0xc],
        Tactics::all() - Tactics::HOIST_IN_BLOCK - Tactics::HOIST_PAST_JCC,
        expect![[r#"
            f+0x5 springboard | f+0xc hoist-short cost 2 | runs 1 overhead 3
              site:
                was 48 8b 87 90 00 00 00
                f+0x5: jmp f-0x10
                f+0x7: nopl (%rax,%rax)
              board:
                F00f0: jmp patch0x0
              patch:
                mov 0x90(%rdi),%rax
                movabs $0x607500000000,%rcx
                incq %gs:(%rcx)
                jmp f+0xc
        "#]],
    );
}

#[test]
fn refusals() {
    let case = Case::new(
        "0f1f440000
         48 8b 87 90 00 00 00  # 05 mov 0x90(%rdi), %rax
         c3                    # 0c ret
         cc cc cc              # 0d padding",
    );
    check(
        &case,
        &[0x0],
        expect![[r#"
        refused F0100: this is the function's fentry site, which ftrace owns; use the next instruction, at F0105; the nearest instruction that works is at F0105
    "#]],
    );
    check(
        &case,
        &[0x7],
        expect![[r#"
        refused F0107: F0107 lies inside the instruction at F0105; the next one starts at F010c; the nearest instruction that works is at F0105
    "#]],
    );
    check(
        &case,
        &[0xe],
        expect![[r#"
            refused F010e: control never reaches F010e (padding or dead code); the nearest instruction that works is at F010c
        "#]],
    );
    check(
        &case,
        &[0x5000],
        expect![[r#"
        refused F5100: no kernel function is at F5100
    "#]],
    );
    check(
        &case.off_limits(),
        &[0x5],
        expect![[r#"
        refused F0105: noinstr text: must not be instrumented
    "#]],
    );
}

#[test]
fn no_counter_where_gs_is_not_the_kernels() {
    let case = Case::new(
        "0f1f440000
         0f 01 f8              # 05 swapgs
         8e ef                 # 08 mov %edi, %gs
         0f 01 f8              # 0a swapgs
         c3                    # 0d ret",
    );
    check(
        &case,
        &[0x5, 0x8, 0xd],
        expect![[r#"
        refused F0105: no code may run here: the function changes the gs segment, so per-CPU memory may be out of reach
        refused F0108: no code may run here: the function changes the gs segment, so per-CPU memory may be out of reach
        refused F010d: no code may run here: the function changes the gs segment, so per-CPU memory may be out of reach
    "#]],
    );
}

#[test]
fn a_file_has_alternatives_that_are_not_yet_decided() {
    let case = Case::new(
        "0f1f440000
         31 c0                 # 05 xor %eax, %eax
         0f 01 cb              # 07 stac, an alternative
         c3                    # 0a ret",
    )
    .alternative(0x7, 3);
    check(
        &case,
        &[0x7],
        expect![[r#"
        f+0x7 springboard | f+0x7 springboard cost 6 | runs 1 overhead 3
          site:
            was 0f 01 cb
            f+0x7: jmp f-0x10
            f+0x9: nop
          board:
            F00f0: jmp patch0x0
          patch:
            push %rax
            pushf
            movabs $0x607500000000,%rax
            incq %gs:(%rax)
            popf
            pop %rax
            stac
            jmp f+0xa
    "#]],
    );
    check(
        &case.in_a_file(),
        &[0x7],
        expect![[r#"
            f+0x5 springboard | f+0x7 hoist-short cost 6 | runs 1 overhead 3
              site:
                was 31 c0
                f+0x5: jmp f-0x10
              board:
                F00f0: jmp patch0x0
              patch:
                xor %eax,%eax
                push %rax
                pushf
                movabs $0x607500000000,%rax
                incq %gs:(%rax)
                popf
                pop %rax
                jmp f+0x7
        "#]],
    );
}

#[test]
fn a_static_call_is_left_alone() {
    let case = Case::new(
        "0f1f440000
         48 8b 87 90 00 00 00  # 05 mov 0x90(%rdi), %rax
         e8 1f 00 00 00        # 0c call g, a static call
         c3                    # 11 ret
         90 90 90 90 90 90 90 90 90 90 90 90 90 90",
    )
    .static_call(0xc);
    check(
        &case,
        &[0xc, 0x11],
        expect![[r#"
        f+0x5 in-place | f+0xc hoist cost 2 | runs 1 overhead 2
          site:
            was 48 8b 87 90 00 00 00
            f+0x5: jmp patch0x0
            f+0xa: xchg %ax,%ax
          patch:
            mov 0x90(%rdi),%rax
            movabs $0x607500000000,%rax
            incq %gs:(%rax)
            jmp f+0xc
        f+0x11 in-place-padded | f+0x11 in-place-padded cost 2 | runs 1 overhead 1
          site:
            was c3 | 90 90 90 90
            f+0x11: jmp patch0x100
          patch:
            movabs $0x607500000008,%rcx
            incq %gs:(%rcx)
            ret
    "#]],
    );
}

#[test]
fn sti_and_hlt_stay_together() {
    let case = Case::new(
        "0f1f440000
         48 8b 87 90 00 00 00  # 05 mov 0x90(%rdi), %rax
         fb                    # 0c sti
         f4                    # 0d hlt
         c3                    # 0e ret",
    );
    check(
        &case,
        &[0xc, 0xd, 0xe],
        expect![[r#"
        f+0x5 in-place | f+0xc hoist cost 2 | runs 1 overhead 2
          site:
            was 48 8b 87 90 00 00 00
            f+0x5: jmp patch0x0
            f+0xa: xchg %ax,%ax
          patch:
            mov 0x90(%rdi),%rax
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            jmp f+0xc
        f+0xe in-place-padded | f+0xe in-place-padded cost 2 | runs 1 overhead 1
          site:
            was c3 | cc cc cc cc
            f+0xe: jmp patch0x100
          patch:
            movabs $0x607500000010,%rcx
            incq %gs:(%rcx)
            ret
        refused F010d: no code may run here: it is half of an sti;hlt or sti;mwait pair, which must not be split; the nearest instruction that works is at F010c
    "#]],
    );
}
