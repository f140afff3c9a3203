//! A machine of several CPUs on which lowered programs run as threads that take turns at every step that touches the machine, in
//! an order that a seed decides; any of them may be interrupted there by the same program, or be moved to another CPU.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use kerninst_lang::hir::{Map, Script};
use kerninst_lang::layout::{Callouts, Facts, Loss, MapPlace, Places, RingPlace, Shape, callout};
use kerninst_lang::read::{Cells, Memory};
use kerninst_snippet::Reg;
use kerninst_snippet::eval::{Ended, Machine, eval};
use kerninst_snippet::ir::{Program, Width};

pub const CPUS: u32 = 3;
const TASKS: u64 = 0xffff_8880_0000_0000;
pub const TEXT: u64 = 0x1001;
pub const BYTES: u64 = 0x1002;
pub const TIME: u64 = 0x1003;
pub const KSTACK: u64 = 0x1004;
pub const USTACK: u64 = 0x1005;
pub const RETURNS: u64 = 0xffff_ffff_8100_0000;

pub fn facts() -> Facts {
    Facts {
        current: 0x100,
        cpu_number: 0x108,
        pid: 8,
        tgid: 12,
        comm: 32,
        returns: RETURNS,
        started: 1000,
        callouts: Callouts {
            time: TIME,
            text: TEXT,
            bytes: BYTES,
            kernel_stack: KSTACK,
            user_stack: USTACK,
        },
    }
}

fn table_of(map: usize) -> u64 {
    0xffff_c900_0000_0000 + ((map as u64) << 32)
}

/// Memory for a script: tables of so many entries, event buffers of so many bytes.
pub fn places(script: &Script, capacity: u32, ring_bytes: u32) -> Places {
    let place = |(n, map): (usize, &Map)| {
        let capacity = if map.key.is_empty() { 1 } else { capacity };
        MapPlace {
            table: table_of(n),
            capacity,
            cells: 0x1_0000_0000 * (n as u64 + 1),
        }
    };
    Places {
        maps: script.maps.iter().enumerate().map(place).collect(),
        ring: RingPlace {
            area: 0xffff_c8ff_0000_0000,
            buffers: 4096,
            bytes: ring_bytes,
            cpus: CPUS,
        },
        losses: std::array::from_fn(|n| 0x200 + 8 * n as u64),
        stacks: 0xffff_c8fe_0000_0000,
    }
}

/// All memory.
#[derive(Default)]
pub struct World {
    /// Words that are there.
    pub words: HashMap<u64, u64>,
    /// Words that may be read and written by programs' probes.
    pub kernel: HashMap<u64, u64>,
    /// Texts that the callouts find.
    pub texts: HashMap<u64, Vec<u8>>,
    /// By CPU and pointer.
    pub per_cpu: HashMap<(u32, u64), u64>,
    /// Registers that programs began with, in the order of their ends; and how they ended.
    pub runs: Vec<([u64; 16], Ended)>,
    pub clock: u64,
    frames: u64,
    /// One callout in so many says that it is nested; 0: none.
    pub nested: u64,
    rng: u64,
}

impl World {
    /// With the memory of a script as the engine sets it up.
    pub fn new(script: &Script, places: &Places, seed: u64) -> World {
        let mut world = World {
            rng: seed | 1,
            ..World::default()
        };
        for (map, place) in script.maps.iter().zip(&places.maps) {
            let shape = Shape::of(map);
            for n in 0..u64::from(place.capacity) {
                if shape.cells > 0 {
                    let entry = place.table + n * u64::from(shape.words()) * 8;
                    let cells = place.cells + n * u64::from(shape.cells) * 8;
                    let at = entry + u64::from(shape.value_at()) * 8;
                    world.words.insert(at, cells);
                }
            }
        }
        for task in 0..16 {
            let at = TASKS + task * 0x1000;
            world
                .words
                .insert(at + 8, (100 + task) << 32 | (200 + task));
            let comm = format!("task{task}");
            for n in 0..2 {
                world
                    .words
                    .insert(at + 32 + n * 8, word(comm.as_bytes(), n));
            }
        }
        world
    }

    pub fn random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn loss(&self, places: &Places, loss: Loss) -> u64 {
        let n = Loss::ALL.iter().position(|l| *l == loss).unwrap();
        self.sum(places.losses[n])
    }

    fn read(&self, at: u64, width: Width) -> u64 {
        let word = self.words.get(&(at & !7)).copied().unwrap_or(0);
        cut(word >> (at % 8 * 8), width)
    }
}

fn cut(word: u64, width: Width) -> u64 {
    word & (u64::MAX >> (64 - 8 * width.bytes()))
}

