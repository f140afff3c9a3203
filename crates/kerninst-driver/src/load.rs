//! Loading and unloading the driver.

use crate::complete::{CompleteError, DRIVER_NAME, complete};
use crate::{modules, sys};
use kerninst_kernel::Kernel;
use std::io;

/// Why the driver is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be made for this kernel.
    #[error(transparent)]
    Complete(#[from] CompleteError),
    /// The caller may not load modules.
    #[error(
        "loading a kernel module is not permitted: run as root{}",
        lockdown_hint()
    )]
    NotPermitted,
    /// The kernel wants a signature.
    #[error(
        "this kernel loads signed modules only (module signature enforcement{}): kerninst cannot run here",
        lockdown_hint()
    )]
    Signature,
    /// The kernel tells no addresses, and those of patches are needed.
    #[error(
        "kernel.kptr_restrict is 2: addresses are hidden even from root; set it to 1: sysctl kernel.kptr_restrict=1"
    )]
    AddressesHidden,
    /// Module loading is switched off until reboot.
    #[error(
        "module loading is switched off on this machine (kernel.modules_disabled = 1): only a reboot brings it back"
    )]
    Disabled,
    /// The kernel refused the module's format.
    #[error(
        "the kernel refused the driver ({0}); `dmesg | tail` has its reason: please report it with the kernel's version"
    )]
    Refused(io::Error),
}

fn lockdown_hint() -> &'static str {
    match std::fs::read_to_string("/sys/kernel/security/lockdown") {
        Ok(state) if !state.contains("[none]") => "; the kernel is locked down (secure boot)",
        _ => "",
    }
}

/// The loaded driver module.
#[derive(Debug)]
pub struct Driver {
    loaded_here: bool,
}

impl Driver {
    /// Is it loaded?
    pub fn is_loaded() -> bool {
        modules::is_loaded(DRIVER_NAME)
    }

    /// Loads it unless it is loaded already.
    ///
    /// # Errors
    /// [`LoadError`], each a sentence for the user.
    pub fn load(kernel: &Kernel) -> Result<Driver, LoadError> {
        // Where a patch module lies is read from sysfs, which would say zero.
        let hidden = std::fs::read_to_string("/proc/sys/kernel/kptr_restrict");
        if hidden.is_ok_and(|s| s.trim() == "2") {
            return Err(LoadError::AddressesHidden);
        }
        if Driver::is_loaded() {
            return Ok(Driver { loaded_here: false });
        }
        let image = complete(kernel)?;
        match sys::init_module(&image) {
            Ok(()) => Ok(Driver { loaded_here: true }),
            Err(e) => match e.raw_os_error() {
                // Somebody else loaded it between the look and now.
                Some(libc::EEXIST) => Ok(Driver { loaded_here: false }),
                Some(libc::EPERM) if modules_disabled() => Err(LoadError::Disabled),
                Some(libc::EPERM) => Err(LoadError::NotPermitted),
                Some(libc::EKEYREJECTED | libc::ENOKEY | libc::EBADMSG) => {
                    Err(LoadError::Signature)
                }
                _ => Err(LoadError::Refused(e)),
            },
        }
    }

    /// Did this value load it (rather than find it)?
    pub fn loaded_here(&self) -> bool {
        self.loaded_here
    }

    /// Unloads it; false: it is in use (a client, or patches that wait to be freed) and stays.
    ///
    /// # Errors
    /// What `delete_module(2)` says, other than that it is in use.
    pub fn unload() -> io::Result<bool> {
        match sys::delete_module(DRIVER_NAME) {
            Ok(()) => Ok(true),
            Err(e) => match e.raw_os_error() {
                Some(libc::ENOENT) => Ok(true),
                Some(libc::EWOULDBLOCK | libc::EBUSY) => Ok(false),
                _ => Err(e),
            },
        }
    }
}

fn modules_disabled() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/modules_disabled").is_ok_and(|s| s.trim() == "1")
}
