//! Opening the kernel that is asked for.

use std::time::Duration;

use kerninst_kernel::{Error, Kernel};

use crate::Fail;
use crate::args::Source;

/// The running kernel, or the one in a file.
///
/// # Errors
/// [`Fail::Error`] with what would work instead.
pub fn open(source: &Source) -> Result<Kernel, Fail> {
    match &source.image {
        Some(path) => Ok(Kernel::from_file(path)?),
        None => Kernel::live().map_err(|e| {
            let hint = match &e {
                Error::AddressesHidden | Error::Io { .. } | Error::Unsupported(_) => {
                    "; a kernel file needs no root: --image /boot/vmlinuz-VERSION"
                }
                _ => "",
            };
            Fail::Error(format!("{e}{hint}"))
        }),
    }
}

/// As [`open`], for whoever arms: a picture in which no site of the kernel's own is being rewritten, if there is one to be had soon.
/// In one that has such sites, their functions cannot be analysed.
///
/// # Errors
/// As [`open`].
pub fn open_still(source: &Source) -> Result<Kernel, Fail> {
    const PICTURES: usize = 4;
    let mut kernel = open(source)?;
    for _ in 1..PICTURES {
        if !kernel.is_live() || !kernel.was_rewriting() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        kernel = open(source)?;
    }
    Ok(kernel)
}

/// The kernel, as a heading has it.
#[must_use]
pub fn title(kernel: &Kernel) -> String {
    let release = kernel.release().unwrap_or("unknown release");
    if kernel.is_live() {
        format!("running kernel {release}")
    } else {
        format!("{release}, from a file")
    }
}
