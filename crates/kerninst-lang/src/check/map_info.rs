//! What is known of a map: its uses decide what it holds.

use crate::hir::{Map, MapValue, Span, Type};

/// What is done with a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// `= count()` and its like.
    Aggregation(&'static str),
    /// `= e`, and compound assignments that are no addition.
    Assign,
    /// `++`
    Increment,
    /// `+=`
    Add,
    /// `--`, `-=`
    Sub,
    /// In an expression.
    Read,
    Delete,
    /// `print`, `clear`, `zero`: whatever it holds.
    Show,
}

/// What a map holds, by its uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    /// One of the aggregations.
    Aggregation(&'static str),
    /// `count` or `sum` of which only steps and additions are there.
    Added {
        sum: bool,
    },
}

/// A map.
#[derive(Debug, Clone)]
pub(super) struct MapInfo {
    pub name: String,
    /// Where it was first used.
    pub span: Span,
    /// Types of the key's parts, and where that was found.
    pub key: Option<(Vec<Type>, Span)>,
    /// Type of the value; of aggregations that of the argument.
    pub value: Option<(Type, Span)>,
    /// Of `lhist`.
    pub range: Option<((i64, i64, i64), Span)>,
    uses: Vec<(Use, Span, bool)>,
    /// Something was subtracted: a sum that can be negative.
    minus: bool,
}

impl MapInfo {
    pub fn new(name: &str, span: Span) -> MapInfo {
        MapInfo {
            name: name.to_string(),
            span,
            key: None,
            value: None,
            range: None,
            uses: Vec::new(),
            minus: false,
        }
    }

    /// Notes a use; the first of each sort is enough.
    pub fn note(&mut self, used: Use, span: Span, kernel: bool) {
        self.minus |= used == Use::Sub;
        if !self.uses.iter().any(|(u, _, k)| *u == used && *k == kernel) {
            self.uses.push((used, span, kernel));
        }
    }

    fn first(&self, wanted: impl Fn(Use, bool) -> bool) -> Option<(Use, Span)> {
        let mut uses = self.uses.iter();
        uses.find(|(u, _, k)| wanted(*u, *k))
            .map(|(u, s, _)| (*u, *s))
    }

    /// What it holds.
    pub fn kind(&self) -> Kind {
        if let Some((Use::Aggregation(name), _)) =
            self.first(|u, _| matches!(u, Use::Aggregation(_)))
        {
            return Kind::Aggregation(name);
        }
        let steps = |u| matches!(u, Use::Increment | Use::Add | Use::Sub);
        let plain = |u, kernel| u == Use::Assign || kernel && matches!(u, Use::Read | Use::Delete);
        if self.first(|u, _| steps(u)).is_none() || self.first(plain).is_some() {
            return Kind::Plain;
        }
        let sum = self
            .first(|u, _| matches!(u, Use::Add | Use::Sub))
            .is_some();
        Kind::Added { sum }
    }

    /// Where it is first used as what it is.
    pub fn kind_span(&self) -> Span {
        let found = match self.kind() {
            Kind::Aggregation(name) => self.first(|u, _| u == Use::Aggregation(name)),
            Kind::Added { .. } => {
                self.first(|u, _| matches!(u, Use::Increment | Use::Add | Use::Sub))
            }
            Kind::Plain => self.first(|u, _| u == Use::Assign),
        };
        found.map_or(self.span, |f| f.1)
    }

    /// Why a map that is stepped is nevertheless plain.
    pub fn why_plain(&self) -> Option<(Use, Span)> {
        self.first(|u, kernel| u == Use::Assign || kernel && matches!(u, Use::Read | Use::Delete))
    }

    fn signed(&self) -> bool {
        self.minus || self.value.as_ref().is_none_or(|(t, _)| *t != Type::U64)
    }

    /// As the checked script has it.
    pub fn finish(&self) -> Map {
        let signed = self.signed();
        let value = match self.kind() {
            Kind::Plain => {
                let value = self.value.as_ref().map(|(t, _)| t.clone());
                MapValue::Plain(value.unwrap_or(Type::U64))
            }
            Kind::Added { sum: false } | Kind::Aggregation("count") => MapValue::Count,
            Kind::Added { sum: true } | Kind::Aggregation("sum") => MapValue::Sum { signed },
            Kind::Aggregation("min") => MapValue::Min { signed },
            Kind::Aggregation("max") => MapValue::Max { signed },
            Kind::Aggregation("avg") => MapValue::Avg { signed },
            Kind::Aggregation("stats") => MapValue::Stats { signed },
            Kind::Aggregation("lhist") => {
                let (min, max, step) = self.range.map_or((0, 1, 1), |r| r.0);
                MapValue::LHist { min, max, step }
            }
            Kind::Aggregation(_) => MapValue::Hist,
        };
        Map {
            name: self.name.clone(),
            key: self
                .key
                .as_ref()
                .map(|(k, _)| k.clone())
                .unwrap_or_default(),
            value,
            span: self.span,
        }
    }
}
