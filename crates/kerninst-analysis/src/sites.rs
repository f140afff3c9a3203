//! Notes on each instruction what the site tables say of it, and checks that tables and decoding agree.

use std::ops::Range;

use kerninst_kernel::{Entry, Table, Tables};

use crate::function::{Incomplete, Sites};
use crate::near::Near;
use crate::node::{Bits, Flow};

/// Sets the site flags and the joins that tables make, and reports entries off an instruction boundary.
pub(crate) fn apply(flow: &mut Flow, near: &Near<'_>, tables: &Tables) {
    for run in runs(flow) {
        // The slices for the region are at hand; they may reach beyond the run, where no node is.
        if near.region.start <= run.start && run.end <= near.region.end {
            mark(flow, near.extable, Sites::EXTABLE, "exception");
            mark(flow, near.bugs, Sites::BUG, "bug");
            mark(flow, near.jump_labels, Sites::JUMP_LABEL, "jump label");
            mark(flow, near.static_calls, Sites::STATIC_CALL, "static call");
            mark(flow, near.fentry, Sites::FENTRY, "fentry");
        } else {
            let at = || run.clone();
            mark(
                flow,
                tables.extable.in_range(at()),
                Sites::EXTABLE,
                "exception",
            );
            mark(flow, tables.bugs.in_range(at()), Sites::BUG, "bug");
            mark(
                flow,
                tables.jump_labels.in_range(at()),
                Sites::JUMP_LABEL,
                "jump label",
            );
            mark(
                flow,
                tables.static_calls.in_range(at()),
                Sites::STATIC_CALL,
                "static call",
            );
            mark(flow, tables.fentry.in_range(at()), Sites::FENTRY, "fentry");
        }
        // Files only: empty on a live kernel.
        for (table, site, name) in [
            (&tables.retpolines, Sites::RETPOLINE, "retpoline"),
            (&tables.returns, Sites::RETURN, "return site"),
            (&tables.endbr_seals, Sites::ENDBR, "ENDBR"),
            (&tables.smp_locks, Sites::SMP_LOCK, "SMP lock"),
        ] {
            if !table.is_empty() {
                mark(flow, table.in_range(run.clone()), site, name);
            }
        }
        targets(flow, &run, &tables.extable, "exception");
        targets(flow, &run, &tables.jump_labels, "jump label");
    }
}

/// Address ranges that the nodes lie in: the main part, and each cold part.
fn runs(flow: &Flow) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for node in &flow.nodes {
        match runs.last_mut() {
            // Short gaps are dead code or alignment; table entries in them are passed over.
            Some(run) if node.addr.saturating_sub(run.end) < 256 => run.end = node.end(),
            _ => runs.push(node.addr..node.end()),
        }
    }
    runs
}

/// The node that starts at `addr`, or `Err(true)` if `addr` is in the middle of one.
fn node_at(flow: &Flow, addr: u64) -> Result<usize, bool> {
    flow.nodes
        .binary_search_by_key(&addr, |n| n.addr)
        .map_err(|next| {
            let before = next.checked_sub(1).and_then(|n| flow.nodes.get(n));
            before.is_some_and(|n| addr < n.end())
        })
}

fn mark<T: Entry>(flow: &mut Flow, entries: &[T], site: Sites, name: &'static str) {
    for entry in entries {
        let addr = entry.addr();
        match node_at(flow, addr) {
            Ok(n) => {
                if let Some(node) = flow.nodes.get_mut(n) {
                    node.sites |= site;
                }
            }
            Err(true) => flow
                .incomplete
                .push(Incomplete::TableMismatch { table: name, addr }),
            Err(false) => {}
        }
    }
}

/// Addresses that a table sends control to are joins.
fn targets<T: Entry>(flow: &mut Flow, run: &Range<u64>, table: &Table<T>, name: &'static str) {
    for entry in table.targets_in(run.clone()) {
        let Some(target) = entry.target() else {
            continue;
        };
        match node_at(flow, target) {
            Ok(n) => {
                if let Some(node) = flow.nodes.get_mut(n) {
                    node.bits |= Bits::JOIN;
                }
            }
            Err(true) => {
                flow.incomplete.push(Incomplete::TableMismatch {
                    table: name,
                    addr: target,
                });
            }
            Err(false) => {}
        }
    }
}
