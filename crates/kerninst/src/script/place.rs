//! From the clauses of a script to points, and to what the clauses have there.

use super::{NameTable, ScriptError};
use crate::point::{Callee, Point, PointKind};
use crate::probe::Probe;
use crate::resolve::resolve;
use kerninst_analysis::{Analysis, ExitKind, Operand};
use kerninst_lang::hir::{On, Script};
use kerninst_lang::lower::{self, At};
use kerninst_patch::Spot;

/// One clause at one point.
#[derive(Debug, Clone)]
pub struct PlacedPoint {
    /// The point; its `probe` is its index in [`Placing::points`].
    pub point: Point,
    /// Number of the clause.
    pub clause: usize,
    /// The probe as it was written.
    pub probe: String,
    /// What the point gives.
    pub at: At,
}

/// Something that a probe asked for and that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut(pub String);

/// All clauses of a script at all their points.
#[derive(Debug, Clone, Default)]
pub struct Placing {
    /// In the order of clauses, then of their probes, then by address.
    pub points: Vec<PlacedPoint>,
    /// What was left out, and why.
    pub left_out: Vec<LeftOut>,
    /// Names of functions and probes.
    pub names: NameTable,
}

/// Finds the points of a script's clauses; `module` limits function names to one module.
///
/// # Errors
/// [`ScriptError::Probe`], [`ScriptError::Resolve`].
pub fn place(
    analysis: &Analysis<'_>,
    script: &Script,
    module: Option<&str>,
) -> Result<Placing, ScriptError> {
    let mut placing = Placing::default();
    for (clause, c) in script.clauses.iter().enumerate() {
        for on in &c.on {
            let On::Probe { text, span } = on else {
                continue;
            };
            let span = *span;
            let probe: Probe = text
                .parse()
                .map_err(|error| ScriptError::Probe { span, error })?;
            let resolved = resolve(analysis, std::slice::from_ref(&probe), module)
                .map_err(|error| ScriptError::Resolve { span, error })?;
            placing
                .left_out
                .extend(resolved.left_out.into_iter().map(LeftOut));
            for mut point in resolved.points {
                point.probe = placing.points.len();
                let at = at(analysis, &point, &mut placing.names);
                placing.points.push(PlacedPoint {
                    point,
                    clause,
                    probe: text.clone(),
                    at,
                });
            }
        }
    }
    Ok(placing)
}

/// What a point gives to a program.
fn at(analysis: &Analysis<'_>, point: &Point, names: &mut NameTable) -> At {
    let function = analysis.function_at(point.entry);
    let insn = function.as_ref().and_then(|f| f.insn_at(point.addr));
    let ip = match point.at {
        Spot::Enter(entry) => entry,
        _ => point.addr,
    };
    let callee = match point.kind {
        PointKind::Call(Callee::Direct(addr)) => Some(lower::Callee::Known(addr)),
        PointKind::Call(Callee::Indirect(Operand::Register(reg))) => Some(lower::Callee::Reg(reg)),
        PointKind::Call(Callee::Indirect(Operand::Memory {
            base,
            index,
            displacement,
        })) => Some(lower::Callee::Memory {
            base,
            index,
            disp: displacement as i64,
        }),
        _ => None,
    };
    // Where control does not simply go on to the next instruction there is nothing to skip to.
    let next = insn
        .filter(|i| point.kind == PointKind::Insn && !i.kind.is_terminal())
        .map(|i| i.end());
    At {
        func: names.number(&point.function),
        probe: names.number(&title(point)),
        ip,
        entry: point.kind == PointKind::Entry,
        exit: point.kind == PointKind::Exit(ExitKind::Return),
        callee,
        next,
    }
}

/// The probe that means this point alone.
fn title(point: &Point) -> String {
    let function = &point.function;
    match point.kind {
        PointKind::Insn => format!("insn:{}", point.label()),
        PointKind::Entry => format!("entry:{function}"),
        PointKind::Exit(_) => format!("exit:{function}"),
        PointKind::Block(n) => format!("block:{function}/{n}"),
        PointKind::Edge(from, to) => format!("edge:{function}/{from}->{to}"),
        PointKind::Call(_) => format!("call:{}", point.label()),
    }
}
