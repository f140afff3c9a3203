//! `kerninst list` over a kernel made by hand.

mod common;

use expect_test::{Expect, expect};
use kerninst_cli::args::{ListArgs, Source};
use kerninst_cli::list::list;

fn args(patterns: &[&str]) -> ListArgs {
    ListArgs {
        patterns: patterns.iter().map(|p| (*p).into()).collect(),
        ..ListArgs::default()
    }
}

fn check(args: &ListArgs, expected: Expect) {
    let kernel = common::kernel();
    let text = common::capture(|ui| list(&kernel, args, ui));
    // The first line of JSON names this machine.
    let kept = text
        .split_inclusive('\n')
        .filter(|l| !l.contains("kerninst.kernel/1"));
    expected.assert_eq(&kept.collect::<String>());
}

#[test]
fn names() {
    check(
        &args(&[]),
        expect![[r#"
        alpha
        helper
        helper#2
        early_entry
        mod:helper
    "#]],
    );
    check(
        &args(&["h*"]),
        expect![[r#"
        helper
        helper#2
        mod:helper
    "#]],
    );
    check(
        &args(&["mod:*", "alpha"]),
        expect![[r#"
        alpha
        mod:helper
    "#]],
    );
    check(
        &args(&["helper#2"]),
        expect![[r#"
        helper#2
    "#]],
    );
}

#[test]
fn nothing_matches() {
    check(
        &args(&["alpha", "gamma*"]),
        expect![[r#"
        exit 1: no function matches gamma*
    "#]],
    );
    check(
        &args(&["jiffies"]),
        expect![[r#"
            exit 2: jiffies is a data symbol (writable, at 0xffffffff82000000), not a function
        "#]],
    );
    let source = Source {
        module: Some("nope".into()),
        image: None,
    };
    check(
        &ListArgs {
            source,
            ..args(&[])
        },
        expect![[r#"
        exit 1: no loaded module is called nope (lsmod lists them)
    "#]],
    );
}

#[test]
fn long() {
    check(
        &ListArgs {
            long: true,
            ..args(&[])
        },
        expect![[r#"
        FUNCTION     SIZE  INSNS  BLOCKS  FLOW      INSTRUMENTABLE
        alpha          36     12       7  complete  yes
        helper         17      3       1  complete  yes
        helper#2        8      3       1  complete  yes
        early_entry     2      2       1  complete  no: noinstr text: must not be instrumented
        mod:helper      8      3       1  complete  yes
    "#]],
    );
}

#[test]
fn refused_functions() {
    check(
        &ListArgs {
            refused: true,
            ..args(&[])
        },
        expect![[r#"
        FUNCTION     SIZE  INSNS  BLOCKS  FLOW      INSTRUMENTABLE
        early_entry     2      2       1  complete  no: noinstr text: must not be instrumented
    "#]],
    );
    check(
        &ListArgs {
            refused: true,
            ..args(&["alpha"])
        },
        expect![[r#"
        exit 1: all of these functions can be instrumented
    "#]],
    );
}

#[test]
fn points() {
    check(
        &ListArgs {
            points: true,
            ..args(&["alpha"])
        },
        expect![[r#"
            insn:alpha+0x0  refused (fentry): this is the function's fentry site, which ftrace owns; use the next instruction, at +0x5
            insn:alpha+0x5  springboard
            insn:alpha+0x7  springboard
            insn:alpha+0xa  springboard
            insn:alpha+0xc  springboard
            insn:alpha+0xf  springboard
            insn:alpha+0x13  springboard
            insn:alpha+0x16  springboard
            insn:alpha+0x18  hoist-short
            insn:alpha+0x1d  springboard
            insn:alpha+0x20  springboard
            insn:alpha+0x22  in-place-padded
        "#]],
    );
    check(
        &ListArgs {
            points: true,
            refused: true,
            ..args(&[])
        },
        expect![[r#"
            insn:alpha+0x0  refused (fentry): this is the function's fentry site, which ftrace owns; use the next instruction, at +0x5
            insn:helper+0x0  refused (fentry): this is the function's fentry site, which ftrace owns; use the next instruction, at +0x5
            insn:helper#2+0x0  refused (fentry): this is the function's fentry site, which ftrace owns; use the next instruction, at +0x5
            insn:early_entry+0x0  refused (off-limits): noinstr text: must not be instrumented
            insn:early_entry+0x1  refused (off-limits): noinstr text: must not be instrumented
            insn:mod:helper+0x0  refused (fentry): this is the function's fentry site, which ftrace owns; use the next instruction, at +0x5
        "#]],
    );
}

#[test]
fn json() {
    check(
        &ListArgs {
            json: true,
            ..args(&["early_entry"])
        },
        expect![[r#"
            {"schema":"kerninst.function/1","id":"early_entry","name":"early_entry","module":null,"entry":"0xffffffff81000070","size":2,"instructions":2,"blocks":1,"complete":true,"incomplete":[],"fentry":false,"refused":{"reason":"off-limits","text":"noinstr text: must not be instrumented"}}
        "#]],
    );
    check(
        &ListArgs {
            json: true,
            points: true,
            ..args(&["mod:*"])
        },
        expect![[r#"
            {"schema":"kerninst.point/1","point":"insn:mod:helper+0x0","function":"mod:helper","module":"mod","addr":"0xffffffffc0000000","tactic":null,"refused":{"reason":"fentry","text":"this is the function's fentry site, which ftrace owns; use the next instruction, at 0xffffffffc0000005"}}
            {"schema":"kerninst.point/1","point":"insn:mod:helper+0x5","function":"mod:helper","module":"mod","addr":"0xffffffffc0000005","tactic":"int3","refused":null}
            {"schema":"kerninst.point/1","point":"insn:mod:helper+0x7","function":"mod:helper","module":"mod","addr":"0xffffffffc0000007","tactic":"int3","refused":null}
        "#]],
    );
}
