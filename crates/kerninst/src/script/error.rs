//! What can be wrong with a script that was checked.

use crate::error::{ArmError, ResolveError};
use crate::probe::ParseError;
use kerninst_lang::hir::Span;
use kerninst_lang::lower::LowerError;

/// A checked script cannot run here.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// A probe cannot be understood.
    #[error("{error}")]
    Probe {
        /// Where it stands.
        span: Span,
        /// Why.
        error: ParseError,
    },
    /// A probe means nothing in this kernel.
    #[error("{error}")]
    Resolve {
        /// Where it stands.
        span: Span,
        /// Why.
        error: ResolveError,
    },
    /// A clause cannot do what it says where it is to run.
    #[error("at {point}: {}", error.reason)]
    Lower {
        /// The point.
        point: String,
        /// Why, and what of the source.
        error: LowerError,
    },
    /// A clause's program is too much for one visit.
    #[error(
        "at {point}: the clause may take {cost} instructions, and at most {most} are allowed; use fewer rounds in its loops"
    )]
    TooLong {
        /// The clause.
        span: Span,
        /// The point.
        point: String,
        /// Most instructions that it may take.
        cost: u64,
        /// The limit.
        most: u64,
    },
    /// Our own fault.
    #[error("internal error of kerninst: the program for {point} is malformed ({why})")]
    Invalid {
        /// The point.
        point: String,
        /// What is wrong.
        why: String,
    },
    /// The kernel lacks something.
    #[error("this kernel lacks what programs need: {0}")]
    Missing(String),
    /// Driver, memory, arming.
    #[error(transparent)]
    Arm(#[from] ArmError),
}

impl ScriptError {
    /// What of the source it is about.
    pub fn span(&self) -> Option<Span> {
        match self {
            ScriptError::Probe { span, .. }
            | ScriptError::Resolve { span, .. }
            | ScriptError::TooLong { span, .. } => Some(*span),
            ScriptError::Lower { error, .. } => Some(error.span),
            ScriptError::Invalid { .. } | ScriptError::Missing(_) | ScriptError::Arm(_) => None,
        }
    }
}
