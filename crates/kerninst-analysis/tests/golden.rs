//! Listings of code and what the analysis must make of them.

mod listing;

use expect_test::{Expect, expect};

fn check(code: &str, expected: Expect) {
    expected.assert_eq(&listing::render(code));
}

#[test]
fn straight_line() {
    check(
        "
f:
  f3 0f 1e fa           # endbr64
  0f 1f 44 00 00 | fentry
  48 89 f8              # mov rax, rdi
  48 01 f0              # add rax, rsi
  c3
",
        expect![[r#"
            f: 0..10 abi
             b0 root
              0+4 Plain ENDBR join | dead rax r10 r11 flags
              4+5 Nop FENTRY | dead rax r10 r11 flags
              9+3 Plain after-call | dead rax rcx r8 r9 r10 r11 flags
              c+3 Plain | dead rcx rdi r8 r9 r10 r11 flags
              f+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
        "#]],
    );
}

#[test]
fn branches_loops_and_partial_writes() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  31 c0                 # xor eax, eax
.loop:
  01 f8                 # add eax, edi
  b1 05                 # mov cl, 5     (leaves the rest of rcx)
  d3 e0                 # shl eax, cl   (may leave the flags)
  ff cf                 # dec edi
  75 <.loop
  0f 44 c2              # cmove eax, edx (reads eax too)
  c3
",
        expect![[r#"
            f: 0..15 abi
             b0 root
              0+5 Nop FENTRY join | dead rax r10 r11 flags
              5+2 Plain after-call | dead rax rsi r8 r9 r10 r11 flags
              -> FallThrough b1
             b1
              7+2 Plain join | dead rsi r8 r9 r10 r11 flags
              9+2 Plain | dead rsi r8 r9 r10 r11 flags
              b+2 Plain | dead rsi r8 r9 r10 r11 flags
              d+2 Plain | dead rsi r8 r9 r10 r11 flags
              f+2 Jcc 7 | dead rsi r8 r9 r10 r11 CF PF AF SF OF
              -> FallThrough b2, Taken b1
             b2
              11+3 Plain | dead rcx rsi rdi r8 r9 r10 r11 CF PF AF SF OF
              14+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
        "#]],
    );
}

#[test]
fn static_key_both_ways() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  66 90 | key .on
.off:
  31 c0
  c3
.on:
  89 f8                 # mov eax, edi
  eb <.off | key- .off
  c3
",
        expect![[r#"
            f: 0..f abi
             b0 root
              0+5 Nop FENTRY join | dead rax r10 r11 flags
              5+2 JumpLabel a JUMP_LABEL after-call | dead rax rcx rsi r8 r9 r10 r11 flags
              -> StaticKeyOff b1, StaticKeyOn b2
             b1
              7+2 Plain join | dead rax rcx rsi rdi r8 r9 r10 r11 flags
              9+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
             b2
              a+2 Plain join | dead rax rcx rsi r8 r9 r10 r11 flags
              c+2 JumpLabel 7 JUMP_LABEL | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> StaticKeyOn b3, StaticKeyOff b1
             b3
              e+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
        "#]],
    );
}

#[test]
fn exception_fixup() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  48 8b 07 | fixup .fault # mov rax, [rdi]
  c3
.fault:
  48 89 f0              # mov rax, rsi
  c3
",
        expect![[r#"
            f: 0..d abi
             b0 root
              0+5 Nop FENTRY join | dead rax r10 r11 flags
              5+3 Plain EXTABLE after-call | dead rax rcx r8 r9 r10 r11 flags
              -> FallThrough b1, Fixup b2
             b1
              8+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
             b2
              9+3 Plain join | dead rax rcx rdi r8 r9 r10 r11 flags
              c+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
        "#]],
    );
}

#[test]
fn traps() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  85 ff
  74 <.warn
  78 <.bug
  c3
.warn:
  0f 0b | warn
  31 c0
  c3
.bug:
  0f 0b | bug
  cc
",
        expect![[r#"
            f: 0..13 abi
             b0 root
              0+5 Nop FENTRY join | dead r10 r11 flags
              5+2 Plain after-call | dead rcx rsi r8 r9 r10 r11 flags
              7+2 Jcc c | dead rcx rsi rdi r8 r9 r10 r11 CF PF AF OF
              -> FallThrough b1, Taken b3
             b1
              9+2 Jcc 11 | dead rcx rsi rdi r8 r9 r10 r11 CF PF AF ZF OF
              -> FallThrough b2, Taken b5
             b2
              b+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
             b3
              c+2 Trap BUG join | dead rax rcx rsi rdi r8 r9 r10 r11 flags
              -> TrapResume b4
             b4
              e+2 Plain after-trap | dead rax rcx rsi rdi r8 r9 r10 r11 flags
              10+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
             b5
              11+2 Trap BUG join | dead rax rcx rdx rsi rdi r8 r9 r10 r11 flags
              -> Exit Trap
        "#]],
    );
}

#[test]
fn calls_and_no_return() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  e8 <<g                # follows the ABI
  e8 <<asm              # does not: reads rdx, r11
  85 ff
  74 <.die
  c3
.die:
  e8 <<stop             # never returns, seen in its code
  90x3
g:
  0f 1f 44 00 00 | fentry
  c3
asm:
  4c 01 da              # add rdx, r11
  c3
stop:
  0f 1f 44 00 00 | fentry
  e8 <<panic
  cc
panic:
  0f 1f 44 00 00 | fentry
  eb fe
",
        expect![[r#"
            f: 0..19 abi
             b0 root
              0+5 Nop FENTRY join | dead rax r10 r11 flags
              5+5 Call 1c after-call | dead rax r10 r11 flags
              a+5 Call 22 after-call | dead r10 flags
              f+2 Plain after-call | dead r10 r11 flags
              11+2 Jcc 14 | dead r10 r11 CF PF AF SF OF
              -> FallThrough b1, Taken b2
             b1
              13+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
             b2
              14+5 Call 26 join | dead rax r10 r11 flags
              -> Exit NoReturn
            g: 1c..22 abi
             b0 root
              1c+5 Nop FENTRY join | dead r10 r11 flags
              21+1 Return after-call | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
            asm: 22..26
             b0 root
              22+3 Plain join | dead flags
              25+1 Return | dead -
              -> Exit Return
            stop: 26..30 abi
             b0 root
              26+5 Nop FENTRY join | dead rax r10 r11 flags
              2b+5 Call 31 after-call | dead rax r10 r11 flags
              -> Exit NoReturn
            panic: 31..38 abi
             b0 root
              31+5 Nop FENTRY join | dead rax rbx rbp r10 r11 r12 r13 r14 r15 flags
              -> FallThrough b1
             b1
              36+2 Jmp 36 join after-call | dead rax rcx rdx rbx rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15 flags
              -> Jump b1
        "#]],
    );
}

#[test]
fn evidence_of_preserved_register() {
    // The code behind the call reads r8, which it set before: the callee is known to preserve it.
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  49 89 f8              # mov r8, rdi
  e8 <<g
  4c 89 c0              # mov rax, r8
  c3
g:
  0f 1f 44 00 00 | fentry
  c3
",
        expect![[r#"
            f: 0..11 abi
             b0 root
              0+5 Nop FENTRY join | dead rax r10 r11 flags
              5+3 Plain after-call | dead rax r8 r10 r11 flags
              8+5 Call 11 | dead rax r10 r11 flags
              d+3 Plain after-call | dead rax rcx rsi rdi r9 r10 r11 flags
              10+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
            g: 11..17 abi
             b0 root
              11+5 Nop FENTRY join | dead r10 r11 flags
              16+1 Return after-call | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
        "#]],
    );
}

#[test]
fn tail_calls() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  85 ff
  0f 84 <<g
  78 <.ind
  e9 <<g
.ind:
  ff e0                 # jmp rax
  cc
g:
  0f 1f 44 00 00 | fentry
  e9 <<__x86_return_thunk
h:
  0f 1f 44 00 00 | fentry
  e9 <<__x86_indirect_thunk_r11
__x86_indirect_thunk_r11:
  e8 <.over 00 00 00
  cc
.over:
  4c 89 1c 24
  c3
__x86_return_thunk:
  c3
  cc
",
        expect![[r#"
            f: 0..16 abi
             b0 root
              0+5 Nop FENTRY join | dead r10 r11 flags
              5+2 Plain after-call | dead r10 r11 flags
              7+6 Jcc 17 | dead r10 r11 CF PF AF OF
              -> FallThrough b1, Taken tail-call 17
             b1
              d+2 Jcc 14 | dead r10 r11 CF PF AF ZF OF
              -> FallThrough b2, Taken b3
             b2
              f+5 TailCall 17 | dead rax r10 r11 flags
              -> Exit tail-call 17
             b3
              14+2 IndirectJmp join | dead r10 r11 flags
              -> Exit IndirectTailCall
            g: 17..21 abi
             b0 root
              17+5 Nop FENTRY join | dead r10 r11 flags
              1c+5 Return 36 after-call | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
            h: 21..2b abi
             b0 root
              21+5 Nop FENTRY join | dead rax r10 flags
              26+5 IndirectJmp after-call | dead rax r10 flags
              -> Exit IndirectTailCall
            __x86_indirect_thunk_r11: 2b..30 34..36
             b0 root
              2b+5 Call 34 join | dead -
              -> Exit NoReturn
             b1 root
              34+2 Plain join | dead CF PF ZF SF OF
              -> FallThrough tail-call 36
            __x86_return_thunk: 36..37
             b0 root
              36+1 Return join | dead -
              -> Exit Return
        "#]],
    );
}

#[test]
fn static_calls() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  0f 1f 44 00 00 | static might_resched
  e8 <<thunk | static preempt_schedule
  c3 cc cc cc cc | static-tail tp
g:
  0f 1f 44 00 00 | fentry
  c3
thunk:
  c3
",
        expect![[r#"
            f: 0..10 abi
             b0 root
              0+5 Nop FENTRY join | dead rax r10 r11 flags
              5+5 Call STATIC_CALL after-call | dead rax r10 r11 flags
              a+5 Call 1a STATIC_CALL after-call | dead rax r10 r11 flags
              f+1 TailCall STATIC_CALL after-call | dead rax r10 r11 flags
              -> Exit IndirectTailCall
            g: 14..1a abi
             b0 root
              14+5 Nop FENTRY join | dead r10 r11 flags
              19+1 Return after-call | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
            thunk: 1a..1b
             b0 root
              1a+1 Return join | dead -
              -> Exit Return
        "#]],
    );
}

#[test]
fn cold_part_with_symbol() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  85 ff
  0f 84 <<f.cold
.back:
  c3
g:
  0f 1f 44 00 00 | fentry
  c3
f.cold:
  31 c0
  e9 <<.back
",
        expect![[r#"
            f: 0..e 14..1b abi
             b0 root
              0+5 Nop FENTRY join | dead r10 r11 flags
              5+2 Plain after-call | dead rcx rsi r8 r9 r10 r11 flags
              7+6 Jcc 14 | dead rcx rsi rdi r8 r9 r10 r11 CF PF AF SF OF
              -> FallThrough b1, Taken b2
             b1
              d+1 Return join | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
             b2
              14+2 Plain join | dead rax rcx rsi rdi r8 r9 r10 r11 flags
              16+5 Jmp d | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Jump b1
            g: e..14 abi
             b0 root
              e+5 Nop FENTRY join | dead r10 r11 flags
              13+1 Return after-call | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
        "#]],
    );
}

#[test]
fn cold_part_without_its_function() {
    let kernel = listing::kernel(
        "
f:
  0f 1f 44 00 00 | fentry
  c3
f.cold:
  31 c0
  c3
",
    );
    let analysis = kerninst_analysis::Analysis::new(&kernel);
    let f = analysis.function_at(listing::BASE + 7).unwrap();
    expect![[r#"
        f.cold: 6..9 abi
          incomplete: 0xffffffff81000006 starts the cold part of a function that was not found: where it is entered is not known
         b0 root
          6+2 Plain join | dead rax rcx rsi rdi r8 r9 r10 r11 flags
          8+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
          -> Exit Return
    "#]].assert_eq(&listing::function_text(&f));
}

#[test]
fn cold_part_without_symbol() {
    // .cold lies behind g, which does not reach it; .mid is reached by g: a jump into it leaves f.
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  85 ff
  0f 84 <<.cold
.back:
  0f 88 <<.mid
  c3
  cc
g:
  0f 1f 44 00 00 | fentry
.mid:
  c3
.cold:
  31 c0
  e9 <<.back
",
        expect![[r#"
            f: 0..14 1b..22 abi
             b0 root
              0+5 Nop FENTRY join | dead CF PF ZF SF OF
              5+2 Plain after-call | dead CF PF ZF SF OF
              7+6 Jcc 1b | dead -
              -> FallThrough b1, Taken b3
             b1
              d+6 Jcc 1a join | dead -
              -> FallThrough b2, Taken jump-into 1a
             b2
              13+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
             b3
              1b+2 Plain join | dead rax CF PF ZF SF OF
              1d+5 Jmp d | dead -
              -> Jump b1
            g: 15..1b abi
             b0 root
              15+5 Nop FENTRY join | dead r10 r11 flags
              1a+1 Return after-call | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
        "#]],
    );
}

#[test]
fn incomplete_functions() {
    check(
        "
bad:
  0f 1f 44 00 00 | fentry
  85 ff
  74 <.x
  06                    # not an instruction in 64-bit mode
.x:
  c3
breakpoint:
  0f 1f 44 00 00 | fentry
  cc
  c3
overlap:
  85 ff
  74 <.in
  b8
.in:
  31 c0 90 90
  c3
table:
  b8
.inside:
  01 02 03 04
  c3
user:
  66 90 | key .inside
  c3
indirect:
  ff e0
",
        expect![[r#"
            bad: 0..9 a..b abi
              incomplete: control flow reaches 0xffffffff81000009, where there is no valid instruction
             b0 root
              0+5 Nop FENTRY join | dead CF PF ZF SF OF
              5+2 Plain after-call | dead CF PF ZF SF OF
              7+2 Jcc a | dead -
              -> FallThrough Unknown, Taken b1
             b1
              a+1 Return join | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
            breakpoint: b..11 abi
              incomplete: control flow reaches an int3 at 0xffffffff81000010: a breakpoint there hides the instruction, or it is not meant to be reached
             b0 root
              b+5 Nop FENTRY join | dead -
              10+1 Int3 after-call | dead -
              -> Exit Unknown
            overlap: 12..1c
              incomplete: control flow reaches 0xffffffff81000017, which lies inside another instruction that is also reached
             b0 root
              12+2 Plain join | dead rax CF PF ZF SF OF
              14+2 Jcc 17 | dead rax
              -> FallThrough b1, Taken b2
             b1
              16+5 Plain | dead rax
              -> FallThrough Unknown
             b2
              17+2 Plain join | dead rax CF PF ZF SF OF
              19+1 Nop | dead -
              1a+1 Nop | dead -
              1b+1 Return | dead -
              -> Exit Return
            table: 1c..22
              incomplete: the kernel's jump label table names 0xffffffff8100001d, which is not the start of an instruction
             b0 root
              1c+5 Plain join | dead rax
              21+1 Return | dead -
              -> Exit Return
            user: 22..25 1d..22
             b0
              1d+2 Plain join | dead flags
              1f+3 Plain | dead flags
              -> FallThrough tail-call 22
             b1 root
              22+2 JumpLabel 1d JUMP_LABEL join | dead -
              -> StaticKeyOff b2, StaticKeyOn b0
             b2
              24+1 Return | dead -
              -> Exit Return
            indirect: 25..27
              incomplete: an indirect jump at 0xffffffff81000025 has targets that are not known
             b0 root
              25+2 IndirectJmp join | dead -
              -> Exit Unknown
        "#]],
    );
}

#[test]
fn assembly_is_entered_in_the_middle() {
    check(
        "
a:
  31 c0
.mid:
  ff c0
  c3
b:
  e9 <<.mid
c:
  eb <.near
d:
  90
.near:
  31 c0
.next:
  c3
e:
  c3
f:
  74 <.next
  c3
",
        expect![[r#"
            a: 0..5
             b0 root
              0+2 Plain join | dead rax flags
              -> FallThrough b1
             b1 root
              2+2 Plain join | dead PF AF ZF SF OF
              4+1 Return | dead -
              -> Exit Return
            b: 5..a
             b0 root
              5+5 TailCall 2 join | dead -
              -> Exit jump-into 2
            c: a..c
             b0 root
              a+2 TailCall d join | dead -
              -> Exit jump-into d
            d: c..10
             b0 root
              c+1 Nop join | dead rax CF PF ZF SF OF
              -> FallThrough b1
             b1 root
              d+2 Plain join | dead rax CF PF ZF SF OF
              -> FallThrough b2
             b2 root
              f+1 Return join | dead -
              -> Exit Return
            e: 10..11
             b0 root
              10+1 Return join | dead -
              -> Exit Return
            f: 11..14
             b0 root
              11+2 Jcc f join | dead -
              -> FallThrough b1, Taken jump-into f
             b1
              13+1 Return | dead -
              -> Exit Return
        "#]],
    );
}

#[test]
fn address_taken() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  48 8d 05 <<.here      # lea rax, .here
  48 c7 c2 =.there      # mov rdx, .there
.here:
  c3
.there:
  31 c0
  c3
",
        expect![[r#"
            f: 0..17 abi
             b0 root
              0+5 Nop FENTRY join | dead rax r10 r11 flags
              5+7 Plain after-call | dead rax rcx rdx rsi rdi r8 r9 r10 r11 flags
              c+7 Plain | dead rcx rdx rsi rdi r8 r9 r10 r11 flags
              -> FallThrough b1
             b1 root
              13+1 Return join | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
             b2 root
              14+2 Plain join | dead rax rcx rsi rdi r8 r9 r10 r11 flags
              16+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
        "#]],
    );
}

#[test]
fn alternatives_of_a_file() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  e9 <<.slow | alt 5 .replacement 5
  31 c0
  c3
.slow:
  ff c0
  c3
.other:
  c3
text_aux:
.replacement:
  e9 <<.other
",
        expect![[r#"
            f: 0..11 abi
             b0 root
              0+5 Nop FENTRY join | dead r10 r11 flags
              5+5 Jmp d ALTERNATIVE after-call | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> FallThrough b1, Jump b2, Taken b3
             b1
              a+2 Plain | dead rax rcx rsi rdi r8 r9 r10 r11 flags
              c+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
             b2
              d+2 Plain join | dead rcx rsi rdi r8 r9 r10 r11 flags
              f+1 Return | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
             b3
              10+1 Return join | dead rcx rsi rdi r8 r9 r10 r11 flags
              -> Exit Return
            text_aux: 11..16 10..11
             b0
              10+1 Return join | dead -
              -> Exit Return
             b1 root
              11+5 Jmp 10 join | dead -
              -> Jump b0
        "#]],
    );
}
