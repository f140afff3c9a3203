//! The interpreter.

use super::arith::{binary, fit, is_signed, unary};
use super::{MAX_STEPS, World};
use crate::hir::{Binary, Clause, Expr, ExprKind, Stmt, Type};
use crate::layout::What;
use crate::value::{Cell, Value};

/// How a clause ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its filter did not hold.
    Filtered,
    /// At its end, or by `return`.
    Done,
    /// By `exit()`.
    Exit,
}

/// Why a clause was given up.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E: std::error::Error> {
    /// The script's fault.
    #[error("the clause takes more than {MAX_STEPS} steps; use fewer rounds in its loops")]
    TooLong,
    /// The world's fault.
    #[error(transparent)]
    World(#[from] E),
}

/// Runs a clause that [`super::allowed`] has nothing against.
pub fn run<W: World>(clause: &Clause, world: &mut W) -> Result<Ended, RunError<W::Error>> {
    let mut run = Run {
        locals: clause.locals.iter().map(Value::zero).collect(),
        types: &clause.locals,
        steps: 0,
        world,
    };
    if let Some(filter) = &clause.filter
        && !run.holds(filter)
    {
        return Ok(Ended::Filtered);
    }
    Ok(match run.block(&clause.body)? {
        Flow::Exit => Ended::Exit,
        _ => Ended::Done,
    })
}

/// What comes after a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
    Done,
    Exit,
}

struct Run<'a, W> {
    locals: Vec<Value>,
    types: &'a [Type],
    steps: u32,
    world: &'a mut W,
}

type Step<W> = Result<Flow, RunError<<W as World>::Error>>;

impl<W: World> Run<'_, W> {
    fn block(&mut self, stmts: &[Stmt]) -> Step<W> {
        for stmt in stmts {
            let flow = self.stmt(stmt)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// Counts a statement or a round.
    fn step(&mut self) -> Result<(), RunError<W::Error>> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(RunError::TooLong);
        }
        Ok(())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Step<W> {
        self.step()?;
        match stmt {
            Stmt::SetLocal { local, value } => {
                let value = self.eval(value);
                self.set_local(*local, value);
            }
            Stmt::SetMap { map, key, value } => {
                let key = self.all(key);
                let value = self.eval(value);
                self.world.set(*map, key, value)?;
            }
            Stmt::Update { map, key, value } => {
                let key = self.all(key);
                let value = value.as_ref().map_or(Value::None, |e| self.eval(e));
                self.world.update(*map, key, value)?;
            }
            Stmt::Delete { map, key } => {
                let key = self.all(key);
                self.world.delete(*map, &key)?;
            }
            Stmt::Printf { format, args } => {
                let values = self.all(args);
                self.world.act(&What::Printf(*format), values)?;
            }
            Stmt::PrintValue(e) => {
                let value = self.eval(e);
                self.world.act(&What::PrintValue, vec![value])?;
            }
            &Stmt::PrintMap { map, top, div } => self.act(What::PrintMap { map, top, div })?,
            &Stmt::Clear(map) => self.act(What::Clear(map))?,
            &Stmt::Zero(map) => self.act(What::Zero(map))?,
            Stmt::Time(format) => self.act(What::Time(format.clone()))?,
            Stmt::Cat(path) => self.act(What::Cat(path.clone()))?,
            Stmt::Exit => {
                self.act(What::Exit)?;
                return Ok(Flow::Exit);
            }
            Stmt::If { c, then, other } => {
                let side = if self.holds(c) { then } else { other };
                return self.block(side);
            }
            Stmt::Repeat {
                local,
                from,
                to,
                rounds,
                body,
            } => return self.repeat(*local, from, to, *rounds, body),
            Stmt::While { c, rounds, body } => {
                for _ in 0..*rounds {
                    self.step()?;
                    if !self.holds(c) {
                        break;
                    }
                    if let Some(flow) = after_round(self.block(body)?) {
                        return Ok(flow);
                    }
                }
            }
            Stmt::Break => return Ok(Flow::Break),
            Stmt::Continue => return Ok(Flow::Continue),
            Stmt::Done => return Ok(Flow::Done),
            // For their checks only; or not allowed here.
            Stmt::Eval(_)
            | Stmt::SetReg { .. }
            | Stmt::SetMemory { .. }
            | Stmt::Return(_)
            | Stmt::Skip => {}
        }
        Ok(Flow::Next)
    }

    fn act(&mut self, what: What) -> Result<(), RunError<W::Error>> {
        Ok(self.world.act(&what, Vec::new())?)
    }

    /// The bounds are computed once. Without a local the loop runs `rounds` times.
    fn repeat(
        &mut self,
        local: Option<u32>,
        from: &Expr,
        to: &Expr,
        rounds: u32,
        body: &[Stmt],
    ) -> Step<W> {
        let signed = is_signed(&from.ty);
        let (mut at, end) = (self.word(from), self.word(to));
        for _ in 0..rounds {
            self.step()?;
            if let Some(local) = local {
                if binary(Binary::Ge, signed, at, end) != 0 {
                    break;
                }
                let ty = self.types.get(local as usize).unwrap_or(&Type::I64);
                if let Some(value) = Value::word(ty, at) {
                    self.set_local(local, value);
                }
            }
            if let Some(flow) = after_round(self.block(body)?) {
                return Ok(flow);
            }
            at = at.wrapping_add(1);
        }
        Ok(Flow::Next)
    }

    fn set_local(&mut self, local: u32, value: Value) {
        let i = local as usize;
        if let (Some(to), Some(ty)) = (self.locals.get_mut(i), self.types.get(i)) {
            *to = of_type(value, ty);
        }
    }

    fn all(&mut self, exprs: &[Expr]) -> Vec<Value> {
        exprs.iter().map(|e| self.eval(e)).collect()
    }

    /// An expression as a condition.
    fn holds(&mut self, e: &Expr) -> bool {
        match self.eval(e) {
            Value::Text(t) => !t.is_empty(),
            value => value.as_word().unwrap_or(0) != 0,
        }
    }

    fn word(&mut self, e: &Expr) -> u64 {
        self.eval(e).as_word().unwrap_or(0)
    }

    fn eval(&mut self, e: &Expr) -> Value {
        let value = match &e.kind {
            ExprKind::Int(n) => return word(*n, &e.ty),
            ExprKind::Text(t) => Value::Text(t.as_bytes().to_vec()),
            ExprKind::Builtin(b) => self.world.builtin(*b),
            ExprKind::Local(n) => match self.locals.get(*n as usize) {
                Some(value) => value.clone(),
                None => Value::None,
            },
            ExprKind::Map { map, key } => {
                let key = self.all(key);
                match self.world.get(*map, &key) {
                    Some(cell) => held(cell, &e.ty),
                    None => Value::zero(&e.ty),
                }
            }
            ExprKind::Unary { op, a } => return word(unary(*op, self.word(a)), &e.ty),
            ExprKind::Binary { op, a, b } => return word(self.binary(*op, a, b), &e.ty),
            ExprKind::Choice { c, a, b } => {
                let side = if self.holds(c) { a } else { b };
                self.eval(side)
            }
            ExprKind::Cast(a) => self.eval(a),
            // Not allowed here.
            ExprKind::Load { .. } | ExprKind::Str { .. } | ExprKind::Buf { .. } => {
                Value::zero(&e.ty)
            }
        };
        of_type(value, &e.ty)
    }

    fn binary(&mut self, op: Binary, a: &Expr, b: &Expr) -> u64 {
        match op {
            Binary::Both => u64::from(self.holds(a) && self.holds(b)),
            Binary::Either => u64::from(self.holds(a) || self.holds(b)),
            _ => {
                let signed = is_signed(&a.ty);
                let (a, b) = (self.eval(a), self.eval(b));
                match (op, a.as_word(), b.as_word()) {
                    (_, Some(a), Some(b)) => binary(op, signed, a, b),
                    // Texts, bytes, stacks of user space.
                    (Binary::Eq, ..) => u64::from(a == b),
                    (Binary::Ne, ..) => u64::from(a != b),
                    _ => 0,
                }
            }
        }
    }
}

