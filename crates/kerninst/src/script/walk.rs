//! What the clauses of a script that run in the kernel use.

use kerninst_lang::hir::{Builtin, Expr, ExprKind, On, Script, Stmt};

/// Something that is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// An event is sent.
    Event,
    /// A builtin is read.
    Builtin(Builtin),
}

/// Visits all clauses that have a probe of the kernel.
pub(crate) fn clauses(script: &Script, mut see: impl FnMut(Seen)) {
    for clause in &script.clauses {
        if !clause.on.iter().any(|on| matches!(on, On::Probe { .. })) {
            continue;
        }
        if let Some(filter) = &clause.filter {
            expr(filter, &mut see);
        }
        block(&clause.body, &mut see);
    }
}

fn block(body: &[Stmt], see: &mut impl FnMut(Seen)) {
    for stmt in body {
        match stmt {
            Stmt::SetLocal { value, .. } | Stmt::SetReg { value, .. } => expr(value, see),
            Stmt::SetMap { key, value, .. } => {
                key.iter().for_each(|e| expr(e, see));
                expr(value, see);
            }
            Stmt::Update { key, value, .. } => {
                key.iter().chain(value).for_each(|e| expr(e, see));
            }
            Stmt::Delete { key, .. } => key.iter().for_each(|e| expr(e, see)),
            Stmt::Printf { args, .. } => {
                see(Seen::Event);
                args.iter().for_each(|e| expr(e, see));
            }
            Stmt::PrintValue(e) => {
                see(Seen::Event);
                expr(e, see);
            }
            Stmt::PrintMap { .. }
            | Stmt::Clear(_)
            | Stmt::Zero(_)
            | Stmt::Time(_)
            | Stmt::Cat(_)
            | Stmt::Exit => see(Seen::Event),
            Stmt::If { c, then, other } => {
                expr(c, see);
                block(then, see);
                block(other, see);
            }
            Stmt::Repeat { from, to, body, .. } => {
                expr(from, see);
                expr(to, see);
                block(body, see);
            }
            Stmt::While { c, body, .. } => {
                expr(c, see);
                block(body, see);
            }
            Stmt::Eval(e) | Stmt::Return(e) => expr(e, see),
            Stmt::SetMemory { address, value, .. } => {
                expr(address, see);
                expr(value, see);
            }
            Stmt::Break | Stmt::Continue | Stmt::Done | Stmt::Skip => {}
        }
    }
}

fn expr(e: &Expr, see: &mut impl FnMut(Seen)) {
    match &e.kind {
        ExprKind::Int(_) | ExprKind::Text(_) | ExprKind::Local(_) => {}
        ExprKind::Builtin(b) => see(Seen::Builtin(*b)),
        ExprKind::Map { key, .. } => key.iter().for_each(|e| expr(e, see)),
        ExprKind::Unary { a, .. } | ExprKind::Cast(a) => expr(a, see),
        ExprKind::Binary { a, b, .. } => {
            expr(a, see);
            expr(b, see);
        }
        ExprKind::Choice { c, a, b } => {
            expr(c, see);
            expr(a, see);
            expr(b, see);
        }
        ExprKind::Load { address, .. } => expr(address, see),
        ExprKind::Str { at } | ExprKind::Buf { at } => expr(at, see),
    }
}
