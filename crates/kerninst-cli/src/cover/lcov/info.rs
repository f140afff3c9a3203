//! lcov's trace files: the format that geninfo(1) describes.

use std::collections::HashMap;
use std::io::{self, Write};

use super::{SourceFile, Tree};

/// Writes a trace file.
///
/// # Errors
/// What the writer says.
pub fn write(tree: &Tree, out: &mut dyn Write) -> io::Result<()> {
    for (path, file) in &tree.files {
        writeln!(out, "TN:kerninst")?;
        // A path with a line feed cannot be written; nobody has one.
        writeln!(out, "SF:{}", path.replace('\n', " "))?;
        functions(file, out)?;
        branches(file, out)?;
        for (line, count) in &file.lines {
            writeln!(out, "DA:{line},{count}")?;
        }
        let hit = file.lines.values().filter(|n| **n > 0).count();
        writeln!(out, "LF:{}\nLH:{hit}\nend_of_record", file.lines.len())?;
    }
    out.flush()
}

fn functions(file: &SourceFile, out: &mut dyn Write) -> io::Result<()> {
    let mut functions: Vec<&(u32, String, u64)> = file.functions.iter().collect();
    functions.sort();
    for (line, name, _) in &functions {
        writeln!(out, "FN:{line},{name}")?;
    }
    for (_, name, calls) in &functions {
        writeln!(out, "FNDA:{calls},{name}")?;
    }
    let hit = functions.iter().filter(|f| f.2 > 0).count();
    writeln!(out, "FNF:{}\nFNH:{hit}", functions.len())
}

fn branches(file: &SourceFile, out: &mut dyn Write) -> io::Result<()> {
    let (mut found, mut hit) = (0usize, 0usize);
    let mut branches: Vec<_> = file.branches.iter().collect();
    branches.sort_by_key(|b| b.line);
    // Several branches of one line (inlined here and there) are its blocks 0, 1 and so on.
    let mut next: HashMap<u32, usize> = HashMap::new();
    for branch in branches {
        let block = next.entry(branch.line).or_default();
        let ways = branch.ways;
        for way in 0..ways {
            let taken = branch.taken.as_ref().and_then(|t| t.get(way));
            let text = taken.map_or_else(|| "-".to_string(), u64::to_string);
            writeln!(out, "BRDA:{},{block},{way},{text}", branch.line)?;
            found += 1;
            hit += usize::from(taken.is_some_and(|n| *n > 0));
        }
        *block += 1;
    }
    writeln!(out, "BRF:{found}\nBRH:{hit}")
}
