//! From syntax tree to checked script: every name looked up, every expression typed.
//!
//! Types of variables and maps follow from all their uses, in any order: so the whole script is checked again until nothing
//! changes, and what the last round says counts. Types only widen (to unsigned, to longer text), so that is soon.

mod arith;
mod assign;
mod assign_map;
mod builtin;
mod call;
mod context;
mod convert;
mod expr;
mod functions;
mod load;
mod map_info;
mod output;
mod place;
mod stmt;
mod survey;
mod typename;
mod vars;

use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{self, Span};
use crate::types::Types;
use context::Context;
use map_info::MapInfo;
use std::collections::HashMap;
use vars::Local;

/// Most nodes of a clause.
const MAX_NODES: u32 = 4096;
/// Most clauses, maps and formats of a script.
const MAX_CLAUSES: usize = 512;
const MAX_MAPS: usize = 256;
/// After so many errors nothing more is looked at: what is suggested for each takes its time.
const MAX_DIAGNOSTICS: usize = 50;
/// Most `$` variables of a clause.
const MAX_LOCALS: usize = 256;

/// What the user allows and gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `--unsafe`: registers and kernel memory may be written, functions and instructions skipped.
    pub allow_unsafe: bool,
    /// `$1`, `$2` and so on.
    pub params: Vec<String>,
}

/// Checks a script.
///
/// # Errors
/// All that is wrong with it, in the order of the text.
pub fn check(
    script: &ast::Script,
    types: &dyn Types,
    options: &Options,
) -> Result<hir::Script, Vec<Diagnostic>> {
    match check_all(script, types, options) {
        (Some(script), _) => Ok(script),
        (None, diagnostics) => Err(diagnostics),
    }
}

/// Checks a script, and gives the warnings too; no script: some of the diagnostics are errors.
pub fn check_all(
    script: &ast::Script,
    types: &dyn Types,
    options: &Options,
) -> (Option<hir::Script>, Vec<Diagnostic>) {
    let mut checker = Checker::new(script, types, options);
    let checked = checker.run(script);
    let mut diagnostics = checker.diagnostics;
    diagnostics.sort_by_key(|d| (d.span.start, d.span.end));
    diagnostics.dedup();
    if diagnostics.iter().any(|d| !d.warning) {
        return (None, diagnostics);
    }
    (Some(checked), diagnostics)
}

/// `None` of its methods: something is wrong and noted, or a type is not known yet (in an early round).
struct Checker<'a> {
    types: &'a dyn Types,
    options: &'a Options,
    maps: Vec<MapInfo>,
    map_numbers: HashMap<String, u32>,
    /// Of each clause.
    locals: Vec<Vec<Local>>,
    contexts: Vec<Context>,
    formats: Vec<hir::Format>,
    diagnostics: Vec<Diagnostic>,
    /// A type became known, or wider, in this round.
    changed: bool,
    /// What was looked up, by name: BTF is searched from one end to the other.
    constants: HashMap<String, Option<i128>>,
    found: HashMap<(ast::Tag, String), Option<u32>>,
    /// Number of the clause that is checked.
    clause: usize,
    nodes: u32,
    /// Parts that can run in one visit, those of loops as often as their rounds.
    work: u64,
    work_reported: bool,
    /// Rounds of the loops around the place, multiplied.
    rounds: u64,
    loops: u32,
    is_unsafe: bool,
}

