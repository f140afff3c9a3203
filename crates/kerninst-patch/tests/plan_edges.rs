//! Splices on edges, and points that several splices serve, as text.

mod common;

use common::{Case, F, requests_at, show};
use expect_test::{Expect, expect};
use kerninst_analysis::Analysis;
use kerninst_patch::{Boards, Options, Planner, Spot};

fn check(case: &Case, spots: &[Spot], expected: Expect) {
    let kernel = case.kernel();
    let analysis = Analysis::new(&kernel);
    let planner = Planner::new(&analysis, Options::default());
    let plan = planner.plan(&requests_at(spots), &mut Boards::new());
    expected.assert_eq(&show(&kernel, &plan));
}

/// A conditional tail call: the branch of the copy leads to a stub with the counter. What is live at the branch is saved.
#[test]
fn a_taken_branch_out_of_the_function() {
    let case = Case::new(
        "0f1f440000
         4885ff                  # 05 test %rdi, %rdi
         0f8412000000            # 08 je g
         b801000000              # 0e mov $1, %eax
         c3                      # 13 ret",
    )
    .padding(16, 12);
    check(
        &case,
        &[Spot::Taken(F + 0x8)],
        expect![[r#"
        f+0x8 in-place | taken f+0x8 in-place cost 4 | runs 1 overhead 2
          site:
            was 0f 84 12 00 00 00
            f+0x8: jmp patch0x0
            f+0xd: nop
          patch:
            je patch0xb
            jmp f+0xe
            pushf
            movabs $0x607500000000,%rax
            incq %gs:(%rax)
            popf
            jmp f+0x20
    "#]],
    );
}

/// The fall-through of a branch to the very next instruction that is also jumped to: both sides are told apart.
#[test]
fn both_sides_of_a_branch() {
    let case = Case::new(
        "0f1f440000
         4885ff                  # 05 test %rdi, %rdi
         0f8405000000            # 08 je 0x13
         b801000000              # 0e mov $1, %eax
         48ffc0                  # 13 inc %rax
         75fb                    # 16 jne 0x13
         c3                      # 18 ret",
    );
    let spots = [
        Spot::Taken(F + 0x8),
        Spot::After(F + 0x8),
        Spot::After(F + 0xe),
        Spot::Taken(F + 0x16),
        Spot::Enter(F),
    ];
    check(
        &case,
        &spots,
        expect![[r#"
        f+0x5 springboard | enter f+0x0 springboard cost 2 | taken f+0x8 hoist cost 2 | after f+0x8 hoist-past-jcc cost 2 | after f+0xe hoist-past-jcc cost 2 | runs 3 overhead 3
          site:
            was 48 85 ff
            f+0x5: jmp f-0x10
            f+0x7: nop
          board:
            F00f0: jmp patch0x0
          patch:
            movabs $0x607500000020,%rcx
            incq %gs:(%rcx)
            test %rdi,%rdi
            je patch0x3d
            movabs $0x607500000008,%rax
            incq %gs:(%rax)
            mov $1,%eax
            movabs $0x607500000010,%rcx
            incq %gs:(%rcx)
            jmp f+0x13
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            jmp f+0x13
        f+0x16 springboard | taken f+0x16 springboard cost 2 | runs 1 overhead 3
          site:
            was 75 fb
            f+0x16: jmp f-0xb
          board:
            F00f5: jmp patch0x100
          patch:
            jne patch0x10b
            jmp f+0x18
            movabs $0x607500000018,%rcx
            incq %gs:(%rcx)
            jmp f+0x13
    "#]],
    );
}

/// A loop that leads back to the first instruction: no splice counts calls there.
#[test]
fn calls_of_a_loop_need_a_version() {
    let case = Case::new(
        "0f1f440000
         48ffcf                  # 05 dec %rdi
         75fb                    # 08 jne 0x5
         c3                      # 0a ret",
    );
    let spots = [Spot::Enter(F), Spot::Taken(F + 0x5), Spot::After(F + 0xa)];
    check(
        &case,
        &spots,
        expect![[r#"
        refused a splice cannot count this edge (entry at F0100): only an instrumented version of the function can; the nearest instruction that works is at F0105
        refused there is no such edge: after F010a; the nearest instruction that works is at F0108
        refused there is no such edge: taken branch of F0105; the nearest instruction that works is at F0108
    "#]],
    );
}

/// A 1-byte instruction after a call, with a branch target behind it: the patch makes the call itself.
#[test]
fn after_a_call() {
    let case = Case::new(
        "0f1f440000
         53                      # 05 push %rbx
         e80b000000              # 06 call g
         5b                      # 0b pop %rbx
         48ffc8                  # 0c dec %rax
         75fb                    # 0f jne 0xc
         c3                      # 11 ret
         cccccccc",
    )
    .padding(0, 0)
    .orc(0, 8)
    .orc(6, 16)
    .orc(0xc, 8);
    check(
        &case,
        &[Spot::Before(F + 0xb)],
        expect![[r#"
        f+0x6 in-place | f+0xb after-call cost 2 | runs 1 overhead 2
          site:
            was e8 0b 00 00 00
            f+0x6: jmp patch0x0
          patch:
            call f+0x16  ; orc 10 00 00 00 05 02
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            jmp f+0xb
    "#]],
    );
}

/// A short block leader between a branch and its own loop, in front of another: a splice on each way.
#[test]
fn all_ways_to_a_short_leader() {
    let case = Case::new(
        "0f1f440000
         b801000000              # 05 mov $1, %eax
         50                      # 0a push %rax
         48ffc8                  # 0b dec %rax
         75fb                    # 0e jne 0xb
         0f85f4ffffff            # 10 jne 0xa
         c3                      # 16 ret",
    )
    .tight();
    check(
        &case,
        &[Spot::Before(F + 0xa)],
        expect![[r#"
        f+0x5 in-place | f+0xa edges cost 2 | runs 1 overhead 2
          site:
            was b8 01 00 00 00
            f+0x5: jmp patch0x0
          patch:
            mov $1,%eax
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            jmp f+0xa
        f+0x10 in-place | f+0xa edges cost 2 | runs 1 overhead 2
          site:
            was 0f 85 f4 ff ff ff
            f+0x10: jmp patch0x100
            f+0x15: nop
          patch:
            jne patch0x10b
            jmp f+0x16
            movabs $0x607500000000,%rcx
            incq %gs:(%rcx)
            jmp f+0xa
    "#]],
    );
}