/// A word of a text.
pub fn word(text: &[u8], n: u64) -> u64 {
    let bytes = text.iter().skip(n as usize * 8).take(8);
    bytes.rev().fold(0, |w, b| w << 8 | u64::from(*b))
}

impl Cells for World {
    fn sum(&self, pointer: u64) -> u64 {
        (0..CPUS)
            .map(|cpu| self.per_cpu.get(&(cpu, pointer)).copied().unwrap_or(0))
            .fold(0, u64::wrapping_add)
    }
}

/// The world, and whose turn it is.
pub struct Turns {
    world: World,
    turn: usize,
    alive: Vec<bool>,
}

/// One condition for each thread.
pub type Shared = Arc<(Mutex<Turns>, Vec<Condvar>)>;

/// Ends a thread's part, whether it panics or not.
struct Part(Shared, usize);

impl Drop for Part {
    fn drop(&mut self) {
        let mut turns = self.0.0.lock().unwrap_or_else(|e| e.into_inner());
        turns.alive[self.1] = false;
        turns.pass();
        self.0.1[turns.turn].notify_one();
    }
}

impl Turns {
    fn pass(&mut self) {
        let alive: Vec<usize> = (0..self.alive.len()).filter(|n| self.alive[*n]).collect();
        if !alive.is_empty() {
            self.turn = alive[self.world.random() as usize % alive.len()];
        }
    }
}

/// One step: first others may have their turns.
fn step<R>(shared: &Shared, me: usize, f: impl FnOnce(&mut World) -> R) -> R {
    let mut turns: MutexGuard<'_, Turns> = shared.0.lock().unwrap();
    // Several steps in a row are as likely as one alone.
    if turns.turn == me && turns.world.random().is_multiple_of(4) {
        turns.pass();
        shared.1[turns.turn].notify_one();
    }
    while turns.turn != me {
        turns = shared.1[me].wait(turns).unwrap();
    }
    f(&mut turns.world)
}

/// What runs at once.
pub struct Plan<'p> {
    pub programs: &'p [Program],
    /// Gives a run its registers.
    pub regs: &'p (dyn Fn(u64) -> [u64; 16] + Sync),
    pub threads: usize,
    /// Runs of each thread, those in interrupts not included.
    pub runs: usize,
    /// One in so many steps is interrupted; 0: none.
    pub interrupts: u64,
    /// One in so many steps the task moves to another CPU; 0: never.
    pub moves: u64,
    /// The runs that begin outside of interrupts are interrupted before these of their steps, by runs with these registers.
    pub inside: &'p [(u32, [u64; 16])],
}

/// Runs a plan; `beside` runs as one more thread, with memory whose every access is a step.
pub fn run(world: World, plan: &Plan<'_>, beside: impl FnOnce(Area) + Send) -> World {
    let shared: Shared = Arc::new((
        Mutex::new(Turns {
            world,
            turn: 0,
            alive: vec![true; plan.threads + 1],
        }),
        (0..=plan.threads).map(|_| Condvar::new()).collect(),
    ));
    std::thread::scope(|scope| {
        for me in 0..plan.threads {
            let part = Part(shared.clone(), me);
            scope.spawn(move || {
                for _ in 0..plan.runs {
                    execute(&part.0, part.1, plan, None, None);
                }
            });
        }
        let part = Part(shared.clone(), plan.threads);
        scope.spawn(move || beside(Area(part.0.clone(), part.1)));
    });
    let turns = Arc::into_inner(shared).unwrap().0.into_inner().unwrap();
    turns.world
}

/// Runs one program after the other, alone.
pub fn run_alone(world: World, program: &Program, all: &[[u64; 16]]) -> World {
    let next = Mutex::new(all.iter());
    let plan = Plan {
        programs: std::slice::from_ref(program),
        regs: &|_| *next.lock().unwrap().next().unwrap(),
        threads: 1,
        runs: all.len(),
        interrupts: 0,
        moves: 0,
        inside: &[],
    };
    run(world, &plan, |_| {})
}

fn execute(
    shared: &Shared,
    me: usize,
    plan: &Plan<'_>,
    inside: Option<(u32, u32)>,
    regs: Option<[u64; 16]>,
) {
    let (seed, which) = step(shared, me, |w| (w.random(), w.random()));
    let (cpu, depth) = inside.unwrap_or(((seed % u64::from(CPUS)) as u32, 0));
    let regs = regs.unwrap_or_else(|| (plan.regs)(seed));
    let mut run = Run {
        shared,
        me,
        plan,
        cpu,
        depth,
        regs,
        last: None,
        steps: 0,
        set: Vec::new(),
    };
    let program = &plan.programs[which as usize % plan.programs.len()];
    let ended = eval(program, &mut run);
    assert_ne!(ended, Ended::Invalid);
    for (reg, value) in run.set {
        step(shared, me, |w| w.words.insert(u64::from(reg), value));
    }
    step(shared, me, |w| w.runs.push((regs, ended)));
}

