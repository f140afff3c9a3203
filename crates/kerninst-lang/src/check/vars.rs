//! Variables and maps: what is known of them, and how their types come together from all uses.

use super::Checker;
use super::convert::{describe, merge, stored};
use super::map_info::{Kind, MapInfo};
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, Span, Type};

/// Most bytes of a map's key, and of a value.
const MAX_KEY: u32 = 256;
/// Most bytes of the clause's variables that are not in registers: programs have 512 bytes of scratch memory.
const MAX_TEXT_LOCALS: u32 = 384;

/// A `$` variable.
#[derive(Debug, Clone)]
pub(super) struct Local {
    pub name: String,
    pub ty: Option<Type>,
    /// Where it is first assigned.
    pub span: Span,
}

impl Checker<'_> {
    /// The number of a local, if it is assigned anywhere in the clause.
    pub(super) fn local(&mut self, name: &str, span: Span) -> Option<u32> {
        let locals = self.locals.get(self.clause)?;
        if let Some(n) = locals.iter().position(|l| l.name == name) {
            return Some(n as u32);
        }
        let mut d = Diagnostic::error(span, format!("there is no variable `{name}`"))
            .nearest(name, locals.iter().map(|l| l.name.as_str()));
        if d.help.is_empty() {
            d = d.help(format!("assign to it first: `{name} = ...`; what other clauses shall see goes into a map: `@{}`", name.trim_start_matches('$')));
        }
        self.fail(d)
    }

    /// A value goes to a local: its type, if it fits.
    pub(super) fn local_takes(&mut self, local: u32, value: &Expr) -> Option<Type> {
        let new = stored(&value.ty);
        let entry = self.locals.get_mut(self.clause)?.get_mut(local as usize)?;
        let Some(old) = entry.ty.clone() else {
            entry.ty = Some(new.clone());
            self.changed = true;
            return Some(new);
        };
        let merged = if is_null(value) && matches!(old, Type::Pointer { .. }) {
            Some(old.clone())
        } else {
            merge(&old, &new, false)
        };
        let Some(merged) = merged else {
            let (name, first) = (entry.name.clone(), entry.span);
            let is = format!("`{name}` is {}", describe(&old, self.types));
            let message = format!("{is}, and this is {}", describe(&new, self.types));
            return self.fail(
                Diagnostic::error(value.span, message)
                    .note(first, "its first assignment says so")
                    .help("use another variable, or a cast"),
            );
        };
        if merged != old {
            entry.ty = Some(merged.clone());
            self.changed = true;
        }
        Some(merged)
    }

    /// The number of a map.
    pub(super) fn map_number(&self, name: &str) -> Option<u32> {
        self.map_numbers.get(name).copied()
    }

    pub(super) fn map(&self, number: u32) -> Option<&MapInfo> {
        self.maps.get(number as usize)
    }

    /// Checks the key of a use of a map.
    pub(super) fn map_key(
        &mut self,
        map: u32,
        parts: &[ast::Expr],
        span: Span,
    ) -> Option<Vec<Expr>> {
        let mut key = Vec::new();
        for part in parts {
            key.push(self.value(part));
        }
        // All parts are checked before any of them gives up.
        let key: Vec<Expr> = key.into_iter().collect::<Option<_>>()?;
        let info = self.maps.get_mut(map as usize)?;
        let new: Vec<Type> = key.iter().map(|e| stored(&e.ty)).collect();
        let Some((old, first)) = info.key.clone() else {
            info.key = Some((new, span));
            self.changed = true;
            return self.fit_key(map, key, span);
        };
        let name = info.name.clone();
        if old.len() != new.len() {
            let parts = |n: usize| match n {
                0 => "no key".to_string(),
                1 => "a key of one part".into(),
                n => format!("a key of {n} parts"),
            };
            let message = format!(
                "`{name}` has {}, here it has {}",
                parts(old.len()),
                parts(new.len())
            );
            return self.fail(Diagnostic::error(span, message).note(first, "first used here"));
        }
        let mut merged = Vec::new();
        for ((old, new), part) in old.iter().zip(&new).zip(&key) {
            let Some(m) = merge(old, new, true) else {
                let (old, new) = (describe(old, self.types), describe(new, self.types));
                let message = format!(
                    "in the key of `{name}` there is {old} at this place, and this is {new}"
                );
                return self
                    .fail(Diagnostic::error(part.span, message).note(first, "first used here"));
            };
            merged.push(m);
        }
        if merged != old {
            self.maps.get_mut(map as usize)?.key = Some((merged, first));
            self.changed = true;
        }
        self.fit_key(map, key, span)
    }

    /// Turns a key's parts into the types of the map's.
    fn fit_key(&mut self, map: u32, key: Vec<Expr>, span: Span) -> Option<Vec<Expr>> {
        let types = self.map(map)?.key.clone()?.0;
        let size: u32 = types.iter().map(Type::size).sum();
        if size > MAX_KEY {
            let message = format!("the key is {size} bytes long, at most {MAX_KEY}");
            return self
                .fail(Diagnostic::error(span, message).help("use shorter text: `str(p, 64)`"));
        }
        let fitted = key.into_iter().zip(&types);
        Some(fitted.map(|(e, t)| super::convert::convert(e, t)).collect())
    }

    /// A value goes to a map (or into an aggregation): its type, if it fits.
    pub(super) fn map_takes(&mut self, map: u32, value: &Expr) -> Option<Type> {
        let new = stored(&value.ty);
        let info = self.maps.get_mut(map as usize)?;
        let Some((old, first)) = info.value.clone() else {
            info.value = Some((new.clone(), value.span));
            self.changed = true;
            return Some(new);
        };
        let Some(merged) = merge(&old, &new, true) else {
            let name = info.name.clone();
            let (old, new) = (describe(&old, self.types), describe(&new, self.types));
            let message = format!("`{name}` holds {old}, and this is {new}");
            return self
                .fail(Diagnostic::error(value.span, message).note(first, "first assigned here"));
        };
        if merged.size() > MAX_KEY {
            let message = format!("a map's value has at most {MAX_KEY} bytes");
            return self.fail(Diagnostic::error(value.span, message));
        }
        if merged != old {
            info.value = Some((merged.clone(), first));
            self.changed = true;
        }
        Some(merged)
    }

    /// Variables that are read, and maps, of which nothing says a type.
    pub(super) fn report_unresolved(&mut self) {
        let mut wrong = Vec::new();
        for map in &self.maps {
            let untyped = map.value.is_none() && map.kind() == Kind::Plain;
            if untyped {
                let message = format!("nothing is ever assigned to `{}`", map.name);
                let names = self
                    .maps
                    .iter()
                    .filter(|m| m.value.is_some() || m.kind() != Kind::Plain);
                wrong.push(
                    Diagnostic::error(map.span, message)
                        .nearest(&map.name, names.map(|m| m.name.as_str())),
                );
            }
        }
        let locals = self.locals.iter().flatten().filter(|l| l.ty.is_none());
        for local in locals {
            let message = format!(
                "`{}` is only assigned from itself: it has no type",
                local.name
            );
            wrong.push(Diagnostic::error(local.span, message));
        }
        wrong.into_iter().for_each(|d| self.report(d));
    }

    /// Variables that hold text must fit into the program's memory.
    pub(super) fn check_frame(&mut self, span: Span) {
        let locals = self
            .locals
            .get(self.clause)
            .map(Vec::as_slice)
            .unwrap_or(&[]);
        let types = locals.iter().filter_map(|l| l.ty.as_ref());
        let size: u32 = types.filter(|t| !t.is_word()).map(Type::size).sum();
        if size > MAX_TEXT_LOCALS {
            let message = format!(
                "the clause's variables hold {size} bytes of text, at most {MAX_TEXT_LOCALS}"
            );
            self.report(
                Diagnostic::error(span, message)
                    .help("make texts shorter, `str(p, 32)`, or use them without a variable"),
            );
        }
    }
}

/// The constant 0, which any pointer can be.
fn is_null(e: &Expr) -> bool {
    matches!(e.kind, crate::hir::ExprKind::Int(0))
}
