//! What the counts of a block's instructions must be.
//!
//! A block is entered at its first instruction only and left at its last. So two instructions of it are executed equally
//! often, but for visits that are between the two when counting begins or ends, and visits that end in a call between
//! them: tasks that exit never come back from it.
//!
//! - In a version, counting begins with the first instruction, since versions are entered at their entry only. Final counts
//!   are read when nobody is in it any more; visits that were taken over into the original are told by the return address
//!   of the call that they were below. So from one instruction to the next a count is equal if no call is between them;
//!   after a call it is less by those visits, and by those that never came back.
//! - In the patch of one splice it is the same: what is between two points of it is executed in it.
//! - Of two splices, neither is there at exactly the same time as the other. But while both are, the executions of the two
//!   instructions differ only by visits between them at that span's begin and end. Counts are not read at one moment
//!   either; but read twice before and twice after, each says between which numbers that of a moment between lies.

use kerninst::{ArmedPoint, UnderWay};
use kerninst_analysis::{Function, Insn, InsnKind, Sites};
use kerninst_patch::Tactic;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Counts of the armed points.
pub struct Reads {
    /// Two after arming.
    pub first: [Vec<u64>; 2],
    /// Two before disarming.
    pub second: [Vec<u64>; 2],
    /// When nobody was inside any more. None: somebody stayed.
    pub last: Option<Vec<u64>>,
    /// Visits that versions were left by for the original.
    pub under_way: UnderWay,
    /// Threads that there were.
    pub threads: u64,
}

/// What was compared.
#[derive(Default)]
pub struct Checked {
    /// Pairs of neighbours whose counts are exactly what they must be.
    pub exact: usize,
    /// Pairs that are within their bounds.
    pub within: usize,
    /// Points that were executed.
    pub executed: usize,
    /// Executions of all points.
    pub executions: u64,
    /// Visits taken over into originals.
    pub under_way: u64,
    /// Visits that never came back from a call, by function: tasks that exit.
    pub never_back: BTreeMap<String, u64>,
    /// What must not be, in sentences.
    pub violations: Vec<String>,
}

/// May a visit end in this instruction, or stay in it for long?
fn calls(insn: &Insn) -> bool {
    matches!(
        insn.kind,
        InsnKind::Call | InsnKind::IndirectCall | InsnKind::Trap
    ) || insn.sites.contains(Sites::STATIC_CALL)
}

/// Compares all points with their neighbours.
pub fn check(functions: &[Arc<Function>], armed: &[ArmedPoint], reads: &Reads, out: &mut Checked) {
    let index: HashMap<(u64, u64), usize> = armed
        .iter()
        .enumerate()
        .map(|(n, p)| ((p.point.entry, p.point.addr), n))
        .collect();
    let last = reads.last.as_ref().unwrap_or(&reads.second[1]);
    out.executed += last.iter().filter(|c| **c > 0).count();
    out.executions += last.iter().fold(0u64, |sum, c| sum.saturating_add(*c));
    let mut under_way: HashMap<u64, u64> = HashMap::new();
    for (to, visits) in &reads.under_way.calls {
        *under_way.entry(*to).or_default() += visits;
        out.under_way += visits;
    }
    for function in functions {
        for block in &function.blocks {
            let mut pair = Pair {
                function,
                armed,
                reads,
                under_way: &under_way,
                between: &[],
            };
            let insns = function.block_insns(block);
            let mut previous: Option<(usize, usize)> = None;
            for (n, insn) in insns.iter().enumerate() {
                let Some(&this) = index.get(&(function.entry(), insn.addr)) else {
                    continue;
                };
                if let Some((at, before)) = previous {
                    pair.between = insns.get(at..n).unwrap_or(&[]);
                    pair.check(before, this, out);
                }
                previous = Some((n, this));
            }
        }
    }
}

/// Two armed instructions of a block, the second behind the first, with nothing armed between them.
struct Pair<'a> {
    function: &'a Function,
    armed: &'a [ArmedPoint],
    reads: &'a Reads,
    under_way: &'a HashMap<u64, u64>,
    /// The instructions from the first to before the second.
    between: &'a [Insn],
}

impl Pair<'_> {
    fn check(&self, first: usize, second: usize, out: &mut Checked) {
        let (Some(a), Some(b)) = (self.armed.get(first), self.armed.get(second)) else {
            return;
        };
        let one_patch = a.site == b.site && a.copies.len() == 1 && b.copies.len() == 1;
        let version = a.tactic == Tactic::Version;
        let in_call = self.between.iter().any(calls);
        match &self.reads.last {
            Some(last) if version && one_patch => self.exact(last, first, second, in_call, out),
            Some(last) if one_patch && !in_call => self.exact(last, first, second, false, out),
            _ => self.bounds(first, second, in_call, out),
        }
    }

    fn exact(&self, last: &[u64], first: usize, second: usize, in_call: bool, out: &mut Checked) {
        let count = |n: usize| last.get(n).copied().unwrap_or(0);
        let left: u64 = self
            .between
            .iter()
            .filter(|i| calls(i))
            .filter_map(|i| self.under_way.get(&i.end()))
            .sum();
        let (before, now) = (count(first), count(second));
        let now_and_left = now.saturating_add(left);
        if now_and_left == before {
            out.exact += 1;
        } else if now_and_left < before && in_call {
            out.exact += 1;
            *out.never_back.entry(self.function.id.clone()).or_default() += before - now_and_left;
        } else {
            self.tell(
                first,
                second,
                &format!("{before}, then {now}, {left} left in between"),
                out,
            );
        }
    }

    fn bounds(&self, first: usize, second: usize, in_call: bool, out: &mut Checked) {
        let at = |counts: &[u64], n: usize| counts.get(n).copied().unwrap_or(0);
        let [a, b] = &self.reads.first;
        let [c, d] = &self.reads.second;
        let least = |n: usize| at(c, n).saturating_sub(at(b, n));
        let most = |n: usize| at(d, n).saturating_sub(at(a, n));
        // Visits between the two: whoever sleeps in the call, several times over if the call comes back to the function;
        // without a call whoever was interrupted there.
        let slack = match in_call {
            true => self.reads.threads.saturating_mul(4),
            false => 8,
        };
        let more = least(second) > most(first).saturating_add(slack);
        let fewer = !in_call && least(first) > most(second).saturating_add(slack);
        if more || fewer {
            let text = format!(
                "{} to {}, then {} to {} while both were armed",
                least(first),
                most(first),
                least(second),
                most(second)
            );
            self.tell(first, second, &text, out);
        } else {
            out.within += 1;
        }
    }

    fn tell(&self, first: usize, second: usize, what: &str, out: &mut Checked) {
        let label = |n: usize| {
            self.armed.get(n).map_or(String::new(), |p| {
                format!("{} ({})", p.point.label(), p.tactic)
            })
        };
        out.violations
            .push(format!("{}, {}: {what}", label(first), label(second)));
    }
}
