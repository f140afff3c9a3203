//! Lines, functions and branches of the source, in lcov's format.
//!
//! What ran is known for blocks of machine code; the line table of DWARF tells from which lines each of their instructions
//! comes, whichever function these were inlined from. A line ran as often as the busiest block of a function that holds an
//! instruction of it; over functions (those that a line was inlined into) these are added up. Compilers move and merge code: counts of
//! lines are as good as the line table, those of functions and branches are exact.

mod debug;
mod info;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use kerninst_analysis::EdgeKind;
use kerninst_kernel::Kernel;
use kerninst_profile::file::{FunctionProfile, Head, ProfileFile};

pub use debug::Debug;
pub use info::write;

use crate::Fail;
use crate::json::hex;

/// Images that debug information may be of: the core kernel (none) and modules, with their build ids.
pub type Images = Vec<(Option<String>, String)>;

/// The images of a kernel.
pub fn images_of(kernel: &Kernel) -> Images {
    let modules = kernel.modules().iter();
    let modules = modules.filter_map(|m| Some((Some(m.name.clone()), hex(m.build_id()?))));
    let core = kernel.build_id().map(|id| (None, hex(id)));
    core.into_iter().chain(modules).collect()
}

/// The images of a profile.
pub fn images_in(head: &Head) -> Images {
    let modules = head.modules.iter();
    let modules = modules.map(|(m, id)| (Some(m.clone()), id.clone()));
    std::iter::once((None, head.build_id.clone()))
        .chain(modules)
        .collect()
}

/// Debug information of a kernel and its modules.
#[derive(Default)]
pub struct Sources {
    files: HashMap<Option<String>, Debug>,
}

impl Sources {
    /// Opens these files.
    ///
    /// # Errors
    /// [`Fail::Error`]: a file without debug information, or of none of these images.
    pub fn open(paths: &[PathBuf], images: &Images) -> Result<Sources, Fail> {
        let mut sources = Sources::default();
        for path in paths {
            let fail = |why: String| Fail::Error(format!("{}: {why}", path.display()));
            let debug = Debug::open(path).map_err(|e| fail(e.to_string()))?;
            let Some((module, _)) = images.iter().find(|(_, id)| *id == debug.build_id) else {
                let core = images.iter().find(|(module, _)| module.is_none());
                let core = core.map_or("not known", |(_, id)| id.as_str());
                return Err(fail(format!(
                    "its build id is {}; that of the kernel is {core}, and no module that was counted has it",
                    debug.build_id
                )));
            };
            sources.files.insert(module.clone(), debug);
        }
        Ok(sources)
    }

    /// What ran of the sources.
    pub fn collect(&self, profile: &ProfileFile) -> Tree {
        let mut tree = Tree::default();
        for function in profile.functions.values() {
            let debug = self.files.get(&function.module().map(str::to_string));
            match debug.and_then(|d| Some((d, d.locate(function)?))) {
                Some((debug, place)) => tree.add(function, debug, &place),
                None => tree.without += 1,
            }
        }
        tree
    }
}

/// A two-way (or more) end of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its line.
    pub line: u32,
    /// How many ways there are.
    pub ways: usize,
    /// How often each was taken; none: the block never ran.
    pub taken: Option<Vec<u64>>,
}

/// What ran of one source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFile {
    /// Line, name, calls.
    pub functions: Vec<(u32, String, u64)>,
    /// Executions of each line.
    pub lines: BTreeMap<u32, u64>,
    /// Branches.
    pub branches: Vec<Branch>,
}

/// What ran of all source files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// By path.
    pub files: BTreeMap<String, SourceFile>,
    /// Functions of which no file tells the source.
    pub without: usize,
    /// Lines and branches of which it is not known how often they ran.
    pub unknown: usize,
}

/// Where a function lies in a debug file: the address of what is so many bytes from its entry.
pub type Place<'a> = Box<dyn Fn(i64) -> Option<u64> + 'a>;

impl Tree {
    fn add(&mut self, function: &FunctionProfile, debug: &Debug, place: &Place) {
        let mut lines: HashMap<(&str, u32), Option<u64>> = HashMap::new();
        let blocks = function.starts.iter().zip(&function.ends);
        let blocks: Vec<((&i64, &i64), &Option<u64>)> = blocks.zip(&function.blocks).collect();
        for ((start, end), count) in &blocks {
            // The end may be that of the part.
            let last = end.checked_sub(1).and_then(place);
            let (Some(start), Some(last)) = (place(**start), last) else {
                continue;
            };
            for at in debug.lines(start, last.saturating_add(1)) {
                let known = lines.entry(at).or_default();
                *known = (*known).max(**count);
            }
        }
        for ((path, line), count) in lines {
            let Some(count) = count else {
                self.unknown += 1;
                continue;
            };
            let file = self.files.entry(path.to_string()).or_default();
            let sum = file.lines.entry(line).or_default();
            *sum = sum.saturating_add(count);
        }
        if let Some(calls) = function.entered
            && let Some((path, line)) = place(0).and_then(|a| debug.line(a))
        {
            let name = function.function.split_once(':').map(|(_, name)| name);
            let name = name.unwrap_or(&function.function).to_string();
            let file = self.files.entry(path.to_string()).or_default();
            file.functions.push((line, name, calls));
        }
        self.branches(function, debug, place);
    }

    fn branches(&mut self, function: &FunctionProfile, debug: &Debug, place: &Place) {
        let mut ways: BTreeMap<u32, Vec<Option<u64>>> = BTreeMap::new();
        for (way, count) in function.ways.iter().zip(&function.edges) {
            // That an access may fault is no branch of the source.
            if way.kind != EdgeKind::Fixup {
                ways.entry(way.from).or_default().push(*count);
            }
        }
        for (block, taken) in ways {
            if taken.len() < 2 {
                continue;
            }
            let block = block as usize;
            // The last byte is one of the instruction that branches.
            let last = function.ends.get(block).and_then(|e| e.checked_sub(1));
            let at = last.and_then(place).and_then(|a| debug.line(a));
            let Some((path, line)) = at else {
                continue;
            };
            let ways = taken.len();
            let taken = match function.blocks.get(block) {
                Some(Some(0)) => None,
                _ => match taken.into_iter().collect::<Option<Vec<u64>>>() {
                    Some(taken) => Some(taken),
                    None => {
                        self.unknown += 1;
                        continue;
                    }
                },
            };
            let file = self.files.entry(path.to_string()).or_default();
            file.branches.push(Branch { line, ways, taken });
        }
    }
}
