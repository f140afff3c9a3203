//! Every conversion, against golden text and the C library.

use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::show::testing::{Made, text};

/// A conversion as written, without its `%`.
fn parse(spec: &str) -> Conversion {
    let mut c = Conversion::default();
    let mut chars = spec.chars().peekable();
    while let Some(f) = chars.next_if(|f| "-0+#".contains(*f)) {
        match f {
            '-' => c.left = true,
            '0' => c.zeros = true,
            '+' => c.plus = true,
            _ => c.alternate = true,
        }
    }
    while let Some(d) = chars.next_if(char::is_ascii_digit) {
        c.width = c.width * 10 + (d as u32 - 48);
    }
    if chars.next_if_eq(&'.').is_some() {
        let mut p = 0;
        while let Some(d) = chars.next_if(char::is_ascii_digit) {
            p = p * 10 + (d as u32 - 48);
        }
        c.precision = Some(p);
    }
    c.letter = chars.next().unwrap();
    c
}

fn one(spec: &str, value: Value) -> Vec<u8> {
    let format = Format {
        pieces: vec![Piece::Conversion(parse(spec))],
        args: Vec::new(),
    };
    printf(&format, &[value], &Made)
}

fn small(value: i64, bits: u8) -> Value {
    Value::Int {
        value: value as u64,
        bits,
        signed: true,
    }
}

