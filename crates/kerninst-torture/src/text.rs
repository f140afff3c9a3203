//! The kernel's text as it is now, to be compared with what it was.

use crate::{Failure, live};
use kerninst_kernel::Kernel;
use std::hash::{DefaultHasher, Hash, Hasher};

/// All text of a moment.
pub struct Snapshot {
    ranges: Vec<(String, u64, Vec<u8>)>,
}

/// Is it one of kerninst's own modules?
fn ours(module: Option<&str>) -> bool {
    module.is_some_and(|m| m == "kerninst" || m.starts_with("kerninst_p"))
}

impl Snapshot {
    /// Reads the text of the images that `kernel` knows.
    pub fn take(kernel: &Kernel) -> Result<Snapshot, Failure> {
        let mut ranges = Vec::new();
        for text in kernel.text() {
            // Init text is freed after boot; what is in its place is not text.
            if ours(text.module.as_deref()) || text.init {
                continue;
            }
            let name = text.module.clone().unwrap_or_else(|| "kernel".into());
            let bytes = kernel
                .read(text.start, text.bytes.len())
                .map_err(|e| format!("{name}: {e}"))?;
            ranges.push((name, text.start, bytes));
        }
        Ok(Snapshot { ranges })
    }

    /// The first bytes that differ, other than at sites that the kernel rewrites itself (static keys, static calls,
    /// ftrace), where a splice never is.
    pub fn check(&self, kernel: &Kernel) -> Result<(), Failure> {
        let now = Snapshot::take(kernel)?;
        let tables = kernel.tables();
        for ((name, start, before), (_, _, after)) in self.ranges.iter().zip(&now.ranges) {
            let differing = before
                .iter()
                .zip(after)
                .enumerate()
                .filter(|(_, (a, b))| a != b);
            for (at, (a, b)) in differing {
                let addr = start + at as u64;
                // A managed site is at most 5 bytes long.
                let sites = addr.saturating_sub(4)..addr + 1;
                let managed = !tables.jump_labels.in_range(sites.clone()).is_empty()
                    || !tables.static_calls.in_range(sites.clone()).is_empty()
                    || !tables.fentry.in_range(sites).is_empty();
                if !managed {
                    let place = kernel.symbols().containing(addr);
                    let place =
                        place.map_or(String::new(), |(s, o)| format!(" ({}+{o:#x})", s.id()));
                    return Err(format!(
                        "text of {name} differs at {addr:#x}{place}: {a:02x} was, {b:02x} is there"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Prints the hashes.
pub fn print() -> Result<(), Failure> {
    let kernel = live()?;
    for (name, _, bytes) in &Snapshot::take(&kernel)?.ranges {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        println!("{name} {} {:016x}", bytes.len(), hasher.finish());
    }
    Ok(())
}
