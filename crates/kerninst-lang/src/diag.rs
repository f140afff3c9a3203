//! What is wrong with a script, and how it is shown: place, caret, what was expected, nearest name.

use crate::hir::Span;
use std::cmp::Reverse;
use std::fmt::Write as _;

/// Something that is wrong, or doubtful, at a place in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where.
    pub span: Span,
    /// It is only doubtful: the script can run.
    pub warning: bool,
    /// What, in one sentence.
    pub message: String,
    /// Other places that have to do with it.
    pub notes: Vec<(Span, String)>,
    /// What to write instead.
    pub help: Vec<String>,
}

impl Diagnostic {
    /// An error.
    pub fn error(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            span,
            warning: false,
            message: message.into(),
            notes: Vec::new(),
            help: Vec::new(),
        }
    }

    /// A warning.
    pub fn warning(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            warning: true,
            ..Diagnostic::error(span, message)
        }
    }

    /// With a note at another place.
    #[must_use]
    pub fn note(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.notes.push((span, text.into()));
        self
    }

    /// With a line of help.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Diagnostic {
        self.help.push(text.into());
        self
    }

    /// With the nearest of some names as help, if one is near.
    #[must_use]
    pub fn nearest<'a>(self, wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Diagnostic {
        match nearest(wrong, names) {
            Some(name) => self.help(format!("did you mean `{name}`?")),
            None => self,
        }
    }

    /// As a compiler shows it: message, `file:line:column`, the line, the place underlined, notes and help. `colour`: with the
    /// terminal's escapes.
    pub fn render(&self, source: &str, file_name: &str, colour: bool) -> String {
        let paint = |code: &'static str| if colour { code } else { "" };
        let (bold, blue, reset) = (paint("\x1b[1m"), paint("\x1b[1;34m"), paint("\x1b[0m"));
        let (word, own) = if self.warning {
            ("warning", paint("\x1b[1;33m"))
        } else {
            ("error", paint("\x1b[1;31m"))
        };
        let lines = std::iter::once(self.span).chain(self.notes.iter().map(|n| n.0));
        let last = lines.map(|s| Position::of(source, s).line).max();
        let gutter = last.unwrap_or(1).to_string().len();
        let mut out = String::new();
        let _ = writeln!(out, "{own}{word}{reset}{bold}: {}{reset}", self.message);
        let mut snippet = |span: Span, own: &str, label: &str| {
            let at = Position::of(source, span);
            let pad = " ".repeat(gutter);
            let number = at.line.to_string();
            let _ = writeln!(
                out,
                "{pad}{blue}-->{reset} {file_name}:{}:{}\n{pad} {blue}|{reset}\n{blue}{number:>gutter$} |{reset} {}\n\
                 {pad} {blue}|{reset} {}{own}{}{label}{reset}",
                at.line,
                at.column,
                at.text,
                at.blank,
                "^".repeat(at.width),
            );
        };
        snippet(self.span, own, "");
        for (span, text) in &self.notes {
            snippet(*span, blue, &format!(" {text}"));
        }
        for help in &self.help {
            let _ = writeln!(
                out,
                "{} {blue}={reset} {bold}help{reset}: {help}",
                " ".repeat(gutter)
            );
        }
        out
    }
}

/// A span in lines and columns.
struct Position<'a> {
    line: usize,
    column: usize,
    text: &'a str,
    /// What stands before the place, as blanks and tabs.
    blank: String,
    /// Characters to underline, at least 1.
    width: usize,
}

impl Position<'_> {
    fn of(source: &str, span: Span) -> Position<'_> {
        let start = floor(source, span.start as usize);
        let end = floor(source, span.end as usize).max(start);
        let before = source.get(..start).unwrap_or("");
        let begin = before.rfind('\n').map_or(0, |n| n + 1);
        let text = source.get(begin..).unwrap_or("");
        let text = text.split('\n').next().unwrap_or("").trim_end_matches('\r');
        let left = source.get(begin..start).unwrap_or("");
        let here = source.get(start..end).unwrap_or("");
        let here = here.split('\n').next().unwrap_or("");
        Position {
            line: before.matches('\n').count() + 1,
            column: left.chars().count() + 1,
            text,
            blank: left
                .chars()
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect(),
            width: here.trim_end().chars().count().max(1),
        }
    }
}

/// The last boundary of characters at or before `at`.
fn floor(source: &str, at: usize) -> usize {
    source.floor_char_boundary(at)
}

/// The name nearest to `wrong` (insertions, deletions, changes, exchanged neighbours), if it is near enough to be meant.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Names of C are short; a long word would cost its square.
    if wrong.len() > 64 {
        return None;
    }
    let most = (wrong.chars().count() / 3).max(1);
    names
        .into_iter()
        .filter(|name| name.len() <= 64 && name.len().abs_diff(wrong.len()) <= most)
        // Of two that are as near, the longer one: letters are left out more often than written twice.
        .map(|name| (strsim::osa_distance(wrong, name), Reverse(name.len()), name))
        .filter(|(distance, ..)| *distance <= most)
        .min()
        .map(|(.., name)| name)
}
