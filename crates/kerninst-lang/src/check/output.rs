//! `printf`, `print` and their like: what user space does when it gets to the event.

use super::Checker;
use super::convert::describe;
use super::functions;
use crate::ast::{self, ExprKind as Ast};
use crate::diag::Diagnostic;
use crate::hir::{Conversion, Expr, Format, Piece, Span, Stmt, Type};
use crate::layout::{MAX_RECORD, record};

/// Most characters of padding.
const MAX_WIDTH: u32 = 1000;
const LETTERS: &str = "diuxXocspr";

impl Checker<'_> {
    /// A call as a statement.
    pub(super) fn action(
        &mut self,
        name: &str,
        name_span: Span,
        args: &[ast::Expr],
        span: Span,
    ) -> Option<Stmt> {
        let Some(signature) = functions::ACTIONS.iter().find(|s| s.name == name) else {
            return self.call_value(name, name_span, args, span).map(Stmt::Eval);
        };
        self.arity(signature, args.len(), span)?;
        match (name, args) {
            ("printf", [format, args @ ..]) => self.printf(format, args, span),
            ("print", [what, options @ ..]) => self.print(what, options),
            ("clear", [map]) => self.whole_map(map, name).map(Stmt::Clear),
            ("zero", [map]) => self.whole_map(map, name).map(Stmt::Zero),
            ("delete", [map, key @ ..]) => self.delete(map, key, span),
            ("time", []) => Some(Stmt::Time("%H:%M:%S\n".into())),
            ("time", [format]) => Some(Stmt::Time(
                self.constant_text(format, "the format of a time")?,
            )),
            ("cat", [path]) => Some(Stmt::Cat(self.constant_text(path, "the path of a file")?)),
            ("exit", _) => Some(Stmt::Exit),
            _ => {
                self.needs_kind(
                    ast::PlaceKind::Insn,
                    span,
                    "`skip()`",
                    "name the instruction that is not to run: `insn:FUNCTION+0xOFFSET`",
                )?;
                self.needs_unsafe(span, "not running an instruction")?;
                Some(Stmt::Skip)
            }
        }
    }

    /// The map of `print(@x)`, `clear(@x)`, `zero(@x)`.
    fn whole_map(&mut self, e: &ast::Expr, what: &str) -> Option<u32> {
        match &e.kind {
            Ast::Map { name, key } if key.is_empty() => self.map_number(name),
            Ast::Map { name, .. } => self.fail(
                Diagnostic::error(e.span, format!("`{what}` is for whole maps")).help(format!(
                    "write `{what}({name})`; one entry goes with `delete`"
                )),
            ),
            _ => self.fail(
                Diagnostic::error(e.span, format!("`{what}` takes a map"))
                    .help(format!("write `{what}(@map)`")),
            ),
        }
    }

    fn print(&mut self, what: &ast::Expr, options: &[ast::Expr]) -> Option<Stmt> {
        match &what.kind {
            Ast::Map { name, key } if key.is_empty() => {
                let map = self.map_number(name)?;
                let mut numbers = [0, 1];
                let names = ["the number of entries", "the divisor"];
                for ((e, name), n) in options.iter().zip(names).zip(&mut numbers) {
                    let least = *n;
                    *n = self.constant_in(e, name, least..=i64::from(u32::MAX))?;
                }
                let [top, div] = numbers;
                Some(Stmt::PrintMap {
                    map,
                    top: top as u32,
                    div: div as u64,
                })
            }
            _ => {
                let value = self.value(what)?;
                if let Some(extra) = options.first() {
                    return self.fail(Diagnostic::error(
                        extra.span,
                        "only maps are printed with a number of entries",
                    ));
                }
                self.fits_record(std::slice::from_ref(&value), what.span)?;
                Some(Stmt::PrintValue(value))
            }
        }
    }

    /// `delete(@x[k])`; also `delete(@x, k)`.
    fn delete(&mut self, e: &ast::Expr, more: &[ast::Expr], span: Span) -> Option<Stmt> {
        let Ast::Map { name, key } = &e.kind else {
            return self.fail(
                Diagnostic::error(e.span, "`delete` takes an entry of a map")
                    .help("write `delete(@map[key])`"),
            );
        };
        let more = match more {
            [
                ast::Expr {
                    kind: Ast::Tuple(parts),
                    ..
                },
            ] => parts.as_slice(),
            more => more,
        };
        if !more.is_empty() && !key.is_empty() {
            let d = Diagnostic::error(span, "`delete` takes one entry of a map");
            return self.fail(d.help("write `delete(@map[key])`"));
        }
        let map = self.map_number(name)?;
        let key = self.map_key(map, if key.is_empty() { more } else { key }, e.span)?;
        let in_kernel = self.context()?.places.first().copied();
        if let (Some((_, probe)), super::map_info::Kind::Aggregation(what)) =
            (in_kernel, self.map(map)?.kind())
        {
            let first = self.map(map)?.kind_span();
            return self.fail(
                Diagnostic::error(
                    span,
                    format!("an entry of a {what}() cannot be deleted in the kernel"),
                )
                .note(first, "this says what the map holds")
                .note(probe, "this runs in the kernel")
                .help(format!(
                    "`clear({name})` deletes all entries, when user space gets to it"
                )),
            );
        }
        Some(Stmt::Delete { map, key })
    }

    fn printf(&mut self, format: &ast::Expr, args: &[ast::Expr], span: Span) -> Option<Stmt> {
        let pieces = match &format.kind {
            Ast::Text(text) => self.pieces(text, format.span),
            _ => self.fail(Diagnostic::error(
                format.span,
                "the format must be text in quotes",
            )),
        };
        let mut values = Vec::new();
        for arg in args {
            values.push(self.value(arg));
        }
        let (pieces, values) = (pieces?, values.into_iter().collect::<Option<Vec<Expr>>>()?);
        let conversions: Vec<(char, &'static str)> = pieces.iter().filter_map(|p| p.1).collect();
        if conversions.len() != values.len() {
            let plural =
                |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            let message = format!(
                "the format has {}, and there {} {}",
                plural(conversions.len(), "conversion"),
                if values.len() == 1 { "is" } else { "are" },
                plural(values.len(), "argument"),
            );
            return self
                .fail(Diagnostic::error(span, message).help("a percent sign itself is `%%`"));
        }
        let mut args = Vec::new();
        for ((letter, length), value) in conversions.into_iter().zip(values) {
            args.push(self.printable(letter, length, value));
        }
        let args: Vec<Expr> = args.into_iter().collect::<Option<_>>()?;
        self.fits_record(&args, span)?;
        let number = self.formats.len() as u32;
        self.formats.push(Format {
            pieces: pieces.into_iter().map(|p| p.0).collect(),
            args: args.iter().map(|a| a.ty.clone()).collect(),
        });
        Some(Stmt::Printf {
            format: number,
            args,
        })
    }

    /// Whether a value can be shown by a conversion; `h` and `hh` cut it off.
    fn printable(&mut self, letter: char, length: &str, value: Expr) -> Option<Expr> {
        let ok = match (letter, &value.ty) {
            (
                's',
                Type::Str(_) | Type::Name | Type::Symbol | Type::KernelStack | Type::UserStack,
            ) => true,
            ('r', Type::Bytes(_)) => true,
            ('s' | 'r', _) => false,
            ('c', Type::Int { .. }) => true,
            ('c', _) => false,
            (_, Type::Int { .. } | Type::Pointer { .. } | Type::Symbol) => true,
            _ => false,
        };
        if !ok {
            let is = describe(&value.ty, self.types);
            let d = Diagnostic::error(value.span, format!("`%{letter}` cannot show {is}"));
            return self.fail(match (letter, &value.ty) {
                ('s', Type::Pointer { .. }) => {
                    d.help("text at an address is `str(p)`; the address itself is shown by `%p`")
                }
                ('s', Type::Int { bits: 64, .. }) => {
                    d.help("numbers are shown by `%d`; text at an address is `str(p)`")
                }
                ('s', Type::Int { .. }) => d.help("numbers are shown by `%d`"),
                (_, Type::Bytes(_)) => d.help("bytes are shown by `%r`"),
                ('r', _) => d.help("it is for `buf(p, N)`"),
                ('c', _) => d.help("it is for a character: `(uint8)x`"),
                _ => d.help("it is shown by `%s`"),
            });
        }
        let (bits, integer) = match length {
            "hh" => (8, true),
            "h" => (16, true),
            _ => (64, false),
        };
        if !integer || !matches!(value.ty, Type::Int { .. }) {
            return Some(value);
        }
        let ty = Type::Int {
            bits,
            signed: matches!(letter, 'd' | 'i'),
        };
        let span = value.span;
        self.cast(value, ty, span)
    }

    /// Literal text and conversions, these with their letter and length.
    fn pieces(&mut self, text: &str, span: Span) -> Option<Vec<ParsedPiece>> {
        let mut pieces: Vec<ParsedPiece> = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('%') {
            let (before, after) = rest.split_at(at);
            literal.push_str(before);
            let after = after.get(1..).unwrap_or("");
            if let Some(after) = after.strip_prefix('%') {
                literal.push('%');
                rest = after;
                continue;
            }
            match conversion(after) {
                Ok((c, length, left)) => {
                    if !literal.is_empty() {
                        pieces.push((Piece::Text(std::mem::take(&mut literal)), None));
                    }
                    let letter = c.letter;
                    pieces.push((Piece::Conversion(c), Some((letter, length))));
                    rest = left;
                }
                Err(message) => {
                    let d = Diagnostic::error(span, message);
                    return self.fail(d.help("there are %d %i %u %x %X %o %c %s %p and %r (bytes), with flags - 0 + #, width and precision"));
                }
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push((Piece::Text(literal), None));
        }
        Some(pieces)
    }

    /// Whether values fit into one record of the event buffer.
    fn fits_record(&mut self, values: &[Expr], span: Span) -> Option<()> {
        let size = values
            .iter()
            .fold(record::HEADER, |n, v| n.saturating_add(v.ty.size()));
        let in_kernel = !self.context()?.places.is_empty();
        if size <= MAX_RECORD || !in_kernel {
            return Some(());
        }
        self.fail(
            Diagnostic::error(
                span,
                format!("the values are {size} bytes long, an event has at most {MAX_RECORD}"),
            )
            .help("print them in several statements, or shorter: `str(p, 32)`"),
        )
    }
}

type ParsedPiece = (Piece, Option<(char, &'static str)>);

/// What follows a `%`: the conversion, its length, and the rest.
fn conversion(text: &str) -> Result<(Conversion, &'static str, &str), String> {
    let mut c = Conversion::default();
    let mut rest = text;
    loop {
        let flag = match rest.chars().next() {
            Some('-') => &mut c.left,
            Some('0') => &mut c.zeros,
            Some('+') => &mut c.plus,
            Some('#') => &mut c.alternate,
            _ => break,
        };
        *flag = true;
        rest = rest.get(1..).unwrap_or("");
    }
    if rest.starts_with('*') {
        return Err("a width must be a number in the format, not `*`".into());
    }
    let (width, after) = number(rest)?;
    c.width = width.unwrap_or(0);
    rest = after;
    if let Some(after) = rest.strip_prefix('.') {
        let (precision, after) = number(after)?;
        c.precision = Some(precision.unwrap_or(0));
        rest = after;
    }
    let lengths = ["hh", "h", "ll", "l", "j", "z", "t"];
    let length = lengths
        .into_iter()
        .find(|l| rest.starts_with(l))
        .unwrap_or("");
    rest = rest.get(length.len()..).unwrap_or("");
    let mut chars = rest.chars();
    match chars.next() {
        Some(letter) if LETTERS.contains(letter) => {
            c.letter = letter;
            Ok((c, length, chars.as_str()))
        }
        Some(letter) => Err(format!("`%{}` is no conversion", letter.escape_debug())),
        None => Err("the format ends within a conversion".into()),
    }
}

fn number(text: &str) -> Result<(Option<u32>, &str), String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return Ok((None, rest));
    }
    match digits.parse() {
        Ok(n) if n <= MAX_WIDTH => Ok((Some(n), rest)),
        _ => Err(format!("a width or precision is at most {MAX_WIDTH}")),
    }
}
