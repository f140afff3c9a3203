//! From source to syntax tree: recursive descent, which goes on behind an error so that all are found.

mod cast;
mod expr;
mod probe;
mod stmt;
#[cfg(test)]
mod tests;

pub(crate) use cast::integer;

use crate::ast::{Clause, Script};
use crate::diag::Diagnostic;
use crate::hir::Span;
use crate::lex::{Lexer, Tok, Token};

/// Longest source.
pub const MAX_SOURCE: usize = 1 << 20;
/// Most levels of an expression, brackets included.
const MAX_EXPR: u16 = 100;
/// Most levels of blocks.
const MAX_BLOCKS: u32 = 32;
/// Most probes of a script: each function that is named is looked up.
const MAX_PROBES: usize = 2048;
/// After so many errors parsing stops.
const MAX_ERRORS: usize = 50;

/// Reads a script.
///
/// # Errors
/// All that is wrong in its syntax, in the order of the text.
pub fn parse(source: &str) -> Result<Script, Vec<Diagnostic>> {
    if source.len() > MAX_SOURCE {
        let d = Diagnostic::error(Span::default(), "the script is longer than 1 MiB");
        return Err(vec![d]);
    }
    let mut parser = Parser {
        lex: Lexer::new(source),
        tok: Token {
            tok: Tok::Eof,
            span: Span::default(),
        },
        end: 0,
        errors: Vec::new(),
        expr_depth: 0,
        block_depth: 0,
        probes: 0,
        in_filter: false,
    };
    parser.advance();
    let script = parser.script();
    if parser.errors.is_empty() {
        Ok(script)
    } else {
        Err(parser.errors)
    }
}

/// `None` of its methods: there was an error, and it is noted.
struct Parser<'a> {
    lex: Lexer<'a>,
    /// The next token, not yet taken.
    tok: Token,
    /// Where the last taken token ended.
    end: u32,
    errors: Vec<Diagnostic>,
    /// Open brackets and operators around the place.
    expr_depth: u16,
    block_depth: u32,
    /// Probes so far.
    probes: usize,
    /// A `/` before `{` ends the filter.
    in_filter: bool,
}

impl Parser<'_> {
    fn script(&mut self) -> Script {
        let mut script = Script::default();
        while self.tok.tok != Tok::Eof && self.errors.len() < MAX_ERRORS {
            if self.at("}") {
                let d = Diagnostic::error(self.tok.span, "this `}` closes nothing");
                self.errors.push(d);
                self.advance();
                continue;
            }
            script.clauses.extend(self.clause());
        }
        if script.clauses.is_empty() && self.errors.is_empty() {
            let d = Diagnostic::error(self.tok.span, "there is no probe in the script")
                .help("write for example: entry:vfs_read { @[comm] = count() }");
            self.errors.push(d);
        }
        script
    }

    fn clause(&mut self) -> Option<Clause> {
        let start = self.tok.span.start;
        let errors = self.errors.len();
        let probes = self.probes();
        let filter = if self.at("/") { self.filter() } else { None };
        if !self.at("{") {
            if self.errors.len() == errors {
                self.expected::<()>("`{`", &["a probe is followed by a filter `/CONDITION/`, or by what it does: `{ STATEMENTS }`"]);
            }
            self.skip_to_body();
            if !self.at("{") {
                return None;
            }
        }
        let body = self.block()?;
        if probes.is_empty() {
            return None;
        }
        Some(Clause {
            probes,
            filter,
            body,
            span: Span {
                start,
                end: self.end,
            },
        })
    }

    fn filter(&mut self) -> Option<crate::ast::Expr> {
        let open = self.tok.span;
        self.advance();
        self.in_filter = true;
        let filter = self.expr();
        self.in_filter = false;
        let filter = filter?;
        if !self.at("/") {
            let d = Diagnostic::error(self.tok.span, "expected `/` at the end of the filter")
                .note(open, "it begins here");
            let d = match self.at("=") {
                true => d.help("values are compared with `==`"),
                false => d,
            };
            self.errors.push(d);
            return None;
        }
        self.advance();
        Some(filter)
    }

    /// After an error before the body.
    fn skip_to_body(&mut self) {
        while !self.at("{") && !self.at("}") && self.tok.tok != Tok::Eof {
            self.advance();
        }
    }

    /// Takes the token; the next one is looked at. What is no token is noted.
    fn advance(&mut self) -> Token {
        let start = self.lex.at;
        let next = self.lex.next().unwrap_or_else(|d| {
            if self.errors.len() < MAX_ERRORS {
                self.errors.push(d);
            }
            Token {
                tok: Tok::Bad,
                span: self.lex.span_from(start),
            }
        });
        let taken = std::mem::replace(&mut self.tok, next);
        self.end = taken.span.end;
        taken
    }

    fn at(&self, sign: &str) -> bool {
        matches!(&self.tok.tok, Tok::Sign(s) if *s == sign)
    }

    fn at_word(&self, word: &str) -> bool {
        matches!(&self.tok.tok, Tok::Word(w) if w == word)
    }

    /// Takes a sign if it is there.
    fn accept(&mut self, sign: &str) -> bool {
        let there = self.at(sign);
        if there {
            self.advance();
        }
        there
    }

    fn expect(&mut self, sign: &str) -> Option<()> {
        if self.accept(sign) {
            return Some(());
        }
        self.expected(&format!("`{sign}`"), &[])
    }

    /// An error at the next token.
    fn expected<T>(&mut self, what: &str, help: &[&str]) -> Option<T> {
        let found = match &self.tok.tok {
            Tok::Bad => return None,
            Tok::Eof => "the end of the script".to_string(),
            Tok::Word(w) => format!("`{w}`"),
            Tok::Int(_) => "a number".into(),
            Tok::Text(_) => "text".into(),
            Tok::Local(n) | Tok::Map(n) => format!("`{n}`"),
            Tok::Param(n) => format!("`${n}`"),
            Tok::Sign(s) => format!("`{s}`"),
        };
        let mut d = Diagnostic::error(self.here(), format!("expected {what}, found {found}"));
        d.help.extend(help.iter().map(|h| h.to_string()));
        self.errors.push(d);
        None
    }

    fn fail<T>(&mut self, d: Diagnostic) -> Option<T> {
        self.errors.push(d);
        None
    }

    /// The next token; the end of the script is right behind the last one.
    fn here(&self) -> Span {
        match self.tok.tok {
            Tok::Eof => Span {
                start: self.end,
                end: self.end,
            },
            _ => self.tok.span,
        }
    }

    fn since(&self, start: Span) -> Span {
        Span {
            start: start.start,
            end: self.end.max(start.start),
        }
    }
}
