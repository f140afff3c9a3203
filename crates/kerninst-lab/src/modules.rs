//! Kernel modules for the guest: finds them by name, with what they depend on, in the order they must be loaded.
//!
//! Debian packages ship no `modules.dep` (depmod makes it at installation), so the dependencies are read from the
//! modules' own `.modinfo` sections.

use crate::error::{At, Error, Result};
use crate::kernel::KernelImage;
use object::{Object, ObjectSection};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A module for the guest, decompressed.
#[derive(Debug, Clone)]
pub struct GuestModule {
    /// Its name, with underscores, as /proc/modules shows it.
    pub name: String,
    /// The relocatable ELF file.
    pub data: Vec<u8>,
    /// Names of the modules that must be there before it (all of them, not only the direct ones), in load order.
    pub needs: Vec<String>,
}

/// All modules of one kernel, by name.
pub struct ModuleIndex {
    release: String,
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

/// The kernel treats '-' and '_' in module names alike.
fn canonical(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name);
    let stem = name
        .find(".ko")
        .and_then(|at| name.get(..at))
        .unwrap_or(name);
    stem.replace('-', "_")
}

impl ModuleIndex {
    /// Lists the module directory of a kernel.
    pub fn new(kernel: &KernelImage) -> Result<ModuleIndex> {
        let dir = kernel.modules.as_deref().ok_or_else(|| {
            Error::Unsupported(format!(
                "kernel {} has no module directory: give it by --modules DIR",
                kernel.name
            ))
        })?;
        let mut files = BTreeMap::new();
        let mut todo = vec![dir.to_path_buf()];
        while let Some(dir) = todo.pop() {
            for entry in std::fs::read_dir(&dir).at("read", &dir)? {
                let entry = entry.at("read", &dir)?;
                let kind = entry.file_type().at("read", entry.path())?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if kind.is_dir() {
                    todo.push(entry.path());
                } else if [".ko", ".ko.xz", ".ko.gz", ".ko.zst"]
                    .iter()
                    .any(|e| name.ends_with(e))
                {
                    files.insert(canonical(&name), entry.path());
                }
            }
        }
        let builtin = std::fs::read_to_string(dir.join("modules.builtin"))
            .unwrap_or_default()
            .lines()
            .map(canonical)
            .collect();
        Ok(ModuleIndex {
            release: kernel.release.clone(),
            files,
            builtin,
        })
    }

    /// Where the module of that name is, if there is one.
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.files.get(&canonical(name)).map(PathBuf::as_path)
    }

    /// The named modules and all they depend on, each once, in an order in which they can be loaded. A module that this
    /// kernel has built in is left out.
    pub fn with_needs(&self, names: &[String]) -> Result<Vec<GuestModule>> {
        let mut done: Vec<GuestModule> = Vec::new();
        for name in names {
            self.add(&canonical(name), true, &mut done, &mut Vec::new())?;
        }
        Ok(done)
    }

    /// Adds one module after its needs; returns the names that stand for it (itself last), empty if built in or (for a
    /// soft dependency) absent.
    fn add(
        &self,
        name: &str,
        must: bool,
        done: &mut Vec<GuestModule>,
        under_way: &mut Vec<String>,
    ) -> Result<Vec<String>> {
        if let Some(there) = done.iter().find(|m| m.name == name) {
            let mut names = there.needs.clone();
            names.push(name.to_string());
            return Ok(names);
        }
        // A cycle can only come from soft dependencies; the kernel's loader would not wait for it either.
        if self.builtin.contains(name) || under_way.iter().any(|n| n == name) {
            return Ok(Vec::new());
        }
        // A soft dependency may be an algorithm's name; its module is then the portable implementation.
        let generic = format!("{name}_generic");
        if !must && !self.files.contains_key(name) && self.files.contains_key(&generic) {
            return self.add(&generic, must, done, under_way);
        }
        let Some(path) = self.files.get(name) else {
            return if must {
                Err(self.missing(name))
            } else {
                Ok(Vec::new())
            };
        };
        let data = load(path)?;
        let info = info(&data).ok_or_else(|| {
            Error::BadKernel(format!("{} has no readable .modinfo", path.display()))
        })?;
        under_way.push(name.to_string());
        let mut needs: Vec<String> = Vec::new();
        let soft = info.before.iter().map(|n| (n, false));
        for (need, must) in soft.chain(info.depends.iter().map(|n| (n, true))) {
            for one in self.add(&canonical(need), must, done, under_way)? {
                if !needs.contains(&one) {
                    needs.push(one);
                }
            }
        }
        under_way.pop();
        let mut names = needs.clone();
        names.push(name.to_string());
        done.push(GuestModule {
            name: name.to_string(),
            data,
            needs,
        });
        Ok(names)
    }

    fn missing(&self, name: &str) -> Error {
        let like: Vec<&str> = self
            .files
            .keys()
            .filter(|k| k.contains(name))
            .map(String::as_str)
            .take(5)
            .collect();
        let hint = if like.is_empty() {
            String::new()
        } else {
            format!(" (it has {})", like.join(", "))
        };
        Error::NoModule {
            release: self.release.clone(),
            module: name.to_string(),
            hint,
        }
    }
}

/// Larger than any module, so that a corrupt file cannot fill the memory.
const LARGEST: u64 = 256 << 20;

/// Reads a module file and decompresses it as its name says.
fn load(path: &Path) -> Result<Vec<u8>> {
    let bytes = std::fs::read(path).at("read", path)?;
    let packed = bytes.as_slice();
    let broken = |e: String| Error::BadKernel(format!("cannot decompress {}: {e}", path.display()));
    let mut reader: Box<dyn Read + '_> = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => Box::new(lzma_rust2::XzReader::new(packed, false)),
        Some("gz") => Box::new(flate2::read::GzDecoder::new(packed)),
        Some("zst") => Box::new(
            ruzstd::decoding::StreamingDecoder::new(packed).map_err(|e| broken(e.to_string()))?,
        ),
        _ => return Ok(bytes),
    };
    let mut out = Vec::with_capacity(packed.len().saturating_mul(4));
    let count = reader
        .by_ref()
        .take(LARGEST)
        .read_to_end(&mut out)
        .map_err(|e| broken(e.to_string()))?;
    if count as u64 == LARGEST {
        return Err(broken("it is larger than any module".into()));
    }
    drop(reader);
    Ok(out)
}

struct Info {
    depends: Vec<String>,
    before: Vec<String>,
}

/// `depends=` and the "pre:" part of `softdep=` of a module.
fn info(data: &[u8]) -> Option<Info> {
    let file = object::File::parse(data).ok()?;
    let section = file.section_by_name(".modinfo")?;
    let mut found = Info {
        depends: Vec::new(),
        before: Vec::new(),
    };
    for field in section.data().ok()?.split(|&b| b == 0) {
        let Ok(text) = std::str::from_utf8(field) else {
            continue;
        };
        if let Some(list) = text.strip_prefix("depends=") {
            found
                .depends
                .extend(list.split(',').filter(|n| !n.is_empty()).map(String::from));
        } else if let Some(list) = text.strip_prefix("softdep=pre:") {
            let before = list.split("post:").next().unwrap_or(list);
            found
                .before
                .extend(before.split_whitespace().map(String::from));
        }
    }
    Some(found)
}
