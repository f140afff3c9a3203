//! From probes to points, in one kernel's picture.

use crate::error::ResolveError;
use crate::exits;
use crate::point::Point;
use crate::probe::{Place, Probe, ProbeKind};
use crate::ways;
use kerninst_analysis::{Analysis, Function};
use kerninst_kernel::{Derived, Kernel, Symbol};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The points of all probes, and what was left out of globs and why.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// By probe, then by address.
    pub points: Vec<Point>,
    /// One sentence for each thing that a probe asked for and that has no point.
    pub left_out: Vec<String>,
}

/// Finds the points of `probes`; `module` limits function names to one module (`kernel`: the core kernel).
///
/// # Errors
/// The first probe that names nothing, or is ambiguous. A glob leaves out what it cannot have and says so.
pub fn resolve(
    analysis: &Analysis<'_>,
    probes: &[Probe],
    module: Option<&str>,
) -> Result<Resolved, ResolveError> {
    let mut resolved = Resolved::default();
    for (n, probe) in probes.iter().enumerate() {
        match &probe.place {
            Place::Address(addr) => by_address(analysis, probe, n, *addr, &mut resolved)?,
            Place::Function { module: own, name } => {
                let module = own.as_deref().or(module);
                let before = resolved.points.len();
                for function in functions(analysis, probe, module, name)? {
                    of_function(analysis, probe, n, &function, is_glob(name), &mut resolved)?;
                }
                if resolved.points.len() == before && is_glob(name) {
                    let text = &probe.text;
                    resolved
                        .left_out
                        .push(format!("{text}: none of these functions has such a point"));
                }
            }
        }
    }
    Ok(resolved)
}

fn is_glob(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

fn by_address(
    analysis: &Analysis<'_>,
    probe: &Probe,
    n: usize,
    addr: u64,
    resolved: &mut Resolved,
) -> Result<(), ResolveError> {
    let function = analysis
        .function_at(addr)
        .ok_or_else(|| ResolveError::NoFunction {
            probe: probe.text.clone(),
            addr,
        })?;
    if !matches!(probe.kind, ProbeKind::Insn(_)) {
        return of_function(analysis, probe, n, &function, false, resolved);
    }
    resolved.points.push(Point::insn(n, &function, addr));
    Ok(())
}

fn of_function(
    analysis: &Analysis<'_>,
    probe: &Probe,
    n: usize,
    function: &Function,
    glob: bool,
    resolved: &mut Resolved,
) -> Result<(), ResolveError> {
    let id = &function.id;
    match &probe.kind {
        ProbeKind::Insn(offset) => {
            let offset = *offset;
            let size = function.ranges.first().map_or(0, |r| r.end - r.start);
            if offset >= size && offset > 0 {
                let inside = |a: u64| function.ranges.first().is_some_and(|r| r.contains(&a));
                let last = function
                    .insns
                    .iter()
                    .rev()
                    .find(|i| inside(i.addr))
                    .map(|i| i.addr - function.entry());
                return Err(ResolveError::PastEnd {
                    probe: probe.text.clone(),
                    function: id.clone(),
                    size,
                    last,
                });
            }
            resolved
                .points
                .push(Point::insn(n, function, function.entry() + offset));
        }
        ProbeKind::Entry => match exits::entry(function, n) {
            Some(point) => resolved.points.push(point),
            None => resolved
                .left_out
                .push(format!("{id}: it has no instruction")),
        },
        ProbeKind::Exit => {
            let points = exits::exits(function, n);
            if points.is_empty() {
                resolved.left_out.push(format!("{id}: it has no exit"));
            }
            resolved.points.extend(points);
        }
        ProbeKind::Blocks => {
            for (i, block) in function.blocks.iter().enumerate() {
                match exits::block(function, i, block, n) {
                    Some(point) => resolved.points.push(point),
                    None => resolved
                        .left_out
                        .push(format!("{id} block {i}: it holds the fentry site only")),
                }
            }
        }
        ProbeKind::Block(i) => {
            let i = *i;
            let block = function.blocks.get(i as usize);
            match block.and_then(|b| exits::block(function, i as usize, b, n)) {
                Some(point) => resolved.points.push(point),
                None if block.is_some() => {
                    resolved
                        .left_out
                        .push(format!("{id} block {i}: it holds the fentry site only"));
                }
                None if glob => {}
                None => {
                    return Err(ResolveError::NoBlock {
                        probe: probe.text.clone(),
                        function: id.clone(),
                        last: function.blocks.len().saturating_sub(1),
                    });
                }
            }
        }
        ProbeKind::Edge(from, to) => {
            let (points, without) = ways::edge(function, *from, *to, n);
            if points.is_empty() && without == 0 && !glob {
                return Err(ResolveError::NoEdge {
                    probe: probe.text.clone(),
                    function: id.clone(),
                    from: *from,
                    to: *to,
                    to_blocks: ways::successors(function, *from),
                });
            }
            if without > 0 {
                resolved.left_out.push(format!(
                    "{id} edge {from}->{to}: it cannot be told from another one by code that runs on it"
                ));
            }
            resolved.points.extend(points);
        }
        ProbeKind::Call(callee) => {
            let (points, indirect) = ways::calls(analysis, function, callee, n);
            if points.is_empty() && !glob {
                return Err(ResolveError::NoCall {
                    probe: probe.text.clone(),
                    function: id.clone(),
                    callee: callee.clone(),
                    indirect,
                });
            }
            if indirect > 0 && !glob {
                resolved.left_out.push(format!(
                    "{id}: {indirect} of its calls go through pointers, whom they call is known only when they run (call:{id}->* has them)"
                ));
            }
            resolved.points.extend(points);
        }
    }
    Ok(())
}

/// The functions that a name or glob means, by address.
fn functions(
    analysis: &Analysis<'_>,
    probe: &Probe,
    module: Option<&str>,
    name: &str,
) -> Result<Vec<Arc<Function>>, ResolveError> {
    let kernel = analysis.kernel();
    let text = || probe.text.clone();
    if let Some(m) = module
        && m != "kernel"
        && !kernel.modules().iter().any(|k| k.name == m)
    {
        return Err(ResolveError::Module {
            probe: text(),
            module: m.into(),
        });
    }
    let symbols = matching(kernel, module, name);
    let mut found: BTreeMap<u64, (String, Arc<Function>)> = BTreeMap::new();
    let mut data = false;
    for symbol in symbols {
        if !symbol.is_text() {
            data = true;
            continue;
        }
        // A `.cold` part belongs to its function, whose own symbol matches too or was not meant.
        let is_part = symbol.derived() == Some(Derived::Cold);
        if symbol.is_marker() || symbol.name.starts_with("__pfx_") || (is_part && is_glob(name)) {
            continue;
        }
        if let Some(function) = analysis.function_at(symbol.addr) {
            found
                .entry(function.entry())
                .or_insert((symbol.id(), function));
        }
    }
    if found.len() > 1 && !is_glob(name) {
        // The plain name is what is ambiguous: the first of them goes with its number too.
        let unambiguous = |id: String| {
            let plain = id.rsplit_once(':').map_or(id.as_str(), |(_, plain)| plain);
            if plain == name && !id.contains(':') {
                format!("{id}#1")
            } else {
                id
            }
        };
        let ids = found.into_values().map(|(id, _)| unambiguous(id)).collect();
        return Err(ResolveError::Ambiguous {
            probe: text(),
            name: name.into(),
            ids,
        });
    }
    if found.is_empty() {
        return Err(match (data, is_glob(name)) {
            (true, false) => ResolveError::Data {
                probe: text(),
                name: name.into(),
            },
            (_, true) => ResolveError::NoMatch {
                probe: text(),
                pattern: name.into(),
            },
            _ => ResolveError::Unknown {
                probe: text(),
                name: name.into(),
                similar: similar(kernel, name),
            },
        });
    }
    Ok(found.into_values().map(|(_, f)| f).collect())
}

/// Symbols of a name, id (`name#2`) or glob. `name#*` means all of that name.
fn matching<'k>(kernel: &'k Kernel, module: Option<&str>, name: &str) -> Vec<Symbol<'k>> {
    let symbols = kernel.symbols();
    let ours = |m: &str| m == "kerninst" || m.starts_with("kerninst_p");
    let wanted = |s: &Symbol<'_>| match module {
        // The driver, and patches that wait to be freed, are nobody's to instrument.
        _ if s.module.is_some_and(ours) => false,
        None => true,
        Some("kernel") => s.module.is_none(),
        Some(m) => s.module == Some(m),
    };
    if let Some(base) = name.strip_suffix("#*") {
        return symbols.named(base).into_iter().filter(wanted).collect();
    }
    if is_glob(name) {
        return symbols.glob(name).into_iter().filter(wanted).collect();
    }
    if name.contains('#') {
        let id = match module {
            Some(m) if m != "kernel" => format!("{m}:{name}"),
            _ => name.to_string(),
        };
        return symbols.by_id(&id).into_iter().filter(wanted).collect();
    }
    symbols.named(name).into_iter().filter(wanted).collect()
}

