//! Each table's bytes, in hexadecimal as they are in memory, against what they say.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::collect::{ALL, Collector, Kind};
use super::decode::{self, Part};
use super::*;

const BASE: u64 = 0xffff_ffff_8200_0000;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap())
        .collect()
}

/// The dump of one table whose bytes are at [`BASE`].
fn check(kind: Kind, bytes: &str, expected: Expect) {
    let facts = ALL.iter().find(|f| f.kind == kind).unwrap();
    let mut out = Collector::default();
    out.add(facts, None, BASE, hex(bytes));
    let t = out.build(Vec::new());
    let mut all = [
        t.extable.dump(),
        t.bugs.dump(),
        t.jump_labels.dump(),
        t.static_calls.dump(),
        t.fentry.dump(),
        t.retpolines.dump(),
        t.returns.dump(),
        t.alternatives.dump(),
        t.paravirt.dump(),
        t.endbr_seals.dump(),
        t.smp_locks.dump(),
        t.call_sites.dump(),
    ]
    .concat();
    for m in &t.missing {
        all.push_str(&format!("missing {}: {}\n", m.table, m.reason));
    }
    expected.assert_eq(&all);
}

#[test]
fn extable() {
    // Out of order: entries come out by address.
    check(
        Kind::ExTable,
        "00 10 00 ff  10 10 00 ff  03 00 00 00   f4 0f 00 ff  80 00 f0 ff  0c 00 01 00",
        expect![[r#"
            ffffffff81001000 fixup ffffffff81001014 data 0x3
            ffffffff81001000 fixup ffffffff81f00090 data 0x1000c
        "#]],
    );
}

#[test]
fn bugs() {
    check(
        Kind::Bugs,
        "00 10 00 ff  fc ff ff ff  2a 00  01 09    34 12 00 ff  00 00 00 00  ff ff  00 00",
        expect![[r#"
            ffffffff81001000 file ffffffff82000000 line 42 flags 0x901
            ffffffff81001240 file 0000000000000000 line 65535 flags 0x0
        "#]],
    );
}

#[test]
fn jump_labels() {
    check(
        Kind::JumpLabels,
        "00 10 00 ff  20 10 00 ff  f9 ff ff ff ff ff ff ff",
        expect![[r#"
            ffffffff81001000 target ffffffff81001024 key ffffffff82000001
        "#]],
    );
}

#[test]
fn static_calls() {
    check(
        Kind::StaticCalls,
        "00 10 00 ff  fd 00 00 00   00 20 00 ff  00 01 00 00",
        expect![[r#"
            ffffffff81001000 key ffffffff82000101 tail
            ffffffff81002008 key ffffffff8200010c
        "#]],
    );
}

#[test]
fn lists_of_sites() {
    check(
        Kind::Mcount,
        "00 10 00 81 ff ff ff ff   00 00 00 00 00 00 00 00   00 08 00 81 ff ff ff ff",
        expect![[r#"
            ffffffff81000800
            ffffffff81001000
        "#]],
    );
    for kind in [
        Kind::Retpolines,
        Kind::Returns,
        Kind::EndbrSeals,
        Kind::SmpLocks,
        Kind::CallSites,
    ] {
        check(
            kind,
            "00 10 00 ff  00 10 00 ff",
            expect![[r#"
                ffffffff81001000
                ffffffff81001004
            "#]],
        );
    }
}

#[test]
fn paravirt() {
    check(
        Kind::Paravirt,
        "00 10 00 81 ff ff ff ff 2c 07 00 00 00 00 00 00",
        expect![[r#"
            ffffffff81001000+7 type 44
        "#]],
    );
}

#[test]
fn alternatives_of_both_layouts() {
    // 6.1: 12 bytes
    check(
        Kind::Alternatives,
        "00 10 00 ff  00 00 01 00  f4 00 05 03    00 10 00 ff  00 00 01 00  0a 81 02 00",
        expect![[r#"
            ffffffff81001000+5 replacement ffffffff82010004+3 feature 0xf4 flags 0x0
            ffffffff8100100c+2 replacement ffffffff82010010+0 feature 0x810a flags 0x0
        "#]],
    );
    // 6.12: 14 bytes
    check(
        Kind::Alternatives,
        "00 10 00 ff  00 00 01 00  f4 00 02 00 05 03",
        expect![[r#"
            ffffffff81001000+5 replacement ffffffff82010004+3 feature 0xf4 flags 0x2
        "#]],
    );
}

#[test]
fn broken_size_is_said() {
    check(
        Kind::ExTable,
        "00 10 00 ff  00",
        expect![[r#"
            missing __ex_table: 5 bytes are not whole entries of [12] bytes
        "#]],
    );
}

#[test]
fn orc_stays_in_its_image() {
    let mut out = Collector::default();
    let part = |addr, bytes: &str| Part {
        addr,
        bytes: hex(bytes),
    };
    // The module first: parts may come in any order.
    out.add_orc(
        Some("m"),
        part(0xffff_ffff_c000_0000, "10 10 00 00"),
        hex("333333333333"),
    );
    out.add_orc(
        None,
        part(BASE, "00 10 00 ff  0c 11 00 ff"),
        hex("111111111111 222222222222"),
    );
    out.add_orc(None, part(BASE, "00 10 00 ff"), hex("11"));
    let image = 0xffff_ffff_8100_0000..0xffff_ffff_8100_2000;
    let module = 0xffff_ffff_c000_1000..0xffff_ffff_c000_2000;
    let t = out.build(vec![module, image]);
    expect![[r#"
        ffffffff81001000 111111111111
        ffffffff81001110 222222222222
        ffffffffc0001010 333333333333
    "#]]
    .assert_eq(&t.orc.dump());
    let raw = |addr| t.orc.lookup(addr).map(|e| e.raw[0]);
    assert_eq!(raw(0xffff_ffff_8100_0fff), None);
    assert_eq!(raw(0xffff_ffff_8100_1000), Some(0x11));
    assert_eq!(raw(0xffff_ffff_8100_110f), Some(0x11));
    assert_eq!(raw(0xffff_ffff_8100_1fff), Some(0x22));
    assert_eq!(raw(0xffff_ffff_8100_2000), None);
    assert_eq!(raw(0xffff_ffff_c000_1000), None);
    assert_eq!(raw(0xffff_ffff_c000_1010), Some(0x33));
    assert_eq!(t.missing.len(), 1);
}

#[test]
fn touching_ranges() {
    let alternative = |addr, len| Alternative {
        addr,
        replacement: 0,
        feature: 0,
        flags: 0,
        len,
        replacement_len: 0,
    };
    let t = Table::new(vec![
        alternative(30, 5),
        alternative(10, 5),
        alternative(20, 1),
    ]);
    let touched = |range| t.in_range(range).iter().map(|a| a.addr).collect::<Vec<_>>();
    assert_eq!(touched(0..10), []);
    assert_eq!(touched(0..11), [10]);
    assert_eq!(touched(14..15), [10]);
    assert_eq!(touched(15..20), []);
    assert_eq!(touched(14..31), [10, 20, 30]);
    assert_eq!(touched(35..99), []);
    assert_eq!(t.at(20).map(|a| a.len), Some(1));
    assert_eq!(t.at(21), None);
    let entry = |insn, fixup| ExEntry {
        insn,
        fixup,
        data: 0,
    };
    let t = Table::new(vec![entry(1, 50), entry(2, 40), entry(3, 60)]);
    assert_eq!(
        t.targets_in(40..60).map(|e| e.insn).collect::<Vec<_>>(),
        [2, 1]
    );
}

proptest! {
    #[test]
    fn any_bytes(addr: u64, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for facts in &ALL {
            let mut out = Collector::default();
            out.add(facts, Some("m"), addr, bytes.clone());
            out.add_orc(None, Part { addr, bytes: bytes.clone() }, bytes.clone());
            let t = out.build(std::iter::once(addr..addr.saturating_add(9)).collect());
            let _ = (t.extable.dump(), t.alternatives.in_range(addr..addr.saturating_add(5)).len(), t.orc.lookup(addr));
        }
        let part = Part { addr, bytes: bytes.clone() };
        let _ = (decode::orc(&part, &bytes), decode::alternatives(&part), decode::jump_labels(&part));
    }
}
