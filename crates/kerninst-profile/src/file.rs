//! Profile files: JSON lines that outlive a boot.
//!
//! The first line says of which kernel (its build id), then a line for each function, then one with their number, by which
//! a file that was cut short is known. Addresses are offsets from the function's entry, so that a file of one boot fits
//! the next. Every function carries the hash of its shape: boot code rewrites instructions as processor and
//! command line ask for, and counts of other code must not be mixed in.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

use kerninst_analysis::{EdgeTarget, Function};
use kerninst_kernel::Kernel;
use serde::{Deserialize, Serialize};

use crate::code::{Part, Way};
use crate::{Flow, Profile, Violation};

/// Schema of the first line.
pub const HEAD: &str = "kerninst.profile/1";
/// Schema of a function's line.
pub const FUNCTION: &str = "kerninst.profile-function/1";
/// Schema of the last line.
pub const END: &str = "kerninst.profile-end/1";

/// Longest line that is read: far above that of the largest function.
const LONGEST: u64 = 64 << 20;

/// What is wrong with a profile file, or with two that do not go together.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Not a profile at all.
    #[error("this is no profile: the first line is not one of schema {HEAD}")]
    NoProfile,
    /// A line that is damaged.
    #[error("line {line} is damaged: {why}")]
    Damaged {
        /// Line number, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// The end is missing.
    #[error("the profile was cut short: its last line is missing")]
    CutShort,
    /// Profiles of two kernels.
    #[error(
        "profiles of different kernels (build id {ours} and {theirs}) cannot be added up or compared"
    )]
    OtherKernel {
        /// Build id of the one.
        ours: String,
        /// Build id of the other.
        theirs: String,
    },
    /// Two builds of a module.
    #[error(
        "profiles of different builds of module {module} (build id {ours} and {theirs}) cannot be added up or compared"
    )]
    OtherModule {
        /// The module.
        module: String,
        /// Build id in the one.
        ours: String,
        /// Build id in the other.
        theirs: String,
    },
    /// Other code under the same name.
    #[error(
        "{function} is other code in this profile (its instructions were rewritten at boot in another way)"
    )]
    OtherCode {
        /// Id of the function.
        function: String,
    },
    /// More than 2^64 executions.
    #[error("the counts of {function} add up to more than 2^64")]
    Overflow {
        /// Id of the function.
        function: String,
    },
}

/// What a whole profile is about.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Head {
    /// GNU build id of the kernel, hexadecimal.
    pub build_id: String,
    /// As `uname -r` prints it.
    pub release: Option<String>,
    /// Time that was counted, in seconds; of merged profiles the sum.
    pub seconds: f64,
    /// Nothing was lost.
    pub complete: bool,
    /// How many profiles were added up.
    pub runs: u64,
    /// Only what ran was recorded, not how often: counts are 1 or 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
    /// What was run, or how the profile came to be.
    #[serde(default)]
    pub what: Option<String>,
    /// GNU build ids of the modules whose functions are in it.
    #[serde(default)]
    pub modules: BTreeMap<String, String>,
}

/// The counts of one function.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FunctionProfile {
    /// Id: `name`, `name#2`, `module:name`.
    pub function: String,
    /// Hash of its shape ([`shape`]).
    #[serde(with = "hex")]
    pub shape: u64,
    /// Where its blocks start: bytes from the entry (a cold part may lie before it). Of the first profile, where several
    /// were added up: a module's cold part may lie elsewhere each time.
    pub starts: Vec<i64>,
    /// Where its blocks end, in the same way.
    pub ends: Vec<i64>,
    /// The function's own edges, those of a block together: the first of [`FunctionProfile::edges`].
    pub ways: Vec<Way>,
    /// Where its code lies in the kernel's or module's file.
    pub parts: Vec<Part>,
    /// Counts of the blocks.
    pub blocks: Vec<Option<u64>>,
    /// Counts of the edges, in the order of [`Flow::edges`].
    pub edges: Vec<Option<u64>>,
    /// Visits that began.
    pub entered: Option<u64>,
    /// Visits that ended.
    pub left: Option<u64>,
    /// Visits that were inside at the end.
    pub in_flight: u64,
    /// The same by block.
    pub inside: Vec<u64>,
    /// What does not add up.
    #[serde(default)]
    pub violations: Vec<Violation>,
}

