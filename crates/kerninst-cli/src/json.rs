//! JSON lines: one object a line, each with a `schema` field (docs/json.md says what each schema holds).

use std::io::Write;

use kerninst_kernel::Kernel;
use serde::{Serialize, Serializer};

use crate::Fail;

/// An object with its schema.
#[derive(Serialize)]
struct Line<'a, T> {
    schema: &'a str,
    #[serde(flatten)]
    value: &'a T,
}

/// Writes `value`, which must serialise to a map, as one line with this schema.
///
/// # Errors
/// [`Fail::Output`].
pub fn line<T: Serialize>(out: &mut dyn Write, schema: &str, value: &T) -> Result<(), Fail> {
    serde_json::to_writer(&mut *out, &Line { schema, value })?;
    writeln!(out)?;
    Ok(())
}

/// An address: JSON numbers are doubles to many readers, which would lose its last digits, so it is a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex(pub u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{:#x}", self.0))
    }
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Which kernel the lines after it are about: schema `kerninst.kernel/1`.
#[derive(Serialize)]
pub struct KernelLine {
    /// The running kernel (otherwise a file).
    live: bool,
    release: Option<String>,
    build_id: Option<String>,
    host: Option<String>,
    boot_id: Option<String>,
    version: &'static str,
}

impl KernelLine {
    /// Of this kernel; host and boot only if it is the running one.
    #[must_use]
    pub fn new(kernel: &Kernel) -> KernelLine {
        let of_this_machine = |path: &str| {
            let text = std::fs::read_to_string(path)
                .ok()
                .filter(|_| kernel.is_live())?;
            Some(text.trim().to_string())
        };
        KernelLine {
            live: kernel.is_live(),
            release: kernel.release().map(str::to_string),
            build_id: kernel.build_id().map(hex),
            host: of_this_machine("/proc/sys/kernel/hostname"),
            boot_id: of_this_machine("/proc/sys/kernel/random/boot_id"),
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`Fail::Output`].
    pub fn write(kernel: &Kernel, out: &mut dyn Write) -> Result<(), Fail> {
        line(out, "kerninst.kernel/1", &KernelLine::new(kernel))
    }
}