/// One run.
struct Run<'r, 'p> {
    shared: &'r Shared,
    me: usize,
    plan: &'r Plan<'p>,
    cpu: u32,
    depth: u32,
    regs: [u64; 16],
    /// What was read just now: a write of the same is (perhaps) the other half of one instruction.
    last: Option<u64>,
    steps: u32,
    set: Vec<(u8, u64)>,
}

impl Run<'_, '_> {
    fn step<R>(&mut self, f: impl FnOnce(&mut World) -> R) -> R {
        self.before();
        step(self.shared, self.me, f)
    }

    /// What may happen before a step.
    fn before(&mut self) {
        self.last = None;
        let (a, b, c) = self.at_once(|w| (w.random(), w.random(), w.random()));
        let (interrupts, moves) = (self.plan.interrupts, self.plan.moves);
        if self.depth == 0 && moves > 0 && a.is_multiple_of(moves) {
            self.cpu = (c % u64::from(CPUS)) as u32;
        }
        if self.depth < 2 && interrupts > 0 && b.is_multiple_of(interrupts) {
            execute(
                self.shared,
                self.me,
                self.plan,
                Some((self.cpu, self.depth + 1)),
                None,
            );
        }
        self.steps += 1;
        for (at, regs) in self.plan.inside {
            if self.depth == 0 && *at == self.steps {
                let inside = Some((self.cpu, 1));
                execute(self.shared, self.me, self.plan, inside, Some(*regs));
            }
        }
    }

    /// The other half of an instruction: at once.
    fn at_once<R>(&mut self, f: impl FnOnce(&mut World) -> R) -> R {
        let mut turns = self.shared.0.lock().unwrap();
        f(&mut turns.world)
    }
}

impl Machine for Run<'_, '_> {
    fn reg(&mut self, reg: Reg) -> u64 {
        self.regs[usize::from(reg.number())]
    }

    fn set_reg(&mut self, reg: Reg, value: u64) {
        self.set.push((reg.number(), value));
        self.regs[usize::from(reg.number())] = value;
    }

    fn probe(&mut self, at: u64, width: Width) -> Option<u64> {
        self.step(|w| {
            let word = w.kernel.get(&(at & !7)).copied()?;
            Some(cut(word >> (at % 8 * 8), width))
        })
    }

    fn probe_store(&mut self, at: u64, width: Width, value: u64) -> bool {
        self.step(|w| match w.kernel.get_mut(&(at & !7)) {
            Some(word) => {
                let mask = cut(u64::MAX, width) << (at % 8 * 8);
                *word = *word & !mask | value << (at % 8 * 8) & mask;
                true
            }
            None => false,
        })
    }

    fn load(&mut self, at: u64, width: Width) -> u64 {
        let value = self.step(|w| w.read(at, width));
        self.last = Some(at);
        value
    }

    fn store(&mut self, at: u64, width: Width, value: u64) {
        assert_eq!(width, Width::B8);
        assert_eq!(at % 8, 0);
        if self.last == Some(at) {
            self.last = None;
            // A compare-and-swap is one step: nobody may come between.
            self.at_once(|w| w.words.insert(at, value));
        } else {
            self.step(|w| w.words.insert(at, value));
        }
    }

    fn frame(&mut self, bytes: u32) -> u64 {
        assert!(bytes <= 512);
        self.step(|w| {
            w.frames += 1024;
            let at = 0xffff_f000_0000_0000 + w.frames;
            // Scratch memory is not cleared.
            for n in 0..u64::from(bytes) / 8 {
                let garbage = w.random() << 32 | w.random();
                w.words.insert(at + n * 8, garbage);
            }
            at
        })
    }

    fn cpu_load(&mut self, pointer: u64, width: Width) -> u64 {
        let facts = facts();
        self.before();
        let (cpu, task) = (self.cpu, TASKS + self.me as u64 * 0x1000);
        let value = step(self.shared, self.me, |w| match pointer {
            p if p == facts.current => task,
            p if p == facts.cpu_number => u64::from(cpu),
            _ => w.per_cpu.get(&(cpu, pointer)).copied().unwrap_or(0),
        });
        cut(value, width)
    }

    fn cpu_store(&mut self, pointer: u64, value: u64) {
        let cpu = self.cpu;
        self.at_once(|w| w.per_cpu.insert((cpu, pointer), value));
    }

    fn clock(&mut self) -> u64 {
        self.step(|w| {
            w.clock += 1;
            w.clock
        })
    }

