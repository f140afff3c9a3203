//! Every line as JSON.

use expect_test::{Expect, expect};

use super::*;
use crate::hir::Type;
use crate::show::testing::{Made, entry, map as made, number, text as t};

fn check(map: &Map, entries: &[Entry], expected: Expect) {
    let line = super::map(map, entries, 0, 1, &Made);
    expected.assert_eq(&line);
    if !line.is_empty() {
        serde_json::from_str::<serde_json::Value>(&line).unwrap();
    }
}

/// Would catch: a shape other than bpftrace's, a line without schema, numbers beyond a double's digits.
#[test]
fn maps() {
    check(
        &made("@n", MapValue::Count),
        &[],
        expect![[r#"
        {"schema":"kerninst.run/1","type":"map","data":{"@n":0}}
    "#]],
    );
    check(
        &made("@n", MapValue::Count),
        &[entry([], number(u64::MAX.into()))],
        expect![[r#"
            {"schema":"kerninst.run/1","type":"map","data":{"@n":18446744073709551615}}
        "#]],
    );
    check(
        &made("@reads", MapValue::Count),
        &[
            entry([t("sh"), Value::int(-1)], number(7)),
            entry([t("a\"b\n"), Value::int(123)], number(4)),
        ],
        expect![[r#"
            {"schema":"kerninst.run/1","type":"map","data":{"@reads":{"a\"b\n,123":4,"sh,-1":7}}}
        "#]],
    );
    check(
        &made("@last", MapValue::Plain(Type::Symbol)),
        &[entry(
            [Value::Pointer(16)],
            Cell::Plain(Value::Symbol(0x1010)),
        )],
        expect![[r#"
            {"schema":"kerninst.run/1","type":"map","data":{"@last":{"0x10":"vfs_read+0x10"}}}
        "#]],
    );
    check(
        &made("@stack", MapValue::Count),
        &[entry([Value::KernelStack(8)], number(1))],
        expect![[r#"
            {"schema":"kerninst.run/1","type":"map","data":{"@stack":{"\n    vfs_read+0x4\n":1}}}
        "#]],
    );
    check(&made("@h", MapValue::Hist), &[], expect![[r#""#]]);
}

/// Would catch: buckets whose ends are off by one, or that lose their open ends.
#[test]
fn histograms() {
    let mut counts = vec![0; 66];
    (counts[0], counts[1], counts[2], counts[3]) = (1, 2, 3, 4);
    check(
        &made("@h", MapValue::Hist),
        &[entry([t("x")], Cell::Hist(counts))],
        expect![[r#"
            {"schema":"kerninst.run/1","type":"hist","data":{"@h":{"x":[{"max":-1,"count":1},{"min":0,"max":0,"count":2},{"min":1,"max":1,"count":3},{"min":2,"max":3,"count":4}]}}}
        "#]],
    );
    let steps = MapValue::LHist {
        min: -5,
        max: 5,
        step: 4,
    };
    check(
        &made("@l", steps),
        &[entry([], Cell::LHist(vec![1, 0, 2, 3, 4]))],
        expect![[r#"
            {"schema":"kerninst.run/1","type":"hist","data":{"@l":[{"max":-6,"count":1},{"min":-5,"max":-2,"count":0},{"min":-1,"max":2,"count":2},{"min":3,"max":4,"count":3},{"min":5,"count":4}]}}
        "#]],
    );
}

/// Would catch: stats that are not three fields, averages that are not numbers.
#[test]
fn averages_and_stats() {
    check(
        &made("@s", MapValue::Stats { signed: true }),
        &[entry([t("x")], Cell::Stats { count: 3, sum: 15 })],
        expect![[r#"
            {"schema":"kerninst.run/1","type":"stats","data":{"@s":{"x":{"count":3,"average":5,"total":15}}}}
        "#]],
    );
    check(
        &made("@a", MapValue::Avg { signed: true }),
        &[entry([], Cell::Average { count: 0, sum: 0 })],
        expect![[r#"
            {"schema":"kerninst.run/1","type":"stats","data":{"@a":0}}
        "#]],
    );
}

/// Would catch: two keys that become one in JSON, and bytes that cannot be got back.
#[test]
fn keys_that_json_cannot_tell_apart_are_given_one_by_one() {
    check(
        &made("@", MapValue::Count),
        &[
            entry([Value::Text(vec![0xff])], number(1)),
            entry([Value::Text(vec![0xfe])], number(2)),
        ],
        expect![[r#"
            {"schema":"kerninst.run/1","type":"map","data":{"@":{"�":1,"�":2}},"entries":[{"key":[{"text":"�","bytes":"ff"}],"value":1},{"key":[{"text":"�","bytes":"fe"}],"value":2}]}
        "#]],
    );
    check(
        &made("@", MapValue::Plain(Type::Str(16))),
        &[
            entry(
                [t("a,b"), t("c")],
                Cell::Plain(Value::Text(vec![b'z', 0x80])),
            ),
            entry([t("a"), t("b,c")], Cell::Plain(t("y"))),
        ],
        expect![[r#"
            {"schema":"kerninst.run/1","type":"map","data":{"@":{"a,b,c":"y","a,b,c":"z�"}},"entries":[{"key":["a","b,c"],"value":"y"},{"key":["a,b","c"],"value":"z�","bytes":"7a80"}]}
        "#]],
    );
}

/// Would catch: text that is not escaped, or bytes that are lost without a word.
#[test]
fn texts_and_values() {
    let mut all = String::new();
    all += &text("printf", b"a \"b\"\n\t\x01");
    all += &text("time", "12:00 \u{fc}\n".as_bytes());
    all += &text("cat", &[b'x', 0xff, b'\n']);
    all += &value(&Value::int(-3), &Made);
    all += &value(&Value::Symbol(0x1000), &Made);
    all += &value(&Value::Text(vec![0xc3]), &Made);
    all += &attached_probes(3);
    all += &lost_events(&[0; 6]);
    all += &lost_events(&[5, 0, 0, 0, 0, 0]);
    all += &lost_events(&[0, 1, 2, 3, 4, 5]);
    expect![[r#"
        {"schema":"kerninst.run/1","type":"printf","data":"a \"b\"\n\t\u0001"}
        {"schema":"kerninst.run/1","type":"time","data":"12:00 ü\n"}
        {"schema":"kerninst.run/1","type":"cat","data":"x�\n","bytes":"78ff0a"}
        {"schema":"kerninst.run/1","type":"value","data":-3}
        {"schema":"kerninst.run/1","type":"value","data":"vfs_read"}
        {"schema":"kerninst.run/1","type":"value","data":"�","bytes":"c3"}
        {"schema":"kerninst.run/1","type":"attached_probes","data":{"probes":3}}
        {"schema":"kerninst.run/1","type":"lost_events","data":{"events":5}}
        {"schema":"kerninst.run/1","type":"lost_events","data":{"events":0,"keys":1,"stacks":2,"nested":3,"contended":4,"unreadable":5}}
    "#]].assert_eq(&all);
    for line in all.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}
