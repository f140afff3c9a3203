//! Checked scripts as text: for golden files, and for who wants to see what was understood.

use crate::hir::*;
use std::fmt;

fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Int { bits, signed } => write!(f, "{}{bits}", if *signed { "i" } else { "u" }),
            Type::Pointer { to, user } => {
                match to {
                    Pointee::Void => f.write_str("void")?,
                    Pointee::Int { bits, signed } => {
                        write!(f, "{}{bits}", if *signed { "i" } else { "u" })?;
                    }
                    Pointee::Btf(id) => write!(f, "#{id}")?,
                }
                f.write_str(if *user { " user*" } else { "*" })
            }
            Type::Str(n) => write!(f, "str{n}"),
            Type::Bytes(n) => write!(f, "buf{n}"),
            Type::KernelStack => f.write_str("kstack"),
            Type::UserStack => f.write_str("ustack"),
            Type::Symbol => f.write_str("symbol"),
            Type::Name => f.write_str("name"),
            Type::None => f.write_str("none"),
        }
    }
}

impl fmt::Display for MapValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = |signed: &bool| if *signed { "i64" } else { "u64" };
        match self {
            MapValue::Plain(t) => write!(f, "{t}"),
            MapValue::Count => f.write_str("count"),
            MapValue::Sum { signed } => write!(f, "sum {}", sign(signed)),
            MapValue::Min { signed } => write!(f, "min {}", sign(signed)),
            MapValue::Max { signed } => write!(f, "max {}", sign(signed)),
            MapValue::Avg { signed } => write!(f, "avg {}", sign(signed)),
            MapValue::Stats { signed } => write!(f, "stats {}", sign(signed)),
            MapValue::Hist => f.write_str("hist"),
            MapValue::LHist { min, max, step } => write!(f, "lhist {min}..{max} by {step}"),
        }
    }
}

impl Binary {
    /// As it is written.
    pub fn sign(self) -> &'static str {
        match self {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::Div => "/",
            Binary::Rem => "%",
            Binary::And => "&",
            Binary::Or => "|",
            Binary::Xor => "^",
            Binary::Shl => "<<",
            Binary::Shr => ">>",
            Binary::Eq => "==",
            Binary::Ne => "!=",
            Binary::Lt => "<",
            Binary::Le => "<=",
            Binary::Gt => ">",
            Binary::Ge => ">=",
            Binary::Both => "&&",
            Binary::Either => "||",
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ExprKind::Int(v) => match self.ty {
                Type::Int { signed: true, .. } => write!(f, "{}", *v as i64),
                Type::Int { signed: false, .. } => write!(f, "{v}u"),
                _ => write!(f, "{}({v:#x})", self.ty),
            },
            ExprKind::Text(t) => write!(f, "{t:?}:{}", self.ty),
            ExprKind::Builtin(b) => {
                let text = format!("{b:?}").to_lowercase();
                match self.ty {
                    Type::Pointer { .. } => write!(f, "{text}:{}", self.ty),
                    _ => f.write_str(&text),
                }
            }
            ExprKind::Local(n) => write!(f, "${n}"),
            ExprKind::Map { map, key } => write!(f, "@{map}[{}]", list(key, Expr::to_string)),
            ExprKind::Unary { op, a } => {
                let op = match op {
                    Unary::Neg => "-",
                    Unary::Invert => "~",
                    Unary::Not => "!",
                };
                write!(f, "{op}{a}")
            }
            ExprKind::Binary { op, a, b } => {
                write!(f, "({a} {} {b})", op.sign())?;
                match self.ty {
                    Type::I64 => Ok(()),
                    _ => write!(f, ":{}", self.ty),
                }
            }
            ExprKind::Choice { c, a, b } => write!(f, "({c} ? {a} : {b}):{}", self.ty),
            ExprKind::Cast(a) => write!(f, "{}({a})", self.ty),
            ExprKind::Load {
                address,
                offset,
                bytes,
                signed,
                bits,
                user,
            } => {
                let sign = if *signed { "i" } else { "u" };
                write!(f, "load {sign}{}", u32::from(*bytes) * 8)?;
                if let Some((from, width)) = bits {
                    write!(f, " bits {from}+{width}")?;
                }
                write!(
                    f,
                    "{} [{address} + {offset}]",
                    if *user { " user" } else { "" }
                )?;
                match self.ty {
                    Type::Pointer { .. } => write!(f, ":{}", self.ty),
                    _ => Ok(()),
                }
            }
            ExprKind::Str { at } => write!(f, "{} [{at}]", self.ty),
            ExprKind::Buf { at } => write!(f, "{} [{at}]", self.ty),
        }
    }
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            On::Probe { text, .. } => f.write_str(text),
            On::Begin => f.write_str("BEGIN"),
            On::End => f.write_str("END"),
            On::Interval(ns) => write!(f, "interval {ns} ns"),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.pieces {
            match piece {
                Piece::Text(t) => write!(f, "{t:?} ")?,
                Piece::Conversion(c) => {
                    let flag = |on: bool, sign: &'static str| if on { sign } else { "" };
                    let (left, zeros) = (flag(c.left, "-"), flag(c.zeros, "0"));
                    let (plus, alternate) = (flag(c.plus, "+"), flag(c.alternate, "#"));
                    write!(f, "%{left}{plus}{alternate}{zeros}")?;
                    if c.width > 0 {
                        write!(f, "{}", c.width)?;
                    }
                    if let Some(p) = c.precision {
                        write!(f, ".{p}")?;
                    }
                    write!(f, "{} ", c.letter)?;
                }
            }
        }
        write!(f, "({})", list(&self.args, Type::to_string))
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unsafe {
            writeln!(f, "unsafe")?;
        }
        for (n, map) in self.maps.iter().enumerate() {
            let key = list(&map.key, Type::to_string);
            writeln!(f, "map {n}: {}[{key}] = {}", map.name, map.value)?;
        }
        for (n, format) in self.formats.iter().enumerate() {
            writeln!(f, "format {n}: {format}")?;
        }
        for clause in &self.clauses {
            writeln!(f, "{}", list(&clause.on, On::to_string))?;
            for (n, ty) in clause.locals.iter().enumerate() {
                writeln!(f, "  var ${n}: {ty}")?;
            }
            if let Some(filter) = &clause.filter {
                writeln!(f, "  if {filter}")?;
            }
            block(f, &clause.body, 1)?;
        }
        Ok(())
    }
}

