//! BTF made by hand, byte for byte.

use proptest::prelude::*;

use super::*;

/// Builds BTF data: types are given as words, names by string.
#[derive(Default)]
pub(crate) struct Maker {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Maker {
    pub(crate) fn name(&mut self, s: &str) -> u32 {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        if s.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(s.bytes());
        self.strings.push(0);
        at
    }
    pub(crate) fn ty(&mut self, name: &str, kind: Kind, vlen: u32, word: u32, body: &[u32]) {
        let name = self.name(name);
        self.words(&[name, (kind as u32) << 24 | vlen, word]);
        self.words(body);
    }
    fn words(&mut self, words: &[u32]) {
        for w in words {
            self.types.extend(w.to_le_bytes());
        }
    }
    pub(crate) fn build(&self) -> Vec<u8> {
        let mut out = vec![0x9f, 0xeb, 1, 0];
        let (t, s) = (self.types.len() as u32, self.strings.len() as u32);
        for w in [24, 0, t, t, s] {
            out.extend(w.to_le_bytes());
        }
        out.extend(&self.types);
        out.extend(&self.strings);
        out
    }
}

fn sample() -> Vec<u8> {
    let mut m = Maker::default();
    m.ty("int", Kind::Int, 0, 4, &[0x0100_0020]); // 1
    m.ty("", Kind::Ptr, 0, 1, &[]); // 2: int *
    m.ty("", Kind::Array, 0, 0, &[1, 1, 3]); // 3: int[3]
    let (x, y) = (m.name("x"), m.name("y"));
    m.ty("inner", Kind::Struct, 2, 8, &[x, 1, 0, y, 1, 32]); // 4
    m.ty("inner_t", Kind::Typedef, 0, 4, &[]); // 5
    m.ty("", Kind::Array, 0, 0, &[5, 1, 2]); // 6: inner_t[2]
    let (z, w) = (m.name("z"), m.name("w"));
    m.ty("", Kind::Union, 2, 8, &[z, 1, 0, w, 2, 0]); // 7: unnamed
    let (p, in_, arr) = (m.name("p"), m.name("in"), m.name("arr"));
    m.ty(
        "outer",
        Kind::Struct,
        4,
        40,
        &[p, 2, 0, in_, 5, 64, 0, 7, 128, arr, 6, 192],
    ); // 8
    let (a, b) = (m.name("a"), m.name("b"));
    m.ty("", Kind::FuncProto, 3, 1, &[a, 2, b, 8, 0, 0]); // 9
    m.ty("do_it", Kind::Func, 1, 9, &[]); // 10
    let (zero, one) = (m.name("E_ZERO"), m.name("E_ONE"));
    m.ty("e", Kind::Enum, 2, 4, &[zero, 0, one, u32::MAX]); // 11
    m.ty("const_outer", Kind::Const, 0, 8, &[]); // 12
    m.ty("", Kind::Ptr, 0, 12, &[]); // 13
    m.build()
}

#[test]
fn members_by_path() {
    let btf = Btf::parse(sample()).unwrap();
    assert_eq!(btf.len(), 13);
    assert_eq!(btf.struct_size("outer"), Some(40));
    assert_eq!(btf.struct_size("inner_t"), Some(8));
    for (path, want) in [
        ("p", Some(0)),
        ("in", Some(8)),
        ("in.y", Some(12)),
        ("z", Some(16)),
        ("w", Some(16)),
        ("arr", Some(24)),
        ("arr[1].y", Some(36)),
        ("arr[2].y", None),
        ("p.x", None),
        ("nothing", None),
        ("arr[x]", None),
        ("", None),
    ] {
        assert_eq!(btf.offset("outer", path), want, "{path}");
    }
    assert_eq!(btf.member("outer", "arr").unwrap().size, Some(16));
    assert_eq!(btf.offset("no_struct", "x"), None);
}

#[test]
fn functions_and_names() {
    let btf = Btf::parse(sample()).unwrap();
    let f = btf.function("do_it").unwrap();
    assert!(f.variadic);
    let params: Vec<_> = f
        .params
        .iter()
        .map(|p| format!("{} {}", btf.type_name(p.type_id), p.name))
        .collect();
    assert_eq!(params, ["int * a", "struct outer b"]);
    assert_eq!(btf.type_name(f.returns), "int");
    assert_eq!(btf.type_name(13), "const struct outer *");
    assert_eq!(btf.type_name(6), "inner_t[2]");
    assert_eq!(btf.type_name(0), "void");
    assert_eq!(btf.type_name(99), "?");
    assert_eq!(btf.enum_value("e", "E_ONE"), Some(-1));
    assert_eq!(btf.function("outer"), None);
}

#[test]
fn damage_is_named() {
    let good = sample();
    let error = |bytes: &[u8]| Btf::parse(bytes.to_vec()).err().map(|e| e.to_string());
    assert_eq!(error(&good), None);
    assert_eq!(error(b"").as_deref(), Some("not BTF data"));
    assert_eq!(
        error(&good[..20]).as_deref(),
        Some("BTF is damaged: truncated header")
    );
    let cut = error(&good[..good.len() - 1]);
    assert_eq!(
        cut.as_deref(),
        Some("BTF is damaged: string section outside the data")
    );
    let mut odd = good.clone();
    odd[24 + 7] = 0x1f;
    assert_eq!(
        error(&odd).as_deref(),
        Some("BTF has a type of unknown kind 31")
    );
}

#[test]
fn circles_end() {
    let mut m = Maker::default();
    m.ty("t", Kind::Typedef, 0, 1, &[]);
    m.ty("s", Kind::Struct, 2, 8, &[0, 2, 0, 0, 2, 0]);
    m.ty("", Kind::Array, 0, 0, &[3, 3, 9]);
    m.ty("", Kind::Ptr, 0, 4, &[]);
    let btf = Btf::parse(m.build()).unwrap();
    assert_eq!(btf.size_of(1), None);
    assert_eq!(btf.offset("s", "x"), None);
    assert_eq!(btf.size_of(3), None);
    assert!(btf.type_name(4).ends_with('*'));
}

proptest! {
    #[test]
    fn any_bytes(data in proptest::collection::vec(any::<u8>(), 0..400), flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)) {
        let _ = Btf::parse(data);
        // Nearly valid data goes deeper.
        let mut near = sample();
        for (at, value) in flips {
            let at = at.index(near.len());
            near[at] = value;
        }
        if let Ok(btf) = Btf::parse(near) {
            for id in 0..btf.len() + 2 {
                let _ = (btf.type_name(id), btf.size_of(id), btf.function_by_id(id), btf.name(id));
            }
            let _ = btf.offset("outer", "arr[1].y");
            let _ = btf.function("do_it");
            for id in 0..btf.len() + 2 {
                let _ = (btf.member_of_type(id, "y"), btf.member_names(id), btf.target(id));
                let _ = (btf.array(id), btf.integer(id), btf.pointer_to(id));
            }
            let _ = (btf.constant("E_ONE"), btf.constant_names());
        }
    }
}
