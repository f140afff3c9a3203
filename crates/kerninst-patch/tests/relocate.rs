//! Relocation as text: one instruction at its original address in, its copy in a patch out.

use expect_test::{Expect, expect};
use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter};
use kerninst_patch::relocate;

const ADDR: u64 = 0xffff_ffff_8123_4560;
const PATCH: u64 = 0xffff_ffff_c045_0000;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap())
        .collect()
}

fn check(hex: &str, expected: Expect) {
    expected.assert_eq(&moved(&bytes(hex)));
}

fn moved(bytes: &[u8]) -> String {
    let f = match relocate(bytes, ADDR) {
        Ok(f) => f,
        Err(e) => return format!("refused: {e}\n"),
    };
    let code = f.linked_at(PATCH).expect("in reach");
    let mut out = String::new();
    let mut formatter = GasFormatter::new();
    formatter.options_mut().set_rip_relative_addresses(false);
    for i in Decoder::with_ip(64, &code, PATCH, DecoderOptions::NONE).iter() {
        let mut text = String::new();
        formatter.format(&i, &mut text);
        let depth = f
            .stack
            .iter()
            .find(|s| PATCH + u64::from(s.offset) == i.next_ip());
        let depth = depth.map_or(String::new(), |s| format!("  ; +{}", s.pushed));
        out.push_str(&format!("{text}{depth}\n"));
    }
    if f.falls_through {
        out.push_str("...\n");
    }
    out
}

