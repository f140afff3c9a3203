//! User space at the same maps: its own clauses, `clear` and `zero`.

use std::sync::Mutex;

use kerninst_lang::hir::{MapValue, Type};
use kerninst_lang::layout::rank;
use kerninst_lang::lower::Events;
use kerninst_lang::read::{MapReader, Unchanged, value, words};
use kerninst_lang::value::{Cell, Entry, Value};
use proptest::prelude::*;

use crate::hir::*;
use crate::sim::*;

/// A map `@[arg0] = f(arg1)` with a machine that stands still between runs.
struct Fixture {
    program: kerninst_snippet::ir::Program,
    places: kerninst_lang::layout::Places,
    reader: MapReader,
    world: Mutex<World>,
}

impl Fixture {
    fn new(kind: MapValue, key: Vec<Type>, capacity: u32) -> Fixture {
        let exprs = key.iter().map(|_| arg(0)).collect();
        let argument = (kind != MapValue::Count).then(|| signed(1));
        let body = match kind {
            MapValue::Plain(_) => vec![assign(0, exprs, arg(1))],
            _ => vec![update(0, exprs, argument)],
        };
        let script = script(vec![map(key, kind)], vec![clause(None, body, vec![])]);
        let places = places(&script, capacity, 4096);
        let program = lowered(&script, 0, &entry(), &places, &mut Events::default()).unwrap();
        let world = Mutex::new(World::new(&script, &places, 1));
        let reader = MapReader::new(&script.maps[0], places.maps[0]);
        Fixture {
            program,
            places,
            reader,
            world,
        }
    }

    fn kernel(&self, key: u64, value: u64) {
        let mut world = self.world.lock().unwrap();
        let now = std::mem::take(&mut *world);
        *world = run_alone(now, &self.program, &[args(&[key, value])]);
    }

    fn user(&mut self, key: &[Value], value: u64) -> Result<(), Unchanged> {
        let table = Still(&self.world, self.places.maps[0].table);
        self.reader.update(&table, key, value, true)
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut MapReader, &Still<'_>, &Still<'_>) -> R) -> R {
        let table = Still(&self.world, self.places.maps[0].table);
        f(&mut self.reader, &table, &Still(&self.world, 0))
    }

    fn entries(&mut self) -> Vec<Entry> {
        self.with(|r, t, c| r.entries(t, c).list)
    }

    fn numbers(&mut self) -> Vec<(u64, i128)> {
        let pair = |e: Entry| match e.cell {
            Cell::Number { value } => (e.key.first().map_or(0, |k| k.as_word().unwrap()), value),
            other => panic!("{other:?}"),
        };
        self.entries().into_iter().map(pair).collect()
    }
}

const U64: fn(u64) -> Value = Value::uint;

#[test]
fn counts() {
    let mut f = Fixture::new(MapValue::Count, vec![Type::U64], 16);
    assert!(f.numbers().is_empty());
    f.kernel(5, 0);
    f.kernel(5, 0);
    f.kernel(6, 0);
    f.user(&[U64(7)], 1).unwrap();
    for _ in 0..3 {
        f.user(&[U64(6)], 1).unwrap();
    }
    // By value; of equal ones by key.
    assert_eq!(f.numbers(), [(7, 1), (5, 2), (6, 4)]);
    f.with(|r, t, c| r.clear(t, c));
    assert!(f.numbers().is_empty());
    f.kernel(5, 0);
    assert_eq!(f.numbers(), [(5, 1)]);
    f.with(|r, t, c| r.zero(t, c));
    // What was cleared stays away.
    assert_eq!(f.numbers(), [(5, 0)]);
    f.kernel(6, 0);
    f.user(&[U64(7)], 1).unwrap();
    assert_eq!(f.numbers(), [(5, 0), (6, 1), (7, 1)]);
    f.with(|r, t, c| r.delete(t, c, &[U64(6)])).unwrap();
    assert_eq!(f.numbers(), [(5, 0), (7, 1)]);
}

#[test]
fn a_single_sum() {
    let mut f = Fixture::new(MapValue::Sum { signed: true }, vec![], 1);
    f.kernel(0, -5i64 as u64);
    f.user(&[], 2).unwrap();
    assert_eq!(f.numbers(), [(0, -3)]);
}

