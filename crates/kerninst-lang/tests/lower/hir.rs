//! Checked scripts, by hand.

use kerninst_lang::hir::*;
use kerninst_lang::layout::Places;
use kerninst_lang::lower::{At, Events, LowerError, Session, lower};
use kerninst_snippet::ir::Program;

use crate::sim::facts;

pub fn e(kind: ExprKind, ty: Type) -> Expr {
    let span = Span::default();
    Expr { kind, ty, span }
}

pub fn int(value: i64) -> Expr {
    e(ExprKind::Int(value as u64), Type::I64)
}

pub fn builtin(b: Builtin) -> Expr {
    let ty = match b {
        Builtin::Comm => Type::Str(16),
        Builtin::Func | Builtin::Probe => Type::Name,
        Builtin::KernelStack(_) => Type::KernelStack,
        Builtin::UserStack(_) => Type::UserStack,
        _ => Type::U64,
    };
    e(ExprKind::Builtin(b), ty)
}

pub fn arg(n: u8) -> Expr {
    builtin(Builtin::Arg(n))
}

/// An argument as a signed number.
pub fn signed(n: u8) -> Expr {
    e(ExprKind::Builtin(Builtin::Arg(n)), Type::I64)
}

pub fn bin(op: Binary, a: Expr, b: Expr) -> Expr {
    let ty = match op {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Rem => a.ty.clone(),
        Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => a.ty.clone(),
        _ => Type::I64,
    };
    let (a, b) = (Box::new(a), Box::new(b));
    e(ExprKind::Binary { op, a, b }, ty)
}

pub fn local(n: u32, ty: Type) -> Expr {
    e(ExprKind::Local(n), ty)
}

pub fn set(local: u32, value: Expr) -> Stmt {
    Stmt::SetLocal { local, value }
}

pub fn text(s: &str) -> Expr {
    let size = s.len() as u32 + 1;
    e(ExprKind::Text(s.into()), Type::Str(size))
}

pub fn str_at(at: Expr, size: u32) -> Expr {
    let at = Box::new(at);
    e(ExprKind::Str { at }, Type::Str(size))
}

pub fn get(map: u32, key: Vec<Expr>, ty: Type) -> Expr {
    e(ExprKind::Map { map, key }, ty)
}

pub fn update(map: u32, key: Vec<Expr>, value: Option<Expr>) -> Stmt {
    Stmt::Update { map, key, value }
}

pub fn assign(map: u32, key: Vec<Expr>, value: Expr) -> Stmt {
    Stmt::SetMap { map, key, value }
}

pub fn printf(args: Vec<Expr>) -> Stmt {
    Stmt::Printf { format: 0, args }
}

pub fn map(key: Vec<Type>, value: MapValue) -> Map {
    let (name, span) = ("@".into(), Span::default());
    Map {
        name,
        key,
        value,
        span,
    }
}

pub fn clause(filter: Option<Expr>, body: Vec<Stmt>, locals: Vec<Type>) -> Clause {
    Clause {
        on: Vec::new(),
        filter,
        body,
        locals,
        span: Span::default(),
    }
}

pub fn script(maps: Vec<Map>, clauses: Vec<Clause>) -> Script {
    Script {
        maps,
        clauses,
        ..Script::default()
    }
}

pub fn entry() -> At {
    At {
        func: 1,
        probe: 2,
        ip: 0xffff_ffff_8100_2340,
        entry: true,
        exit: false,
        callee: None,
        next: None,
    }
}

/// The program of clause `n` at an entry.
pub fn lowered(
    script: &Script,
    n: usize,
    at: &At,
    places: &Places,
    events: &mut Events,
) -> Result<Program, LowerError> {
    let facts = facts();
    let session = Session {
        script,
        places,
        facts: &facts,
        only: None,
    };
    let program = lower(&session, &script.clauses[n], at, events)?;
    crate::valid::check(&program);
    Ok(program)
}

/// Registers with these arguments.
pub fn args(values: &[u64]) -> [u64; 16] {
    let mut regs = [0x5555; 16];
    for (value, reg) in values.iter().zip([7, 6, 2, 1, 8, 9]) {
        regs[reg] = *value;
    }
    regs
}
