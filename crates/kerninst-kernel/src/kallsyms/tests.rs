//! Tables made here, in the layouts of 6.1 and 6.12, then found and decoded again.

use proptest::prelude::*;

use super::*;
use crate::Symbols;

const BASE: u64 = 0xffff_ffff_8100_0000;

/// `count` symbols; every other one is compressed with a token, some are per-CPU (absolute).
fn symbols(count: usize) -> Vec<(u64, u8, String)> {
    (0..count)
        .map(|i| match i {
            0..=2 => (i as u64 * 0x1000, b'A', format!("percpu_{i}")),
            _ => (
                BASE + i as u64 * 16,
                b"tTdD"[i % 4],
                format!("sym_{i}{}", "_long".repeat(i % 40)),
            ),
        })
        .collect()
}

/// Encodes like scripts/kallsyms.c. Token 1 stands for "_long", all other bytes for themselves.
pub(crate) fn encode(symbols: &[(u64, u8, String)], new_order: bool, unsigned: bool) -> Vec<u8> {
    let mut names = Vec::new();
    let mut markers = Vec::new();
    let mut offsets = Vec::new();
    for (i, (addr, letter, name)) in symbols.iter().enumerate() {
        if i % 256 == 0 {
            markers.extend((names.len() as u32).to_le_bytes());
        }
        let text = format!("{}{name}", *letter as char).replace("_long", "\u{1}");
        let len = text.len();
        if len < 128 {
            names.push(len as u8)
        } else {
            names.extend([len as u8 & 0x7f | 0x80, (len >> 7) as u8])
        }
        names.extend(text.bytes());
        let offset = match (unsigned, *addr < BASE) {
            (true, _) => addr.wrapping_sub(BASE) as u32,
            (false, true) => *addr as u32,
            (false, false) => (BASE.wrapping_sub(1).wrapping_sub(*addr)) as u32,
        };
        offsets.extend(offset.to_le_bytes());
    }
    let mut tokens = Vec::new();
    let mut index = Vec::new();
    for t in 0..=255u8 {
        index.extend((tokens.len() as u16).to_le_bytes());
        match t {
            1 => tokens.extend(b"_long"),
            0 | 128.. => tokens.extend(format!("<{t}>").bytes()),
            t => tokens.push(t),
        }
        tokens.push(0);
    }
    let mut out = vec![0x5a; 64];
    let mut put = |part: &[u8]| {
        out.extend(part);
        out.resize(out.len().next_multiple_of(8), 0);
    };
    let count = (symbols.len() as u64).to_le_bytes();
    if !new_order {
        put(&offsets);
        put(&BASE.to_le_bytes());
    }
    put(&count);
    put(&names);
    put(&markers);
    put(&tokens);
    put(&index);
    if new_order {
        put(&offsets);
        put(&BASE.to_le_bytes());
    }
    put(&[0xa5; 64]);
    out
}

fn load(bytes: &[u8]) -> Result<Symbols, &'static str> {
    let layout = find(bytes)?;
    let mut out = SymbolsBuilder::new();
    decode(bytes, &layout, &mut out)?;
    Ok(out.build())
}

#[test]
fn both_layouts() {
    for new_order in [false, true] {
        let want = symbols(3000);
        let got = load(&encode(&want, new_order, false)).unwrap();
        let got: Vec<_> = got
            .iter()
            .map(|s| (s.addr, s.letter(), s.name.to_string()))
            .collect();
        assert!(got == want, "new order {new_order}");
    }
}

#[test]
fn unsigned_offsets() {
    let want: Vec<_> = symbols(3000).split_off(3);
    let got = load(&encode(&want, true, true)).unwrap();
    assert!(got.iter().map(|s| s.addr).eq(want.iter().map(|s| s.0)));
}

#[test]
fn nothing_there() {
    assert_eq!(load(&[]).err(), Some("no kallsyms token table"));
    let full = encode(&symbols(3000), true, false);
    assert_eq!(
        load(&full[..full.len() / 2]).err(),
        Some("no kallsyms token table")
    );
    let mut damaged = full.clone();
    // The count.
    damaged[64] ^= 1;
    assert_eq!(
        load(&damaged).err(),
        Some("kallsyms token table found, but no names in front of it")
    );
}

#[test]
fn lines() {
    let text = b"ffffffff81000000 T _stext\n0000000000000000 A pc\nffffffffc0000010 t f\t[mod]\nbad line\n\nffffffff8100000 x\n";
    let mut out = SymbolsBuilder::new();
    let parsed = parse_text(text, &mut out);
    assert_eq!(
        (parsed.symbols, parsed.bad_lines, parsed.addresses),
        (3, 2, true)
    );
    let got: Vec<_> = out.build().iter().map(|s| format!("{s:?}")).collect();
    assert_eq!(
        got,
        [
            "0000000000000000 Absolute pc",
            "ffffffff81000000 Text _stext",
            "ffffffffc0000010 Text mod:f"
        ]
    );
}

proptest! {
    #[test]
    fn any_text(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        parse_text(&text, &mut SymbolsBuilder::new());
    }

    #[test]
    fn damaged_tables(flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = encode(&symbols(1200), true, false);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = load(&bytes);
    }
}
