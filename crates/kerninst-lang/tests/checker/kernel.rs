//! A small kernel made by hand: enough types to ask everything that the checker asks.

use kerninst_lang::ast::Tag;
use kerninst_lang::types::{Field, Function, Shape, Types};

enum Kind {
    Alias(u32),
    Shape(Shape),
    /// Size, and members: name, first bit, width of a bit field, type.
    Struct(u64, Vec<(&'static str, u64, u32, u32)>),
}

struct Type {
    tag: Tag,
    name: &'static str,
    kind: Kind,
}

pub struct Kernel {
    types: Vec<Type>,
    functions: Vec<(&'static str, Function)>,
}

impl Kernel {
    fn add(&mut self, tag: Tag, name: &'static str, kind: Kind) -> u32 {
        self.types.push(Type { tag, name, kind });
        self.types.len() as u32
    }

    fn int(&mut self, name: &'static str, bits: u8, signed: bool) -> u32 {
        let char = name == "char";
        let kind = Kind::Shape(Shape::Int { bits, signed, char });
        self.add(Tag::Plain, name, kind)
    }

    fn pointer(&mut self, to: u32) -> u32 {
        self.add(Tag::Plain, "", Kind::Shape(Shape::Pointer(to)))
    }

    fn array(&mut self, of: u32, count: u32) -> u32 {
        self.add(Tag::Plain, "", Kind::Shape(Shape::Array { of, count }))
    }

    fn define(&mut self, name: &'static str, params: &[(&str, u32)], returns: u32) {
        let params = params.iter().map(|(n, t)| (n.to_string(), *t)).collect();
        self.functions.push((name, Function { params, returns }));
    }

    pub fn new() -> Kernel {
        let mut k = Kernel {
            types: Vec::new(),
            functions: Vec::new(),
        };
        let int = k.int("int", 32, true);
        let unsigned = k.int("unsigned int", 32, false);
        let char = k.int("char", 8, true);
        let byte = k.int("unsigned char", 8, false);
        let short = k.int("unsigned short", 16, false);
        let long = k.int("long", 64, true);
        let ulong = k.int("unsigned long", 64, false);
        let size_t = k.add(Tag::Plain, "size_t", Kind::Alias(ulong));
        let ssize_t = k.add(Tag::Plain, "ssize_t", Kind::Alias(long));
        let loff_t = k.add(Tag::Plain, "loff_t", Kind::Alias(long));
        k.add(Tag::Plain, "pid_t", Kind::Alias(int));
        let chars = k.pointer(char);
        let comm = k.array(char, 16);
        let bytes = k.array(byte, 6);
        let state = Kind::Shape(Shape::Int {
            bits: 32,
            signed: false,
            char: false,
        });
        k.add(Tag::Enum, "tcp_state", state);
        let kuid = k.add(
            Tag::Struct,
            "kuid",
            Kind::Struct(4, vec![("val", 0, 0, unsigned)]),
        );
        let cred = k.add(
            Tag::Struct,
            "cred",
            Kind::Struct(16, vec![("usage", 0, 0, long), ("euid", 64, 0, kuid)]),
        );
        let cred_p = k.pointer(cred);
        let own = k.types.len() as u32 + 2;
        let task = vec![
            ("comm", 0, 0, comm),
            ("pid", 128, 0, int),
            ("sched_reset_on_fork", 160, 1, unsigned),
            ("sched_contributes_to_load", 161, 1, unsigned),
            ("policy", 164, 6, unsigned),
            ("real_cred", 192, 0, cred_p),
            ("parent", 256, 0, own),
        ];
        k.add(Tag::Struct, "task_struct", Kind::Struct(40, task));
        k.pointer(own - 1);
        let common = vec![
            ("skc_dport", 0, 0, short),
            ("skc_family", 16, 0, short),
            ("skc_state", 32, 0, byte),
        ];
        let common = k.add(Tag::Struct, "sock_common", Kind::Struct(8, common));
        let sock = vec![
            ("__sk_common", 0, 0, common),
            ("sk_mac", 64, 0, bytes),
            ("sk_flags", 128, 0, ulong),
            ("sk_far", 8 << 32, 0, int),
        ];
        let sock = k.add(Tag::Struct, "sock", Kind::Struct(24, sock));
        let sock_p = k.pointer(sock);
        k.pointer(sock_p);
        let skb = vec![
            ("sk", 0, 0, sock_p),
            ("len", 64, 0, unsigned),
            ("cb", 96, 0, comm),
            ("deep", 256 + 61, 6, ulong),
            ("wide", 325, 62, ulong),
        ];
        let skb = k.add(Tag::Struct, "sk_buff", Kind::Struct(48, skb));
        let skb_p = k.pointer(skb);
        let filename = k.add(
            Tag::Struct,
            "filename",
            Kind::Struct(16, vec![("name", 0, 0, chars)]),
        );
        let filename_p = k.pointer(filename);
        let file = k.add(
            Tag::Struct,
            "file",
            Kind::Struct(
                16,
                vec![("f_flags", 0, 0, unsigned), ("f_pos", 64, 0, loff_t)],
            ),
        );
        let file_p = k.pointer(file);
        let loff_p = k.pointer(loff_t);
        let void_p = k.pointer(0);
        k.add(
            Tag::Union,
            "any",
            Kind::Struct(8, vec![("a", 0, 0, int), ("b", 0, 0, void_p)]),
        );
        let pair = k.add(
            Tag::Struct,
            "pair",
            Kind::Struct(16, vec![("a", 0, 0, long), ("b", 64, 0, long)]),
        );
        let opaque = k.add(Tag::Struct, "opaque", Kind::Struct(0, vec![]));
        let opaque_p = k.pointer(opaque);
        let code = k.add(Tag::Plain, "", Kind::Shape(Shape::Other));
        let ops = k.add(
            Tag::Struct,
            "ops",
            Kind::Struct(16, vec![("run", 0, 0, void_p), ("code", 64, 0, code)]),
        );
        k.pointer(ops);

        let io = [
            ("file", file_p),
            ("buf", chars),
            ("count", size_t),
            ("pos", loff_p),
        ];
        k.define("vfs_read", &io, ssize_t);
        k.define("vfs_write", &io, ssize_t);
        k.define(
            "tcp_recvmsg",
            &[
                ("sk", sock_p),
                ("msg", void_p),
                ("len", size_t),
                ("flags", int),
            ],
            int,
        );
        k.define(
            "do_filp_open",
            &[("dfd", int), ("pathname", filename_p)],
            file_p,
        );
        k.define("commit_creds", &[("new", cred_p)], int);
        k.define("tcp_queue_rcv", &[("sk", sock_p), ("skb", skb_p)], int);
        k.define("a1", &[("n", int)], int);
        k.define("a2", &[("x", int), ("n", int)], int);
        k.define("a3", &[("n", long)], int);
        k.define("nothing", &[], 0);
        k.define(
            "may_open",
            &[("p", pair), ("flag", int), ("sock", sock), ("o", opaque_p)],
            int,
        );
        k.define(
            "seven",
            &[
                ("a", int),
                ("b", int),
                ("c", int),
                ("d", int),
                ("e", int),
                ("f", int),
                ("g", int),
            ],
            int,
        );
        k
    }

    fn get(&self, id: u32) -> Option<&Type> {
        let mut t = self.types.get(id.checked_sub(1)? as usize)?;
        while let Kind::Alias(to) = t.kind {
            t = self.types.get(to as usize - 1)?;
        }
        Some(t)
    }
}

const CONSTANTS: [(&str, i128); 3] = [("TCP_ESTABLISHED", 1), ("TCP_CLOSE", 7), ("NEGATIVE", -5)];

impl Types for Kernel {
    fn find(&self, tag: Tag, name: &str) -> Option<u32> {
        let at = self
            .types
            .iter()
            .position(|t| t.tag == tag && t.name == name)?;
        Some(at as u32 + 1)
    }
    fn shape(&self, id: u32) -> Shape {
        match self.get(id).map(|t| &t.kind) {
            Some(Kind::Shape(shape)) => *shape,
            Some(Kind::Struct(..)) => Shape::Aggregate,
            _ if id == 0 => Shape::Void,
            _ => Shape::Other,
        }
    }
    fn size(&self, id: u32) -> Option<u64> {
        match &self.get(id)?.kind {
            Kind::Struct(size, _) => (*size > 0).then_some(*size),
            Kind::Shape(Shape::Int { bits, .. }) => Some(u64::from(*bits) / 8),
            Kind::Shape(Shape::Pointer(_)) => Some(8),
            Kind::Shape(Shape::Array { of, count }) => Some(self.size(*of)? * u64::from(*count)),
            _ => None,
        }
    }
    fn member(&self, id: u32, name: &str) -> Option<Field> {
        let Kind::Struct(_, members) = &self.get(id)?.kind else {
            return None;
        };
        let (_, bit_offset, bits, ty) = members.iter().find(|m| m.0 == name)?;
        Some(Field {
            bit_offset: *bit_offset,
            bits: *bits,
            ty: *ty,
        })
    }
    fn member_names(&self, id: u32) -> Vec<String> {
        match self.get(id).map(|t| &t.kind) {
            Some(Kind::Struct(_, members)) => members.iter().map(|m| m.0.to_string()).collect(),
            _ => Vec::new(),
        }
    }
    fn pointer_to(&self, id: u32) -> Option<u32> {
        let is = |t: &Type| matches!(t.kind, Kind::Shape(Shape::Pointer(to)) if to == id);
        Some(self.types.iter().position(is)? as u32 + 1)
    }
    fn function(&self, name: &str) -> Option<Function> {
        let f = self.functions.iter().find(|(n, _)| *n == name)?;
        Some(f.1.clone())
    }
    fn constant(&self, name: &str) -> Option<i128> {
        CONSTANTS.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }
    fn constant_names(&self) -> Vec<String> {
        CONSTANTS.iter().map(|(n, _)| n.to_string()).collect()
    }
    fn names(&self, tag: Tag) -> Vec<String> {
        let names = self.types.iter().filter(|t| t.tag == tag);
        names.map(|t| t.name.to_string()).collect()
    }
    fn type_name(&self, id: u32) -> String {
        let Some(t) = id.checked_sub(1).and_then(|n| self.types.get(n as usize)) else {
            return "void".into();
        };
        match (&t.kind, t.tag) {
            (Kind::Shape(Shape::Pointer(to)), _) => {
                let to = self.type_name(*to);
                format!("{to}{}", if to.ends_with('*') { "*" } else { " *" })
            }
            (Kind::Shape(Shape::Array { of, count }), _) => {
                format!("{}[{count}]", self.type_name(*of))
            }
            (Kind::Shape(Shape::Other), _) => "int (...)".into(),
            (_, Tag::Struct) => format!("struct {}", t.name),
            (_, Tag::Union) => format!("union {}", t.name),
            (_, Tag::Enum) => format!("enum {}", t.name),
            _ => t.name.to_string(),
        }
    }
}
