//! What a point's program stores and counts.

use super::*;
use kerninst_snippet::eval::{Ended, Machine, eval};
use std::collections::HashMap;

const PLACES: Places = Places {
    visits: 0x100,
    skipped: 0x108,
    function: 0xffff_ffff_c000_1000,
    program: 0xffff_c900_0000_0000,
};
const FRAME: u64 = 0xffff_c900_1234_0000;

/// Registers are 0x1000 and their number; the call answers `result`.
#[derive(Default)]
struct Sim {
    memory: HashMap<u64, u64>,
    cpu: HashMap<u64, u64>,
    calls: Vec<(u64, Vec<u64>, Vec<u64>)>,
    result: i64,
}

impl Machine for Sim {
    fn reg(&mut self, reg: Reg) -> u64 {
        0x1000 + u64::from(reg.number())
    }
    fn set_reg(&mut self, _: Reg, _: u64) {
        panic!("a register of the kernel's is changed");
    }
    fn probe(&mut self, _: u64, _: Width) -> Option<u64> {
        panic!("memory of the kernel's is read");
    }
    fn probe_store(&mut self, _: u64, _: Width, _: u64) -> bool {
        panic!("memory of the kernel's is written");
    }
    fn load(&mut self, at: u64, _: Width) -> u64 {
        self.memory.get(&at).copied().unwrap_or(0)
    }
    fn store(&mut self, at: u64, width: Width, value: u64) {
        assert_eq!(width, Width::B8);
        assert!((FRAME..FRAME + 168).contains(&at), "{at:#x}");
        self.memory.insert(at, value);
    }
    fn frame(&mut self, bytes: u32) -> u64 {
        assert_eq!(bytes, 168);
        FRAME
    }
    fn cpu_load(&mut self, pointer: u64, _: Width) -> u64 {
        self.cpu.get(&pointer).copied().unwrap_or(0)
    }
    fn cpu_store(&mut self, pointer: u64, value: u64) {
        self.cpu.insert(pointer, value);
    }
    fn clock(&mut self) -> u64 {
        0
    }
    fn call(&mut self, function: u64, args: &[u64]) -> u64 {
        let words = (0..21).map(|n| self.memory.get(&(FRAME + 8 * n)).copied());
        let words = words
            .map(|w| w.expect("a word that is not stored"))
            .collect();
        self.calls.push((function, args.to_vec(), words));
        self.result as u64
    }
}

fn run(result: i64) -> Sim {
    let program = program(&PLACES, 0xffff_ffff_8123_4567);
    assert_eq!(ir::validate(&program), Ok(()));
    let mut sim = Sim {
        result,
        ..Sim::default()
    };
    assert_eq!(eval(&program, &mut sim), Ended::Done);
    sim
}

/// Would catch a register that is stored where `struct pt_regs` has another one: the order here is written down a second time, from
/// ptrace.h, with hardware numbers.
#[test]
fn registers_are_where_the_kernel_has_them() {
    let sim = run(0);
    let [(function, args, words)] = sim.calls.as_slice() else {
        panic!("{} calls", sim.calls.len());
    };
    assert_eq!(*function, PLACES.function);
    assert_eq!(args, &[PLACES.program, FRAME]);
    let of = |name: &str| match name {
        "ax" => 0x1000,
        "cx" => 0x1001,
        "dx" => 0x1002,
        "bx" => 0x1003,
        "sp" => 0x1004,
        "bp" => 0x1005,
        "si" => 0x1006,
        "di" => 0x1007,
        "orig_ax" => u64::MAX,
        "ip" => 0xffff_ffff_8123_4567,
        "cs" => 0x10,
        "flags" => 2,
        "ss" => 0x18,
        numbered => {
            0x1000
                + numbered
                    .trim_start_matches('r')
                    .parse::<u64>()
                    .expect("r8 on")
        }
    };
    let names = "r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp ss";
    let wanted: Vec<u64> = names.split(' ').map(of).collect();
    assert_eq!(words, &wanted);
}

/// Would catch a run that counts as skipped, or a skipped one that does not.
#[test]
fn what_did_not_run_is_counted() {
    for (result, skipped) in [
        (0, None),
        (i64::from(u32::MAX), None),
        (-1, Some(1)),
        (-5, Some(1)),
    ] {
        let sim = run(result);
        assert_eq!(sim.cpu.get(&PLACES.visits), Some(&1));
        assert_eq!(sim.cpu.get(&PLACES.skipped).copied(), skipped, "{result}");
    }
}
