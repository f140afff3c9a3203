//! From a checked clause to its program at one point.
//!
//! Everything that can be known beforehand is: the point's own facts (function, address, call target) are constants in its code.
//! What touches shared memory follows [`crate::layout`] to the letter; each protocol is in a file of its own:
//! aggregations (`keep`, whose keys stay), assigned values (`plain`), events (`event`).

mod aggregate;
mod assign;
mod build;
mod builtin;
mod cond;
mod error;
mod event;
mod events;
mod expr;
mod fold;
mod keep;
mod key;
mod memory;
mod plain;
mod stmt;
mod wide;
mod words;

pub use error::{LowerError, Reason};
pub use events::Events;

use kerninst_snippet::ir::{Cond, Label, MAX_FRAME, Program, V, Val};

use crate::hir::{Binary, Builtin, Clause, Expr, ExprKind, Map, Script, Span, Type};
use crate::layout::{Facts, Loss, MapPlace, Places};
use build::Code;

/// What all programs of a session have in common.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    /// The script.
    pub script: &'a Script,
    /// Where its data are.
    pub places: &'a Places,
    /// The running kernel.
    pub facts: &'a Facts,
    /// Only this process (thread group) counts.
    pub only: Option<u32>,
}

/// What a point gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct At {
    /// Name of its function, by number in the session's table of names.
    pub func: u32,
    /// Text of its probe (`entry:vfs_read`), by number in the session's table of names.
    pub probe: u32,
    /// Address of its instruction.
    pub ip: u64,
    /// It is its function's entry: arguments are in registers, and the return address is on top of the stack.
    pub entry: bool,
    /// It is a way out of its function: what the function returns is in `rax`.
    pub exit: bool,
    /// It is a call, of this.
    pub callee: Option<Callee>,
    /// Address of the next instruction, if its own may be skipped.
    pub next: Option<u64>,
}

/// What a call calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callee {
    /// The function at this address.
    Known(u64),
    /// The function whose address is in this register (by hardware number).
    Reg(u8),
    /// The function whose address is in memory, at the sum of these.
    Memory {
        /// A register, by hardware number.
        base: Option<u8>,
        /// A register, by hardware number, and what it is multiplied by.
        index: Option<(u8, u8)>,
        /// A constant (of a rip-relative operand: the address).
        disp: i64,
    },
}

/// What one clause does at one point. Events that it sends are added to `events`.
pub fn lower(
    session: &Session<'_>,
    clause: &Clause,
    at: &At,
    events: &mut Events,
) -> Result<Program> {
    let mut l = Lower {
        session: *session,
        clause,
        at,
        events,
        code: Code::default(),
        locals: vec![Local::Zero; clause.locals.len()],
        loops: Vec::new(),
        drop: None,
        depth: 0,
    };
    let mut conjuncts = Vec::new();
    if let Some(filter) = &clause.filter {
        split(filter, &mut conjuncts);
    }
    let mut rest = conjuncts.as_slice();
    if let Some(pid) = session.only {
        let tgid = l.builtin(Builtin::Pid, &Type::U64, clause.span)?;
        l.require(|l, hold| {
            l.code
                .branch(Cond::Eq, tgid, Val::Imm(u64::from(pid)), hold);
            Ok(())
        })?;
    }
    // The leading ones that are cheap are tested before anything is saved for the body.
    while let [first, others @ ..] = rest {
        let before = l.code.clone();
        l.require(|l, hold| l.cond(first, true, hold))?;
        if !l.code.is_simple() {
            l.code = before;
            break;
        }
        rest = others;
    }
    let filter = std::mem::take(&mut l.code).finish();
    l.init_locals();
    for e in rest {
        l.require(|l, hold| l.cond(e, true, hold))?;
    }
    l.block(&clause.body)?;
    if l.code.frame_size() > MAX_FRAME {
        return Err(LowerError::new(clause.span, Reason::Frame));
    }
    let body = l.code.finish();
    Ok(Program { filter, body })
}

/// The sides of `&&`s, in order.
fn split<'e>(e: &'e Expr, into: &mut Vec<&'e Expr>) {
    let mut e = e;
    let at = into.len();
    while let ExprKind::Binary {
        op: Binary::Both,
        a,
        b,
    } = &e.kind
    {
        into.push(b);
        e = a;
    }
    into.push(e);
    if let Some(new) = into.get_mut(at..) {
        new.reverse();
    }
}

/// Where a `$` variable is.
#[derive(Debug, Clone, Copy)]
enum Local {
    /// In a register.
    Word(V),
    /// In scratch memory.
    Frame { at: u32, words: u32 },
    /// Nothing was assigned yet, or could have been.
    Zero,
}

/// Deeper nesting of expressions and statements is refused: none that the parser lets through is as deep.
const MAX_DEPTH: u32 = 256;

/// The state of lowering one clause.
struct Lower<'a> {
    session: Session<'a>,
    clause: &'a Clause,
    at: &'a At,
    events: &'a mut Events,
    code: Code,
    locals: Vec<Local>,
    /// Of each loop around: where `break` and `continue` go.
    loops: Vec<(Label, Label)>,
    /// Where to go if the clause cannot go on, if that is not its end.
    drop: Option<Label>,
    depth: u32,
}

type Result<T> = std::result::Result<T, LowerError>;

impl<'a> Lower<'a> {
    /// Ends the region unless the code jumps to the label that it is given.
    fn require(&mut self, test: impl FnOnce(&mut Self, Label) -> Result<()>) -> Result<()> {
        let hold = self.code.label();
        test(self, hold)?;
        self.code.end();
        self.code.place(hold);
        Ok(())
    }

    /// One level deeper.
    fn deeper<T>(&mut self, span: Span, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(LowerError::new(span, Reason::Deep));
        }
        let result = f(self);
        self.depth -= 1;
        result
    }

    /// Counts what could not be done.
    fn loss(&mut self, loss: Loss) {
        let pointers = Loss::ALL.iter().zip(self.session.places.losses);
        for (_, pointer) in pointers.filter(|(l, _)| **l == loss) {
            self.code.push(kerninst_snippet::ir::Op::CpuAdd {
                pointer: Val::Imm(pointer),
                value: Val::Imm(1),
            });
        }
    }

    /// The clause cannot go on.
    fn give_up(&mut self) {
        match self.drop {
            Some(label) => self.code.jump(label),
            None => self.code.end(),
        }
    }

    /// A map and where it is.
    fn map(&self, map: u32) -> Result<(&'a Map, MapPlace)> {
        let span = self.clause.span;
        let place = self.session.places.maps.get(map as usize);
        match (self.session.script.maps.get(map as usize), place) {
            (Some(map), Some(place)) if place.capacity.is_power_of_two() => Ok((map, *place)),
            _ => Err(LowerError::new(span, Reason::Malformed("no such map"))),
        }
    }

    /// Gives the variables their first value.
    fn init_locals(&mut self) {
        let clause = self.clause;
        for (local, ty) in self.locals.iter_mut().zip(&clause.locals) {
            *local = if ty.is_word() {
                Local::Word(self.code.variable(Val::Imm(0)))
            } else {
                let words = ty.size() / 8;
                let at = self.code.scratch(words);
                Local::Frame { at, words }
            };
        }
        for local in self.locals.clone() {
            if let Local::Frame { at, words } = local {
                self.fill(words::Place::frame(at), 0, words);
            }
        }
    }
}