#[test]
fn the_best_can_be_cleared() {
    for keyed in [false, true] {
        let key = if keyed { vec![Type::U64] } else { vec![] };
        let name = || if keyed { vec![U64(3)] } else { vec![] };
        let mut f = Fixture::new(MapValue::Min { signed: true }, key, 4);
        f.kernel(3, 7);
        f.user(&name(), -2i64 as u64).unwrap();
        f.kernel(3, 1);
        assert_eq!(f.numbers()[0].1, -2);
        f.with(|r, t, c| r.clear(t, c));
        assert!(f.numbers().is_empty());
        f.kernel(3, 9);
        assert_eq!(f.numbers()[0].1, 9);
        f.with(|r, t, c| r.delete(t, c, &name())).unwrap();
        assert!(f.numbers().is_empty());
        f.user(&name(), 11).unwrap();
        assert_eq!(f.numbers()[0].1, 11);
        f.with(|r, t, c| r.zero(t, c));
        assert_eq!(f.numbers()[0].1, 0);
    }
}

#[test]
fn assigned_values() {
    let mut f = Fixture::new(MapValue::Plain(Type::U64), vec![Type::U64], 4);
    let set = |f: &mut Fixture, k, v| f.with(|r, t, _| r.assign(t, &[U64(k)], &U64(v)));
    for k in 0..4 {
        set(&mut f, k, k + 10).unwrap();
    }
    assert_eq!(set(&mut f, 4, 1), Err(Unchanged::Full));
    f.kernel(2, 3);
    set(&mut f, 3, 5).unwrap();
    f.with(|r, t, c| r.delete(t, c, &[U64(1)])).unwrap();
    f.kernel(8, 1);
    let all: Vec<_> = f
        .entries()
        .into_iter()
        .map(|e| (e.key[0].clone(), e.cell))
        .collect();
    let plain = |k, v| (U64(k), Cell::Plain(U64(v)));
    assert_eq!(all, [plain(8, 1), plain(2, 3), plain(3, 5), plain(0, 10)]);
    assert_eq!(f.user(&[U64(1)], 1), Err(Unchanged::Kind));
}

#[test]
fn user_space_and_programs_at_once() {
    // Texts of the same key: the machine's and user space's, whole ones only.
    let ty = Type::Str(40);
    let body = vec![assign(0, vec![], str_at(arg(0), 40))];
    let script = script(
        vec![map(vec![], MapValue::Plain(ty))],
        vec![clause(None, body, vec![])],
    );
    let places = places(&script, 1, 4096);
    let program = lowered(&script, 0, &entry(), &places, &mut Events::default()).unwrap();
    for seed in 1..30 {
        let mut world = World::new(&script, &places, seed);
        for n in 0..26 {
            world.texts.insert(n, vec![b'A' + n as u8; 39]);
        }
        let plan = Plan {
            programs: std::slice::from_ref(&program),
            regs: &|seed| args(&[seed % 26]),
            threads: 2,
            runs: 10,
            interrupts: 9,
            moves: 9,
            inside: &[],
        };
        run(world, &plan, |area| {
            let reader = MapReader::new(&script.maps[0], places.maps[0]);
            let table = area.at(places.maps[0].table);
            while area.busy() {
                reader
                    .assign(&table, &[], &Value::Text(vec![b'x'; 39]))
                    .ok();
                for e in reader.entries(&table, &area.at(0)).list {
                    let Cell::Plain(Value::Text(text)) = &e.cell else {
                        panic!()
                    };
                    assert!(
                        text.len() == 39 && text.iter().all(|b| *b == text[0]),
                        "{text:?}"
                    );
                }
            }
        });
    }
}

proptest! {
    /// What is written is what is read.
    #[test]
    fn words_and_values(n: u64, bytes in prop::collection::vec(1u8.., 0..30), size in 1u32..40) {
        let text = Value::Text(bytes.iter().copied().take(size as usize - 1).collect());
        let ty = Type::Str(size);
        prop_assert_eq!(value(&ty, &words(&ty, &text)), text);
        prop_assert_eq!(words(&ty, &Value::None).len() as u32, ty.size() / 8);
        let ty = Type::Int { bits: 16, signed: true };
        let v = value(&ty, &[n]);
        prop_assert_eq!(value(&ty, &words(&ty, &v)), v);
        for (max, signed) in [(false, false), (false, true), (true, false), (true, true)] {
            prop_assert_eq!(rank(rank(n, max, signed), max, signed), n);
        }
    }

    /// User space's buckets are the kernel's.
    #[test]
    fn buckets(value in prop_oneof![any::<i64>(), -5i64..100], min in -20i64..20, steps in 1i64..9, step in 1i64..20) {
        let lhist = MapValue::LHist { min, max: min + steps * step - step / 2, step };
        for kind in [MapValue::Hist, lhist] {
            let mut f = Fixture::new(kind, vec![Type::U64], 4);
            f.kernel(1, value as u64);
            f.user(&[U64(2)], value as u64).unwrap();
            let e = f.entries();
            prop_assert_eq!(e.len(), 2);
            prop_assert_eq!(&e[0].cell, &e[1].cell);
        }
    }
}
