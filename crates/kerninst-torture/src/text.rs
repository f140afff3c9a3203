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
            let mut bytes = bytes;
            blank_managed(kernel, text.start, &mut bytes);
            ranges.push((name, text.start, bytes));
        }
        Ok(Snapshot { ranges })
    }

    /// The first byte that differs.
    pub fn check(&self, kernel: &Kernel) -> Result<(), Failure> {
        let now = Snapshot::take(kernel)?;
        for ((name, start, before), (_, _, after)) in self.ranges.iter().zip(&now.ranges) {
            if let Some(at) = before.iter().zip(after).position(|(a, b)| a != b) {
                let addr = start + at as u64;
                let place = kernel.symbols().containing(addr);
                let place = place.map_or(String::new(), |(s, o)| format!(" ({}+{o:#x})", s.id()));
                return Err(format!(
                    "text of {name} differs at {addr:#x}{place}: {:02x?} was, {:02x?} is there",
                    before.get(at),
                    after.get(at)
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
    for (name, _, bytes) in &Snapshot::take(&kernel)?.ranges {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        println!("{name} {} {:016x}", bytes.len(), hasher.finish());
    }
    Ok(())
}
