//! From snippets to machine code.

use crate::encode::Emit;
use crate::{Flags, Free, Reg, Snippet};

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
    /// Instructions executed.
    pub cost: u32,
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

/// Machine code that runs all `snippets`, in order, where `free` may be destroyed and nothing else.
///
/// At most seven instructions for one counter, one at best. Several counters at one point share what is saved.
pub fn compile(snippets: &[Snippet], free: Free, features: Features) -> Code {
    let mut slots = Vec::with_capacity(snippets.len());
    for s in snippets {
        match s {
            Snippet::Count { percpu } => slots.push(*percpu),
        }
    }
    if slots.is_empty() {
        return Code::default();
    }

    let far = slots.iter().any(|s| disp32(*s).is_none());
    let Choice {
        keep,
        scratch,
        spill,
    } = choose(free, features, far);

    let mut e = Emit::default();
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
