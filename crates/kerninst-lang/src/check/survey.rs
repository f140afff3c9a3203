//! Before anything is typed: which variables and maps there are, and what is done with them.

use super::map_info::{MapInfo, Use};
use super::vars::Local;
use super::{MAX_LOCALS, MAX_MAPS};
use crate::ast::{Binary, Clause, Expr, ExprKind, ProbeKind, Script, Stmt, StmtKind};
use crate::hir::Span;

pub(super) struct Survey {
    pub maps: Vec<MapInfo>,
    pub locals: Vec<Vec<Local>>,
}

/// Functions whose result goes to a map.
pub(super) const AGGREGATIONS: [&str; 8] = [
    "count", "sum", "avg", "min", "max", "stats", "hist", "lhist",
];

/// The aggregation that an assignment's right side is.
pub(super) fn aggregation(value: &Expr) -> Option<(&'static str, &[Expr])> {
    match &value.kind {
        ExprKind::Call { name, args, .. } => {
            let name = AGGREGATIONS.iter().find(|a| *a == name)?;
            Some((name, args))
        }
        _ => None,
    }
}

pub(super) fn survey(script: &Script) -> Survey {
    let mut walk = Walk {
        survey: Survey {
            maps: Vec::new(),
            locals: Vec::new(),
        },
        kernel: false,
    };
    for clause in &script.clauses {
        walk.clause(clause);
    }
    walk.survey
}

struct Walk {
    survey: Survey,
    /// The clause runs in the kernel.
    kernel: bool,
}

impl Walk {
    fn clause(&mut self, clause: &Clause) {
        self.survey.locals.push(Vec::new());
        let in_kernel = |p: &crate::ast::Probe| matches!(p.kind, ProbeKind::Kernel(_));
        self.kernel = clause.probes.iter().any(in_kernel);
        clause.filter.iter().for_each(|f| self.read(f));
        self.block(&clause.body);
    }

    fn block(&mut self, body: &[Stmt]) {
        body.iter().for_each(|s| self.stmt(s));
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Assign { to, op, value } => {
                let used = match (aggregation(value), op) {
                    (Some((name, _)), None) => Use::Aggregation(name),
                    (None, None) => Use::Assign,
                    (None, Some(Binary::Add)) => Use::Add,
                    (None, Some(Binary::Sub)) => Use::Sub,
                    _ => Use::Assign,
                };
                match aggregation(value) {
                    Some((_, args)) => args.iter().for_each(|a| self.read(a)),
                    None => self.read(value),
                }
                self.write(to, used, stmt.span);
            }
            StmtKind::Step { to, up } => {
                let used = if *up { Use::Increment } else { Use::Sub };
                self.write(to, used, stmt.span);
            }
            StmtKind::Expr(e) => self.effect(e),
            StmtKind::If { c, then, other } => {
                self.read(c);
                self.block(then);
                self.block(other);
            }
            StmtKind::Unroll { times, body } => {
                self.read(times);
                self.block(body);
            }
            StmtKind::For {
                local,
                local_span,
                from,
                to,
                limit,
                body,
            } => {
                self.local(local, *local_span);
                self.read(from);
                self.read(to);
                limit.iter().for_each(|l| self.read(l));
                self.block(body);
            }
            StmtKind::While { c, limit, body } => {
                self.read(c);
                limit.iter().for_each(|l| self.read(l));
                self.block(body);
            }
            StmtKind::Return(Some(e)) => self.read(e),
            StmtKind::Return(None) | StmtKind::Break | StmtKind::Continue => {}
        }
    }

    fn local(&mut self, name: &str, span: Span) {
        let Some(locals) = self.survey.locals.last_mut() else {
            return;
        };
        // One too many is enough for an error.
        if locals.len() <= MAX_LOCALS && !locals.iter().any(|l| l.name == name) {
            locals.push(Local {
                name: name.to_string(),
                ty: None,
                span,
            });
        }
    }

    /// A call as a statement: some only name a map.
    fn effect(&mut self, e: &Expr) {
        let ExprKind::Call { name, args, .. } = &e.kind else {
            return self.read(e);
        };
        let Some((first, others)) = args.split_first() else {
            return;
        };
        others.iter().for_each(|a| self.read(a));
        match (name.as_str(), &first.kind) {
            ("print" | "clear" | "zero", ExprKind::Map { name, key }) if key.is_empty() => {
                self.map(name, Use::Show, first.span);
            }
            ("delete", ExprKind::Map { .. }) => self.write(first, Use::Delete, first.span),
            _ => self.read(first),
        }
    }

    fn write(&mut self, to: &Expr, used: Use, span: Span) {
        match &to.kind {
            ExprKind::Local(name) => self.local(name, to.span),
            ExprKind::Map { name, key } => {
                self.map(name, used, span);
                key.iter().for_each(|k| self.read(k));
            }
            _ => self.read(to),
        }
    }

    fn map(&mut self, name: &str, used: Use, span: Span) {
        let maps = &mut self.survey.maps;
        if maps.len() > MAX_MAPS {
            return;
        }
        let at = maps.iter().position(|m| m.name == name).unwrap_or_else(|| {
            maps.push(MapInfo::new(name, span));
            maps.len() - 1
        });
        if let Some(map) = maps.get_mut(at) {
            map.note(used, span, self.kernel);
        }
    }

    fn read(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Map { name, key } => {
                self.map(name, Use::Read, e.span);
                key.iter().for_each(|k| self.read(k));
            }
            ExprKind::Call { args, .. } => args.iter().for_each(|a| self.read(a)),
            ExprKind::Tuple(parts) => parts.iter().for_each(|a| self.read(a)),
            ExprKind::Unary(_, a)
            | ExprKind::Cast(_, a)
            | ExprKind::SizeOf(a)
            | ExprKind::Deref(a)
            | ExprKind::Address(a)
            | ExprKind::Member { of: a, .. } => self.read(a),
            ExprKind::Binary(_, a, b) | ExprKind::Index(a, b) => {
                self.read(a);
                self.read(b);
            }
            ExprKind::Choice(c, a, b) => {
                self.read(c);
                self.read(a);
                self.read(b);
            }
            ExprKind::Int(_)
            | ExprKind::Text(_)
            | ExprKind::Param(_)
            | ExprKind::Name(_)
            | ExprKind::Local(_)
            | ExprKind::SizeOfType(_) => {}
        }
    }
}
