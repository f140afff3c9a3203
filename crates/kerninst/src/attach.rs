//! BPF programs at points: registers as their context, and how often each visit led to a run.

use crate::access::Access;
use crate::error::{ArmError, SessionError};
use crate::owners::Owners;
use crate::point::Point;
use crate::session::{ArmOptions, DisarmReport, Session};
use kerninst_analysis::Analysis;
use kerninst_driver::{CounterArea, Device, DeviceError};
use kerninst_snippet::ir::{Base, Cond, Label, Op, Program, Region, V, Val, Width};
use kerninst_snippet::{Reg, Snippet, ir};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Bytes of a `struct pt_regs` (arch/x86/include/asm/ptrace.h).
const REGS_SIZE: u32 = 21 * 8;
/// Hardware numbers of the registers that it begins with, in its order: r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di.
const REGS: [u8; 15] = [15, 14, 13, 12, 5, 3, 11, 10, 9, 8, 0, 1, 2, 6, 7];
/// Offsets of what follows.
const ORIG_AX: i32 = 15 * 8;
const IP: i32 = 16 * 8;
const CS: i32 = 17 * 8;
const FLAGS: i32 = 18 * 8;
const SP: i32 = 19 * 8;
const SS: i32 = 20 * 8;
/// `__KERNEL_CS` and `__KERNEL_DS` (arch/x86/include/asm/segment.h).
const KERNEL_CS: u64 = 0x10;
const KERNEL_DS: u64 = 0x18;
/// The bit of the flags that is always set (`X86_EFLAGS_FIXED`): the kernel's unwinder takes registers without it for
/// incomplete ones. The flags themselves are not saved.
const FIXED: u64 = 2;

/// Where a program's parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    /// Per-CPU pointer of the number of visits.
    visits: u64,
    /// Per-CPU pointer of the number of those that did not run it.
    skipped: u64,
    /// The driver's callout `bpf`.
    function: u64,
    /// What it takes for the BPF program.
    program: u64,
}

/// What runs at the point at `ip`: the registers are stored as a `struct pt_regs`, which the BPF program gets.
fn program(places: &Places, ip: u64) -> Program {
    let (value, frame, result, done) = (V(0), V(1), V(2), Label(0));
    let mut ops = vec![Op::CpuAdd {
        pointer: Val::Imm(places.visits),
        value: Val::Imm(1),
    }];
    let mut store = |offset: i32, value: Val, from: Option<(V, Reg)>| {
        if let Some((to, reg)) = from {
            ops.push(Op::Reg { to, reg });
        }
        ops.push(Op::Store {
            base: Base::Frame,
            offset,
            width: Width::B8,
            value,
        });
    };
    for (offset, number) in (0..).step_by(8).zip(REGS) {
        if let Some(reg) = Reg::new(number) {
            store(offset, Val::V(value), Some((value, reg)));
        }
    }
    // As in interrupts: no system call.
    store(ORIG_AX, Val::Imm(u64::MAX), None);
    store(IP, Val::Imm(ip), None);
    store(CS, Val::Imm(KERNEL_CS), None);
    store(FLAGS, Val::Imm(FIXED), None);
    store(SP, Val::V(value), Some((value, Reg::RSP)));
    store(SS, Val::Imm(KERNEL_DS), None);
    ops.push(Op::FrameAddress {
        to: frame,
        offset: 0,
    });
    ops.push(Op::Call {
        function: places.function,
        args: vec![Val::Imm(places.program), Val::V(frame)],
        to: Some(result),
    });
    ops.push(Op::Branch {
        cond: Cond::GeS,
        a: Val::V(result),
        b: Val::Imm(0),
        to: done,
    });
    ops.push(Op::CpuAdd {
        pointer: Val::Imm(places.skipped),
        value: Val::Imm(1),
    });
    ops.push(Op::Label(done));
    Program {
        filter: Region::default(),
        body: Region {
            ops,
            registers: 3,
            labels: 1,
            frame: REGS_SIZE,
        },
    }
}

/// How often points were visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Visits in which the BPF program ran.
    pub ran: u64,
    /// Visits in which it did not: this CPU was in a BPF program already (or in BPF code that none must come into), or RCU
    /// did not look at it.
    pub skipped: u64,
}

/// A BPF program at armed points. Dropping it disarms; the program is released when no task can be in it any more.
pub struct Attached<'k> {
    session: Session<'k>,
    counters: CounterArea,
}

impl<'k> Attached<'k> {
    /// Loads the driver and has it run `bpf`, a loaded program of type kprobe, before every point.
    ///
    /// # Errors
    /// [`ArmError`]: nothing is armed.
    pub fn arm(
        analysis: &Analysis<'k>,
        points: &[Point],
        owners: &Owners,
        options: ArmOptions,
        bpf: BorrowedFd<'_>,
    ) -> Result<Attached<'k>, ArmError> {
        let access = Access::new(analysis.kernel())?;
        let device = access.device()?;
        let function = device.callouts()?.bpf;
        if function == 0 {
            return Err(DeviceError::NoBpf.into());
        }
        let counters = device.alloc_near(2).or_else(|_| device.alloc(2))?;
        let places = Places {
            visits: counters.pointer,
            skipped: counters.pointer.wrapping_add(8),
            function,
            program: device.program(bpf)?,
        };
        // All points' programs differ in one constant only.
        ir::validate(&program(&places, 0)).map_err(|e| ArmError::Build(e.to_string()))?;
        let snippets = |p: &Point| vec![Snippet::Program(Arc::new(program(&places, p.addr)))];
        let session = Session::arm_snippets(access, analysis, points, owners, options, snippets)?;
        Ok(Attached { session, counters })
    }

    /// What is armed.
    pub fn session(&self) -> &Session<'k> {
        &self.session
    }

    /// Takes it out again; how often it ran, and whether that is all: false where a task stayed inside.
    ///
    /// # Errors
    /// The device. What is still armed then is restored when the device closes, at the end of this call.
    pub fn finish(self) -> Result<(Runs, bool, DisarmReport), SessionError> {
        let counters = self.counters;
        let (read, report) = self
            .session
            .finish_with(|device, complete| Ok((runs(device, counters)?, complete)))?;
        let (runs, complete) = read.unwrap_or_default();
        Ok((runs, complete, report))
    }
}

fn runs(device: &Device, counters: CounterArea) -> Result<Runs, DeviceError> {
    let rows = device.read(counters)?;
    let sum = |n: usize| {
        let of = rows.iter().filter_map(|row| row.get(n));
        of.fold(0u64, |sum, n| sum.wrapping_add(*n))
    };
    let (visits, skipped) = (sum(0), sum(1));
    // A visit that is under way is one that has not been skipped yet.
    Ok(Runs {
        ran: visits.saturating_sub(skipped),
        skipped,
    })
}

#[cfg(test)]
mod tests;