impl FunctionProfile {
    /// Of this function of `kernel`.
    pub fn new(kernel: &Kernel, function: &Function, profile: &Profile) -> FunctionProfile {
        let entry = function.entry();
        let from_entry = |addr: u64| addr.wrapping_sub(entry) as i64;
        let blocks = function.blocks.iter();
        FunctionProfile {
            function: function.id.clone(),
            shape: shape(function),
            starts: blocks.clone().map(|b| from_entry(b.start)).collect(),
            ends: blocks.map(|b| from_entry(b.end)).collect(),
            ways: function.edges.iter().map(Way::of).collect(),
            parts: Part::of(kernel, function),
            blocks: profile.blocks.clone(),
            edges: profile.edges.clone(),
            entered: profile.entered,
            left: profile.left,
            in_flight: profile.in_flight,
            inside: profile.inside.clone(),
            violations: profile.violations.clone(),
        }
    }

    /// The profile, if it is one of this very code.
    ///
    /// # Errors
    /// [`FileError::OtherCode`].
    pub fn profile(&self, function: &Function, flow: &Flow) -> Result<Profile, FileError> {
        let fits = self.shape == shape(function)
            && self.blocks.len() == flow.blocks()
            && self.inside.len() == flow.blocks()
            && self.edges.len() == flow.edges().len();
        if !fits {
            let function = self.function.clone();
            return Err(FileError::OtherCode { function });
        }
        Ok(Profile {
            blocks: self.blocks.clone(),
            edges: self.edges.clone(),
            entered: self.entered,
            left: self.left,
            in_flight: self.in_flight,
            inside: self.inside.clone(),
            violations: self.violations.clone(),
        })
    }

    /// The module that it is of.
    pub fn module(&self) -> Option<&str> {
        self.function.split_once(':').map(|(module, _)| module)
    }

    /// Are all counts known, and do they add up?
    pub fn is_exact(&self) -> bool {
        let known = self.blocks.iter().chain(&self.edges).all(Option::is_some);
        known && self.violations.is_empty()
    }

    /// Counts of its own edges.
    pub fn own_edges(&self) -> &[Option<u64>] {
        self.edges.get(..self.ways.len()).unwrap_or(&self.edges)
    }

    /// What does not fit together, in a file that is not to be trusted.
    fn check(&self) -> Result<(), &'static str> {
        let blocks = self.blocks.len();
        if self.starts.len() != blocks || self.ends.len() != blocks || self.inside.len() != blocks {
            return Err("not one count for each block");
        }
        if self.ways.len() > self.edges.len() {
            return Err("not one count for each edge");
        }
        if self.ways.iter().any(|w| w.from as usize >= blocks) {
            return Err("an edge of a block that there is not");
        }
        if self.starts.iter().zip(&self.ends).any(|(s, e)| s >= e) {
            return Err("a block that ends before it starts");
        }
        Ok(())
    }

    /// Are these counts of the same code?
    ///
    /// # Errors
    /// [`FileError::OtherCode`].
    pub(crate) fn same_code(&self, other: &FunctionProfile) -> Result<(), FileError> {
        let same = self.shape == other.shape
            && self.blocks.len() == other.blocks.len()
            && self.inside.len() == other.inside.len()
            && self.edges.len() == other.edges.len()
            && self.ways == other.ways;
        if !same {
            let function = self.function.clone();
            return Err(FileError::OtherCode { function });
        }
        Ok(())
    }

    fn only_what_ran(&mut self) {
        let entered = std::slice::from_mut(&mut self.entered);
        let counts = self.blocks.iter_mut().chain(&mut self.edges).chain(entered);
        for count in counts.flatten() {
            *count = (*count).min(1);
        }
        self.left = None;
        self.in_flight = 0;
        self.inside.fill(0);
        self.violations.clear();
    }

    fn add(&mut self, other: &FunctionProfile) -> Result<(), FileError> {
        self.same_code(other)?;
        let function = self.function.clone();
        let overflow = || FileError::Overflow {
            function: function.clone(),
        };
        let add = |a: &mut Option<u64>, b: &Option<u64>| {
            *a = match (*a, *b) {
                (Some(a), Some(b)) => Some(a.checked_add(b).ok_or_else(overflow)?),
                _ => None,
            };
            Ok::<(), FileError>(())
        };
        for (a, b) in self.blocks.iter_mut().zip(&other.blocks) {
            add(a, b)?;
        }
        for (a, b) in self.edges.iter_mut().zip(&other.edges) {
            add(a, b)?;
        }
        add(&mut self.entered, &other.entered)?;
        add(&mut self.left, &other.left)?;
        let in_flight = self.in_flight.checked_add(other.in_flight);
        self.in_flight = in_flight.ok_or_else(overflow)?;
        for (a, b) in self.inside.iter_mut().zip(&other.inside) {
            *a = a.checked_add(*b).ok_or_else(overflow)?;
        }
        self.violations.extend_from_slice(&other.violations);
        Ok(())
    }
}

