//! The kernel's text as it is now, to be compared with what it was.

use crate::{Failure, live};
use kerninst_kernel::Kernel;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;

/// All text of a moment.
pub struct Snapshot {
    parts: Vec<Part>,
}

/// The text of the kernel itself, or of one load of a module.
struct Part {
    name: String,
    /// Which load of the module it is; `None` for the kernel.
    load: Option<u64>,
    start: u64,
    bytes: Vec<u8>,
}

/// Is it one of kerninst's own modules?
fn ours(module: Option<&str>) -> bool {
    module.is_some_and(|m| m == "kerninst" || m.starts_with("kerninst_p"))
}

/// A number that a module has from one loading to its removal (its kernfs directory's inode, which is never given twice:
/// fs/kernfs/dir.c, kernfs_new_node). `None`: it is not there, or is coming or going.
fn load_of(module: &str) -> Option<u64> {
    let dir = std::path::Path::new("/sys/module").join(module);
    let number = dir.metadata().ok()?.ino();
    let state = std::fs::read_to_string(dir.join("initstate")).ok()?;
    let same = dir.metadata().ok()?.ino() == number;
    (state.trim() == "live" && same).then_some(number)
}

impl Snapshot {
    /// Reads the text of the images that `kernel` knows. A module that comes or goes meanwhile is left out: what is at
    /// its place then is not its text.
    pub fn take(kernel: &Kernel) -> Result<Snapshot, Failure> {
        let mut parts = Vec::new();
        for text in kernel.text() {
            // Init text is freed after boot; what is in its place is not text.
            if ours(text.module.as_deref()) || text.init {
                continue;
            }
            let load = text.module.as_deref().map(load_of);
            if load == Some(None) {
                continue;
            }
            let name = text.module.clone().unwrap_or_else(|| "kernel".into());
            let mut bytes = kernel
                .read(text.start, text.bytes.len())
                .map_err(|e| format!("{name}: {e}"))?;
            blank_managed(kernel, text.start, &mut bytes);
            // Gone, or loaded anew, while it was read?
            if text.module.as_deref().map(load_of) != load {
                continue;
            }
            parts.push(Part {
                name,
                load: load.flatten(),
                start: text.start,
                bytes,
            });
        }
        Ok(Snapshot { parts })
    }

    /// The first byte that differs. A module is compared as long as it is the same load of it.
    pub fn check(&self, kernel: &Kernel) -> Result<(), Failure> {
        let now = Snapshot::take(kernel)?;
        for before in &self.parts {
            let same = |p: &&Part| (p.start, p.load) == (before.start, before.load);
            let Some(after) = now.parts.iter().find(same) else {
                if before.load.is_none() {
                    return Err("the kernel's own text was not read again".into());
                }
                continue;
            };
            let mut pairs = before.bytes.iter().zip(&after.bytes);
            if let Some(at) = pairs.position(|(a, b)| a != b) {
                let addr = before.start + at as u64;
                let place = kernel.symbols().containing(addr);
                let place = place.map_or(String::new(), |(s, o)| format!(" ({}+{o:#x})", s.id()));
                return Err(format!(
                    "text of {} differs at {addr:#x}{place}: {:02x?} was, {:02x?} is there",
                    before.name,
                    before.bytes.get(at),
                    after.bytes.get(at)
                ));
            }
        }
        Ok(())
    }
}

/// Sets to zero what the kernel rewrites itself at any time (static keys, static calls, ftrace sites), where a splice
/// never is: a workload that uses a feature for the first time flips keys.
fn blank_managed(kernel: &Kernel, start: u64, bytes: &mut [u8]) {
    let tables = kernel.tables();
    let range = start..start + bytes.len() as u64;
    let mut blank = |addr: u64| {
        let at = (addr - start) as usize;
        // A static key's site is a nop or jump of 2 or of 5 bytes; the others have 5 or 6.
        let len = match bytes.get(at..at + 2) {
            Some([0xeb, _] | [0x66, 0x90]) => 2,
            // A conditional tail call.
            Some([0x0f, 0x80..=0x8f]) => 6,
            _ => 5,
        };
        let end = (at + len).min(bytes.len());
        bytes[at..end].fill(0);
    };
    for entry in tables.jump_labels.in_range(range.clone()) {
        blank(entry.code);
    }
    for entry in tables.static_calls.in_range(range.clone()) {
        blank(entry.addr);
    }
    for entry in tables.fentry.in_range(range) {
        blank(entry.addr);
    }
}

/// Prints the hashes.
pub fn print() -> Result<(), Failure> {
    let kernel = live()?;
    for Part { name, bytes, .. } in &Snapshot::take(&kernel)?.parts {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        println!("{name} {} {:016x}", bytes.len(), hasher.finish());
    }
    Ok(())
}
