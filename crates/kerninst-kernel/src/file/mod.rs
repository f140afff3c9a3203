//! A kernel or module in a file: what it is, unpacked and laid out.

mod bzimage;
mod decompress;
mod elf;
mod module;
mod relocate;
#[cfg(test)]
mod tests;
mod vmlinux;

use std::path::Path;

use crate::Error;
use crate::kernel::Kernel;

/// Larger files are no kernels.
const LARGEST: u64 = 2 << 30;

/// Why some bytes are no usable kernel: not one at all, or a damaged one.
#[derive(Debug, PartialEq, Eq)]
enum Reason {
    NotAKernel(String),
    Corrupt(String),
}

impl From<elf::ElfError> for Reason {
    fn from(e: elf::ElfError) -> Self {
        Reason::Corrupt(e.to_string())
    }
}

pub(crate) fn kernel(path: &Path) -> Result<Kernel, Error> {
    let size = std::fs::metadata(path)
        .map_err(|e| Error::io(path, e))?
        .len();
    if size > LARGEST {
        return Err(Error::NotAKernel {
            path: path.into(),
            reason: format!("{size} bytes are too many"),
        });
    }
    let bytes = std::fs::read(path).map_err(|e| Error::io(path, e))?;
    let stem = path
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or("module");
    parse(bytes, stem).map_err(|reason| match reason {
        Reason::NotAKernel(reason) => Error::NotAKernel {
            path: path.into(),
            reason,
        },
        Reason::Corrupt(reason) => Error::corrupt(path.display().to_string(), reason),
    })
}

/// `name` is the file's name: a module without a name of its own takes it.
fn parse(mut bytes: Vec<u8>, name: &str) -> Result<Kernel, Reason> {
    let mut release = None;
    if let Some(image) = bzimage::BzImage::parse(&bytes)? {
        release = image.release(&bytes);
        let payload = image.payload(&bytes)?;
        let plain = decompress::decompress(payload)
            .map_err(Reason::Corrupt)?
            .ok_or_else(|| Reason::Corrupt("its payload is compressed in an unknown way".into()))?;
        bzimage::check_size(payload, plain.len())?;
        bytes = plain;
    } else if let Some(plain) = decompress::decompress(&bytes).map_err(Reason::Corrupt)? {
        bytes = plain;
    }
    if !bytes.starts_with(b"\x7fELF") {
        return Err(match release {
            Some(_) => Reason::Corrupt("its payload is no ELF file".into()),
            None => Reason::NotAKernel(
                "it is neither a bzImage nor an ELF file, compressed or not".into(),
            ),
        });
    }
    let elf = elf::Elf::parse(bytes)?;
    if elf.is_relocatable() {
        module::kernel(elf, name)
    } else {
        vmlinux::kernel(elf, release)
    }
}
