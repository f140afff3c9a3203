//! Aggregations: nothing may be lost that is not counted, whatever comes between.

use std::collections::BTreeMap;
use std::sync::Mutex;

use kerninst_lang::hir::{MapValue, Type};
use kerninst_lang::layout::{Loss, lhist_buckets};
use kerninst_lang::lower::Events;
use kerninst_lang::read::MapReader;
use kerninst_lang::value::{Cell, Entry, Value};
use proptest::prelude::*;

use crate::hir::*;
use crate::sim::*;

/// Runs `@[key] = f(value)` with arguments 0 (key) and 1 (value); the entries, runs, and losses of (keys, contention).
fn run_map(
    key: Vec<Type>,
    value: MapValue,
    key_exprs: Vec<kerninst_lang::hir::Expr>,
    with_value: bool,
    capacity: u32,
    seed: u64,
    how: (usize, u64),
) -> (Vec<Entry>, Vec<(u64, u64)>, u64) {
    let argument = with_value.then(|| signed(1));
    let body = vec![update(0, key_exprs, argument)];
    let script = script(vec![map(key, value)], vec![clause(None, body, vec![])]);
    let places = places(&script, capacity, 4096);
    let program = lowered(&script, 0, &entry(), &places, &mut Events::default()).unwrap();
    let mut world = World::new(&script, &places, seed);
    for n in 0..8 {
        world
            .texts
            .insert(n, format!("text-of-several-words-{n}").into());
    }
    let regs = |seed: u64| args(&[seed % 7, (seed >> 8) % 100]);
    let plan = Plan {
        programs: &[program],
        regs: &regs,
        threads: how.0,
        runs: 8,
        interrupts: how.1,
        moves: 9,
        inside: &[],
    };
    let world = run(world, &plan, |_| {});
    let runs = world.runs.iter().map(|(r, _)| (r[7], r[6])).collect();
    let losses = Loss::ALL.iter().map(|l| world.loss(&places, *l)).sum();
    let still = Mutex::new(world);
    let reader = MapReader::new(&script.maps[0], places.maps[0]);
    let entries = reader.entries(&Still(&still, places.maps[0].table), &Still(&still, 0));
    assert_eq!(entries.unread, 0);
    (entries.list, runs, losses)
}

