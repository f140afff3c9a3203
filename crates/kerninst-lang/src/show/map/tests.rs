//! Every shape of a map as text.

use expect_test::{Expect, expect};

use super::*;
use crate::layout::HIST_BUCKETS;
use crate::show::testing::{Made, entry, map, number, text};
use crate::value::Value;

fn check(map: &Map, entries: &[Entry], top: u32, div: u64, expected: Expect) {
    let text = map_text(map, entries, top, div, &Made);
    expected.assert_eq(&String::from_utf8(text).unwrap());
}

fn hist(counts: &[(usize, u64)]) -> Vec<u64> {
    let mut all = vec![0; HIST_BUCKETS as usize];
    for &(i, n) in counts {
        all[i] = n;
    }
    all
}

/// Would catch: the largest not last, equal ones out of order, `top` that keeps the smallest.
#[test]
fn keys_are_ordered_by_value() {
    let reads = map("@reads", MapValue::Count);
    let entries = [
        entry([text("cat"), Value::int(123)], number(42)),
        entry([text("sh"), Value::int(-1)], number(7)),
        entry([text("awk"), Value::int(9)], number(42)),
    ];
    check(
        &reads,
        &entries,
        0,
        1,
        expect![[r#"
        @reads[sh, -1]: 7
        @reads[awk, 9]: 42
        @reads[cat, 123]: 42
    "#]],
    );
    check(
        &reads,
        &entries,
        2,
        10,
        expect![[r#"
        @reads[awk, 9]: 4
        @reads[cat, 123]: 4
    "#]],
    );
}

/// Would catch: a zero that is silent, an empty map that is not.
#[test]
fn nothing_is_shown_of_nothing_but_a_number() {
    check(
        &map("@n", MapValue::Count),
        &[],
        0,
        1,
        expect![[r#"
        @n: 0
    "#]],
    );
    let mut keyed = map("@n", MapValue::Count);
    keyed.key.push(Type::U64);
    check(&keyed, &[], 0, 1, expect![[r#""#]]);
    check(&map("@h", MapValue::Hist), &[], 0, 1, expect![[r#""#]]);
}

/// Would catch: a sign lost, a division by zero, values of other types badly shown.
#[test]
fn single_values() {
    let sum = map("@", MapValue::Sum { signed: true });
    check(
        &sum,
        &[entry([], number(-7))],
        0,
        0,
        expect![[r#"
        @: -7
    "#]],
    );
    let plain = |ty| map("@p", MapValue::Plain(ty));
    let show = |ty, value, expected| {
        check(&plain(ty), &[entry([], Cell::Plain(value))], 0, 1, expected);
    };
    show(
        Type::U64,
        Value::uint(u64::MAX),
        expect![[r#"
        @p: 18446744073709551615
    "#]],
    );
    show(
        Type::Str(16),
        text("a b"),
        expect![[r#"
        @p: a b
    "#]],
    );
    show(
        Type::Symbol,
        Value::Symbol(0x1010),
        expect![[r#"
        @p: vfs_read+0x10
    "#]],
    );
    show(
        Type::Name,
        Value::Name(1),
        expect![[r#"
        @p: entry:vfs_read
    "#]],
    );
    show(
        Type::Bytes(3),
        Value::Bytes(vec![1, 65, 0]),
        expect![[r#"
            @p: \x01A\x00
        "#]],
    );
}

/// Would catch: averages that are not of count and sum, or rounded up.
#[test]
fn averages_and_stats() {
    let cells = |make: fn(u64, i128) -> Cell| {
        [
            entry([text("b")], make(3, 15)),
            entry([text("a")], make(2, -5)),
            entry([text("none")], make(0, 0)),
        ]
    };
    let avg = map("@a", MapValue::Avg { signed: true });
    let average = cells(|count, sum| Cell::Average { count, sum });
    check(
        &avg,
        &average,
        0,
        1,
        expect![[r#"
        @a[a]: -2
        @a[none]: 0
        @a[b]: 5

    "#]],
    );
    let stats = map("@s", MapValue::Stats { signed: true });
    let all = cells(|count, sum| Cell::Stats { count, sum });
    check(
        &stats,
        &all,
        0,
        1,
        expect![[r#"
        @s[a]: count 2, average -2, total -5
        @s[none]: count 0, average 0, total 0
        @s[b]: count 3, average 5, total 15

    "#]],
    );
}

/// Would catch: buckets that are off by one, bars of another scale, wrong units.
#[test]
fn powers_of_two() {
    let sizes = map("@size", MapValue::Hist);
    let one = Cell::Hist(hist(&[(0, 1), (3, 2), (4, 1), (6, 1)]));
    check(
        &sizes,
        &[entry([], one)],
        0,
        1,
        expect![[r#"
        @size:
        (..., 0)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
        [0]                    0 |                                                    |
        [1]                    0 |                                                    |
        [2, 4)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
        [4, 8)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
        [8, 16)                0 |                                                    |
        [16, 32)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

    "#]],
    );
    let large = Cell::Hist(hist(&[(10, 3), (11, 4), (12, 5), (13, 1)]));
    let more = Cell::Hist(hist(&[(21, 30), (22, 40)]));
    let entries = [entry([text("x")], more), entry([text("y")], large)];
    check(
        &sizes,
        &entries,
        0,
        1,
        expect![[r#"
        @size[y]:
        [256, 512)             3 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@                     |
        [512, 1K)              4 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@           |
        [1K, 2K)               5 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
        [2K, 4K)               1 |@@@@@@@@@@                                          |

        @size[x]:
        [512K, 1M)            30 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@             |
        [1M, 2M)              40 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

    "#]],
    );
    let huge = Cell::Hist(hist(&[(64, 10), (65, u64::MAX)]));
    check(
        &sizes,
        &[entry([], huge)],
        0,
        10,
        expect![[r#"
        @size:
        [4194304T, 8388608T)        1 |                                                    |
        [8388608T, 16777216T) 1844674407370955161 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

    "#]],
    );
    check(
        &sizes,
        &[entry([], Cell::Hist(vec![0; 66]))],
        0,
        1,
        expect![[r#"
            @size:

        "#]],
    );
}

/// Would catch: the buckets at both ends taken for others, a last bucket that reaches beyond the end.
#[test]
fn steps() {
    let steps = |min, max, step| map("@l", MapValue::LHist { min, max, step });
    let cell = |counts: &[u64]| [entry([], Cell::LHist(counts.to_vec()))];
    check(
        &steps(0, 30, 10),
        &cell(&[1, 2, 0, 4, 8]),
        0,
        1,
        expect![[r#"
            @l:
            (..., 0)               1 |@@@@@@                                              |
            [0, 10)                2 |@@@@@@@@@@@@@                                       |
            [10, 20)               0 |                                                    |
            [20, 30)               4 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
            [30, ...)              8 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

        "#]],
    );
    check(
        &steps(-5, 5, 4),
        &cell(&[0, 1, 0, 1, 0]),
        0,
        1,
        expect![[r#"
            @l:
            [-5, -1)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
            [-1, 3)                0 |                                                    |
            [3, 5)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

        "#]],
    );
    check(
        &steps(1024, 1 << 21, 1 << 20),
        &cell(&[1, 1, 1, 1]),
        0,
        1,
        expect![[r#"
            @l:
            (..., 1K)              1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
            [1K, 1025K)            1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
            [1025K, 2M)            1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
            [2M, ...)              1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

        "#]],
    );
}

/// Would catch: frames that are not indented as bpftrace does it, or no blank line between stacks.
#[test]
fn stacks_in_keys_and_values() {
    let by_stack = map("@", MapValue::Count);
    let entries = [
        entry([Value::KernelStack(7), text("cat")], number(2)),
        entry([Value::UserStack { id: 9, pid: 42 }, text("sh")], number(1)),
        entry([Value::KernelStack(-3i64 as u64), text("full")], number(3)),
        entry(
            [
                Value::UserStack {
                    id: crate::layout::callout::NONE as u64,
                    pid: 2,
                },
                text("kthreadd"),
            ],
            number(4),
        ),
    ];
    check(
        &by_stack,
        &entries,
        0,
        1,
        expect![[r#"
        @[
            0x7f001234
            main+5
        , sh]: 1
        @[
            vfs_read
            ksys_read+0x34
            nf_conntrack:nf_hook+0x1
            0xffffffff80000000
        , cat]: 2
        @[
            <lost: the table of stacks is full>
        , full]: 3
        @[
        , kthreadd]: 4
    "#]],
    );
    let last = map("@last", MapValue::Plain(Type::KernelStack));
    let entries = [
        entry([Value::int(1)], Cell::Plain(Value::KernelStack(8))),
        entry([Value::int(2)], Cell::Plain(Value::KernelStack(7))),
    ];
    check(
        &last,
        &entries,
        0,
        1,
        expect![[r#"
            @last[1]: 
                    vfs_read+0x4
            @last[2]: 
                    vfs_read
                    ksys_read+0x34
                    nf_conntrack:nf_hook+0x1
                    0xffffffff80000000

        "#]],
    );
}

/// Would catch: keys that are changed because they are no UTF-8.
#[test]
fn bytes_of_keys_stay_as_they_are() {
    let got = map_text(
        &map("@", MapValue::Count),
        &[entry([Value::Text(vec![0xff])], number(1))],
        0,
        1,
        &Made,
    );
    assert_eq!(got, b"@[\xff]: 1\n");
}
