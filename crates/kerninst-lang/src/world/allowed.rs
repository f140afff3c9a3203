//! What a clause that runs in user space can do.

use crate::hir::{Builtin, Clause, Expr, ExprKind, On, Span, Stmt};

/// Whether everything in a clause can be done in user space; otherwise where it cannot, and why. A clause that has only probes of the
/// kernel is always fine.
pub fn allowed(clause: &Clause) -> Result<(), (Span, String)> {
    let where_ = clause.on.iter().find_map(|on| match on {
        On::Begin => Some("BEGIN"),
        On::End => Some("END"),
        On::Interval(_) => Some("interval"),
        On::Probe { .. } => None,
    });
    let Some(kind) = where_ else {
        return Ok(());
    };
    let walk = Walk { kind, clause };
    if let Some(filter) = &clause.filter {
        walk.expr(filter)?;
    }
    walk.block(&clause.body)
}

struct Walk<'a> {
    kind: &'static str,
    clause: &'a Clause,
}

type Checked = Result<(), (Span, String)>;

impl Walk<'_> {
    fn refuse(&self, span: Span, what: &str, why: &str) -> Checked {
        let kind = self.kind;
        Err((span, format!("{what} cannot be used in {kind}: {why}")))
    }

    fn block(&self, stmts: &[Stmt]) -> Checked {
        stmts.iter().try_for_each(|s| self.stmt(s))
    }

    fn exprs<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> Checked {
        exprs.into_iter().try_for_each(|e| self.expr(e))
    }

    fn stmt(&self, stmt: &Stmt) -> Checked {
        match stmt {
            Stmt::SetLocal { value, .. } => self.expr(value),
            Stmt::SetMap { key, value, .. } => self.exprs(key.iter().chain([value])),
            Stmt::Update { key, value, .. } => self.exprs(key.iter().chain(value)),
            Stmt::Delete { key, .. } => self.exprs(key),
            Stmt::Printf { args, .. } => self.exprs(args),
            Stmt::PrintValue(e) | Stmt::Eval(e) => self.expr(e),
            Stmt::PrintMap { .. }
            | Stmt::Clear(_)
            | Stmt::Zero(_)
            | Stmt::Time(_)
            | Stmt::Cat(_)
            | Stmt::Exit
            | Stmt::Break
            | Stmt::Continue
            | Stmt::Done => Ok(()),
            Stmt::If { c, then, other } => {
                self.expr(c)?;
                self.block(then)?;
                self.block(other)
            }
            Stmt::Repeat { from, to, body, .. } => {
                self.exprs([from.as_ref(), to.as_ref()])?;
                self.block(body)
            }
            Stmt::While { c, body, .. } => {
                self.expr(c)?;
                self.block(body)
            }
            Stmt::SetReg { value, .. } => {
                let why = "it runs in user space, where there are no registers of the kernel";
                self.refuse(value.span, "an assignment to a register", why)
            }
            Stmt::SetMemory { address, .. } => {
                let why = "it runs in user space";
                self.refuse(address.span, "an assignment to kernel memory", why)
            }
            Stmt::Return(e) => {
                let why = "there is no function to return from; `return` alone ends the clause";
                self.refuse(e.span, "`return` with a value", why)
            }
            Stmt::Skip => {
                let why = "there is no instruction to skip";
                self.refuse(self.clause.span, "`skip()`", why)
            }
        }
    }

    fn expr(&self, e: &Expr) -> Checked {
        match &e.kind {
            ExprKind::Int(_) | ExprKind::Text(_) | ExprKind::Local(_) => Ok(()),
            ExprKind::Builtin(b) => match missing(*b) {
                None => Ok(()),
                Some((what, why)) => self.refuse(e.span, what, why),
            },
            ExprKind::Map { key, .. } => self.exprs(key),
            ExprKind::Unary { a, .. } | ExprKind::Cast(a) => self.expr(a),
            ExprKind::Binary { a, b, .. } => self.exprs([a.as_ref(), b.as_ref()]),
            ExprKind::Choice { c, a, b } => self.exprs([c.as_ref(), a.as_ref(), b.as_ref()]),
            ExprKind::Load { .. } => {
                let why = "only probes read the kernel's memory; read it there and keep the value in a map";
                self.refuse(e.span, "a read of memory", why)
            }
            ExprKind::Str { .. } => {
                let why = "only probes read memory; read it there and keep the text in a map";
                self.refuse(e.span, "`str()` of an address", why)
            }
            ExprKind::Buf { .. } => {
                let why = "only probes read memory";
                self.refuse(e.span, "`buf()`", why)
            }
        }
    }
}

/// Name of a builtin that user space does not have, and why not.
fn missing(b: Builtin) -> Option<(&'static str, &'static str)> {
    let no_probe = "it runs in user space, at no point of the kernel";
    Some(match b {
        Builtin::Pid
        | Builtin::Tid
        | Builtin::Cpu
        | Builtin::Comm
        | Builtin::Nsecs
        | Builtin::Elapsed => return None,
        Builtin::CurTask => ("`curtask`", "it runs in user space"),
        Builtin::Func => ("`func`", no_probe),
        Builtin::Probe => ("`probe`", no_probe),
        Builtin::Arg(_) => ("an argument", "there is no function"),
        Builtin::RetVal => ("`retval`", "there is no function that returns"),
        Builtin::Reg(_) => ("`reg()`", no_probe),
        Builtin::Ip => ("`ip`", no_probe),
        Builtin::Callee => ("`callee`", no_probe),
        Builtin::Caller => ("`caller`", no_probe),
        Builtin::KernelStack(_) => ("`kstack`", no_probe),
        Builtin::UserStack(_) => ("`ustack`", no_probe),
    })
}
