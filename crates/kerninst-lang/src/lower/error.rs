//! Why a clause cannot be lowered.

use crate::hir::Span;

/// A clause cannot be run at a point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LowerError {
    /// What of the source.
    pub span: Span,
    /// Why.
    pub reason: Reason,
}

impl LowerError {
    pub(super) fn new(span: Span, reason: Reason) -> LowerError {
        LowerError { span, reason }
    }
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// `arg0` … elsewhere.
    #[error("arguments are only there at a function's entry; elsewhere use reg(\"rdi\")")]
    NoArguments,
    /// `retval` elsewhere.
    #[error("retval is only there where a function returns (exit:)")]
    NoReturnValue,
    /// `callee` elsewhere.
    #[error("callee is only there at a call (call:)")]
    NoCallee,
    /// `caller` elsewhere.
    #[error(
        "caller is only there at a function's entry, where the return address is on top of the stack"
    )]
    NoCaller,
    /// `return VALUE` elsewhere.
    #[error("a function's body can be skipped only at its entry")]
    NotEntry,
    /// `skip()` elsewhere.
    #[error("the instruction at this point cannot be skipped")]
    NoSkip,
    /// A callout is missing.
    #[error("this kernel lacks what {0} needs")]
    NoCallout(&'static str),
    /// No stack table.
    #[error("no memory was set aside for stacks")]
    NoStacks,
    /// No event buffer, or it is too small for a record.
    #[error("the event buffer is too small for this")]
    NoRing,
    /// Record too large.
    #[error(
        "the values of this make a record of more than {} bytes",
        crate::layout::MAX_RECORD
    )]
    Record,
    /// Too many kinds of events.
    #[error("the session has too many different events")]
    Events,
    /// Scratch memory.
    #[error(
        "the clause's texts need more than {} bytes of scratch memory at once",
        kerninst_snippet::ir::MAX_FRAME
    )]
    Frame,
    /// `rsp`, or no register.
    #[error("this register cannot be set")]
    Register,
    /// Nesting.
    #[error("nested too deeply")]
    Deep,
    /// The checker let something through that makes no sense: our own fault.
    #[error("internal error of kerninst: a checked script is malformed ({0})")]
    Malformed(&'static str),
}