/// Would catch: a flag that is not heeded, or heeded where C does not; numbers cut off.
#[test]
fn conversions_are_those_of_c() {
    let cases = [
        ("d", Value::int(-5)),
        ("5d", Value::int(42)),
        ("-5d", Value::int(42)),
        ("05d", Value::int(-42)),
        ("+d", Value::int(42)),
        ("+05d", Value::int(42)),
        ("-05d", Value::int(42)),
        (".4d", Value::int(-7)),
        ("8.4d", Value::int(-7)),
        ("08.4d", Value::int(-7)),
        (".0d", Value::int(0)),
        ("d", Value::int(i64::MIN)),
        ("u", Value::uint(u64::MAX)),
        ("d", Value::uint(u64::MAX)),
        ("u", small(-1, 32)),
        ("x", small(-1, 8)),
        ("x", Value::int(255)),
        ("#x", Value::int(255)),
        ("#x", Value::int(0)),
        ("#010x", Value::int(255)),
        ("#X", Value::int(255)),
        ("o", Value::int(8)),
        ("#o", Value::int(8)),
        ("#.3o", Value::int(8)),
        ("#.2o", Value::int(8)),
        ("#o", Value::int(0)),
        ("p", Value::Pointer(0xffff_8880_0123_4567)),
        ("p", Value::Pointer(0)),
        ("20p", Value::Pointer(0x1000)),
        ("c", Value::int(0x41)),
        ("3c", Value::int(0x41)),
        ("s", text("cat")),
        ("6s", text("cat")),
        ("-6s", text("cat")),
        (".2s", text("cat")),
        ("06.1s", text("cat")),
        ("s", Value::Symbol(0x1010)),
        ("s", Value::Symbol(0x1000)),
        ("s", Value::Symbol(0x9999_0000)),
        ("x", Value::Symbol(0x1010)),
        ("s", Value::Name(1)),
        ("s", Value::Name(2)),
        ("s", Value::KernelStack(8)),
        ("s", Value::int(12)),
        ("d", text("no number")),
        ("d", Value::None),
        ("r", Value::Bytes(b"a\0\\\xff ~".to_vec())),
        (".3r", Value::Bytes(b"abcdef".to_vec())),
        ("r", text("t\n")),
    ];
    let mut all = String::new();
    for (spec, value) in cases {
        let got = String::from_utf8(one(spec, value)).unwrap();
        all.push_str(&format!("%{spec:<6} {got:?}\n"));
    }
    expect![[r#"
        %d      "-5"
        %5d     "   42"
        %-5d    "42   "
        %05d    "-0042"
        %+d     "+42"
        %+05d   "+0042"
        %-05d   "42   "
        %.4d    "-0007"
        %8.4d   "   -0007"
        %08.4d  "   -0007"
        %.0d    ""
        %d      "-9223372036854775808"
        %u      "18446744073709551615"
        %d      "-1"
        %u      "4294967295"
        %x      "ff"
        %x      "ff"
        %#x     "0xff"
        %#x     "0"
        %#010x  "0x000000ff"
        %#X     "0XFF"
        %o      "10"
        %#o     "010"
        %#.3o   "010"
        %#.2o   "010"
        %#o     "0"
        %p      "0xffff888001234567"
        %p      "0x0"
        %20p    "              0x1000"
        %c      "A"
        %3c     "  A"
        %s      "cat"
        %6s     "   cat"
        %-6s    "cat   "
        %.2s    "ca"
        %06.1s  "     c"
        %s      "vfs_read+0x10"
        %s      "vfs_read"
        %s      "0x99990000"
        %x      "1010"
        %s      "entry:vfs_read"
        %s      "<name 2>"
        %s      "\n        vfs_read+0x4\n"
        %s      "12"
        %d      "no number"
        %d      ""
        %r      "a\\x00\\\\xff ~"
        %.3r    "abc"
        %r      "t\\x0a"
    "#]]
    .assert_eq(&all);
}

/// Would catch: text changed because it is no UTF-8.
#[test]
fn bytes_of_text_stay_as_they_are() {
    assert_eq!(one("s", Value::Text(vec![0xff, b'a'])), [0xff, b'a']);
    assert_eq!(one("4s", Value::Text(vec![0xff, b'a'])), *b"  \xffa");
    assert_eq!(one("c", Value::int(0xe9)), [0xe9]);
}

/// Would catch: a script that asks for gigabytes of spaces.
#[test]
fn widths_are_bounded() {
    assert_eq!(one("4294967295d", Value::int(1)).len(), MAX_WIDTH);
    assert_eq!(one("0.4294967295d", Value::int(1)).len(), MAX_WIDTH);
}

/// Would catch: a missing argument that panics, or shifts others.
#[test]
fn text_and_arguments_are_in_order() {
    let format = Format {
        pieces: vec![
            Piece::Text("pid ".into()),
            Piece::Conversion(parse("d")),
            Piece::Text(" reads ".into()),
            Piece::Conversion(parse("s")),
            Piece::Conversion(parse("d")),
            Piece::Text("%\n".into()),
        ],
        args: Vec::new(),
    };
    let got = printf(&format, &[Value::int(12), text("a")], &Made);
    assert_eq!(String::from_utf8(got).unwrap(), "pid 12 reads a%\n");
}

/// The C library's own answer.
#[allow(unsafe_code)]
fn c_says(spec: &str, value: i64) -> String {
    let letter = spec.len() - 1;
    let format = format!("%{}ll{}\0", &spec[..letter], &spec[letter..]);
    let mut buffer = [0u8; 256];
    // SAFETY: the format ends in NUL and has one conversion of a long long, which is given; the length is the buffer's.
    let n = unsafe {
        libc::snprintf(
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            format.as_ptr().cast(),
            value,
        )
    };
    String::from_utf8(buffer[..n as usize].to_vec()).unwrap()
}

proptest! {
    /// Would catch: any combination of flags, width and precision that C prints in another way.
    #[test]
    fn numbers_are_as_the_c_library_prints_them(
        flags in "[-0+#]{0,3}", width in 0u32..30, precision in proptest::option::of(0u32..30),
        letter in "[diuxXo]", value in prop_oneof![any::<i64>(), -100i64..100, Just(0)],
    ) {
        let width = if width == 0 { String::new() } else { width.to_string() };
        let precision = precision.map_or(String::new(), |p| format!(".{p}"));
        let spec = format!("{flags}{width}{precision}{letter}");
        // Signed only.
        let ours = String::from_utf8(one(&spec, Value::int(value))).unwrap();
        prop_assert_eq!(ours, c_says(&spec, value), "%{}", spec);
    }
}
