//! Statements and blocks.

use super::{MAX_BLOCKS, MAX_ERRORS, Parser};
use crate::ast::{Binary, Expr, ExprKind, Stmt, StmtKind};
use crate::diag::Diagnostic;
use crate::hir::Span;
use crate::lex::Tok;

/// Assignments that compute, with their operators.
const COMPOUND: [(&str, Binary); 10] = [
    ("+=", Binary::Add),
    ("-=", Binary::Sub),
    ("*=", Binary::Mul),
    ("/=", Binary::Div),
    ("%=", Binary::Rem),
    ("&=", Binary::And),
    ("|=", Binary::Or),
    ("^=", Binary::Xor),
    ("<<=", Binary::Shl),
    (">>=", Binary::Shr),
];

impl Parser<'_> {
    /// `{ STATEMENTS }`.
    pub(super) fn block(&mut self) -> Option<Vec<Stmt>> {
        let open = self.tok.span;
        if !self.at("{") {
            return self.expected("`{`", &["what is done stands in braces, one statement too"]);
        }
        if self.block_depth >= MAX_BLOCKS {
            let d = Diagnostic::error(open, format!("blocks are more than {MAX_BLOCKS} deep"));
            self.errors.push(d);
            self.skip_block();
            return None;
        }
        self.advance();
        self.block_depth += 1;
        let mut body = Vec::new();
        let mut closed = true;
        loop {
            if self.accept("}") {
                break;
            }
            if self.tok.tok == Tok::Eof || self.errors.len() >= MAX_ERRORS {
                closed = false;
                break;
            }
            if self.accept(";") {
                continue;
            }
            // The semicolons of `for (;;)` do not end it.
            let has_block = ["if", "for", "while", "unroll"]
                .iter()
                .any(|w| self.at_word(w));
            match self.stmt() {
                Some(stmt) => body.push(stmt),
                None => self.skip_stmt(has_block),
            }
        }
        self.block_depth -= 1;
        if !closed && self.errors.len() < MAX_ERRORS {
            let d = Diagnostic::error(self.here(), "expected `}`, found the end of the script")
                .note(open, "to close this");
            self.errors.push(d);
            return None;
        }
        Some(body)
    }

    /// Behind the end of the statement that an error is in: its `;` or its own block, or before the `}` of the block around it.
    fn skip_stmt(&mut self, has_block: bool) {
        while !self.at("}") && self.tok.tok != Tok::Eof {
            if !has_block && self.accept(";") {
                return;
            }
            if self.at("{") {
                self.skip_block();
                // What follows a block is a new statement, but for the other side of an `if`.
                if !has_block || !self.at_word("else") {
                    return;
                }
                continue;
            }
            self.advance();
        }
    }

    /// Over a block and all in it.
    fn skip_block(&mut self) {
        let mut depth = 0u32;
        while self.tok.tok != Tok::Eof {
            if self.at("{") {
                depth += 1;
            } else if self.at("}") {
                depth = depth.saturating_sub(1);
            }
            self.advance();
            if depth == 0 {
                return;
            }
        }
    }

    fn stmt(&mut self) -> Option<Stmt> {
        let start = self.tok.span;
        let word = match &self.tok.tok {
            Tok::Word(w) => w.clone(),
            _ => String::new(),
        };
        let kind = match word.as_str() {
            "if" => Some(self.if_()?),
            "unroll" => {
                self.advance();
                let times = self.in_brackets()?;
                Some(StmtKind::Unroll {
                    times,
                    body: self.block()?,
                })
            }
            "for" => Some(self.for_()?),
            "while" => {
                self.advance();
                let c = self.in_brackets()?;
                let limit = self.limit()?;
                Some(StmtKind::While {
                    c,
                    limit,
                    body: self.block()?,
                })
            }
            _ => None,
        };
        if let Some(kind) = kind {
            return Some(Stmt {
                kind,
                span: self.since(start),
            });
        }
        let kind = match word.as_str() {
            "break" => {
                self.advance();
                StmtKind::Break
            }
            "continue" => {
                self.advance();
                StmtKind::Continue
            }
            "return" => {
                self.advance();
                let bare = self.at(";") || self.at("}");
                StmtKind::Return(if bare { None } else { Some(self.expr()?) })
            }
            "else" => {
                let d = Diagnostic::error(start, "`else` without `if`");
                return self.fail(d);
            }
            "let" => {
                let d = Diagnostic::error(start, "variables are not declared")
                    .help("assign to it: `$x = 0`");
                return self.fail(d);
            }
            _ => self.simple()?,
        };
        let span = self.since(start);
        if !self.at("}") && !self.accept(";") {
            return self.expected("`;` or `}`", &[]);
        }
        Some(Stmt { kind, span })
    }

    /// Assignments, steps and calls.
    fn simple(&mut self) -> Option<StmtKind> {
        for (sign, up) in [("++", true), ("--", false)] {
            if self.accept(sign) {
                let to = self.unary()?;
                return Some(StmtKind::Step { to, up });
            }
        }
        let to = self.expr()?;
        for (sign, up) in [("++", true), ("--", false)] {
            if self.accept(sign) {
                return Some(StmtKind::Step { to, up });
            }
        }
        if self.accept("=") {
            let value = self.expr()?;
            return Some(StmtKind::Assign {
                to,
                op: None,
                value,
            });
        }
        if let Some((_, op)) = COMPOUND.iter().find(|(s, _)| self.at(s)) {
            self.advance();
            let value = self.expr()?;
            return Some(StmtKind::Assign {
                to,
                op: Some(*op),
                value,
            });
        }
        Some(StmtKind::Expr(to))
    }

    fn if_(&mut self) -> Option<StmtKind> {
        self.advance();
        let c = self.in_brackets()?;
        let then = self.block()?;
        let mut other = Vec::new();
        if self.at_word("else") {
            self.advance();
            if self.at_word("if") {
                let start = self.tok.span;
                if self.block_depth >= MAX_BLOCKS {
                    let d = Diagnostic::error(
                        start,
                        format!(
                            "more than {MAX_BLOCKS} times `else if`, blocks around it included"
                        ),
                    );
                    return self.fail(d);
                }
                self.block_depth += 1;
                let kind = self.if_();
                self.block_depth -= 1;
                other.push(Stmt {
                    kind: kind?,
                    span: self.since(start),
                });
            } else {
                other = self.block()?;
            }
        }
        Some(StmtKind::If { c, then, other })
    }

    fn for_(&mut self) -> Option<StmtKind> {
        const FORM: &str = "write `for ($i : 0..10) { }`; with an end that is no constant: `for ($i : 0..$n) limit 100 { }`";
        self.advance();
        self.expect("(")?;
        let (local, local_span) = match &self.tok.tok {
            Tok::Local(name) => (name.clone(), self.tok.span),
            _ => return self.expected("a variable", &[FORM]),
        };
        self.advance();
        if !self.accept(":") {
            return self.expected("`:`", &[FORM]);
        }
        let from = self.expr()?;
        if !self.accept("..") {
            return self.expected("`..`", &[FORM]);
        }
        let to = self.expr()?;
        self.expect(")")?;
        let limit = self.limit()?;
        Some(StmtKind::For {
            local,
            local_span,
            from,
            to,
            limit,
            body: self.block()?,
        })
    }

    /// `limit N` if it is there.
    fn limit(&mut self) -> Option<Option<Expr>> {
        if !self.at_word("limit") {
            return Some(None);
        }
        self.advance();
        Some(Some(self.expr()?))
    }

    /// A condition: `(e)`.
    fn in_brackets(&mut self) -> Option<Expr> {
        self.expect("(")?;
        let e = self.expr()?;
        self.expect(")")?;
        Some(e)
    }

    /// Arguments of a call or parts of a key, up to the closing sign.
    pub(super) fn list(&mut self, close: &str, open: Span) -> Option<Vec<Expr>> {
        let mut list = Vec::new();
        loop {
            if list.is_empty() && self.accept(close) {
                return Some(list);
            }
            list.push(self.expr()?);
            if self.accept(",") {
                continue;
            }
            if self.accept(close) {
                return Some(list);
            }
            let _: Option<()> = self.expected(&format!("`,` or `{close}`"), &[]);
            if let Some(d) = self.errors.last_mut() {
                d.notes.push((open, "to close this".into()));
            }
            return None;
        }
    }

    /// Wraps what was read, one level deeper than its parts.
    pub(super) fn node(&mut self, kind: ExprKind, span: Span) -> Option<Expr> {
        let below = match &kind {
            ExprKind::Map { key: list, .. }
            | ExprKind::Call { args: list, .. }
            | ExprKind::Tuple(list) => list.iter().map(|e| e.depth).max().unwrap_or(0),
            ExprKind::Unary(_, a)
            | ExprKind::Cast(_, a)
            | ExprKind::SizeOf(a)
            | ExprKind::Deref(a)
            | ExprKind::Address(a)
            | ExprKind::Member { of: a, .. } => a.depth,
            ExprKind::Binary(_, a, b) | ExprKind::Index(a, b) => a.depth.max(b.depth),
            ExprKind::Choice(c, a, b) => c.depth.max(a.depth).max(b.depth),
            _ => 0,
        };
        if below >= super::MAX_EXPR {
            return self.too_deep(span);
        }
        Some(Expr {
            kind,
            span,
            depth: below + 1,
        })
    }

    pub(super) fn too_deep<T>(&mut self, span: Span) -> Option<T> {
        let most = super::MAX_EXPR;
        let d = Diagnostic::error(
            span,
            format!("the expression is more than {most} levels deep"),
        )
        .help("split it: assign parts of it to variables");
        self.fail(d)
    }
}
