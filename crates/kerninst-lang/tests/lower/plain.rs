//! Maps of assigned values.

use std::collections::BTreeMap;
use std::sync::Mutex;

use kerninst_lang::hir::*;
use kerninst_lang::layout::{Loss, Places, Shape, first_entry, state};
use kerninst_lang::lower::Events;
use kerninst_lang::read::{MapReader, RingReader};
use kerninst_lang::value::{Cell, Value};
use proptest::prelude::*;

use crate::hir::*;
use crate::sim::*;

/// Argument 0: what to do; 1: the key; 2: the value.
fn everything(key: Type, key_expr: &dyn Fn() -> Expr, ty: Type, value: Expr) -> Script {
    let keys = || match key {
        Type::None => vec![],
        _ => vec![key_expr()],
    };
    let is = |n| bin(Binary::Eq, arg(0), int(n));
    let body = vec![
        Stmt::If {
            c: is(0),
            then: vec![assign(0, keys(), value)],
            other: vec![],
        },
        Stmt::If {
            c: is(1),
            then: vec![Stmt::Delete {
                map: 0,
                key: keys(),
            }],
            other: vec![],
        },
        Stmt::If {
            c: is(2),
            then: vec![printf(vec![arg(1), get(0, keys(), ty.clone())])],
            other: vec![],
        },
    ];
    let types = match key {
        Type::None => vec![],
        _ => vec![key.clone()],
    };
    script(
        vec![map(types, MapValue::Plain(ty))],
        vec![clause(None, body, vec![])],
    )
}

fn variants(n: usize) -> Script {
    let text = || str_at(arg(2), 40);
    match n {
        0 => everything(Type::U64, &|| arg(1), Type::U64, arg(2)),
        1 => everything(Type::Str(24), &|| str_at(arg(1), 24), Type::U64, arg(2)),
        2 => everything(Type::U64, &|| arg(1), Type::Str(40), text()),
        3 => everything(Type::None, &|| arg(1), Type::Str(40), text()),
        _ => everything(Type::None, &|| arg(1), Type::U64, arg(2)),
    }
}

fn world(script: &Script, places: &Places, seed: u64) -> World {
    let mut world = World::new(script, places, seed);
    for n in 0..1000 {
        // All words of a text say which it is.
        world
            .texts
            .insert(n, format!("{n:07} {n:07} {n:07} {n:07} ").into());
    }
    world
}

/// A value as the number that was assigned; 0 if nothing. A torn text panics.
fn number(value: &Value) -> u64 {
    match value {
        Value::Text(text) if text.is_empty() => 0,
        Value::Text(text) => {
            let text = String::from_utf8(text.clone()).unwrap();
            let words: Vec<u64> = text
                .split_whitespace()
                .map(|w| w.parse().unwrap())
                .collect();
            assert!(words.iter().all(|w| *w == words[0]), "torn: {text}");
            words[0]
        }
        other => other.as_word().unwrap(),
    }
}

fn key_number(value: &Value) -> u64 {
    number(value)
}

/// What is wrong with a map's table: entries that stayed claimed, keys that are there twice.
fn faults(world: &World, script: &Script, places: &Places) -> Vec<String> {
    let shape = Shape::of(&script.maps[0]);
    let mut keys = Vec::new();
    let mut wrong = Vec::new();
    for n in 0..u64::from(places.maps[0].capacity) {
        let at = places.maps[0].table + n * 8 * u64::from(shape.words());
        let word = |n: u64| world.words.get(&(at + n * 8)).copied().unwrap_or(0);
        if word(0) & 3 == state::BUSY {
            wrong.push(format!("entry {n} stayed claimed"));
        }
        if word(0) & 3 == state::THERE {
            let key: Vec<u64> = (1..=u64::from(shape.key)).map(word).collect();
            if keys.contains(&key) {
                wrong.push(format!("key {key:?} is there twice"));
            }
            keys.push(key);
        }
    }
    wrong
}