fn block(f: &mut fmt::Formatter<'_>, body: &[Stmt], depth: usize) -> fmt::Result {
    body.iter().try_for_each(|s| stmt(f, s, depth))
}

fn stmt(f: &mut fmt::Formatter<'_>, s: &Stmt, depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    f.write_str(&pad)?;
    let keys = |key: &[Expr]| list(key, Expr::to_string);
    match s {
        Stmt::SetLocal { local, value } => writeln!(f, "${local} = {value}"),
        Stmt::SetMap { map, key, value } => writeln!(f, "@{map}[{}] = {value}", keys(key)),
        Stmt::Update { map, key, value } => {
            let value = value.as_ref().map(Expr::to_string).unwrap_or_default();
            writeln!(f, "update @{map}[{}] {value}", keys(key))
        }
        Stmt::Delete { map, key } => writeln!(f, "delete @{map}[{}]", keys(key)),
        Stmt::Printf { format, args } => writeln!(f, "printf {format} ({})", keys(args)),
        Stmt::PrintValue(e) => writeln!(f, "print {e}:{}", e.ty),
        Stmt::PrintMap { map, top, div } => writeln!(f, "print @{map} top {top} div {div}"),
        Stmt::Clear(map) => writeln!(f, "clear @{map}"),
        Stmt::Zero(map) => writeln!(f, "zero @{map}"),
        Stmt::Time(format) => writeln!(f, "time {format:?}"),
        Stmt::Cat(path) => writeln!(f, "cat {path:?}"),
        Stmt::Exit => writeln!(f, "exit"),
        Stmt::If { c, then, other } => {
            writeln!(f, "if {c}")?;
            block(f, then, depth + 1)?;
            if !other.is_empty() {
                writeln!(f, "{pad}else")?;
                block(f, other, depth + 1)?;
            }
            Ok(())
        }
        Stmt::Repeat {
            local,
            from,
            to,
            rounds,
            body,
        } => {
            match local {
                Some(n) => writeln!(f, "for ${n} in {from}..{to}, at most {rounds}")?,
                None => writeln!(f, "{rounds} times")?,
            }
            block(f, body, depth + 1)
        }
        Stmt::While { c, rounds, body } => {
            writeln!(f, "while {c}, at most {rounds}")?;
            block(f, body, depth + 1)
        }
        Stmt::Break => writeln!(f, "break"),
        Stmt::Continue => writeln!(f, "continue"),
        Stmt::Done => writeln!(f, "done"),
        Stmt::Eval(e) => writeln!(f, "eval {e}"),
        Stmt::SetReg { reg, value } => writeln!(f, "reg {reg} = {value}"),
        Stmt::SetMemory {
            address,
            offset,
            bytes,
            value,
        } => {
            writeln!(
                f,
                "store {} [{address} + {offset}] = {value}",
                u32::from(*bytes) * 8
            )
        }
        Stmt::Return(e) => writeln!(f, "return {e}"),
        Stmt::Skip => writeln!(f, "skip"),
    }
}
