//! From snippets to machine code.

use crate::encode::Emit;
use crate::{Flags, Free, Reg, Snippet, program};

/// What the processor offers beyond the base x86-64 set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// `lahf` and `sahf` work in 64-bit mode (CPUID 8000_0001H ECX bit 0; `lahf_lm` in /proc/cpuinfo). They save
    /// flags about ten cycles cheaper than `pushfq`/`popfq`.
    pub lahf: bool,
}

/// How much the code has pushed, from an offset on: for unwind data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackStep {
    /// Offset in [`Code::bytes`] from which on this holds (the end of the push or pop).
    pub offset: u32,
    /// Bytes pushed beyond the stack pointer at the point.
    pub pushed: u32,
}

/// Machine code of the snippets of one point.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Code {
    /// Position-independent bytes. They leave the stack pointer, and all that is not free, as it was.
    pub bytes: Vec<u8>,
    /// Changes of the stack depth, in order; the depth is 0 at the start and at the end.
    pub stack: Vec<StackStep>,
    /// Instructions executed; of programs on the straight way, on which their filters hold and nothing fails.
    pub cost: u32,
    /// Instructions executed when no filter holds; without programs the same as `cost`.
    pub cost_filtered: u32,
    /// Instructions that set a byte: whoever places the code fills in where the bytes are.
    pub hits: Vec<HitSite>,
    /// Calls of (and jumps to) kernel addresses: likewise.
    pub calls: Vec<CallSite>,
    /// Instructions that may fault: likewise needs their exception table entries.
    pub faults: Vec<FaultSite>,
}

/// The 32-bit displacement of a call or jump, which counts from its own end (`R_X86_64_PC32` with an addend of -4). It is left zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallSite {
    /// Offset of the displacement.
    pub offset: u32,
    /// The kernel address.
    pub target: u64,
}

/// An instruction that may fault on memory that it reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FaultSite {
    /// Its offset.
    pub offset: u32,
    /// Offset at which to go on, with all registers and the stack as they are.
    pub fixup: u32,
}

impl FaultSite {
    /// `data` of the exception table entry: `EX_TYPE_DEFAULT` of arch/x86/include/asm/extable_fixup_types.h, without flags. Its
    /// handler goes on at the fixup and does nothing else, after page faults and general protection faults alike
    /// (`ex_handler_default` in arch/x86/mm/extable.c; that of user accesses warns of the latter).
    pub const DATA: u32 = 1;
}

impl Code {
    /// Runs `next` after it.
    fn append(&mut self, next: Code) {
        let here = self.bytes.len() as u32;
        self.bytes.extend(next.bytes);
        self.cost += next.cost;
        self.cost_filtered += next.cost_filtered;
        self.stack.extend(next.stack.into_iter().map(|s| StackStep {
            offset: s.offset + here,
            ..s
        }));
        self.hits.extend(next.hits.into_iter().map(|h| HitSite {
            offset: h.offset + here,
            ..h
        }));
        self.calls.extend(next.calls.into_iter().map(|c| CallSite {
            offset: c.offset + here,
            ..c
        }));
        self.faults
            .extend(next.faults.into_iter().map(|f| FaultSite {
                offset: f.offset + here,
                fixup: f.fixup + here,
            }));
    }
}

/// `movb $1, disp(%rip)`, seven bytes: `c6 05`, the displacement (here zero), `01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HitSite {
    /// Offset of the instruction.
    pub offset: u32,
    /// Number of the byte.
    pub flag: u32,
}

impl HitSite {
    /// Bytes of the instruction.
    pub const LEN: u32 = 7;
    /// Offset of the 32-bit displacement, which counts from the end of the instruction.
    pub const FIELD: u32 = 2;
}

/// How the flags that `inc` writes are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// They are dead.
    Nothing,
    /// `lahf` .. `sahf`: rax is free, and OF is dead or (`overflow`) kept in al.
    Lahf { overflow: bool },
    /// `pushfq` .. `popfq`.
    Push,
}

