//! Colour: only where it is wanted.

use std::fmt;
use std::io::IsTerminal;

use clap::ValueEnum;

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Should this stream be coloured?
    #[must_use]
    pub fn wanted(self, stream: &impl IsTerminal) -> bool {
        let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        match self {
            Color::Always => true,
            Color::Never => false,
            // https://no-color.org: any value but the empty one.
            Color::Auto => {
                stream.is_terminal()
                    && !set("NO_COLOR")
                    && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
            }
        }
    }
}

/// What a piece of text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Nothing special.
    Plain,
    /// Headings and names.
    Bold,
    /// Of lesser interest.
    Dim,
    /// It works.
    Good,
    /// It does not.
    Bad,
    /// Look here.
    Warn,
    /// Blocks, jump targets.
    Label,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "\x1b[1m",
            Style::Dim => "\x1b[2m",
            Style::Good => "\x1b[32m",
            Style::Bad => "\x1b[31m",
            Style::Warn => "\x1b[33m",
            Style::Label => "\x1b[36m",
        }
    }
}

/// Colours text, or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paint(pub bool);

impl Paint {
    /// `text` in `style`.
    pub fn paint<T: fmt::Display>(self, style: Style, text: T) -> Painted<T> {
        let on = self.0 && style != Style::Plain;
        Painted { on, style, text }
    }
}

/// Text with its style.
#[derive(Clone, Copy, Debug)]
pub struct Painted<T> {
    on: bool,
    style: Style,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.on {
            write!(f, "{}{}\x1b[0m", self.style.code(), self.text)
        } else {
            write!(f, "{}", self.text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_only_there_when_wanted() {
        assert_eq!(Paint(false).paint(Style::Bad, "x").to_string(), "x");
        assert_eq!(Paint(true).paint(Style::Plain, "x").to_string(), "x");
        assert_eq!(
            Paint(true).paint(Style::Bad, "x").to_string(),
            "\x1b[31mx\x1b[0m"
        );
        let file = std::fs::File::open("/dev/null").expect("/dev/null");
        assert!(!Color::Auto.wanted(&file), "no terminal");
        assert!(Color::Always.wanted(&file));
    }
}
