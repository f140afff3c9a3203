//! Syntax. What is checked and lowered has its golden files in `tests/`.

use super::parse;
use crate::ast::ProbeKind;
use proptest::prelude::*;

fn probes(source: &str) -> String {
    let script = parse(source).unwrap_or_else(|d| panic!("{source}: {}", d[0].message));
    let probes = script.clauses.iter().flat_map(|c| &c.probes);
    let shown = probes.map(|p| match &p.kind {
        ProbeKind::Kernel(place) => {
            let function = place.function.as_deref().unwrap_or("-");
            format!(
                "{} ({function}{})",
                place.text,
                if place.glob { ", glob" } else { "" }
            )
        }
        other => format!("{other:?}"),
    });
    shown.collect::<Vec<_>>().join("; ")
}

/// Would catch a probe whose text is cut in the wrong place (slashes are in filters, blocks, edges and paths), and an alias that
/// means another place.
#[test]
fn probes_end_where_they_should() {
    for (source, want) in [
        ("BEGIN{} END { }", "Begin; End"),
        ("interval:ms:20 {}", "Interval(20000000)"),
        ("interval:hz:4 / 1 / {}", "Interval(250000000)"),
        ("entry:vfs_read/pid==1/{}", "entry:vfs_read (vfs_read)"),
        (
            "entry:a,exit:b , entry:c /1/ {}",
            "entry:a (a); exit:b (b); entry:c (c)",
        ),
        ("block:f/* {}", "block:f/* (f)"),
        ("block:f/*/ 4/2 == 2 / {}", "block:f/* (f)"),
        ("block:f/3 /1/ {}", "block:f/3 (f)"),
        ("edge:m:f#2/2->5/pid/ {}", "edge:m:f#2/2->5 (f)"),
        (
            "insn:f@net/ipv4/tcp.c:123/1/{}",
            "insn:f@net/ipv4/tcp.c:123 (f)",
        ),
        ("insn:f@a.c:1 {}", "insn:f@a.c:1 (f)"),
        ("insn:0xffffffff81000000 {}", "insn:0xffffffff81000000 (-)"),
        ("call:f->g {} call:f->* {}", "call:f->g (f); call:f->* (f)"),
        (
            "entry:tcp_[a,b]?* {}",
            "entry:tcp_[a,b]?* (tcp_[a,b]?*, glob)",
        ),
        (
            "kprobe:f+0x10 {} kr:f {} k:f {}",
            "insn:f+0x10 (f); exit:f (f); entry:f (f)",
        ),
        (
            "kfunc:vmlinux:f, fexit:vmlinux:f, fentry:ext4:g {}",
            "entry:f (f); exit:f (f); entry:ext4:g (g)",
        ),
        ("// x\n/* y */ entry:f // z\n/* w */ {}", "entry:f (f)"),
        ("#!/usr/bin/kerninst run\nentry:f{}", "entry:f (f)"),
    ] {
        assert_eq!(probes(source), want, "{source}");
    }
}

/// Would catch recursion that the parser does not bound (the stack of a test thread is 2 MiB), and loops that do not advance.
#[test]
fn depth_is_bounded() {
    for part in [
        "(",
        "-",
        "!",
        "*",
        "&",
        "1||1&&1|1^1&1==1<1<<1+1*(",
        "@[",
        "f(",
        "1?",
        "1?1:",
        "(u8)",
        "sizeof(",
        "a.b[",
        "a.",
        "1+",
        "$x[",
        "if(1){",
        "while(1){",
        "if(1){}else ",
        "{",
        "unroll(1){",
        "((u8*)",
    ] {
        for (head, tail) in [
            ("entry:f { ", ""),
            ("entry:f { $x = ", "1"),
            ("entry:f /", "1/ {}"),
            ("", ""),
        ] {
            let source = format!("{head}{}{tail}", part.repeat(20_000));
            assert!(parse(&source).is_err(), "{part}");
        }
    }
}

proptest! {
    /// Would catch a panic of the parser.
    #[test]
    fn any_text(source in ".{0,200}") {
        let _ = parse(&source);
    }

    /// The same with words that go deeper.
    #[test]
    fn any_tokens(words in proptest::collection::vec(prop::sample::select(vec![
        "entry:f", "BEGIN", "{", "}", "(", ")", "[", "]", "/", "/*", "*/", "//", "\n", ",", ";", "@", "@a", "$x", "$1", "=", "+=",
        "++", "--", "if", "else", "for", "while", "limit", "unroll", "..", ":", "?", "1", "0x", "1e99", "\"a\"", "\"", "'a'", "'",
        "struct", "u8", "*", "&", "->", ".", "sizeof", "return", "break", "count()", "é", "\u{0}", "kstack", "interval:s:1", "\\",
    ]), 0..60), blanks in any::<bool>()) {
        let _ = parse(&words.join(if blanks { " " } else { "" }));
    }
}