#[test]
fn what_does_not_depend_on_its_address_is_copied() {
    check(
        "48 89 e5",
        expect![[r#"
        mov %rsp,%rbp
        ...
    "#]],
    );
    check(
        "f3 48 ab",
        expect![[r#"
        rep stos %rax,(%rdi)
        ...
    "#]],
    );
    check(
        "9c",
        expect![[r#"
        pushf
        ...
    "#]],
    );
    check(
        "0f 01 ca",
        expect![[r#"
        clac
        ...
    "#]],
    );
    check(
        "0f 22 d8",
        expect![[r#"
        mov %rax,%cr3
        ...
    "#]],
    );
    check(
        "c3",
        expect![[r#"
        ret
    "#]],
    );
    check(
        "0f 0b",
        expect![[r#"
        ud2
        ...
    "#]],
    );
    check(
        "ff 64 24 08",
        expect![[r#"
        jmpq *8(%rsp)
    "#]],
    );
}

#[test]
fn hypercalls_are_copied() {
    check(
        "0f 01 c1",
        expect![[r#"
        vmcall
        ...
    "#]],
    );
    check(
        "f3 0f 01 d9",
        expect![[r#"
        vmgexit
        ...
    "#]],
    );
    check(
        "66 0f 01 cc",
        expect![[r#"
        tdcall
        ...
    "#]],
    );
}

#[test]
fn rip_relative_memory_keeps_its_target() {
    check(
        "48 8b 05 10 20 30 00",
        expect![[r#"
        mov 0xFFFFFFFF81536577,%rax
        ...
    "#]],
    );
    check(
        "48 8d 3d f0 ff ff ff",
        expect![[r#"
        lea 0xFFFFFFFF81234557,%rdi
        ...
    "#]],
    );
    // An immediate after the displacement.
    check(
        "48 c7 05 10 00 00 00 78 56 34 12",
        expect![[r#"
        movq $0x12345678,0xFFFFFFFF8123457B
        ...
    "#]],
    );
    check(
        "80 3d 10 00 00 00 07",
        expect![[r#"
        cmpb $7,0xFFFFFFFF81234577
        ...
    "#]],
    );
    check(
        "ff 25 10 00 00 00",
        expect![[r#"
        jmpq *0xFFFFFFFF81234576
    "#]],
    );
}

#[test]
fn rip_relative_per_cpu_memory_becomes_absolute() {
    // mov %gs:disp(%rip), %rax with disp so that the target is 0x1fac0.
    check(
        "65 48 8b 05 58 b5 de 7e",
        expect![[r#"
        mov %gs:0x1FAC0,%rax
        ...
    "#]],
    );
    check(
        "65 83 05 00 b5 de 7e 01",
        expect![[r#"
        addl $1,%gs:0x1FA68
        ...
    "#]],
    );
    // REX.X is without effect before, and must be after.
    check(
        "65 4a 8b 05 58 b5 de 7e",
        expect![[r#"
        mov %gs:0x1FAC0,%rax
        ...
    "#]],
    );
    // From 6.15 on per-CPU symbols lie in the kernel image.
    check(
        "65 48 8b 05 58 b5 de 00",
        expect![[r#"
        mov %gs:0xFFFFFFFF8201FAC0,%rax
        ...
    "#]],
    );
}

#[test]
fn a_direct_call_pushes_the_original_return_address() {
    check(
        "e8 9b ba 00 00",
        expect![[r#"
        push $0xFFFFFFFF81234565  ; +8
        jmp 0xFFFFFFFF81240000
    "#]],
    );
}

#[test]
fn indirect_calls() {
    check(
        "ff d0",
        expect![[r#"
        push $0xFFFFFFFF81234562  ; +8
        jmp *%rax
    "#]],
    );
    check(
        "41 ff d3",
        expect![[r#"
        push $0xFFFFFFFF81234563  ; +8
        jmp *%r11
    "#]],
    );
    check(
        "3e ff d0",
        expect![[r#"
        push $0xFFFFFFFF81234563  ; +8
        notrack jmp *%rax
    "#]],
    );
    check(
        "ff 15 10 00 00 00",
        expect![[r#"
        push $0xFFFFFFFF81234566  ; +8
        jmpq *0xFFFFFFFF81234576
    "#]],
    );
    check(
        "ff 50 18",
        expect![[r#"
        push $0xFFFFFFFF81234563  ; +8
        jmpq *0x18(%rax)
    "#]],
    );
    check(
        "41 ff 54 c4 18",
        expect![[r#"
        push $0xFFFFFFFF81234565  ; +8
        jmpq *0x18(%r12,%rax,8)
    "#]],
    );
    check(
        "65 ff 14 25 40 10 00 00",
        expect![[r#"
        push $0xFFFFFFFF81234568  ; +8
        jmpq *%gs:0x1040
    "#]],
    );
}

#[test]
fn the_push_moves_operands_on_the_stack() {
    check(
        "ff 14 24",
        expect![[r#"
        push $0xFFFFFFFF81234563  ; +8
        jmpq *8(%rsp)
    "#]],
    );
    check(
        "ff 54 24 08",
        expect![[r#"
        push $0xFFFFFFFF81234564  ; +8
        jmpq *0x10(%rsp)
    "#]],
    );
    check(
        "ff 54 24 7c",
        expect![[r#"
        push $0xFFFFFFFF81234564  ; +8
        jmpq *0x84(%rsp)
    "#]],
    );
    check(
        "ff 94 24 00 01 00 00",
        expect![[r#"
        push $0xFFFFFFFF81234567  ; +8
        jmpq *0x108(%rsp)
    "#]],
    );
    check(
        "ff 54 cc 08",
        expect![[r#"
        push $0xFFFFFFFF81234564  ; +8
        jmpq *0x10(%rsp,%rcx,8)
    "#]],
    );
    check(
        "ff d4",
        expect![[r#"
        refused: it calls through the stack pointer
    "#]],
    );
    check(
        "67 ff 14 24",
        expect![[r#"
        refused: it calls through the stack pointer
    "#]],
    );
    check(
        "ff 94 24 ff ff ff 7f",
        expect![[r#"
        refused: it calls through the stack pointer
    "#]],
    );
}

#[test]
fn conditional_jumps_are_widened() {
    check(
        "74 10",
        expect![[r#"
        je 0xFFFFFFFF81234572
        ...
    "#]],
    );
    check(
        "0f 8d 00 01 00 00",
        expect![[r#"
        jge 0xFFFFFFFF81234666
        ...
    "#]],
    );
    check(
        "2e 75 f0",
        expect![[r#"
        jne 0xFFFFFFFF81234553
        ...
    "#]],
    );
}

#[test]
fn loops_go_over_a_jump() {
    check(
        "e3 10",
        expect![[r#"
        jrcxz 0xFFFFFFFFC0450004
        jmp 0xFFFFFFFFC0450009
        jmp 0xFFFFFFFF81234572
        ...
    "#]],
    );
    check(
        "67 e3 10",
        expect![[r#"
        jecxz 0xFFFFFFFFC0450005
        jmp 0xFFFFFFFFC045000A
        jmp 0xFFFFFFFF81234573
        ...
    "#]],
    );
    check(
        "e2 f0",
        expect![[r#"
        loop 0xFFFFFFFFC0450004
        jmp 0xFFFFFFFFC0450009
        jmp 0xFFFFFFFF81234552
        ...
    "#]],
    );
}

#[test]
fn jumps() {
    check(
        "eb 10",
        expect![[r#"
        jmp 0xFFFFFFFF81234572
    "#]],
    );
    check(
        "e9 00 01 00 00",
        expect![[r#"
        jmp 0xFFFFFFFF81234665
    "#]],
    );
    check(
        "ff e0",
        expect![[r#"
        jmp *%rax
    "#]],
    );
    check(
        "3e ff e0",
        expect![[r#"
        notrack jmp *%rax
    "#]],
    );
}

#[test]
fn what_must_stay_is_refused() {
    check(
        "48 cf",
        expect![[r#"
        refused: it returns from an exception or to user space
    "#]],
    );
    check(
        "48 0f 07",
        expect![[r#"
        refused: it returns from an exception or to user space
    "#]],
    );
    check(
        "cc",
        expect![[r#"
        refused: it is a software interrupt or someone's breakpoint
    "#]],
    );
    check(
        "cd 80",
        expect![[r#"
        refused: it is a software interrupt or someone's breakpoint
    "#]],
    );
    check(
        "0f 01 f8",
        expect![[r#"
        refused: the function changes the gs segment, so per-CPU memory may be out of reach
    "#]],
    );
    check(
        "8e e8",
        expect![[r#"
        refused: the function changes the gs segment, so per-CPU memory may be out of reach
    "#]],
    );
    check(
        "8e d0",
        expect![[r#"
        refused: it loads ss, which holds off interrupts for the next instruction
    "#]],
    );
    check(
        "48 cb",
        expect![[r#"
        refused: it is a far transfer
    "#]],
    );
    check(
        "ff 28",
        expect![[r#"
        refused: it is a far transfer
    "#]],
    );
    check(
        "ff 18",
        expect![[r#"
        refused: it is a far transfer
    "#]],
    );
    check(
        "e8 00 00 00 00",
        expect![[r#"
        refused: it reads its own address (a call to the next instruction)
    "#]],
    );
    check(
        "c7 f8 00 00 00 00",
        expect![[r#"
        refused: it begins a transaction
    "#]],
    );
    check(
        "66 e9 00 01 00 00",
        expect![[r#"
        refused: it is a branch with an operand-size prefix
    "#]],
    );
    check(
        "67 48 8b 05 10 20 30 00",
        expect![[r#"
        refused: it has an operand relative to eip
    "#]],
    );
    check(
        "0f 01 c2",
        expect![[r#"
        refused: it enters a virtual machine
    "#]],
    );
    check(
        "06",
        expect![[r#"
        refused: its bytes are not a valid instruction
    "#]],
    );
    check(
        "48 8b",
        expect![[r#"
        refused: its bytes are not a valid instruction
    "#]],
    );
    check(
        "",
        expect![[r#"
        refused: its bytes are not a valid instruction
    "#]],
    );
}

#[test]
fn a_return_address_that_push_cannot_give_is_refused() {
    let refused = relocate(&bytes("e8 9b ba 00 00"), 0xffff_8880_0000_1000);
    expect!["it is a call whose return address does not fit a sign-extended 32-bit value"]
        .assert_eq(&refused.unwrap_err().to_string());
}
