//! Queries on BTF made by hand.

use super::tests::Maker;
use super::*;

/// Would catch a member of an unnamed union that is not found or not named, a bit field's width that is lost, a constant with the
/// wrong sign, and a pointer type that is not found behind `const`.
#[test]
fn what_a_checker_asks() {
    let mut m = Maker::default();
    m.ty("int", Kind::Int, 0, 4, &[0x0100_0020]); // 1
    m.ty("unsigned char", Kind::Int, 0, 1, &[8]); // 2
    let (a, b) = (m.name("a"), m.name("b"));
    m.ty("", Kind::Union, 2, 4, &[a, 1, 0, b, 2, 0]); // 3
    let (c, d) = (m.name("c"), m.name("d"));
    // Bit fields: c at bit 32, 3 wide.
    m.ty(
        "s",
        Kind::Struct,
        1 << 31 | 3,
        16,
        &[0, 3, 0, c, 1, 3 << 24 | 32, d, 5, 64],
    ); // 4
    m.ty("", Kind::Array, 0, 0, &[2, 1, 8]); // 5
    m.ty("", Kind::Const, 0, 4, &[]); // 6
    m.ty("", Kind::Ptr, 0, 6, &[]); // 7
    let (x, y) = (m.name("X"), m.name("Y"));
    m.ty("e", Kind::Enum, 1 << 31 | 2, 4, &[x, 3, y, -1i32 as u32]); // 8
    let z = m.name("Z");
    m.ty("e64", Kind::Enum64, 1, 8, &[z, 1, 1]); // 9
    m.ty("s_t", Kind::Typedef, 0, 4, &[]); // 10
    let btf = Btf::parse(m.build()).unwrap();

    assert_eq!(btf.member_names(10), ["a", "b", "c", "d"]);
    let c = btf.member_of_type(4, "c").unwrap();
    assert_eq!((c.bit_offset, c.bits, c.type_id), (32, 3, 1));
    assert_eq!(btf.member_of_type(10, "b").unwrap().size, Some(1));
    assert_eq!(btf.member_of_type(4, ""), None);
    assert_eq!(btf.target(7), Some(6));
    assert_eq!(btf.target(1), None);
    assert_eq!(btf.array(5), Some((2, 8)));
    let signed = |id| btf.integer(id).map(|i| (i.bits, i.signed));
    assert_eq!(signed(1), Some((32, true)));
    assert_eq!(signed(2), Some((8, false)));
    assert_eq!(signed(8), Some((32, true)));
    assert_eq!(signed(9), Some((64, false)));
    assert_eq!(signed(4), None);
    assert_eq!(btf.constant("Y"), Some(-1));
    assert_eq!(btf.constant("Z"), Some(1 << 32 | 1));
    assert_eq!(btf.constant("W"), None);
    assert_eq!(btf.constant_names(), ["X", "Y", "Z"]);
    assert_eq!(btf.pointer_to(4), Some(7));
    assert_eq!(btf.pointer_to(1), None);
    assert_eq!(btf.names_of(Kind::Struct).collect::<Vec<_>>(), ["s"]);
}