/// Two interrupts at each pair of steps, each of which assigns to or deletes one of two keys whose first entries are the same.
#[test]
fn two_interrupts_anywhere() {
    let script = variants(0);
    let places = places(&script, 2, 1 << 12);
    let program = lowered(&script, 0, &entry(), &places, &mut Events::default()).unwrap();
    let first = |key: u64| first_entry(kerninst_lang::layout::hash([key]), 2);
    let own = 1;
    let other = (2..).find(|k| first(*k) == first(own)).unwrap();
    let op = |what, key| args(&[what, key, key * 100 + what]);
    let ops = [op(0, own), op(1, own), op(0, other), op(1, other)];
    for begin in &[op(0, own), op(1, own), op(2, own)] {
        for (before, with) in [(vec![op(0, other)], 0), (vec![op(0, own)], 1)] {
            for pair in 0..16 {
                for at in 0..32 * 32 {
                    let (i, j) = (at / 32 + 1, at % 32 + 1);
                    if i > j {
                        continue;
                    }
                    let inside = [(i, ops[pair / 4]), (j, ops[pair % 4])];
                    let world = World::new(&script, &places, 7);
                    let world = run_inside(world, &program, &before, *begin, &inside);
                    let wrong = faults(&world, &script, &places);
                    assert!(wrong.is_empty(), "{wrong:?}: {with} {begin:?} {inside:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Alone, a map is a map; deleted entries are used again (there are more keys than entries, one after the other).
    #[test]
    fn as_a_model(kind in 0usize..5, steps in prop::collection::vec((0u64..3, 1u64..40, 1u64..900), 1..60), bits in 0u32..4) {
        let script = variants(kind);
        let capacity = 1 << bits;
        let places = places(&script, capacity, 1 << 16);
        let mut events = Events::default();
        let program = lowered(&script, 0, &entry(), &places, &mut events).unwrap();
        let keyed = kind < 3;
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut full, mut gets) = (0, Vec::new());
        for (what, key, value) in &steps {
            let key = if keyed { *key } else { 0 };
            match what {
                0 if keyed && model.len() >= capacity as usize && !model.contains_key(&key) => full += 1,
                0 => { model.insert(key, *value); }
                1 => { model.remove(&key); }
                _ => gets.push(model.get(&key).copied().unwrap_or(0)),
            }
        }
        let all: Vec<_> = steps.iter().map(|(w, k, v)| args(&[*w, *k, *v])).collect();
        let world = run_alone(world(&script, &places, 5), &program, &all);
        prop_assert_eq!(world.loss(&places, Loss::Keys), full);
        prop_assert_eq!(world.loss(&places, Loss::Contended), 0);
        let still = Mutex::new(world);
        let mut found: Vec<(u64, u64)> = Vec::new();
        RingReader::new(places.ring)
            .drain(&Still(&still, places.ring.area), &events, u64::MAX, |r| {
                found.push((r.tsc, number(&r.values[1])));
            })
            .unwrap();
        found.sort();
        prop_assert_eq!(found.iter().map(|f| f.1).collect::<Vec<_>>(), gets);
        let mut reader = MapReader::new(&script.maps[0], places.maps[0]);
        let (table, cells) = (Still(&still, places.maps[0].table), Still(&still, 0));
        let entries = reader.entries(&table, &cells);
        let have: BTreeMap<u64, u64> = entries.list.iter().map(|e| {
            let Cell::Plain(value) = &e.cell else { panic!() };
            (e.key.first().map_or(0, key_number), number(value))
        }).collect();
        prop_assert_eq!(have.len(), entries.list.len());
        prop_assert_eq!(&have, &model);
        reader.zero(&table, &cells);
        let entries = reader.entries(&table, &cells).list;
        prop_assert_eq!(entries.len(), model.len());
        for e in &entries {
            let Cell::Plain(value) = &e.cell else { panic!() };
            prop_assert_eq!(number(value), 0);
        }
        reader.clear(&table, &cells);
        prop_assert!(reader.entries(&table, &cells).list.is_empty());
    }

    /// With everything at once: no key has two entries, no entry stays claimed, every value is whole and was assigned to
    /// its key, and what was given up is counted.
    #[test]
    fn at_once(seed: u64, kind in 0usize..5, threads in 1usize..4, interrupts in 0u64..14, bits in 1u32..4, keys in 1u64..4, much in 0u64..2) {
        let script = variants(kind);
        let keyed = kind < 3;
        let places = places(&script, 1 << bits, 1 << 14);
        let mut events = Events::default();
        let program = lowered(&script, 0, &entry(), &places, &mut events).unwrap();
        // The value says its key.
        let regs = move |seed: u64| {
            let key = 1 + seed % keys;
            args(&[(seed >> 8) % (3 - much), key, key * 100 + (seed >> 16) % 100])
        };
        let plan = Plan { programs: &[program], regs: &regs, threads, runs: 20 + 20 * much as usize, interrupts, moves: 9, inside: &[] };
        let map = &script.maps[0];
        let world = run(world(&script, &places, seed), &plan, |area| {
            let reader = MapReader::new(map, places.maps[0]);
            while area.busy() {
                for e in reader.entries(&area.at(places.maps[0].table), &area.at(0)).list {
                    let Cell::Plain(value) = &e.cell else { panic!() };
                    let value = number(value);
                    assert!(!keyed || value / 100 == key_number(&e.key[0]), "{e:?}");
                }
            }
        });
        let wrong = faults(&world, &script, &places);
        prop_assert!(wrong.is_empty(), "{:?}", wrong);
        let contended = world.loss(&places, Loss::Contended) + world.loss(&places, Loss::Keys);
        let assigned: BTreeMap<u64, u64> = world.runs.iter().filter(|(r, _)| r[7] == 0)
            .fold(BTreeMap::new(), |mut m, (r, _)| { *m.entry(r[6]).or_default() += 1; m });
        let deleted = world.runs.iter().filter(|(r, _)| r[7] == 1).count();
        let still = Mutex::new(world);
        let reader = MapReader::new(map, places.maps[0]);
        let entries = reader.entries(&Still(&still, places.maps[0].table), &Still(&still, 0));
        let mut seen = std::collections::BTreeSet::new();
        for e in &entries.list {
            prop_assert!(seen.insert(e.key.clone()), "two entries of {:?}", e.key);
        }
        if deleted == 0 && contended == 0 && keyed {
            prop_assert_eq!(seen.len(), assigned.len());
        }
        RingReader::new(places.ring)
            .drain(&Still(&still, places.ring.area), &events, u64::MAX, |r| {
                let value = number(&r.values[1]);
                assert!(value == 0 || !keyed || value / 100 == number(&r.values[0]));
            })
            .unwrap();
    }
}