/// Up to three function names that differ little from `name`.
fn similar(kernel: &Kernel, name: &str) -> Vec<String> {
    let allowed = 1 + name.len() / 6;
    let mut near: Vec<(usize, &str)> = Vec::new();
    for symbol in kernel.symbols().iter().filter(Symbol::is_text) {
        if symbol.name.len().abs_diff(name.len()) <= allowed {
            let d = distance(symbol.name.as_bytes(), name.as_bytes(), allowed);
            if d <= allowed {
                near.push((d, symbol.name));
            }
        }
    }
    near.sort_unstable();
    near.dedup();
    near.into_iter()
        .take(3)
        .map(|(_, n)| n.to_string())
        .collect()
}

/// Levenshtein distance, or more than `most` as soon as it is sure to exceed it.
fn distance(a: &[u8], b: &[u8], most: usize) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut best = i + 1;
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        for (j, y) in b.iter().enumerate() {
            let (left, above) = (
                row.get(j).copied().unwrap_or(0),
                row.get(j + 1).copied().unwrap_or(0),
            );
            let value = (diagonal + usize::from(x != y))
                .min(left + 1)
                .min(above + 1);
            diagonal = above;
            best = best.min(value);
            if let Some(cell) = row.get_mut(j + 1) {
                *cell = value;
            }
        }
        if best > most {
            return most + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::distance;

    /// Would catch suggestions that are not near, or near ones that are missed.
    #[test]
    fn distances() {
        let check = |a: &str, b: &str, expected: usize| {
            assert_eq!(distance(a.as_bytes(), b.as_bytes(), 9), expected)
        };
        check("vfs_read", "vfs_read", 0);
        check("vfs_raed", "vfs_read", 2);
        check("vfs_rea", "vfs_read", 1);
        check("", "abc", 3);
    }
}
