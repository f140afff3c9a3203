//! Statements, and the bounds of loops.

use super::Checker;
use super::expr::constant;
use crate::MAX_ROUNDS;
use crate::ast::{self, ExprKind as Ast, PlaceKind, StmtKind};
use crate::diag::Diagnostic;
use crate::hir::{Expr, Span, Stmt, Type};

/// Most parts of a clause that can be run, those in loops as often as their rounds: a visit must end soon, wherever it is.
pub(super) const MAX_WORK: u64 = 1 << 17;

impl Checker<'_> {
    pub(super) fn block(&mut self, body: &[ast::Stmt]) -> Vec<Stmt> {
        body.iter().filter_map(|s| self.stmt(s)).collect()
    }

    /// One more part of the clause.
    pub(super) fn count_node(&mut self) {
        self.nodes = self.nodes.saturating_add(1);
        self.work = self.work.saturating_add(self.rounds);
    }

    fn stmt(&mut self, stmt: &ast::Stmt) -> Option<Stmt> {
        self.count_node();
        let span = stmt.span;
        match &stmt.kind {
            StmtKind::Assign { to, op, value } => self.assign(to, *op, value, span),
            StmtKind::Step { to, up } => self.step(to, *up, span),
            StmtKind::Expr(e) => match &e.kind {
                Ast::Call {
                    name,
                    name_span,
                    args,
                } => self.action(name, *name_span, args, e.span),
                _ => self.value(e).map(Stmt::Eval),
            },
            StmtKind::If { c, then, other } => {
                let c = self.condition(c);
                let (then, other) = (self.block(then), self.block(other));
                Some(Stmt::If { c: c?, then, other })
            }
            StmtKind::Unroll { times, body } => {
                let rounds =
                    self.constant_in(times, "the number of rounds", 1..=i64::from(MAX_ROUNDS));
                let rounds = rounds.map(|n| n as u32);
                let body = self.rounds_of(rounds, body, span);
                let rounds = rounds?;
                Some(Stmt::Repeat {
                    local: None,
                    from: constant(0, times.span).into(),
                    to: constant(u64::from(rounds), times.span).into(),
                    rounds,
                    body,
                })
            }
            StmtKind::For {
                local,
                local_span,
                from,
                to,
                limit,
                body,
            } => self.for_loop((local, *local_span), (from, to), limit.as_ref(), body, span),
            StmtKind::While { c, limit, body } => {
                let condition = self.condition(c);
                let rounds = match limit {
                    Some(limit) => self.limit(limit),
                    None => self.fail(
                        Diagnostic::error(
                            c.span,
                            "this loop has no bound: it could hang the kernel",
                        )
                        .help("write `while (c) limit 100 { }`, `for ($i : 0..10) { }` or `unroll (10) { }`"),
                    ),
                };
                let body = self.rounds_of(rounds, body, span);
                Some(Stmt::While {
                    c: condition?,
                    rounds: rounds?,
                    body,
                })
            }
            StmtKind::Break => self.in_loop("break", span).map(|()| Stmt::Break),
            StmtKind::Continue => self.in_loop("continue", span).map(|()| Stmt::Continue),
            StmtKind::Return(None) => Some(Stmt::Done),
            StmtKind::Return(Some(e)) => {
                self.needs_kind(
                    PlaceKind::Entry,
                    span,
                    "`return` with a value",
                    "there it skips the function",
                )?;
                self.needs_unsafe(span, "returning from a function that did not run")?;
                let value = self.number(e, "what a function returns")?;
                Some(Stmt::Return(value))
            }
        }
    }

    fn in_loop(&mut self, what: &str, span: Span) -> Option<()> {
        if self.loops > 0 {
            return Some(());
        }
        let d = Diagnostic::error(span, format!("`{what}` is not in a loop"));
        self.fail(if what == "break" {
            d.help("`return` ends the clause")
        } else {
            d
        })
    }

    fn limit(&mut self, e: &ast::Expr) -> Option<u32> {
        let n = self.constant_in(e, "the limit of a loop", 1..=i64::from(MAX_ROUNDS))?;
        Some(n as u32)
    }

    fn for_loop(
        &mut self,
        (name, name_span): (&str, Span),
        (from, to): (&ast::Expr, &ast::Expr),
        limit: Option<&ast::Expr>,
        body: &[ast::Stmt],
        span: Span,
    ) -> Option<Stmt> {
        let a = self.number(from, "the start of a loop");
        let b = self.number(to, "the end of a loop");
        let ends = a.zip(b);
        let rounds = match (limit, &ends) {
            (Some(limit), _) => self.limit(limit),
            (None, Some((a, b))) => self.rounds_between(a, b),
            (None, None) => None,
        };
        let body = self.rounds_of(rounds, body, span);
        let (a, b) = ends?;
        let local = self.local(name, name_span)?;
        let ty = self
            .local_takes(local, &a)
            .and(self.local_takes(local, &b))?;
        if !matches!(ty, Type::Int { .. }) {
            return self.fail(Diagnostic::error(
                name_span,
                format!("`{name}` is used for something else too"),
            ));
        }
        Some(Stmt::Repeat {
            local: Some(local),
            from: super::convert::convert(a, &ty).into(),
            to: super::convert::convert(b, &ty).into(),
            rounds: rounds?,
            body,
        })
    }

    /// Rounds of a loop whose ends are constants.
    fn rounds_between(&mut self, a: &Expr, b: &Expr) -> Option<u32> {
        let value = |e: &Expr| {
            let v = super::convert::constant(e)?;
            Some(if e.ty == Type::U64 {
                i128::from(v)
            } else {
                i128::from(v as i64)
            })
        };
        let span = Span {
            start: a.span.start,
            end: b.span.end,
        };
        let (Some(x), Some(y)) = (value(a), value(b)) else {
            return self.fail(
                Diagnostic::error(
                    span,
                    "this loop has no bound that is known beforehand: it could hang the kernel",
                )
                .help("write `for ($i : a..b) limit 100 { }`"),
            );
        };
        let rounds = (y - x).max(0);
        match u32::try_from(rounds).ok().filter(|n| *n <= MAX_ROUNDS) {
            // Also of a loop that never begins: its condition says so.
            Some(n) => Some(n.max(1)),
            None => self.fail(Diagnostic::error(
                span,
                format!("the loop has {rounds} rounds, at most {MAX_ROUNDS}"),
            )),
        }
    }

    /// The body of a loop. If its rounds are not known there was an error.
    fn rounds_of(&mut self, rounds: Option<u32>, body: &[ast::Stmt], span: Span) -> Vec<Stmt> {
        let outer = self.rounds;
        self.rounds = outer.saturating_mul(u64::from(rounds.unwrap_or(1)));
        self.work = self.work.saturating_add(self.rounds);
        self.loops += 1;
        let body = self.block(body);
        self.loops -= 1;
        self.rounds = outer;
        if self.work > MAX_WORK && !self.work_reported {
            self.work_reported = true;
            self.report(
                Diagnostic::error(span, "the loop does too much: rounds times statements, those of loops in it included")
                    .help(format!("at most {MAX_WORK} parts of statements may run in one visit")),
            );
        }
        body
    }
}