/// What a round of a loop does to what is after it: `None` goes on with the next round.
fn after_round(flow: Flow) -> Option<Flow> {
    match flow {
        Flow::Next | Flow::Continue => None,
        Flow::Break => Some(Flow::Next),
        Flow::Done | Flow::Exit => Some(flow),
    }
}

/// What is in a cell, as a value: of aggregations the number that is shown; of histograms the number of values.
fn held(cell: Cell, ty: &Type) -> Value {
    let number = match cell {
        Cell::Plain(value) => return value,
        Cell::Number { value } => value,
        Cell::Average { count, sum } | Cell::Stats { count, sum } => {
            sum.checked_div(i128::from(count)).unwrap_or(0)
        }
        Cell::Hist(counts) | Cell::LHist(counts) => counts.iter().map(|&n| i128::from(n)).sum(),
    };
    word(number as u64, ty)
}

fn word(word: u64, ty: &Type) -> Value {
    Value::word(ty, fit(word, ty)).unwrap_or_else(|| Value::zero(ty))
}

/// A value as one of this type: integers are cut off and extended, texts cut off before their last byte.
fn of_type(value: Value, ty: &Type) -> Value {
    match (value, ty) {
        (Value::Text(mut text), Type::Str(size)) => {
            text.truncate((*size as usize).saturating_sub(1));
            let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
            text.truncate(end);
            Value::Text(text)
        }
        (Value::Bytes(mut bytes), Type::Bytes(size)) => {
            bytes.resize(*size as usize, 0);
            Value::Bytes(bytes)
        }
        (value @ Value::UserStack { .. }, Type::UserStack) => value,
        (value, ty) => match value.as_word() {
            Some(n) => word(n, ty),
            None => Value::zero(ty),
        },
    }
}
