//! Patch modules: generated, passive, loaded by the kernel's own loader, which registers their unwind data,
//! exception and bug tables and symbols.

use crate::abi::Pair;
use crate::sys;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Why a patch module is not in place.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// The loader refused it.
    #[error("the kernel refused the patch module {name} ({source}); `dmesg | tail` has its reason")]
    Refused {
        /// Its name.
        name: String,
        /// The loader's answer.
        source: io::Error,
    },
    /// Its address cannot be read.
    #[error("the address of patch module {name} cannot be read from {}: {reason}", path.display())]
    Address {
        /// Its name.
        name: String,
        /// The file.
        path: PathBuf,
        /// What was found there.
        reason: String,
    },
}

/// A loaded patch module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchText {
    /// Name of the module.
    pub name: String,
    /// Address of its `.text`.
    pub base: u64,
    /// Bytes of its `.text`.
    pub len: u64,
}

/// Is a module of this name loaded (or on its way)?
pub fn is_loaded(name: &str) -> bool {
    PathBuf::from("/sys/module")
        .join(name)
        .join("initstate")
        .exists()
}

/// Loads a patch module, whose text has `len` bytes, and tells where that is.
///
/// # Errors
/// [`ModuleError`]; where the address cannot be read, the module is unloaded again.
pub fn load_patch_module(name: &str, image: &[u8], len: u64) -> Result<PatchText, ModuleError> {
    sys::init_module(image).map_err(|source| ModuleError::Refused {
        name: name.into(),
        source,
    })?;
    match module_section(name, ".text") {
        Ok(base) => Ok(PatchText {
            name: name.into(),
            base,
            len,
        }),
        Err(e) => {
            // Nothing leads to it yet.
            let _ = sys::delete_module(name);
            Err(e)
        }
    }
}

fn section_path(module: &str, section: &str) -> PathBuf {
    PathBuf::from("/sys/module")
        .join(module)
        .join("sections")
        .join(section)
}

fn section_address(path: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let digits = text.trim().trim_start_matches("0x");
    match u64::from_str_radix(digits, 16) {
        Ok(0) | Err(_) => Err(format!("it says {:?}", text.trim())),
        Ok(base) => Ok(base),
    }
}

/// Address of a section of a loaded module.
///
/// # Errors
/// [`ModuleError::Address`].
pub fn module_section(module: &str, section: &str) -> Result<u64, ModuleError> {
    let path = section_path(module, section);
    section_address(&path).map_err(|reason| ModuleError::Address {
        name: module.into(),
        path,
        reason,
    })
}

/// Where the calls of a patch module's versions return to, in the version and in the original, ascending; its text
/// starts at `base`. Empty: it has no versions (or cannot be read: then its tasks are waited for).
pub fn returns(module: &str, section: &str, base: u64) -> Vec<Pair> {
    // More calls than any kernel has.
    const MOST: u64 = 16 << 20;
    let Ok(at) = module_section(module, section) else {
        return Vec::new();
    };
    let word = |b: &[u8]| b.first_chunk().copied().map_or(0, u32::from_le_bytes);
    let Ok(head) = kerninst_kernel::read_memory(at, 8) else {
        return Vec::new();
    };
    let count = head.first_chunk().copied().map_or(0, u64::from_le_bytes);
    if count > MOST {
        return Vec::new();
    }
    let rows = kerninst_kernel::read_memory(at.wrapping_add(8), count as usize * 8);
    let mut pairs: Vec<Pair> = rows
        .unwrap_or_default()
        .chunks_exact(8)
        .map(|row| Pair {
            from: base.wrapping_add(u64::from(word(row))),
            // Kernel text is in the top 2 GiB: the address is sign-extended.
            to: i64::from(word(row.get(4..).unwrap_or(&[])) as i32) as u64,
            ..Pair::default()
        })
        .collect();
    pairs.sort_unstable_by_key(|p| p.from);
    pairs.dedup_by_key(|p| p.from);
    pairs
}

/// Unloads a patch module that nothing leads to and nobody is in; false: it is still pinned.
///
/// # Errors
/// What `delete_module(2)` says, other than that it is in use.
pub fn unload_patch_module(name: &str) -> io::Result<bool> {
    // Somebody who walks /proc/modules or kallsyms holds a reference for a moment.
    let until = Instant::now() + Duration::from_millis(500);
    loop {
        match sys::delete_module(name) {
            Ok(()) => return Ok(true),
            Err(e) => match e.raw_os_error() {
                Some(libc::ENOENT) => return Ok(true),
                Some(libc::EWOULDBLOCK | libc::EBUSY) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Some(libc::EWOULDBLOCK | libc::EBUSY) => return Ok(false),
                _ => return Err(e),
            },
        }
    }
}
