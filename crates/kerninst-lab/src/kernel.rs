//! A kernel to boot: its image and the directory of its modules.

use crate::cache::Cache;
use crate::error::{At, Error, Result};
use crate::fetch;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A kernel image with its modules, on this machine's disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelImage {
    /// The short name (`6.12`, `6.1-rt`) or, for a kernel given by path, the path.
    pub name: String,
    /// The kernel's release, as `uname -r` says it in the guest; empty if it cannot be told from the image.
    pub release: String,
    /// The bzImage (`vmlinuz`) or ELF (`vmlinux`) file.
    pub image: PathBuf,
    /// The directory `lib/modules/RELEASE`, if there is one.
    pub modules: Option<PathBuf>,
    /// The package and its version, for a fetched kernel.
    pub package: Option<String>,
}

impl KernelImage {
    /// The kernel that `what` means: a short name (fetched into the cache if needed) or a path, which contains a '/'.
    /// `say` is told in sentences what takes time.
    pub fn find(
        what: &str,
        modules: Option<&Path>,
        cache: &Cache,
        say: &mut dyn FnMut(&str),
    ) -> Result<KernelImage> {
        if what.contains('/') {
            return Self::from_path(Path::new(what), modules);
        }
        if modules.is_some() {
            return Err(Error::Unsupported(format!(
                "--modules goes with a kernel given by path; \"{what}\" is a name and brings its own modules"
            )));
        }
        fetch::fetch(what, cache, say)
    }

    /// A kernel by path. Without `modules`, `lib/modules/RELEASE` beside the image's directory is used where it exists.
    pub fn from_path(image: &Path, modules: Option<&Path>) -> Result<KernelImage> {
        use std::io::Read;
        let mut head = Vec::new();
        std::fs::File::open(image)
            .at("open", image)?
            .take(1 << 20)
            .read_to_end(&mut head)
            .at("read", image)?;
        if !is_bzimage(&head) && !head.starts_with(b"\x7fELF") {
            return Err(Error::BadKernel(format!(
                "{} is neither a bzImage (vmlinuz) nor an ELF file (vmlinux)",
                image.display()
            )));
        }
        if let Some(dir) = modules
            && !dir.is_dir()
        {
            return Err(Error::BadKernel(format!(
                "--modules {} is not a directory",
                dir.display()
            )));
        }
        let release = release_of(&head)
            .or_else(|| {
                let name = image.file_name()?.to_str()?;
                let rest = name
                    .strip_prefix("vmlinuz-")
                    .or_else(|| name.strip_prefix("vmlinux-"))?;
                Some(rest.to_string())
            })
            .or_else(|| Some(modules?.file_name()?.to_str()?.to_string()))
            .unwrap_or_default();
        let beside = || {
            let root = image.parent()?.parent()?;
            ["lib/modules", "usr/lib/modules"]
                .iter()
                .map(|dir| root.join(dir).join(&release))
                .find(|dir| !release.is_empty() && dir.is_dir())
        };
        Ok(KernelImage {
            name: image.display().to_string(),
            modules: modules.map(Path::to_path_buf).or_else(beside),
            image: image.to_path_buf(),
            release,
            package: None,
        })
    }

    /// Major and minor number, e.g. (6, 12), if the release is known.
    pub fn series(&self) -> Option<(u32, u32)> {
        let mut parts = self.release.split(['.', '-', '+']);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

/// Documentation/arch/x86/boot.rst: "HdrS" at 0x202.
fn is_bzimage(head: &[u8]) -> bool {
    head.get(0x202..0x206) == Some(b"HdrS")
}

/// The release in a bzImage's header: the 16-bit word at 0x20e, plus 0x200, points to a string "RELEASE (builder) …".
fn release_of(head: &[u8]) -> Option<String> {
    if !is_bzimage(head) {
        return None;
    }
    let at = u16::from_le_bytes(head.get(0x20e..0x210)?.try_into().ok()?);
    let text = head.get(usize::from(at) + 0x200..)?;
    let end = text.iter().position(|&b| b == b' ' || b == 0)?;
    let release = std::str::from_utf8(text.get(..end)?).ok()?;
    (!release.is_empty() && release.len() < 65).then(|| release.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn release_comes_from_the_boot_header() {
        let mut head = vec![0u8; 0x400];
        head[0x202..0x206].copy_from_slice(b"HdrS");
        head[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        head[0x300..0x30f].copy_from_slice(b"6.12.1-x (me) #");
        assert_eq!(release_of(&head).as_deref(), Some("6.12.1-x"));
    }

    proptest! {
        #[test]
        fn no_header_panics(at in any::<u16>(), len in 0usize..0x500) {
            let mut head = vec![b'x'; len];
            if let Some(place) = head.get_mut(0x202..0x206) {
                place.copy_from_slice(b"HdrS");
            }
            if let Some(place) = head.get_mut(0x20e..0x210) {
                place.copy_from_slice(&at.to_le_bytes());
            }
            let _ = release_of(&head);
        }
    }
}