impl<'a> Checker<'a> {
    fn new(script: &ast::Script, types: &'a dyn Types, options: &'a Options) -> Checker<'a> {
        let survey = survey::survey(script);
        let map_numbers = survey.maps.iter().enumerate();
        Checker {
            types,
            options,
            map_numbers: map_numbers
                .map(|(n, m)| (m.name.clone(), n as u32))
                .collect(),
            maps: survey.maps,
            locals: survey.locals,
            contexts: script
                .clauses
                .iter()
                .map(|c| Context::new(c, types))
                .collect(),
            formats: Vec::new(),
            diagnostics: Vec::new(),
            changed: false,
            constants: HashMap::new(),
            found: HashMap::new(),
            clause: 0,
            nodes: 0,
            work: 0,
            work_reported: false,
            rounds: 1,
            loops: 0,
            is_unsafe: false,
        }
    }

    fn run(&mut self, script: &ast::Script) -> hir::Script {
        if script.clauses.len() > MAX_CLAUSES {
            let span = script.clauses.last().map(|c| c.span).unwrap_or_default();
            self.error(
                span,
                format!("the script has more than {MAX_CLAUSES} clauses"),
            );
            return hir::Script::default();
        }
        if let Some(map) = self.maps.get(MAX_MAPS) {
            let span = map.span;
            self.error(span, format!("the script has more than {MAX_MAPS} maps"));
            return hir::Script::default();
        }
        let mut checked = hir::Script::default();
        // Each round but the last makes a type wider; there are few steps for each.
        for _ in 0..16 {
            self.changed = false;
            self.diagnostics.clear();
            self.formats.clear();
            checked.clauses = (0..)
                .zip(&script.clauses)
                .map(|(n, c)| self.clause(n, c))
                .collect();
            if !self.changed {
                break;
            }
        }
        if self.diagnostics.iter().all(|d| d.warning) {
            self.report_unresolved();
        }
        checked.maps = self.maps.iter().map(MapInfo::finish).collect();
        checked.formats = std::mem::take(&mut self.formats);
        checked.is_unsafe = self.is_unsafe;
        checked
    }

    fn clause(&mut self, number: usize, clause: &ast::Clause) -> hir::Clause {
        self.clause = number;
        self.nodes = 0;
        self.work = 0;
        self.work_reported = false;
        self.rounds = 1;
        self.loops = 0;
        if let Some(local) = self.locals.get(number).and_then(|l| l.get(MAX_LOCALS)) {
            let span = local.span;
            self.error(
                span,
                format!("the clause has more than {MAX_LOCALS} variables"),
            );
        }
        let filter = clause.filter.as_ref().and_then(|f| self.condition(f));
        let body = self.block(&clause.body);
        if self.nodes > MAX_NODES {
            let message = format!(
                "the clause is too large: {} parts, at most {MAX_NODES}",
                self.nodes
            );
            self.error(clause.span, message);
        }
        self.check_frame(clause.span);
        let locals = self.locals.get(number).map(Vec::as_slice).unwrap_or(&[]);
        let locals = locals
            .iter()
            .map(|l| l.ty.clone().unwrap_or(hir::Type::U64));
        hir::Clause {
            on: context::on(clause),
            filter,
            body,
            locals: locals.collect(),
            span: clause.span,
        }
    }

    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.report(Diagnostic::error(span, message));
    }

    fn report(&mut self, d: Diagnostic) {
        if self.diagnostics.len() < MAX_DIAGNOSTICS {
            self.diagnostics.push(d);
        }
    }

    /// Notes an error where a value was wanted.
    fn fail<T>(&mut self, d: Diagnostic) -> Option<T> {
        self.report(d);
        None
    }

    /// The clause that is checked.
    fn context(&self) -> Option<&Context> {
        self.contexts.get(self.clause)
    }

    fn find_type(&mut self, tag: ast::Tag, name: &str) -> Option<u32> {
        let types = self.types;
        let key = (tag, name.to_string());
        *self
            .found
            .entry(key)
            .or_insert_with(|| types.find(tag, name))
    }

    fn constant_named(&mut self, name: &str) -> Option<i128> {
        let types = self.types;
        let key = name.to_string();
        *self
            .constants
            .entry(key)
            .or_insert_with(|| types.constant(name))
    }

    /// What only `--unsafe` allows.
    fn needs_unsafe(&mut self, span: Span, what: &str) -> Option<()> {
        self.kernel_only(span, what)?;
        self.is_unsafe = true;
        if self.options.allow_unsafe {
            return Some(());
        }
        self.fail(
            Diagnostic::error(span, format!("{what} is not safe: it can crash the kernel"))
                .help("if that is what you want, run it with `--unsafe`"),
        )
    }

    /// What has no meaning in clauses that run in user space.
    fn kernel_only(&mut self, span: Span, what: &str) -> Option<()> {
        match self.context().and_then(|c| c.user) {
            None => Some(()),
            Some(probe) => self.fail(
                Diagnostic::error(span, format!("{what} has no meaning in user space"))
                    .note(probe, "this runs in user space"),
            ),
        }
    }
}