/// A profile file in memory.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProfileFile {
    /// What it is about.
    pub head: Head,
    /// By id.
    pub functions: BTreeMap<String, FunctionProfile>,
}

#[derive(Serialize)]
struct Line<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    value: &'a T,
}

#[derive(Serialize, Deserialize)]
struct End {
    functions: u64,
}

impl ProfileFile {
    /// Adds a function.
    ///
    /// # Errors
    /// [`FileError`], if a function of that id is there already and does not go with it.
    pub fn add(&mut self, function: FunctionProfile) -> Result<(), FileError> {
        match self.functions.get_mut(&function.function) {
            Some(known) => known.add(&function),
            None => {
                self.functions.insert(function.function.clone(), function);
                Ok(())
            }
        }
    }

    /// Adds another profile of the same kernel. On an error `self` may hold a part of it.
    ///
    /// # Errors
    /// [`FileError`]: not the same kernel, not the same code.
    pub fn merge(&mut self, other: ProfileFile) -> Result<(), FileError> {
        self.same_kernel(&other)?;
        for (_, function) in other.functions {
            self.add(function)?;
        }
        self.head.once |= other.head.once;
        if self.head.once {
            // How often is not known any more.
            let functions = self.functions.values_mut();
            functions.for_each(FunctionProfile::only_what_ran);
        }
        self.head.modules.extend(other.head.modules);
        self.head.seconds += other.head.seconds;
        self.head.complete &= other.head.complete;
        self.head.runs = self.head.runs.saturating_add(other.head.runs);
        if self.head.what != other.head.what {
            self.head.what = None;
        }
        Ok(())
    }

    /// Are both of the same kernel, with the same modules?
    ///
    /// # Errors
    /// [`FileError::OtherKernel`], [`FileError::OtherModule`].
    pub fn same_kernel(&self, other: &ProfileFile) -> Result<(), FileError> {
        if self.head.build_id != other.head.build_id {
            return Err(FileError::OtherKernel {
                ours: self.head.build_id.clone(),
                theirs: other.head.build_id.clone(),
            });
        }
        for (module, ours) in &self.head.modules {
            if let Some(theirs) = other.head.modules.get(module)
                && theirs != ours
            {
                return Err(FileError::OtherModule {
                    module: module.clone(),
                    ours: ours.clone(),
                    theirs: theirs.clone(),
                });
            }
        }
        Ok(())
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`FileError::Io`].
    pub fn write(&self, out: &mut dyn Write) -> Result<(), FileError> {
        line(out, HEAD, &self.head)?;
        for function in self.functions.values() {
            line(out, FUNCTION, function)?;
        }
        let functions = self.functions.len() as u64;
        line(out, END, &End { functions })?;
        out.flush()?;
        Ok(())
    }

