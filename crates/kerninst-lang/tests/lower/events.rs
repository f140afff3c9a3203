//! Events: each is read once and whole, or counted.

use std::sync::Mutex;

use kerninst_lang::hir::{Builtin, Type};
use kerninst_lang::layout::Loss;
use kerninst_lang::lower::Events;
use kerninst_lang::read::{Record, RingReader};
use kerninst_lang::value::Value;
use proptest::prelude::*;

use crate::hir::*;
use crate::sim::*;

fn word(record: &Record, n: usize) -> u64 {
    record.values[n].as_word().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A torn record, a lost or doubled one, a reader that overtakes a writer: the reader runs meanwhile, buffers are small.
    #[test]
    fn every_event_is_read_whole_or_counted(
        seed: u64, threads in 1usize..4, interrupts in 0u64..20, ring in 8u32..11, nested in 0u64..6, patient: bool,
    ) {
        let body = vec![printf(vec![
            arg(0),
            str_at(arg(1), 30),
            bin(kerninst_lang::hir::Binary::Mul, arg(0), int(3)),
            builtin(Builtin::Comm),
        ])];
        let script = script(vec![], vec![clause(None, body, vec![])]);
        let places = places(&script, 1, 1 << ring);
        let mut events = Events::default();
        let program = lowered(&script, 0, &entry(), &places, &mut events).unwrap();
        let mut world = World::new(&script, &places, seed);
        world.nested = nested;
        for n in 0..100 {
            world.texts.insert(n, format!("text number {n}, long enough to be cut off").into());
        }
        let regs = |seed: u64| args(&[seed, seed % 101]);
        let plan = Plan {
            programs: &[program], regs: &regs, threads, runs: 8, interrupts, moves: 9, inside: &[],
        };
        let mut records: Vec<Record> = Vec::new();
        let reader = RingReader::new(places.ring);
        let beside = &mut records;
        let (r, e, p) = (&reader, &events, &places);
        let world = run(world, &plan, move |area| {
            while area.busy() {
                if !patient {
                    r.drain(&area.at(p.ring.area), e, 3, |record| beside.push(record)).unwrap();
                } else {
                    area.pause();
                }
            }
        });
        let losses = |l| world.loss(&places, l);
        let lost = losses(Loss::Events) + losses(Loss::Contended) + losses(Loss::Nested);
        let unreadable = losses(Loss::Unreadable);
        let mut runs: Vec<u64> = world.runs.iter().map(|(r, _)| r[7]).collect();
        let still = Mutex::new(world);
        let mut last = 0;
        reader.drain(&Still(&still, places.ring.area), &events, u64::MAX, |r| records.push(r)).unwrap();
        // What is read is clear.
        let world = still.into_inner().unwrap();
        let buffers = places.ring.area + places.ring.buffer(0)..places.ring.area + places.ring.size();
        for (at, word) in &world.words {
            prop_assert!(!buffers.contains(at) || *word == 0);
        }
        prop_assert_eq!(records.len() as u64 + lost, runs.len() as u64);
        let mut faults = 0;
        for record in &records {
            last = last.max(record.tsc);
            let n = word(record, 0);
            prop_assert_eq!(word(record, 2), n.wrapping_mul(3));
            let Value::Text(text) = &record.values[1] else { panic!() };
            if n % 101 == 100 {
                faults += 1;
                prop_assert!(text.is_empty());
            } else {
                let whole = format!("text number {}, long enough to be cut off", n % 101);
                prop_assert_eq!(text.as_slice(), &whole.as_bytes()[..29]);
            }
            let Value::Text(comm) = &record.values[3] else { panic!() };
            prop_assert!(comm.starts_with(b"task"));
            let at = runs.iter().position(|r| *r == n);
            prop_assert!(at.is_some(), "never sent, or twice");
            runs.swap_remove(at.unwrap());
        }
        prop_assert_eq!(faults, unreadable);
        if patient && threads == 1 && interrupts == 0 {
            prop_assert!(records.is_sorted_by_key(|r| r.tsc));
        }
        prop_assert!(last <= world.clock);
    }
}

/// Without room: counted; after the reader: room again. Records wrap round the end into the room behind it.
#[test]
fn room() {
    let body = vec![printf(vec![arg(0)])];
    let script = script(vec![], vec![clause(None, body, vec![])]);
    let places = places(&script, 1, 256);
    let mut events = Events::default();
    let program = lowered(&script, 0, &entry(), &places, &mut events).unwrap();
    let mut world = World::new(&script, &places, 1);
    let reader = RingReader::new(places.ring);
    let (mut sent, mut seen) = (0, 0);
    for _ in 0..20 {
        let all: Vec<_> = (0..40).map(|n| args(&[sent + n])).collect();
        sent += 40;
        world = run_alone(world, &program, &all);
        let still = Mutex::new(world);
        reader
            .drain(&Still(&still, places.ring.area), &events, 7, |_| seen += 1)
            .unwrap();
        reader
            .drain(&Still(&still, places.ring.area), &events, u64::MAX, |_| {
                seen += 1
            })
            .unwrap();
        world = still.into_inner().unwrap();
    }
    assert_eq!(seen + world.loss(&places, Loss::Events), sent);
    // 10 records of 24 bytes fit, on each CPU.
    assert!((20 * 10..=20 * 30).contains(&seen), "{seen}");
}

/// What no program wrote is said, and not read.
#[test]
fn damage() {
    let script = script(vec![], vec![]);
    let places = places(&script, 1, 256);
    for head in [
        1 << 63,
        1 << 63 | 20,
        1 << 63 | 4096,
        1 << 63 | 5 << 16 | 24,
    ] {
        let mut world = World::new(&script, &places, 1);
        let at = places.ring.area + places.ring.buffer(1);
        world.words.insert(at, head);
        let still = Mutex::new(world);
        let reader = RingReader::new(places.ring);
        let result = reader.drain(
            &Still(&still, places.ring.area),
            &Events::default(),
            9,
            |_| panic!(),
        );
        let damaged = result.unwrap_err();
        assert_eq!((damaged.cpu, damaged.head), (1, head));
    }
}

/// The same event in two clauses has one number.
#[test]
fn events_are_numbered_once() {
    let body = || vec![printf(vec![arg(0)]), printf(vec![arg(1), arg(2)])];
    let clauses = vec![clause(None, body(), vec![]), clause(None, body(), vec![])];
    let script = script(vec![], clauses);
    let places = places(&script, 1, 4096);
    let mut events = Events::default();
    for n in 0..2 {
        lowered(&script, n, &entry(), &places, &mut events).unwrap();
    }
    assert_eq!(events.all().len(), 2);
    assert_eq!(events.get(1).unwrap().args, [Type::U64, Type::U64]);
}
