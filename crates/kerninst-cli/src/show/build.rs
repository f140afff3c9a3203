//! From an analysed function to what is shown of it.

use kerninst_analysis::{Analysis, EdgeTarget, ExitKind, Function};
use kerninst_patch::{Boards, Options, Planner, Refusal, Tactic};

use super::disasm::{Disassembler, Namer};
use super::model::{Block, Edge, Insn, Loop, Refused, View};
use super::{notes, words};
use crate::args::Syntax;
use crate::json::{Hex, hex};

/// Everything there is to show.
pub fn view(analysis: &Analysis, function: &Function, syntax: Syntax) -> View {
    let survey = Planner::new(analysis, Options::default()).survey(function, &Boards::new());
    with(analysis, function, syntax, survey)
}

/// Everything but how instructions would be instrumented.
pub fn plain(analysis: &Analysis, function: &Function, syntax: Syntax) -> View {
    with(analysis, function, syntax, Vec::new())
}

fn with(
    analysis: &Analysis,
    function: &Function,
    syntax: Syntax,
    survey: Vec<Result<Tactic, Refusal>>,
) -> View {
    let kernel = analysis.kernel();
    let namer = Namer::new(kernel, function);
    let mut view = View {
        id: function.id.clone(),
        name: function.name.clone(),
        aliases: aliases(analysis, function),
        module: function.module.clone(),
        entry: Hex(function.entry()),
        ranges: function
            .ranges
            .iter()
            .map(|r| [Hex(r.start), Hex(r.end)])
            .collect(),
        size: function
            .ranges
            .iter()
            .map(|r| r.end.saturating_sub(r.start))
            .sum(),
        fentry: function.fentry.map(Hex),
        abi: function.abi,
        complete: function.is_complete(),
        incomplete: function
            .incomplete
            .iter()
            .map(ToString::to_string)
            .collect(),
        instructions: function.insns.len(),
        points: survey.iter().filter(|r| r.is_ok()).count(),
        refused: common_refusal(&survey),
        ..View::default()
    };
    let mut disassembler = Disassembler::new(&namer, syntax);
    let loops = function.loops();
    for (n, block) in function.blocks.iter().enumerate() {
        let depths = loops.iter().filter(|l| l.blocks.contains(&(n as u32)));
        let first = block.first as usize;
        let insns = function.block_insns(block).iter().enumerate();
        let insns = insns.map(|(i, insn)| {
            let written = disassembler.insn(insn.addr, insn.len);
            let result = survey.get(first + i);
            let mut notes = notes::notes(kernel, function, insn, &namer);
            notes.extend(written.string);
            Insn {
                addr: Hex(insn.addr),
                point: namer.point(insn.addr),
                offset: namer.offset(insn.addr).unwrap_or_default(),
                bytes: hex(&written.bytes),
                text: written.text,
                kind: words::insn(insn.kind).into(),
                sites: words::sites(insn.sites),
                tactic: result.and_then(|r| r.as_ref().ok()).map(|t| t.name()),
                refused: result.and_then(|r| r.as_ref().err()).map(|why| Refused {
                    reason: words::refusal(why),
                    text: why.to_string(),
                    nearest: nearest(function, &survey, first + i),
                }),
                live: words::registers(insn.live, true),
                dead: words::registers(insn.live, false),
                notes,
            }
        });
        let main = function.ranges.first();
        view.blocks.push(Block {
            start: Hex(block.start),
            end: Hex(block.end),
            entry: block.start == function.entry(),
            root: block.root,
            cold: !main.is_some_and(|m| m.contains(&block.start)),
            unlikely: false,
            depth: depths.map(|l| l.depth).max().unwrap_or(0),
            count: None,
            inside: 0,
            insns: insns.collect(),
        });
    }
    let dominators = function.dominators();
    for e in &function.edges {
        let (to, exit, back) = match e.to {
            EdgeTarget::Block(b) => (Some(b as usize), None, dominators.dominates(b, e.from)),
            EdgeTarget::Exit(kind) => (None, Some(words::exit(kind, |a| namer.name(a))), false),
        };
        view.edges.push(Edge {
            from: e.from as usize,
            to,
            exit,
            kind: words::edge(e.kind),
            back,
            count: None,
        });
    }
    view.loops = loops
        .iter()
        .map(|l| Loop {
            header: l.header as usize,
            latches: l.latches.iter().map(|b| *b as usize).collect(),
            blocks: l.blocks.iter().map(|b| *b as usize).collect(),
            parent: l.parent.map(|p| p as usize),
            depth: l.depth,
        })
        .collect();
    mark_unlikely(function, &mut view);
    view
}

