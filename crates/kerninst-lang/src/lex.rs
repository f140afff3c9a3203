//! Tokens. Probes are no tokens: the parser reads their text from the source itself.

use crate::diag::Diagnostic;
use crate::hir::Span;

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub enum Tok {
    /// A word.
    Word(String),
    /// A number; suffixes of time are already multiplied.
    Int(u64),
    /// Text in quotes, escapes resolved.
    Text(String),
    /// `$name`.
    Local(String),
    /// `$1`; `$#` is 0.
    Param(u32),
    /// `@`, `@name`.
    Map(String),
    /// An operator or bracket.
    Sign(&'static str),
    /// What is no token: there is an error already.
    Bad,
    /// The end of the source.
    Eof,
}

/// A token with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// What.
    pub tok: Tok,
    /// Where.
    pub span: Span,
}

/// Longest first, so that `<<=` is not `<`.
const SIGNS: [&str; 46] = [
    "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=",
    "-=", "*=", "/=", "%=", "&=", "|=", "^=", "..", "+", "-", "*", "/", "%", "&", "|", "^", "~",
    "!", "<", ">", "=", "?", ":", ",", ";", "(", ")", "[", "]", "{", "}",
];

/// Units of time that a number may end in, in nanoseconds, as bpftrace has them.
const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Reads tokens, one at a time.
#[derive(Debug, Clone)]
pub struct Lexer<'a> {
    source: &'a str,
    /// Where the next token is looked for.
    pub at: usize,
}

impl<'a> Lexer<'a> {
    /// From the start of a source of less than 4 GiB.
    pub fn new(source: &'a str) -> Lexer<'a> {
        Lexer { source, at: 0 }
    }

    /// What is left of the source.
    pub fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or("")
    }

    /// From a byte to where the lexer is.
    pub fn span_from(&self, start: usize) -> Span {
        Span {
            start: start as u32,
            end: self.at.max(start) as u32,
        }
    }

