//! What the point, the task and the machine give.

use kerninst_snippet::Reg;
use kerninst_snippet::ir::{Base, BinOp, Cond, Val, Width};

use super::{Callee, Lower, LowerError, Reason, Result};
use crate::hir::{Builtin, Span, Type};
use crate::layout::{Loss, callout};

/// Registers of arguments 0 to 5, by hardware number: rdi, rsi, rdx, rcx, r8, r9 (System V ABI).
const ARGS: [u8; 6] = [7, 6, 2, 1, 8, 9];
const RAX: u8 = 0;
const RSP: u8 = 4;
const RBP: u8 = 5;

impl Lower<'_> {
    /// A builtin that is held in one register.
    pub(super) fn builtin(&mut self, b: Builtin, ty: &Type, span: Span) -> Result<Val> {
        let refuse = |reason| Err(LowerError::new(span, reason));
        let facts = self.session.facts;
        Ok(match b {
            Builtin::Pid => self.of_task(facts.tgid, ty),
            Builtin::Tid => self.of_task(facts.pid, ty),
            Builtin::Cpu => self.cpu(),
            Builtin::CurTask => self.current(),
            Builtin::Nsecs => self.time(span)?,
            Builtin::Elapsed => {
                let now = self.time(span)?;
                self.code.bin(BinOp::Sub, now, Val::Imm(facts.started))
            }
            Builtin::Func => Val::Imm(u64::from(self.at.func)),
            Builtin::Probe => Val::Imm(u64::from(self.at.probe)),
            Builtin::Ip => Val::Imm(self.at.ip),
            Builtin::Arg(_) if !self.at.entry => return refuse(Reason::NoArguments),
            Builtin::Arg(n) => match ARGS.get(usize::from(n)) {
                Some(reg) => self.typed_register(*reg, ty, span)?,
                None => return refuse(Reason::Malformed("no such argument")),
            },
            Builtin::RetVal if !self.at.exit => return refuse(Reason::NoReturnValue),
            Builtin::RetVal => self.typed_register(RAX, ty, span)?,
            Builtin::Reg(n) => self.typed_register(n, ty, span)?,
            Builtin::Caller if !self.at.entry => return refuse(Reason::NoCaller),
            Builtin::Caller => {
                let sp = self.register(RSP, span)?;
                self.code.word(Base::At(sp), 0)
            }
            Builtin::Callee => self.callee(span)?,
            Builtin::KernelStack(depth) => self.kernel_stack(depth, span)?,
            Builtin::UserStack(_) | Builtin::Comm => {
                return refuse(Reason::Malformed("text where a number belongs"));
            }
        })
    }

    fn register(&mut self, number: u8, span: Span) -> Result<Val> {
        let reg =
            Reg::new(number).ok_or(LowerError::new(span, Reason::Malformed("no such register")))?;
        Ok(Val::V(self.code.register(reg)))
    }

    /// A register of which only the bytes that the type has are defined.
    fn typed_register(&mut self, number: u8, ty: &Type, span: Span) -> Result<Val> {
        let value = self.register(number, span)?;
        Ok(self.narrow(value, ty))
    }

    /// Address of the running task.
    pub(super) fn current(&mut self) -> Val {
        let pointer = Val::Imm(self.session.facts.current);
        self.cpu_load(pointer, Width::B8)
    }

    /// Number of this CPU.
    pub(super) fn cpu(&mut self) -> Val {
        let pointer = Val::Imm(self.session.facts.cpu_number);
        self.cpu_load(pointer, Width::B4)
    }

    fn cpu_load(&mut self, pointer: Val, width: Width) -> Val {
        let to = self.code.reg();
        self.code
            .push(kerninst_snippet::ir::Op::CpuLoad { to, pointer, width });
        Val::V(to)
    }

    /// A number of the task (never negative).
    fn of_task(&mut self, offset: i32, ty: &Type) -> Val {
        let task = self.current();
        let signed = matches!(ty, Type::Int { signed: true, .. });
        self.code.load(Base::At(task), offset, Width::B4, signed)
    }

    fn time(&mut self, span: Span) -> Result<Val> {
        let function = self.callout(self.session.facts.callouts.time, "the time", span)?;
        let now = self.code.call(function, Vec::new());
        let taken = self.code.label();
        self.code.branch(Cond::Ne, now, Val::Imm(0), taken);
        self.loss(Loss::Nested);
        self.give_up();
        self.code.place(taken);
        Ok(now)
    }

    fn callee(&mut self, span: Span) -> Result<Val> {
        match self.at.callee {
            None => Err(LowerError::new(span, Reason::NoCallee)),
            Some(Callee::Known(address)) => Ok(Val::Imm(address)),
            Some(Callee::Reg(n)) => self.register(n, span),
            Some(Callee::Memory { base, index, disp }) => {
                let mut at = Val::Imm(0);
                if let Some(base) = base {
                    at = self.register(base, span)?;
                }
                if let Some((index, scale)) = index {
                    let index = self.register(index, span)?;
                    let scaled = self.code.bin(BinOp::Mul, index, Val::Imm(u64::from(scale)));
                    at = self.code.bin(BinOp::Add, at, scaled);
                }
                let at = self.code.bin(BinOp::Add, at, Val::Imm(disp as u64));
                Ok(self.probe_or_zero(at, 0, Width::B8, false))
            }
        }
    }

    fn kernel_stack(&mut self, depth: u8, span: Span) -> Result<Val> {
        let function = self.callout(self.session.facts.callouts.kernel_stack, "kstack", span)?;
        let table = self.stacks(span)?;
        let sp = self.register(RSP, span)?;
        let bp = self.register(RBP, span)?;
        let depth = Val::Imm(u64::from(depth));
        let id = self
            .code
            .call(function, vec![table, Val::Imm(self.at.ip), sp, bp, depth]);
        self.captured(id);
        Ok(id)
    }

    /// The user program's stack, and the process.
    pub(super) fn user_stack(&mut self, depth: u8, span: Span) -> Result<[Val; 2]> {
        let function = self.callout(self.session.facts.callouts.user_stack, "ustack", span)?;
        let table = self.stacks(span)?;
        let depth = Val::Imm(u64::from(depth));
        let id = self.code.call(function, vec![table, depth]);
        self.captured(id);
        let pid = self.of_task(self.session.facts.tgid, &Type::U64);
        Ok([id, pid])
    }

    fn stacks(&self, span: Span) -> Result<Val> {
        match self.session.places.stacks {
            0 => Err(LowerError::new(span, Reason::NoStacks)),
            table => Ok(Val::Imm(table)),
        }
    }

    /// Counts a stack that could not be kept. Where there is none that is no loss: the negative id says so.
    fn captured(&mut self, id: Val) {
        let done = self.code.label();
        self.code.branch(Cond::GeS, id, Val::Imm(0), done);
        self.unless_nested(id);
        let none = Val::Imm(callout::NONE as u64);
        self.code.branch(Cond::Eq, id, none, done);
        self.loss(Loss::Stacks);
        self.code.place(done);
    }

    /// Gives the clause up if a callout says that it was called within another one.
    pub(super) fn unless_nested(&mut self, result: Val) {
        let go_on = self.code.label();
        let nested = Val::Imm(callout::NESTED as u64);
        self.code.branch(Cond::Ne, result, nested, go_on);
        self.loss(Loss::Nested);
        self.give_up();
        self.code.place(go_on);
    }

    /// A callout's address.
    pub(super) fn callout(&self, address: u64, what: &'static str, span: Span) -> Result<u64> {
        match address {
            0 => Err(LowerError::new(span, Reason::NoCallout(what))),
            address => Ok(address),
        }
    }
}
