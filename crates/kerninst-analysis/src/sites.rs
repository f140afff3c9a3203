//! Notes on each instruction what the site tables say of it, and checks that tables and decoding agree.

use std::ops::Range;

use kerninst_kernel::{Entry, Table, Tables};

use crate::function::{Incomplete, Sites};
use crate::node::{Bits, Flow};

/// Sets the site flags and the joins that tables make, and reports entries off an instruction boundary.
pub(crate) fn apply(flow: &mut Flow, tables: &Tables) {
    for run in runs(flow) {
        mark(flow, &run, &tables.extable, Sites::EXTABLE, "exception");
        mark(flow, &run, &tables.bugs, Sites::BUG, "bug");
        mark(
            flow,
            &run,
            &tables.jump_labels,
            Sites::JUMP_LABEL,
            "jump label",
        );
        mark(
            flow,
            &run,
            &tables.static_calls,
            Sites::STATIC_CALL,
            "static call",
        );
        mark(flow, &run, &tables.fentry, Sites::FENTRY, "fentry");
        mark(
            flow,
            &run,
            &tables.retpolines,
            Sites::RETPOLINE,
            "retpoline",
        );
        mark(flow, &run, &tables.returns, Sites::RETURN, "return site");
        mark(flow, &run, &tables.endbr_seals, Sites::ENDBR, "ENDBR");
        mark(flow, &run, &tables.smp_locks, Sites::SMP_LOCK, "SMP lock");
        mark(
            flow,
            &run,
            &tables.call_sites,
            Sites::CALL_SITE,
            "call site",
        );
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

fn mark<T: Entry>(
    flow: &mut Flow,
    run: &Range<u64>,
    table: &Table<T>,
    site: Sites,
    name: &'static str,
) {
    for entry in table.in_range(run.clone()) {
        match node_at(flow, entry.addr()) {
            Ok(n) => {
                if let Some(node) = flow.nodes.get_mut(n) {
                    node.sites |= site;
                }
            }
            Err(true) => {
                flow.incomplete.push(Incomplete::TableMismatch {
                    table: name,
                    addr: entry.addr(),
                });
            }
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
