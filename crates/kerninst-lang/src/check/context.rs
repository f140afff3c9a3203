//! Where a clause runs, and what is there because of it.

use super::Checker;
use crate::ast::{self, PlaceKind, ProbeKind};
use crate::diag::Diagnostic;
use crate::hir::{On, Span};
use crate::types::{Function, Types};

/// Where a clause runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Context {
    /// A probe of it in user space: `BEGIN`, `END`, `interval`.
    pub user: Option<Span>,
    /// Its probes in the kernel.
    pub places: Vec<(PlaceKind, Span)>,
    /// The functions that they name, and their prototypes if known.
    pub functions: Vec<(String, Option<Function>)>,
    /// A probe with a pattern or an address: not all functions are known.
    pub open: Option<Span>,
}

impl Context {
    pub fn new(clause: &ast::Clause, types: &dyn Types) -> Context {
        let mut context = Context::default();
        for probe in &clause.probes {
            let ProbeKind::Kernel(place) = &probe.kind else {
                context.user.get_or_insert(probe.span);
                continue;
            };
            context.places.push((place.kind, probe.span));
            match &place.function {
                Some(name) if !place.glob => {
                    if !context.functions.iter().any(|(n, _)| n == name) {
                        context.functions.push((name.clone(), types.function(name)));
                    }
                }
                _ => {
                    context.open.get_or_insert(probe.span);
                }
            }
        }
        context
    }

    /// The first probe that is not of this kind.
    pub fn other_than(&self, kind: PlaceKind) -> Option<(PlaceKind, Span)> {
        self.places.iter().find(|(k, _)| *k != kind).copied()
    }

    /// What a type query gives of all functions, if all are known and agree on it.
    pub fn agreed<T: PartialEq>(&self, query: impl Fn(&Function) -> Option<T>) -> Option<T> {
        if self.open.is_some() {
            return None;
        }
        let mut answers = self.functions.iter().map(|(_, f)| query(f.as_ref()?));
        let first = answers.next()??;
        answers.all(|a| a.as_ref() == Some(&first)).then_some(first)
    }
}

/// The probes as the checked script has them.
pub(super) fn on(clause: &ast::Clause) -> Vec<On> {
    let on = clause.probes.iter().map(|probe| match &probe.kind {
        ProbeKind::Begin => On::Begin,
        ProbeKind::End => On::End,
        ProbeKind::Interval(ns) => On::Interval(*ns),
        ProbeKind::Kernel(place) => On::Probe {
            text: place.text.clone(),
            span: probe.span,
        },
    });
    on.collect()
}

impl Checker<'_> {
    /// All probes of the clause are in the kernel and of this kind.
    pub(super) fn needs_kind(
        &mut self,
        kind: PlaceKind,
        span: Span,
        what: &str,
        help: &str,
    ) -> Option<()> {
        self.kernel_only(span, what)?;
        let Some((other, probe)) = self.context().and_then(|c| c.other_than(kind)) else {
            return Some(());
        };
        let message = format!("{what} is there at {}: probes only", kind.word());
        let d = Diagnostic::error(span, message)
            .note(probe, format!("this is {}: probe", with_article(other)));
        self.fail(d.help(help))
    }
}

fn with_article(kind: PlaceKind) -> String {
    let word = kind.word();
    let article = if word.starts_with(['e', 'i']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {word}")
}