/// Machine code that runs all `snippets` where `free` may be destroyed and nothing else: first all that count, then programs in
/// their order.
///
/// At most seven instructions for one counter, one at best. Several counters at one point share what is saved.
pub fn compile(snippets: &[Snippet], free: Free, features: Features) -> Code {
    // What is dead at the point may be live where a program leaves to.
    let free = match snippets.iter().any(Snippet::leaves) {
        true => Free::NOTHING,
        false => free,
    };
    let union =
        |some: &[Snippet], of: fn(&Snippet) -> u16| some.iter().fold(0, |all, s| all | of(s));
    let free = free.without(union(snippets, Snippet::sets));
    let reads = union(snippets, Snippet::reads);
    let mut code = counters(snippets, free.without(reads), features);
    for (n, snippet) in snippets.iter().enumerate() {
        if let Snippet::Program(program) = snippet {
            // What comes after it must find what it reads.
            let later = snippets.get(n + 1..).unwrap_or_default();
            let later = union(later, Snippet::reads);
            code.append(program::compile(program, free.without(later)));
        }
    }
    code
}

/// The snippets that count.
fn counters(snippets: &[Snippet], free: Free, features: Features) -> Code {
    let mut e = Emit::new();
    let mut hits = Vec::new();
    for s in snippets {
        match s {
            Snippet::Count { .. } => {}
            Snippet::Hit { flag } => {
                let offset = e.bytes.len() as u32;
                hits.push(HitSite {
                    offset,
                    flag: *flag,
                });
                e.set_byte();
            }
            Snippet::Program(_) => {}
        }
    }
    let slots = snippets.iter().filter_map(|s| match s {
        Snippet::Count { percpu } => Some(*percpu),
        Snippet::Hit { .. } | Snippet::Program(_) => None,
    });
    if slots.clone().next().is_none() {
        return Code {
            bytes: e.bytes,
            cost: e.instructions,
            cost_filtered: e.instructions,
            hits,
            ..Code::default()
        };
    }

    let far = slots.clone().any(|s| disp32(s).is_none());
    let Choice {
        keep,
        scratch,
        spill,
    } = choose(free, features, far);

    // The register goes first and comes back last: popping it does not touch the flags.
    if spill {
        e.push(scratch);
    }
    match keep {
        Keep::Nothing => {}
        Keep::Push => e.pushfq(),
        Keep::Lahf { overflow } => {
            e.lahf();
            if overflow {
                e.seto_al();
            }
        }
    }
    for slot in slots {
        match disp32(slot) {
            Some(disp) => e.inc_gs_disp32(disp),
            None => {
                e.movabs(scratch, slot);
                e.inc_gs_reg(scratch);
            }
        }
    }
    match keep {
        Keep::Nothing => {}
        Keep::Push => e.popfq(),
        Keep::Lahf { overflow } => {
            if overflow {
                e.restore_of_from_al();
            }
            e.sahf();
        }
    }
    if spill {
        e.pop(scratch);
    }
    Code {
        bytes: e.bytes,
        stack: e.steps,
        cost: e.instructions,
        cost_filtered: e.instructions,
        hits,
        ..Code::default()
    }
}

/// What [`choose`] found.
struct Choice {
    keep: Keep,
    /// The register that holds the address of a far slot.
    scratch: Reg,
    /// Whether `scratch` is live, so must be pushed and popped.
    spill: bool,
}

/// The cheapest correct way to keep the flags, and to get a register if one slot is `far`.
fn choose(free: Free, features: Features, far: bool) -> Choice {
    let flags_dead = free.flags().contains(Flags::INC);
    let overflow = !free.flags().contains(Flags::OF);
    let any = scratch(free, true);
    let other = scratch(free, false);

    let keep = if flags_dead {
        Keep::Nothing
    } else if features.lahf && free.has(Reg::RAX) && (!far || other.is_some()) {
        Keep::Lahf { overflow }
    } else {
        Keep::Push
    };
    // rax is taken while it holds the flags.
    let dead = if matches!(keep, Keep::Lahf { .. }) {
        other
    } else {
        any
    };
    Choice {
        keep,
        scratch: dead.unwrap_or(Reg::RAX),
        spill: far && dead.is_none(),
    }
}

/// A dead register for an address. Never rbp: unwinders may need it even where no code reads it again (before a call
/// that does not return). Caller-saved ones first: the unwinder knows nothing about them.
fn scratch(free: Free, rax: bool) -> Option<Reg> {
    const ORDER: [u8; 14] = [0, 1, 2, 6, 7, 8, 9, 11, 10, 3, 12, 14, 15, 13];
    let order = ORDER.into_iter().filter_map(Reg::new);
    order
        .filter(|r| rax || *r != Reg::RAX)
        .find(|r| free.has(*r))
}

/// The slot as a sign-extended 32-bit displacement, if it is one.
fn disp32(slot: u64) -> Option<i32> {
    i32::try_from(slot as i64).ok()
}
