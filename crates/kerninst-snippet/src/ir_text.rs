//! Programs as text, for who wants to see what was made of a script.

use crate::ir::{Base, BinOp, Cond, Label, Op, Program, Region, V, Val, Width};
use std::fmt;

impl fmt::Display for V {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}

impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Val::V(v) => v.fmt(f),
            Val::Imm(n) if n < 0x1_0000 => write!(f, "{n}"),
            Val::Imm(n) if n as i64 > -0x1_0000 && (n as i64) < 0 => write!(f, "{}", n as i64),
            Val::Imm(n) => write!(f, "{n:#x}"),
        }
    }
}

impl BinOp {
    fn name(self) -> &'static str {
        match self {
            BinOp::Add => "+",
            BinOp::Sub => "-",
            BinOp::Mul => "*",
            BinOp::And => "&",
            BinOp::Or => "|",
            BinOp::Xor => "^",
            BinOp::Shl => "<<",
            BinOp::Shr => ">>",
            BinOp::Sar => ">>s",
            BinOp::DivU => "/",
            BinOp::RemU => "%",
            BinOp::DivS => "/s",
            BinOp::RemS => "%s",
        }
    }
}

impl Cond {
    fn name(self) -> &'static str {
        match self {
            Cond::Eq => "==",
            Cond::Ne => "!=",
            Cond::LtU => "<",
            Cond::LeU => "<=",
            Cond::GtU => ">",
            Cond::GeU => ">=",
            Cond::LtS => "<s",
            Cond::LeS => "<=s",
            Cond::GtS => ">s",
            Cond::GeS => ">=s",
        }
    }
}

/// `u32[v1 + 8]`.
fn memory(width: Width, signed: bool, base: &dyn fmt::Display, offset: i64) -> String {
    let sign = if signed { 'i' } else { 'u' };
    let bits = width.bytes() * 8;
    match offset {
        0 => format!("{sign}{bits}[{base}]"),
        n if n < 0 => format!("{sign}{bits}[{base} - {}]", -n),
        n => format!("{sign}{bits}[{base} + {n}]"),
    }
}

fn based(width: Width, signed: bool, base: Base, offset: i32) -> String {
    match base {
        Base::At(val) => memory(width, signed, &val, i64::from(offset)),
        Base::Frame => memory(width, signed, &"frame", i64::from(offset)),
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Copy { to, from } => write!(f, "{to} = {from}"),
            Op::Reg { to, reg } => write!(f, "{to} = %{reg:?}"),
            Op::Bin { op, to, a, b } => write!(f, "{to} = {a} {} {b}", op.name()),
            Op::Set { to, cond, a, b } => write!(f, "{to} = {a} {} {b}", cond.name()),
            Op::Extend {
                to,
                from,
                width,
                signed,
            } => {
                let sign = if *signed { 'i' } else { 'u' };
                write!(f, "{to} = {sign}{}({from})", width.bytes() * 8)
            }
            Op::HighBit { to, from } => write!(f, "{to} = high_bit({from})"),
            Op::Label(l) => write!(f, "{l}:"),
            Op::Jump(l) => write!(f, "goto {l}"),
            Op::Branch { cond, a, b, to } => write!(f, "if {a} {} {b} goto {to}", cond.name()),
            Op::Again { left, to, rounds } => {
                write!(f, "if {left}-- goto {to} (at most {rounds} times)")
            }
            Op::Probe {
                to,
                at,
                offset,
                width,
                signed,
                fault,
            } => {
                let what = memory(*width, *signed, at, i64::from(*offset));
                write!(f, "{to} = probe {what} else goto {fault}")
            }
            Op::ProbeStore {
                at,
                offset,
                width,
                value,
                fault,
            } => {
                let what = memory(*width, false, at, i64::from(*offset));
                write!(f, "probe {what} = {value} else goto {fault}")
            }
            Op::Load {
                to,
                base,
                offset,
                width,
                signed,
            } => write!(f, "{to} = {}", based(*width, *signed, *base, *offset)),
            Op::Store {
                base,
                offset,
                width,
                value,
            } => write!(f, "{} = {value}", based(*width, false, *base, *offset)),
            Op::FrameAddress { to, offset } => write!(f, "{to} = frame + {offset}"),
            Op::CpuLoad { to, pointer, width } => {
                write!(f, "{to} = cpu {}", memory(*width, false, pointer, 0))
            }
            Op::CpuAdd { pointer, value } => write!(f, "cpu u64[{pointer}] += {value}"),
            Op::CpuSwap {
                pointer,
                old,
                new,
                fail,
            } => write!(f, "cpu u64[{pointer}] = {new} if {old} else goto {fail}"),
            Op::Swap {
                base,
                offset,
                old,
                new,
                fail,
            } => {
                let what = based(Width::B8, false, *base, *offset);
                write!(f, "lock {what} = {new} if {old} else goto {fail}")
            }
            Op::Clock { to } => write!(f, "{to} = tsc"),
            Op::Call { function, args, to } => {
                if let Some(to) = to {
                    write!(f, "{to} = ")?;
                }
                let args: Vec<String> = args.iter().map(Val::to_string).collect();
                write!(f, "call {function:#x}({})", args.join(", "))
            }
            Op::SetReg { reg, value } => write!(f, "%{reg:?} = {value}"),
            Op::Leave { address } => write!(f, "leave to {address:#x}"),
            Op::End => f.write_str("end"),
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for op in &self.ops {
            let indent = if matches!(op, Op::Label(_)) { "" } else { "  " };
            writeln!(f, "{indent}{op}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.filter.ops.is_empty() {
            write!(f, "filter\n{}", self.filter)?;
        }
        write!(f, "body\n{}", self.body)
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::{BinOp, Cond, Label, Op, Program, Region, V, Val, Width};

    #[test]
    fn a_program_is_readable() {
        let v = |n| Val::V(V(n));
        let filter = Region {
            ops: vec![
                Op::CpuLoad {
                    to: V(0),
                    pointer: Val::Imm(0x34900),
                    width: Width::B8,
                },
                Op::Branch {
                    cond: Cond::Eq,
                    a: v(0),
                    b: Val::Imm(-1i64 as u64),
                    to: Label(0),
                },
                Op::End,
                Op::Label(Label(0)),
            ],
            ..Region::default()
        };
        let body = Region {
            ops: vec![
                Op::Probe {
                    to: V(1),
                    at: v(0),
                    offset: -8,
                    width: Width::B4,
                    signed: true,
                    fault: Label(1),
                },
                Op::Bin {
                    op: BinOp::Mul,
                    to: V(2),
                    a: v(1),
                    b: Val::Imm(3),
                },
            ],
            ..Region::default()
        };
        let expected = "filter\n  v0 = cpu u64[0x34900]\n  if v0 == -1 goto L0\n  end\nL0:\nbody\n  \
            v1 = probe i32[v0 - 8] else goto L1\n  v2 = v1 * 3\n";
        assert_eq!(Program { filter, body }.to_string(), expected);
    }
}