    /// Skips blanks and comments.
    pub fn skip_blanks(&mut self) -> Result<(), Diagnostic> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("//") || self.at == 0 && trimmed.starts_with("#!") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if trimmed.starts_with("/*") {
                let start = self.at;
                match trimmed.get(2..).and_then(|t| t.find("*/")) {
                    Some(end) => self.at += end + 4,
                    None => {
                        self.at = self.source.len();
                        let span = Span {
                            start: start as u32,
                            end: start as u32 + 2,
                        };
                        return Err(Diagnostic::error(span, "this comment has no end")
                            .help("end it with `*/`"));
                    }
                }
            } else {
                return Ok(());
            }
        }
    }

    /// The next token. After an error the lexer is behind what caused it.
    pub fn next(&mut self) -> Result<Token, Diagnostic> {
        self.skip_blanks()?;
        let start = self.at;
        let tok = self.token(start)?;
        Ok(Token {
            tok,
            span: self.span_from(start),
        })
    }

    fn token(&mut self, start: usize) -> Result<Tok, Diagnostic> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok(Tok::Eof);
        };
        if first.is_ascii_alphabetic() || first == '_' {
            return Ok(Tok::Word(self.word().to_string()));
        }
        match first {
            '0'..='9' => return self.number(start),
            '"' => return self.text(start),
            '\'' => return self.character(start),
            '@' => {
                self.at += 1;
                return Ok(Tok::Map(format!("@{}", self.word())));
            }
            '$' => return self.dollar(start),
            _ => {}
        }
        if let Some(sign) = SIGNS.iter().find(|s| rest.starts_with(**s)) {
            self.at += sign.len();
            return Ok(Tok::Sign(sign));
        }
        if first == '.' {
            self.at += 1;
            return Ok(Tok::Sign("."));
        }
        self.at += first.len_utf8();
        let shown = first.escape_debug();
        Err(Diagnostic::error(
            self.span_from(start),
            format!("`{shown}` is no sign of the language"),
        ))
    }

    /// Letters, digits and underscores from here on.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or("")
    }

    fn dollar(&mut self, start: usize) -> Result<Tok, Diagnostic> {
        self.at += 1;
        if self.rest().starts_with('#') {
            self.at += 1;
            return Ok(Tok::Param(0));
        }
        let word = self.word();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return match word.parse::<u32>() {
                Ok(n @ 1..) => Ok(Tok::Param(n)),
                _ => Err(
                    Diagnostic::error(self.span_from(start), format!("`${word}` is no parameter"))
                        .help("parameters of the script are `$1`, `$2` and so on; variables begin with a letter"),
                ),
            };
        }
        if word.is_empty() {
            return Err(
                Diagnostic::error(self.span_from(start), "a name must follow `$`")
                    .help("write `$name` for a variable, `$1` for a parameter of the script"),
            );
        }
        Ok(Tok::Local(format!("${word}")))
    }

    fn number(&mut self, start: usize) -> Result<Tok, Diagnostic> {
        let word = self.word();
        let span = self.span_from(start);
        let digits: String = word.chars().filter(|c| *c != '_').collect();
        let value = if let Some(hex) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
            radix(hex, 16)
        } else if let Some(bin) = digits.strip_prefix("0b").or(digits.strip_prefix("0B")) {
            radix(bin, 2)
        } else {
            decimal(&digits)
        };
        match value {
            Number::Value(v) => Ok(Tok::Int(v)),
            Number::TooLarge => Err(Diagnostic::error(
                span,
                format!("`{word}` does not fit into 64 bits"),
            )),
            Number::Wrong => Err(Diagnostic::error(span, format!("`{word}` is no number")).help(
                "numbers are decimal, 0x hexadecimal, 0 octal, 1e6, 1_000, or end in ns us ms s m h d (time in nanoseconds)",
            )),
        }
    }

    fn text(&mut self, start: usize) -> Result<Tok, Diagnostic> {
        let inner = self.quoted(start, '"', "text")?;
        Ok(Tok::Text(inner))
    }

    fn character(&mut self, start: usize) -> Result<Tok, Diagnostic> {
        let inner = self.quoted(start, '\'', "character")?;
        match inner.as_bytes() {
            [one] => Ok(Tok::Int(u64::from(*one))),
            _ => Err(Diagnostic::error(
                self.span_from(start),
                "between single quotes stands one character",
            )
            .help("text goes between double quotes: \"...\"")),
        }
    }

    /// From one quote to the next, escapes resolved.
    fn quoted(&mut self, start: usize, quote: char, what: &str) -> Result<String, Diagnostic> {
        self.at += 1;
        let mut out = String::new();
        let mut wrong = None;
        loop {
            let at = self.at;
            let Some(c) = self.take() else {
                break;
            };
            match c {
                c if c == quote => return wrong.map_or(Ok(out), Err),
                '\n' => {
                    self.at = at;
                    break;
                }
                '\\' => match self.escape(quote == '\'') {
                    Some(c) => out.push(c),
                    None => {
                        let bad = Diagnostic::error(self.span_from(at), "no such escape").help(
                            r#"there are \n \t \r \a \b \f \v \\ \" \' \NNN (octal) and \xNN, of ASCII characters; in texts other than 0"#,
                        );
                        wrong.get_or_insert(bad);
                    }
                },
                c => out.push(c),
            }
        }
        let span = Span {
            start: start as u32,
            end: start as u32 + 1,
        };
        Err(
            Diagnostic::error(span, format!("this {what} has no end on its line"))
                .help(format!("end it with {quote}; a new line in it is \\n")),
        )
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// What follows a backslash. `nul`: it may be 0, which ends texts.
    fn escape(&mut self, nul: bool) -> Option<char> {
        let rest = self.rest();
        let plain = match rest.chars().next()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'v' => '\x0b',
            c @ ('\\' | '"' | '\'') => c,
            'x' => {
                let digits = rest.get(1..3)?;
                self.at += 3;
                return ascii(u32::from_str_radix(digits, 16).ok()?, nul);
            }
            '0'..='7' => {
                let n = rest
                    .bytes()
                    .take(3)
                    .take_while(|b| (b'0'..=b'7').contains(b));
                let n = n.count();
                self.at += n;
                return ascii(u32::from_str_radix(rest.get(..n)?, 8).ok()?, nul);
            }
            _ => return None,
        };
        self.at += 1;
        Some(plain)
    }
}

fn ascii(code: u32, nul: bool) -> Option<char> {
    char::from_u32(code).filter(|c| c.is_ascii() && (nul || *c != '\0'))
}

enum Number {
    Value(u64),
    TooLarge,
    Wrong,
}

fn radix(digits: &str, radix: u32) -> Number {
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Number::Wrong;
    }
    u64::from_str_radix(digits, radix).map_or(Number::TooLarge, Number::Value)
}

/// `123`, `0755`, `1e6`, `10ms`, with C's suffixes `u` and `l`.
fn decimal(text: &str) -> Number {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let base = if digits.len() > 1 && digits.starts_with('0') && suffix.is_empty() {
        8
    } else {
        10
    };
    let value = match radix(digits, base) {
        Number::Value(v) => v,
        other => return other,
    };
    if suffix.is_empty() {
        return Number::Value(value);
    }
    if let Some(exponent) = suffix.strip_prefix(['e', 'E']) {
        let Ok(exponent) = exponent.parse::<u32>() else {
            return Number::Wrong;
        };
        let power = 10u64.checked_pow(exponent);
        return match power.and_then(|p| p.checked_mul(value)) {
            Some(v) => Number::Value(v),
            None => Number::TooLarge,
        };
    }
    if let Some((_, unit)) = UNITS.iter().find(|(name, _)| *name == suffix) {
        return value
            .checked_mul(*unit)
            .map_or(Number::TooLarge, Number::Value);
    }
    match suffix.to_ascii_lowercase().as_str() {
        "u" | "l" | "ul" | "ll" | "ull" | "lu" | "llu" => Number::Value(value),
        _ => Number::Wrong,
    }
}
