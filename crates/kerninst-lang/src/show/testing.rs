//! Names of a kernel that is not there, for the tests of printing.

use super::Names;
use crate::hir::{Map, MapValue, Span};
use crate::value::{Cell, Entry, Value};

pub struct Made;

impl Names for Made {
    fn symbol(&self, address: u64) -> Option<(String, u64)> {
        let name = match address >> 12 {
            1 => "vfs_read",
            2 => "ksys_read",
            3 => "nf_conntrack:nf_hook",
            _ => return None,
        };
        Some((name.into(), address & 0xfff))
    }

    fn kernel_stack(&self, id: u64) -> Option<Vec<u64>> {
        match id {
            7 => Some(vec![0x1000, 0x2034, 0x3001, 0xffff_ffff_8000_0000]),
            8 => Some(vec![0x1004]),
            _ => None,
        }
    }

    fn user_stack(&self, id: u64, pid: u64) -> Option<Vec<u64>> {
        (id == 9 && pid == 42).then(|| vec![0x7f00_1234, 0x5555])
    }

    fn user_symbol(&self, _: u64, address: u64) -> Option<String> {
        (address == 0x5555).then(|| "main+5".into())
    }

    fn name(&self, index: u32) -> Option<String> {
        (index == 1).then(|| "entry:vfs_read".into())
    }
}

pub fn map(name: &str, value: MapValue) -> Map {
    Map {
        name: name.into(),
        key: Vec::new(),
        value,
        span: Span::default(),
    }
}

pub fn entry(key: impl IntoIterator<Item = Value>, cell: Cell) -> Entry {
    Entry {
        key: key.into_iter().collect(),
        cell,
    }
}

pub fn number(value: i128) -> Cell {
    Cell::Number { value }
}

pub fn text(t: &str) -> Value {
    Value::Text(t.as_bytes().to_vec())
}
