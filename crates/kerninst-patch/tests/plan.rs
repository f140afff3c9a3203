//! Plans as text: bytes and points in, patched bytes and patches out.

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
fn in_place() {
    let case = Case::new(
        "0f1f440000
         b801000000      # 05 mov $1, %eax
         c3              # 0a ret",
    );
    check(
        &case,
        &[0x5],
        expect![[r#"
        f+0x5 in-place | f+0x5 in-place cost 2 | runs 1 overhead 2
          site:
            was b8 01 00 00 00
            f+0x5: jmp patch0x0
          patch:
            movabs $0x607500000000,%rax
            incq %gs:(%rax)
            mov $1,%eax
            jmp f+0xa
    "#]],
    );
}

#[test]
fn in_place_fills_the_tail_with_nops() {
    let case = Case::new(
        "0f1f440000
         48c7c001000000  # 05 mov $1, %rax
         c3",
    );
    check(
        &case,
        &[0x5],
        expect![[r#"
        f+0x5 in-place | f+0x5 in-place cost 2 | runs 1 overhead 2
          site:
            was 48 c7 c0 01 00 00 00
            f+0x5: jmp patch0x0
            f+0xa: xchg %ax,%ax
          patch:
            movabs $0x607500000000,%rax
            incq %gs:(%rax)
            mov $1,%rax
            jmp f+0xc
    "#]],
    );
}

#[test]
fn a_return_and_its_padding() {
    let case = Case::new("0f1f440000 31c0 c3");
    check(
        &case,
        &[0x7],
        expect![[r#"
        f+0x7 in-place-padded | f+0x7 in-place-padded cost 2 | runs 1 overhead 1
          site:
            was c3 | cc cc cc cc
            f+0x7: jmp patch0x0
          patch:
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            ret
    "#]],
    );
}

#[test]
fn hoist_in_the_block_and_past_a_jump() {
    let case = Case::new(
        "0f1f440000
         48 8b 87 90 00 00 00  # 05 mov 0x90(%rdi), %rax
         48 01 f8              # 0c add %rdi, %rax
         74 03                 # 0f je 14
         48 01 f0              # 11 add %rsi, %rax
         c3                    # 14 ret",
    );
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
    check(
        &case,
        &[0x11],
        expect![[r#"
        f+0x5 in-place | f+0x11 hoist-past-jcc cost 2 | runs 3 overhead 2
          site:
            was 48 8b 87 90 00 00 00
            f+0x5: jmp patch0x0
            f+0xa: xchg %ax,%ax
          patch:
            mov 0x90(%rdi),%rax
            add %rdi,%rax
            je f+0x14
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            jmp f+0x11
    "#]],
    );
}

#[test]
fn springboard() {
    let case = Case::new(
        "0f1f440000
         31 c0                 # 05 xor %eax, %eax
         48 01 f8              # 07 add %rdi, %rax
         75 fb                 # 0a jne 07
         c3                    # 0c",
    );
    check(
        &case,
        &[0x7],
        expect![[r#"
        f+0x7 springboard | f+0x7 springboard cost 2 | runs 1 overhead 3
          site:
            was 48 01 f8
            f+0x7: jmp f-0x10
            f+0x9: nop
          board:
            F00f0: jmp patch0x0
          patch:
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            add %rdi,%rax
            jmp f+0xa
    "#]],
    );
}

#[test]
fn run_when_there_is_no_padding() {
    let case = Case::new(
        "0f1f440000
         31 c0                 # 05 xor %eax, %eax
         48 01 f8              # 07 add %rdi, %rax
         48 01 f0              # 0a add %rsi, %rax
         75 f8                 # 0d jne 07
         c3                    # 0f",
    )
    .tight();
    check(
        &case,
        &[0x7],
        expect![[r#"
        f+0x7 run | f+0x7 run cost 2 | runs 2 overhead 2
          site:
            was 48 01 f8 | 48 01 f0
            f+0x7: jmp patch0x0
            f+0xc: nop
          patch:
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            add %rdi,%rax
            add %rsi,%rax
            jmp f+0xd
    "#]],
    );
    // A point inside the run is served by the same splice, before its copy.
    check(
        &case,
        &[0x7, 0xa],
        expect![[r#"
        f+0x7 run | f+0x7 run cost 2 | f+0xa run cost 2 | runs 2 overhead 2
          site:
            was 48 01 f8 | 48 01 f0
            f+0x7: jmp patch0x0
            f+0xc: nop
          patch:
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            add %rdi,%rax
            movabs $0x607500000008,%rcx
            incq %gs:(%rcx)
            add %rsi,%rax
            jmp f+0xd
    "#]],
    );
}

#[test]
fn int3_is_the_last_resort() {
    let case = Case::new(
        "0f1f440000
         31 c0                 # 05 xor %eax, %eax
         48 01 f8              # 07 add %rdi, %rax
         75 fb                 # 0a jne 07
         48 ff c0              # 0c inc %rax
         eb f9                 # 0f jmp 0a",
    )
    .tight();
    check(
        &case,
        &[0x7],
        expect![[r#"
        f+0x7 int3 | f+0x7 int3 cost 2 | runs 1 overhead 1
          site:
            was 48
            f+0x7: int3
          patch:
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            add %rdi,%rax
            jmp f+0xa
    "#]],
    );
}

#[test]
fn one_splice_serves_a_straight_line() {
    let case = Case::new(
        "0f1f440000
         48 8b 87 90 00 00 00  # 05 mov 0x90(%rdi), %rax
         48 01 f8              # 0c add %rdi, %rax
         74 03                 # 0f je 14
         48 01 f0              # 11 add %rsi, %rax
         c3                    # 14 ret",
    );
    check(
        &case,
        &[0x5, 0xc, 0xf, 0x11, 0x14],
        expect![[r#"
        f+0x5 in-place | f+0x5 in-place cost 2 | f+0xc hoist cost 2 | f+0xf hoist cost 4 | f+0x11 hoist-past-jcc cost 2 | runs 3 overhead 2
          site:
            was 48 8b 87 90 00 00 00
            f+0x5: jmp patch0x0
            f+0xa: xchg %ax,%ax
          patch:
            movabs $0x607500000000,%rax
            incq %gs:(%rax)
            mov 0x90(%rdi),%rax
            movabs $0x607500000008,%rcx
            incq %gs:(%rcx)
            add %rdi,%rax
            pushf
            movabs $0x607500000010,%rcx
            incq %gs:(%rcx)
            popf
            je f+0x14
            movabs $0x607500000018,%rcx
            incq %gs:(%rcx)
            jmp f+0x11
        f+0x14 in-place-padded | f+0x14 in-place-padded cost 2 | runs 1 overhead 1
          site:
            was c3 | cc cc cc cc
            f+0x14: jmp patch0x100
          patch:
            movabs $0x607500000020,%rcx
            incq %gs:(%rcx)
            ret
    "#]],
    );
}

#[test]
fn a_call_returns_to_the_original_code() {
    let case = Case::new(
        "0f1f440000
         53                    # 05 push %rbx
         e8 12 00 00 00        # 06 call g
         5b                    # 0b pop %rbx
         c3                    # 0c ret",
    )
    .orc(0, 8)
    .orc(6, 16)
    .orc(0xc, 8);
    check(
        &case,
        &[0x6],
        expect![[r#"
            f+0x6 in-place | f+0x6 in-place cost 2 | runs 1 overhead 2
              site:
                was e8 12 00 00 00
                f+0x6: jmp patch0x0
              patch:
                movabs $0x607500000000,%rax  ; orc 10 00 00 00 05 02
                incq %gs:(%rax)
                push $f+0xb
                jmp f+0x1d  ; orc 18 00 00 00 05 02
        "#]],
    );
    check_with(
        &case,
        &[0x5],
        Tactics::RUN,
        expect![[r#"
            f+0x5 run | f+0x5 run cost 2 | runs 2 overhead 2
              site:
                was 53 | e8 12 00 00 00
                f+0x5: jmp patch0x0
                f+0xa: nop
              patch:
                movabs $0x607500000000,%rax  ; orc 08 00 00 00 05 02
                incq %gs:(%rax)
                push %rbx
                push $f+0xb  ; orc 10 00 00 00 05 02
                jmp f+0x1d  ; orc 18 00 00 00 05 02
        "#]],
    );
    // Nothing goes past the call: its return address is original code.
    check(
        &case,
        &[0x6, 0xb],
        expect![[r#"
            f+0x6 in-place | f+0x6 in-place cost 2 | runs 1 overhead 2
              site:
                was e8 12 00 00 00
                f+0x6: jmp patch0x0
              patch:
                movabs $0x607500000000,%rax  ; orc 10 00 00 00 05 02
                incq %gs:(%rax)
                push $f+0xb
                jmp f+0x1d  ; orc 18 00 00 00 05 02
            f+0xb run | f+0xb run cost 2 | runs 2 overhead 1
              site:
                was 5b | c3 | cc cc cc
                f+0xb: jmp patch0x100
              patch:
                movabs $0x607500000008,%rcx  ; orc 10 00 00 00 05 02
                incq %gs:(%rcx)
                pop %rbx
                ret  ; orc 08 00 00 00 05 02
        "#]],
    );
}

#[test]
fn unwind_data_follows_the_pushes_of_a_snippet() {
    // Nothing is dead: no fentry, so the function is not known to follow the C ABI.
    let case = Case::new(
        "48 8b 87 90 00 00 00  # 00 mov 0x90(%rdi), %rax
         c3                    # 07 ret",
    )
    .orc(0, 8);
    check(
        &case,
        &[0x0],
        expect![[r#"
        f+0x0 in-place | f+0x0 in-place cost 4 | runs 1 overhead 2
          site:
            was 48 8b 87 90 00 00 00
            f+0x0: jmp patch0x0
            f+0x5: xchg %ax,%ax
          patch:
            pushf  ; orc 08 00 00 00 05 02
            movabs $0x607500000000,%rax  ; orc 10 00 00 00 05 02
            incq %gs:(%rax)
            popf
            mov 0x90(%rdi),%rax  ; orc 08 00 00 00 05 02
            jmp f+0x7
    "#]],
    );
}

#[test]
fn faults_in_the_copy_go_to_the_original_fixup() {
    let case = Case::new(
        "0f1f440000
         48 8b 87 90 00 00 00  # 05 mov 0x90(%rdi), %rax   may fault
         c3                    # 0c ret
         b8 f2 ff ff ff        # 0d mov $-14, %eax         fixup
         c3                    # 12 ret",
    )
    .extable(0x5, 0xd);
    check(
        &case,
        &[0x5],
        expect![[r#"
        f+0x5 in-place | f+0x5 in-place cost 2 | runs 1 overhead 2
          site:
            was 48 8b 87 90 00 00 00
            f+0x5: jmp patch0x0
            f+0xa: xchg %ax,%ax
          patch:
            movabs $0x607500000000,%rax
            incq %gs:(%rax)
            mov 0x90(%rdi),%rax  ; fault -> f+0xd data 3
            jmp f+0xc
    "#]],
    );
    // Fixup "after the instruction": after the copy.
    let case = Case::new(
        "0f1f440000
         48 8b 87 90 00 00 00  # 05 mov 0x90(%rdi), %rax   may fault
         c3                    # 0c ret",
    )
    .extable(0x5, 0xc);
    check(
        &case,
        &[0x5],
        expect![[r#"
        f+0x5 in-place | f+0x5 in-place cost 2 | runs 1 overhead 2
          site:
            was 48 8b 87 90 00 00 00
            f+0x5: jmp patch0x0
            f+0xa: xchg %ax,%ax
          patch:
            movabs $0x607500000000,%rax
            incq %gs:(%rax)
            mov 0x90(%rdi),%rax  ; fault -> patch+0x15 data 3
            jmp f+0xc
    "#]],
    );
}

#[test]
fn a_warning_is_displaced_with_its_bug_entry() {
    let case = Case::new(
        "0f1f440000
         85 ff                 # 05 test %edi, %edi
         74 02                 # 07 je 0b
         0f 0b                 # 09 ud2, a warning
         31 c0                 # 0b xor %eax, %eax
         c3                    # 0d ret",
    )
    .warn(0x9);
    check(
        &case,
        &[0x9],
        expect![[r#"
        f+0x9 springboard | f+0x9 springboard cost 2 | runs 1 overhead 3
          site:
            was 0f 0b
            f+0x9: jmp f-0x10
          board:
            F00f0: jmp patch0x0
          patch:
            movabs $0x607500000000,%rax
            incq %gs:(%rax)
            ud2  ; bug line 77 flags 1
            jmp f+0xb
    "#]],
    );
}

#[test]
fn a_branch_into_the_site_comes_back_through_the_splice() {
    let case = Case::new(
        "0f1f440000
         31 c0                 # 05 xor %eax, %eax
         48 8b 87 90 00 00 00  # 07 mov 0x90(%rdi), %rax
         48 85 c0              # 0e test %rax, %rax
         75 f4                 # 11 jne 07
         c3                    # 13 ret",
    );
    check(
        &case,
        &[0x7, 0xe, 0x11, 0x13],
        expect![[r#"
        f+0x7 in-place | f+0x7 in-place cost 2 | f+0xe hoist cost 2 | f+0x11 hoist cost 4 | f+0x13 hoist-past-jcc cost 2 | runs 3 overhead 2
          site:
            was 48 8b 87 90 00 00 00
            f+0x7: jmp patch0x0
            f+0xc: xchg %ax,%ax
          patch:
            movabs $0x607500000000,%rax
            incq %gs:(%rax)
            mov 0x90(%rdi),%rax
            movabs $0x607500000008,%rcx
            incq %gs:(%rcx)
            test %rax,%rax
            pushf
            movabs $0x607500000010,%rcx
            incq %gs:(%rcx)
            popf
            jne f+0x7
            movabs $0x607500000018,%rcx
            incq %gs:(%rcx)
            jmp f+0x13
    "#]],
    );
}

#[test]
fn a_join_is_never_inside_a_run_or_behind_a_hoist() {
    let case = Case::new(
        "0f1f440000
         48 8b 87 90 00 00 00  # 05 mov 0x90(%rdi), %rax
         31 d2                 # 0c xor %edx, %edx
         48 01 f8              # 0e add %rdi, %rax      join
         ff c2                 # 11 inc %edx
         83 fa 09              # 13 cmp $9, %edx
         75 f6                 # 16 jne 0e
         c3                    # 18 ret",
    )
    .tight();
    check(
        &case,
        &[0xc, 0xe],
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
        f+0xe run | f+0xe run cost 2 | runs 2 overhead 2
          site:
            was 48 01 f8 | ff c2
            f+0xe: jmp patch0x100
          patch:
            movabs $0x607500000008,%rcx
            incq %gs:(%rcx)
            add %rdi,%rax
            inc %edx
            jmp f+0x13
    "#]],
    );
}

#[test]
fn distance_is_bounded() {
    let case = Case::new(
        "0f1f440000
         48 8b 87 90 00 00 00  # 05 mov 0x90(%rdi), %rax
         48 ff c0 48 ff c0 48 ff c0 48 ff c0   # 0c four times inc %rax
         48 ff c0 48 ff c0 48 ff c0            # 18 three times
         48 ff c0                              # 21
         48 ff c0                              # 24
         48 01 f0                              # 27 add %rsi, %rax
         c3                                    # 2a ret",
    )
    .tight();
    check(
        &case,
        &[0x21],
        expect![[r#"
        f+0x5 in-place | f+0x21 hoist cost 2 | runs 8 overhead 2
          site:
            was 48 8b 87 90 00 00 00
            f+0x5: jmp patch0x0
            f+0xa: xchg %ax,%ax
          patch:
            mov 0x90(%rdi),%rax
            inc %rax
            inc %rax
            inc %rax
            inc %rax
            inc %rax
            inc %rax
            inc %rax
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            jmp f+0x21
    "#]],
    );
    check(
        &case,
        &[0x24],
        expect![[r#"
        f+0x24 run | f+0x24 run cost 2 | runs 2 overhead 2
          site:
            was 48 ff c0 | 48 01 f0
            f+0x24: jmp patch0x0
            f+0x29: nop
          patch:
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            inc %rax
            add %rsi,%rax
            jmp f+0x2a
    "#]],
    );
}