fn numbers(entries: &[Entry]) -> BTreeMap<u64, i128> {
    let number = |e: &Entry| match (&e.key[..], &e.cell) {
        ([Value::Int { value, .. }], Cell::Number { value: n }) => (*value, *n),
        other => panic!("{other:?}"),
    };
    entries.iter().map(number).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A count lost between two steps, an entry taken twice, a duplicate that is not added up.
    #[test]
    fn counts_are_exact(seed: u64, threads in 1usize..4, interrupts in 0u64..12) {
        let (entries, runs, losses) = run_map(
            vec![Type::U64], MapValue::Count, vec![arg(0)], false, 64, seed, (threads, interrupts));
        let mut model = BTreeMap::new();
        for (key, _) in &runs {
            *model.entry(*key).or_insert(0) += 1;
        }
        prop_assert_eq!(losses, 0);
        prop_assert_eq!(numbers(&entries), model);
    }

    /// A full table: what finds no place is counted, to the last one.
    #[test]
    fn a_full_map_loses_nothing_silently(seed: u64, threads in 1usize..4, interrupts in 0u64..12, bits in 0u32..3) {
        let (entries, runs, losses) = run_map(
            vec![Type::U64], MapValue::Count, vec![arg(0)], false, 1 << bits, seed, (threads, interrupts));
        let counted: i128 = numbers(&entries).values().sum();
        prop_assert_eq!(counted + i128::from(losses), runs.len() as i128);
        prop_assert!(entries.len() <= 1 << bits);
    }

    /// Keys of several words, some of them text in scratch memory, one of them longer than is unrolled.
    #[test]
    fn long_keys(seed: u64, threads in 1usize..4, interrupts in 0u64..12, size in 8u32..90) {
        let key = vec![Type::U64, Type::Str(size), Type::Str(16)];
        let exprs = vec![arg(0), str_at(arg(0), size), builtin(kerninst_lang::hir::Builtin::Comm)];
        let (entries, runs, losses) = run_map(
            key, MapValue::Count, exprs, false, 64, seed, (threads, interrupts));
        prop_assert_eq!(losses, 0);
        let mut counted = BTreeMap::new();
        for e in &entries {
            let [Value::Int { value, .. }, Value::Text(text), Value::Text(comm)] = &e.key[..] else {
                panic!("{e:?}");
            };
            let whole = format!("text-of-several-words-{value}");
            let cut = &whole.as_bytes()[..whole.len().min(size as usize - 1)];
            prop_assert_eq!(text.as_slice(), cut);
            prop_assert!(comm.starts_with(b"task"));
            let Cell::Number { value: n } = e.cell else { panic!() };
            *counted.entry(*value).or_insert(0) += n;
        }
        let mut model = BTreeMap::new();
        for (key, _) in &runs {
            *model.entry(*key).or_insert(0) += 1;
        }
        prop_assert_eq!(counted, model);
    }

    /// `max` and `min`, of either sign, keyed and not: the best one is there, 0 and the smallest number included.
    #[test]
    fn best_of_all(seed: u64, threads in 1usize..4, interrupts in 0u64..12, max: bool, is_signed: bool, keyed: bool) {
        let value = if max { MapValue::Max { signed: is_signed } } else { MapValue::Min { signed: is_signed } };
        let (types, exprs) = if keyed { (vec![Type::U64], vec![arg(0)]) } else { (vec![], vec![]) };
        let (entries, runs, losses) = run_map(types, value, exprs, true, 64, seed, (threads, interrupts));
        prop_assert_eq!(losses, 0);
        let mut model: BTreeMap<Option<u64>, u64> = BTreeMap::new();
        for (key, value) in &runs {
            let best = model.entry(keyed.then_some(*key)).or_insert(*value);
            *best = if max { *value.max(best) } else { *value.min(best) };
        }
        let mut found = BTreeMap::new();
        for e in &entries {
            let key = e.key.first().and_then(|v| v.as_word());
            let Cell::Number { value } = e.cell else { panic!() };
            prop_assert!(found.insert(key, value as u64).is_none());
        }
        prop_assert_eq!(found, model);
    }

    /// Sums, averages and histograms.
    #[test]
    fn sums_and_buckets(seed: u64, threads in 1usize..4, interrupts in 0u64..12, kind in 0usize..5) {
        let (min, max, step) = (10, 75, 20);
        let value = [
            MapValue::Sum { signed: true },
            MapValue::Avg { signed: true },
            MapValue::Stats { signed: false },
            MapValue::Hist,
            MapValue::LHist { min, max, step },
        ][kind].clone();
        let (entries, runs, losses) = run_map(
            vec![Type::U64], value, vec![arg(0)], true, 64, seed, (threads, interrupts));
        prop_assert_eq!(losses, 0);
        for e in &entries {
            let key = e.key[0].as_word().unwrap();
            let own: Vec<u64> = runs.iter().filter(|r| r.0 == key).map(|r| r.1).collect();
            let sum = i128::from(own.iter().sum::<u64>());
            let count = own.len() as u64;
            let buckets = |n: usize, of: &dyn Fn(u64) -> usize| {
                let mut all = vec![0; n];
                own.iter().for_each(|v| all[of(*v)] += 1);
                all
            };
            let expected = match kind {
                0 => Cell::Number { value: sum },
                1 => Cell::Average { count, sum },
                2 => Cell::Stats { count, sum },
                3 => Cell::Hist(buckets(66, &|v| if v == 0 { 1 } else { 2 + v.ilog2() as usize })),
                _ => Cell::LHist(buckets(lhist_buckets(min, max, step) as usize, &|v| {
                    let v = v as i64;
                    if v < min { 0 } else if v >= max { 5 } else { 1 + ((v - min) / step) as usize }
                })),
            };
            prop_assert_eq!(&e.cell, &expected);
        }
        let keys: std::collections::BTreeSet<u64> = runs.iter().map(|r| r.0).collect();
        prop_assert_eq!(entries.len(), keys.len());
    }
}