    fn call(&mut self, function: u64, args: &[u64]) -> u64 {
        let nested = self.step(|w| {
            w.nested > 0 && {
                let n = w.nested;
                w.random().is_multiple_of(n)
            }
        });
        if nested {
            return if function == TIME {
                0
            } else {
                callout::NESTED as u64
            };
        }
        match (function, args) {
            (TIME, []) => self.step(|w| {
                w.clock += 1;
                5000 + w.clock
            }),
            (TEXT | BYTES, &[to, from, len]) => {
                let text = self.step(|w| w.texts.get(&from).cloned());
                let size = len.div_ceil(8);
                let mut all = vec![0; len as usize];
                if let Some(text) = &text {
                    let room = if function == TEXT {
                        len as usize - 1
                    } else {
                        len as usize
                    };
                    let n = text.len().min(room);
                    all[..n].copy_from_slice(&text[..n]);
                }
                self.step(|w| {
                    for n in 0..size {
                        let old = w.words.get(&(to + n * 8)).copied().unwrap_or(0);
                        let new = word(&all, n);
                        let bytes = (len - n * 8).min(8);
                        let mask = u64::MAX >> (64 - 8 * bytes);
                        w.words.insert(to + n * 8, old & !mask | new);
                    }
                });
                match text {
                    Some(text) if function == TEXT => text.len() as u64,
                    Some(_) => 0,
                    None => callout::FAULT as u64,
                }
            }
            (KSTACK, &[_, ip, sp, bp, depth]) => match sp {
                0 => callout::FULL as u64,
                1 => callout::NONE as u64,
                _ => ip ^ sp ^ bp ^ depth & 0xffff,
            },
            (USTACK, &[_, depth]) => depth + 7,
            _ => panic!("{function:#x} called with {args:?}"),
        }
    }
}

/// Memory from an address on, as the reader has it: each access is a step of the machine.
pub struct Area(Shared, usize);

impl Area {
    pub fn at(&self, base: u64) -> Mapped<'_> {
        Mapped(self, base)
    }

    /// Whether programs are still running.
    pub fn busy(&self) -> bool {
        let turns = self.0.0.lock().unwrap();
        turns.alive.iter().filter(|a| **a).count() > 1
    }
}

pub struct Mapped<'a>(&'a Area, u64);

impl Memory for Mapped<'_> {
    fn load(&self, offset: u64) -> u64 {
        let at = self.1 + offset;
        step(&self.0.0, self.0.1, |w| w.read(at, Width::B8))
    }

    fn store(&self, offset: u64, value: u64) {
        let at = self.1 + offset;
        step(&self.0.0, self.0.1, |w| w.words.insert(at, value));
    }

    fn swap(&self, offset: u64, old: u64, new: u64) -> bool {
        let at = self.1 + offset;
        step(&self.0.0, self.0.1, |w| {
            let same = w.read(at, Width::B8) == old;
            if same {
                w.words.insert(at, new);
            }
            same
        })
    }
}

impl Cells for Mapped<'_> {
    fn sum(&self, pointer: u64) -> u64 {
        step(&self.0.0, self.0.1, |w| w.sum(pointer))
    }
}

/// The memory of a machine that stands still.
pub struct Still<'w>(pub &'w Mutex<World>, pub u64);

impl Memory for Still<'_> {
    fn load(&self, offset: u64) -> u64 {
        self.0.lock().unwrap().read(self.1 + offset, Width::B8)
    }

    fn store(&self, offset: u64, value: u64) {
        self.0.lock().unwrap().words.insert(self.1 + offset, value);
    }

    fn swap(&self, offset: u64, old: u64, new: u64) -> bool {
        let same = self.load(offset) == old;
        if same {
            self.store(offset, new);
        }
        same
    }
}

impl Cells for Still<'_> {
    fn sum(&self, pointer: u64) -> u64 {
        self.0.lock().unwrap().sum(pointer)
    }
}

impl Area {
    /// Lets the others run.
    pub fn pause(&self) {
        step(&self.0, self.1, |_| {});
    }
}

/// Runs a program as often as given before, then once with interrupts inside; all on this thread.
pub fn run_inside(
    world: World,
    program: &Program,
    before: &[[u64; 16]],
    regs: [u64; 16],
    inside: &[(u32, [u64; 16])],
) -> World {
    let turns = Turns {
        world,
        turn: 0,
        alive: vec![true],
    };
    let shared: Shared = Arc::new((Mutex::new(turns), vec![Condvar::new()]));
    let mut plan = Plan {
        programs: std::slice::from_ref(program),
        regs: &|_| regs,
        threads: 1,
        runs: 1,
        interrupts: 0,
        moves: 0,
        inside: &[],
    };
    for regs in before {
        execute(&shared, 0, &plan, None, Some(*regs));
    }
    plan.inside = inside;
    execute(&shared, 0, &plan, None, None);
    Arc::into_inner(shared)
        .unwrap()
        .0
        .into_inner()
        .unwrap()
        .world
}
