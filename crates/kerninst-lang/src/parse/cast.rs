//! Names of types, and how a cast is told from an expression in brackets.

use super::Parser;
use crate::ast::{Tag, TypeName};
use crate::lex::{Lexer, Tok};

/// Words that C's integers are made of.
const PARTS: [&str; 6] = ["unsigned", "signed", "int", "long", "short", "char"];

/// Words that do not change what a type is here.
const QUALIFIERS: [&str; 3] = ["const", "volatile", "restrict"];

/// Integers by one name: name, bits, sign.
pub(crate) const INTEGERS: [(&str, u8, bool); 28] = [
    ("int8", 8, true),
    ("int16", 16, true),
    ("int32", 32, true),
    ("int64", 64, true),
    ("uint8", 8, false),
    ("uint16", 16, false),
    ("uint32", 32, false),
    ("uint64", 64, false),
    ("s8", 8, true),
    ("s16", 16, true),
    ("s32", 32, true),
    ("s64", 64, true),
    ("u8", 8, false),
    ("u16", 16, false),
    ("u32", 32, false),
    ("u64", 64, false),
    ("int8_t", 8, true),
    ("int16_t", 16, true),
    ("int32_t", 32, true),
    ("int64_t", 64, true),
    ("uint8_t", 8, false),
    ("uint16_t", 16, false),
    ("uint32_t", 32, false),
    ("uint64_t", 64, false),
    ("bool", 8, false),
    ("size_t", 64, false),
    ("ssize_t", 64, true),
    ("uintptr_t", 64, false),
];

/// The integer type of this name: one of [`INTEGERS`], or C's words in any order.
pub(crate) fn integer(name: &str) -> Option<(u8, bool)> {
    if let Some((_, bits, signed)) = INTEGERS.iter().find(|(n, ..)| *n == name) {
        return Some((*bits, *signed));
    }
    let words: Vec<&str> = name.split(' ').collect();
    if words.iter().any(|w| !PARTS.contains(w)) {
        return None;
    }
    let count = |word| words.iter().filter(|w| **w == word).count();
    let (long, short, char, int) = (count("long"), count("short"), count("char"), count("int"));
    let (signed, unsigned) = (count("signed"), count("unsigned"));
    if signed + unsigned > 1
        || int > 1
        || long > 2
        || (long > 0) as usize + short + char > 1
        || char + int > 1
    {
        return None;
    }
    let bits = match (long, short, char) {
        (1 | 2, ..) => 64,
        (_, 1, _) => 16,
        (_, _, 1) => 8,
        _ => 32,
    };
    Some((bits, unsigned == 0))
}

impl Parser<'_> {
    /// Whether the `(` that is looked at opens a cast.
    pub(super) fn is_cast(&self) -> bool {
        let mut ahead = self.lex.clone();
        match look(&mut ahead) {
            Look::Type => true,
            Look::No => false,
            // `(name)`: a cast if an operand follows that is no operator.
            Look::Maybe => matches!(
                ahead.next().map(|t| t.tok),
                Ok(Tok::Word(_)
                    | Tok::Int(_)
                    | Tok::Local(_)
                    | Tok::Map(_)
                    | Tok::Param(_)
                    | Tok::Sign("("))
            ),
        }
    }

    /// Whether a type stands in the brackets that are looked at; a single name counts as one unless it is followed by more.
    pub(super) fn is_type_in_brackets(&self) -> bool {
        !matches!(look(&mut self.lex.clone()), Look::No)
    }

    /// A type; stars included.
    pub(super) fn type_name(&mut self) -> Option<TypeName> {
        let start = self.tok.span;
        let mut tag = Tag::Plain;
        let mut name = String::new();
        while let Tok::Word(word) = &self.tok.tok {
            let word = word.clone();
            if QUALIFIERS.contains(&word.as_str()) {
                self.advance();
                continue;
            }
            let this = match word.as_str() {
                "struct" => Tag::Struct,
                "union" => Tag::Union,
                "enum" => Tag::Enum,
                _ => Tag::Plain,
            };
            if this != Tag::Plain && tag == Tag::Plain && name.is_empty() {
                tag = this;
            } else if name.is_empty() {
                name = word;
            } else if tag == Tag::Plain && PARTS.contains(&word.as_str()) && name.len() < 64 {
                name = format!("{name} {word}");
            } else {
                break;
            }
            self.advance();
        }
        if name.is_empty() {
            return self.expected("the name of a type", &[]);
        }
        let mut pointers = 0u32;
        loop {
            if self.accept("*") {
                pointers = pointers.saturating_add(1);
            } else if QUALIFIERS.iter().any(|q| self.at_word(q)) {
                self.advance();
            } else {
                break;
            }
        }
        Some(TypeName {
            tag,
            name,
            pointers,
            span: self.since(start),
        })
    }
}

enum Look {
    Type,
    Maybe,
    No,
}

/// What stands behind a `(`, up to its `)`, which is taken if this may be a type.
fn look(ahead: &mut Lexer<'_>) -> Look {
    let mut next = || ahead.next().map_or(Tok::Eof, |t| t.tok);
    let Tok::Word(first) = next() else {
        return Look::No;
    };
    let word = first.as_str();
    if matches!(word, "struct" | "union" | "enum") || QUALIFIERS.contains(&word) {
        return Look::Type;
    }
    if integer(word).is_some() || word == "void" {
        return match next() {
            Tok::Sign("*" | ")") => Look::Type,
            Tok::Word(w) if PARTS.contains(&w.as_str()) || QUALIFIERS.contains(&w.as_str()) => {
                Look::Type
            }
            _ => Look::No,
        };
    }
    let mut stars = false;
    loop {
        match next() {
            Tok::Sign("*") => stars = true,
            Tok::Sign(")") if stars => return Look::Type,
            Tok::Sign(")") => return Look::Maybe,
            _ => return Look::No,
        }
    }
}