/// Other symbols at the entry.
fn aliases(analysis: &Analysis, function: &Function) -> Vec<String> {
    let symbols = analysis.kernel().symbols().at(function.entry());
    let others = symbols.iter().filter(|s| {
        s.is_text() && !s.is_marker() && s.name != function.name && !s.name.starts_with("__pfx_")
    });
    others.map(|s| s.name.to_string()).collect()
}

/// The reason, if it is the same for all instructions (but for the fentry site, which has one of its own).
fn common_refusal(survey: &[Result<Tactic, Refusal>]) -> Option<Refused> {
    let mut reasons = Vec::new();
    for result in survey {
        match result {
            Ok(_) => return None,
            Err(Refusal::Fentry { .. }) => {}
            Err(why) => reasons.push(why),
        }
    }
    let first = reasons.first()?;
    reasons.iter().all(|r| r == first).then(|| Refused {
        reason: words::refusal(first),
        text: first.to_string(),
        nearest: None,
    })
}

/// The nearest instruction that can be instrumented.
fn nearest(function: &Function, survey: &[Result<Tactic, Refusal>], index: usize) -> Option<Hex> {
    let addr = function.insns.get(index)?.addr;
    let good = function.insns.iter().zip(survey).filter(|(_, r)| r.is_ok());
    let near = good
        .map(|(i, _)| i.addr)
        .min_by_key(|a| (a.abs_diff(addr), *a));
    near.map(Hex)
}

/// Marks the blocks that are not expected to run: those in a cold part or with a BUG or WARN, those from which every way
/// leads to traps, calls that do not return or such blocks, and those that are only reached from such blocks.
fn mark_unlikely(function: &Function, view: &mut View) {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); view.blocks.len()];
    for e in &view.edges {
        if let Some(list) = e.to.and_then(|to| before.get_mut(to)) {
            list.push(e.from);
        }
    }
    for block in &mut view.blocks {
        let bug = block
            .insns
            .iter()
            .any(|i| i.sites.iter().any(|s| s == "bug"));
        block.unlikely = (block.cold || bug) && !block.entry;
    }
    let unlikely = |view: &View, n: usize| view.blocks.get(n).is_some_and(|b| b.unlikely);
    // A way through a chain of n blocks takes n rounds at worst; blocks are nearly in order, so few do.
    for _ in 0..view.blocks.len() {
        let mut changed = false;
        for (n, block) in function.blocks.iter().enumerate().rev() {
            let edges = function.block_edges(block);
            let leads = edges.iter().all(|e| match e.to {
                EdgeTarget::Block(b) => unlikely(view, b as usize),
                EdgeTarget::Exit(kind) => matches!(kind, ExitKind::Trap | ExitKind::NoReturn),
            });
            let sources = before.get(n).map_or(&[][..], Vec::as_slice);
            let reached = sources.iter().any(|b| !unlikely(view, *b));
            let only_from = !sources.is_empty() && !reached && !block.root;
            if let Some(b) = view.blocks.get_mut(n)
                && !b.unlikely
                && !b.entry
                && ((!edges.is_empty() && leads) || only_from)
            {
                b.unlikely = true;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
}
