//! Assignments to maps: values, and what is counted.

use super::Checker;
use super::convert::{convert, promoted};
use super::expr::constant;
use super::functions;
use super::map_info::{Kind, Use};
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Binary, Builtin, Expr, ExprKind, Span, Stmt, Unary};
use crate::layout::MAX_LHIST;

impl Checker<'_> {
    /// `@x[k] = value`, `@x[k] op= value`, of a checked key and value.
    pub(super) fn assign_map(
        &mut self,
        map: u32,
        key: Vec<Expr>,
        op: Option<Binary>,
        value: Expr,
        to_span: Span,
        span: Span,
    ) -> Option<Stmt> {
        let info = self.map(map)?;
        let (name, first) = (info.name.clone(), info.kind_span());
        match info.kind() {
            Kind::Aggregation(function) => self.fail(
                Diagnostic::error(
                    span,
                    format!("`{name}` is {function}(): nothing else can be assigned to it"),
                )
                .note(first, "this says what it holds"),
            ),
            Kind::Added { sum } => {
                let value = self.as_number(value, "what is added")?;
                let value = match op {
                    Some(Binary::Sub) => negative(value),
                    _ => value,
                };
                if !sum {
                    return Some(Stmt::Update {
                        map,
                        key,
                        value: None,
                    });
                }
                self.map_takes(map, &value)?;
                Some(Stmt::Update {
                    map,
                    key,
                    value: Some(value),
                })
            }
            Kind::Plain => {
                let value = match op {
                    None => value,
                    Some(op) => {
                        self.warn_race(map, &key, op, span);
                        let ty = match self.map(map)?.value.clone() {
                            Some((ty, _)) => ty,
                            None => self.map_takes(map, &value)?,
                        };
                        let old = Expr {
                            kind: ExprKind::Map {
                                map,
                                key: key.clone(),
                            },
                            ty,
                            span: to_span,
                        };
                        self.operate(op, old, value, span)?
                    }
                };
                let ty = self.map_takes(map, &value)?;
                let value = convert(value, &ty);
                Some(Stmt::SetMap { map, key, value })
            }
        }
    }

    /// A map that is stepped and read, in the kernel: two CPUs can read the same and add to that. Not so where the entry is the
    /// task's or the CPU's own.
    fn warn_race(&mut self, map: u32, key: &[Expr], op: Binary, span: Span) {
        let in_kernel = self.context().is_some_and(|c| !c.places.is_empty());
        let stepped = matches!(op, Binary::Add | Binary::Sub);
        if !in_kernel || !stepped || key.iter().any(is_own) {
            return;
        }
        let Some((name, (used, why))) = self
            .map(map)
            .and_then(|m| Some((m.name.clone(), m.why_plain()?)))
        else {
            return;
        };
        let what = match used {
            Use::Assign => "because it is assigned here",
            Use::Delete => "because an entry is deleted here, in the kernel",
            _ => "because it is read here, in the kernel",
        };
        self.report(
            Diagnostic::warning(
                span,
                format!("`{name}` is read and then written: what another CPU adds to the same entry meanwhile is lost"),
            )
            .note(why, what)
            .help("a map that is only added to, and read in END or interval:, is exact"),
        );
    }

    /// `@x[k] = sum(e)` and its like.
    pub(super) fn aggregate(
        &mut self,
        map: u32,
        key: &[ast::Expr],
        function: &'static str,
        args: &[ast::Expr],
        to_span: Span,
        span: Span,
    ) -> Option<Stmt> {
        let signature = functions::TO_MAPS.iter().find(|s| s.name == function)?;
        let arity = self.arity(signature, args.len(), span);
        let key = self.map_key(map, key, to_span);
        arity?;
        let info = self.map(map)?;
        let (kind, first, name) = (info.kind(), info.kind_span(), info.name.clone());
        if kind != Kind::Aggregation(function) {
            let Kind::Aggregation(other) = kind else {
                return None;
            };
            return self.fail(
                Diagnostic::error(
                    span,
                    format!("`{name}` is {other}(), it cannot be {function}() too"),
                )
                .note(first, "this says what it holds"),
            );
        }
        let value = match args.first() {
            Some(e) => Some(self.number(e, &format!("the argument of `{function}`"))?),
            None => None,
        };
        if let [_, min, max, step] = args {
            self.range(map, [min, max, step], span)?;
        }
        if let Some(value) = &value {
            self.map_takes(map, value)?;
        }
        Some(Stmt::Update {
            map,
            key: key?,
            value,
        })
    }

    /// The buckets of an `lhist`.
    fn range(&mut self, map: u32, args: [&ast::Expr; 3], span: Span) -> Option<()> {
        let all = i64::MIN..=i64::MAX;
        let [min, max, step] = args;
        let min = self.constant_in(min, "the lower end", all.clone());
        let max = self.constant_in(max, "the upper end", all);
        let step = self.constant_in(step, "the step", 1..=i64::MAX);
        let range = (min?, max?, step?);
        if range.0 >= range.1 {
            return self.fail(Diagnostic::error(
                span,
                "the lower end is not below the upper end",
            ));
        }
        let (low, high, step) = (
            i128::from(range.0),
            i128::from(range.1),
            i128::from(range.2),
        );
        let steps = (high - low + step - 1) / step;
        let most = i128::from(MAX_LHIST - 2);
        if steps > most {
            let d = Diagnostic::error(
                span,
                format!("the histogram has {steps} steps, at most {most}"),
            );
            return self.fail(d.help("use a larger step"));
        }
        let info = self.maps.get_mut(map as usize)?;
        match info.range {
            None => {
                info.range = Some((range, span));
                Some(())
            }
            Some((old, _)) if old == range => Some(()),
            Some((_, first)) => {
                let message = format!(
                    "the histograms of `{}` must have the same steps everywhere",
                    info.name
                );
                self.fail(Diagnostic::error(span, message).note(first, "here they are others"))
            }
        }
    }
}

/// A part of a key that no other CPU has at the same time.
fn is_own(part: &Expr) -> bool {
    match &part.kind {
        ExprKind::Builtin(Builtin::Tid | Builtin::Cpu | Builtin::CurTask) => true,
        ExprKind::Cast(a) => is_own(a),
        _ => false,
    }
}

/// `-e`.
fn negative(e: Expr) -> Expr {
    let (span, ty) = (e.span, promoted(&e.ty));
    if let ExprKind::Int(v) = e.kind {
        return constant(v.wrapping_neg(), span);
    }
    Expr {
        kind: ExprKind::Unary {
            op: Unary::Neg,
            a: e.into(),
        },
        ty,
        span,
    }
}