    /// Reads one. Lines of schemas that are not known are passed over.
    ///
    /// # Errors
    /// [`FileError`]: nothing that is damaged is taken.
    pub fn read(mut input: impl BufRead) -> Result<ProfileFile, FileError> {
        let mut file = ProfileFile::default();
        let mut number = 0u64;
        let mut ended = false;
        let mut text = Vec::new();
        loop {
            text.clear();
            if input.by_ref().take(LONGEST).read_until(b'\n', &mut text)? == 0 {
                break;
            }
            number += 1;
            let damaged = |why: &dyn std::fmt::Display| FileError::Damaged {
                line: number,
                why: why.to_string(),
            };
            let parsed = serde_json::from_slice::<serde_json::Value>(&text);
            if number == 1 {
                let value = parsed.map_err(|_| FileError::NoProfile)?;
                if value.get("schema").and_then(|s| s.as_str()) != Some(HEAD) {
                    return Err(FileError::NoProfile);
                }
                file.head = serde_json::from_value(value).map_err(|e| damaged(&e))?;
                continue;
            }
            if !text.ends_with(b"\n") {
                return Err(FileError::CutShort);
            }
            if ended {
                return Err(damaged(&"there is more after the last line"));
            }
            let value = parsed.map_err(|e| damaged(&e))?;
            match value.get("schema").and_then(|s| s.as_str()) {
                Some(FUNCTION) => {
                    let function: FunctionProfile =
                        serde_json::from_value(value).map_err(|e| damaged(&e))?;
                    function.check().map_err(|why| damaged(&why))?;
                    if file.functions.contains_key(&function.function) {
                        return Err(damaged(&"the function is there twice"));
                    }
                    file.functions.insert(function.function.clone(), function);
                }
                Some(END) => {
                    let end: End = serde_json::from_value(value).map_err(|e| damaged(&e))?;
                    if end.functions != file.functions.len() as u64 {
                        return Err(damaged(&format!(
                            "there should be {} functions, not {}",
                            end.functions,
                            file.functions.len()
                        )));
                    }
                    ended = true;
                }
                Some(_) => {}
                None => return Err(damaged(&"it has no schema")),
            }
        }
        match (number, ended) {
            (0, _) => Err(FileError::NoProfile),
            (_, false) => Err(FileError::CutShort),
            (_, true) => Ok(file),
        }
    }
}

fn line<T: Serialize>(out: &mut dyn Write, schema: &'static str, value: &T) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Line { schema, value })?;
    writeln!(out)
}

/// A hash of what a function's code looks like: lengths and kinds of its instructions, its blocks and edges, all relative
/// to its entry. The same in every boot of a kernel unless instructions are rewritten in another way; static keys
/// and the addresses that KASLR moves do not change it.
pub fn shape(function: &Function) -> u64 {
    // FNV-1a.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut put = |n: u64| {
        for byte in n.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    // The cold part of a module's function lies elsewhere each time.
    let place = |addr: u64| {
        let part = function.ranges.iter().position(|r| r.contains(&addr));
        let start = part
            .and_then(|p| function.ranges.get(p))
            .map_or(0, |r| r.start);
        (part.unwrap_or(0) as u64, addr.wrapping_sub(start))
    };
    for insn in &function.insns {
        let (part, offset) = place(insn.addr);
        put(part);
        put(offset);
        put(u64::from(insn.len));
    }
    for block in &function.blocks {
        put(u64::from(block.first));
    }
    for edge in &function.edges {
        put(u64::from(edge.from));
        put(match edge.to {
            EdgeTarget::Block(b) => u64::from(b),
            EdgeTarget::Exit(_) => u64::MAX,
        });
        put(edge.kind as u64);
    }
    hash
}

mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(n: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{n:016x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        let text = String::deserialize(d)?;
        u64::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}
