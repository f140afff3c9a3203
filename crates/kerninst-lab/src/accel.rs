//! Which accelerator QEMU uses.

use crate::error::{Error, Result};
use std::str::FromStr;

/// How the guest's instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Accel {
    /// KVM where it works, else TCG.
    #[default]
    Auto,
    /// Emulation. With several virtual CPUs they take turns on one thread: multi-threaded TCG of QEMU 7.2 kills 6.12
    /// guests when kernel text is changed, even by the kernel's own ftrace.
    Tcg,
    /// Hardware virtualisation.
    Kvm,
}

impl FromStr for Accel {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Accel::Auto),
            "tcg" => Ok(Accel::Tcg),
            "kvm" => Ok(Accel::Kvm),
            _ => Err(format!("\"{text}\" is none of auto, tcg, kvm")),
        }
    }
}

impl Accel {
    /// What `self` means on this machine: `Tcg` or `Kvm`.
    pub fn resolve(self) -> Result<Accel> {
        match self {
            Accel::Auto if why_no_kvm().is_none() => Ok(Accel::Kvm),
            Accel::Auto | Accel::Tcg => Ok(Accel::Tcg),
            Accel::Kvm => match why_no_kvm() {
                None => Ok(Accel::Kvm),
                Some(why) => Err(Error::Unsupported(format!(
                    "--accel kvm does not work here: {why}; use --accel tcg"
                ))),
            },
        }
    }
}

/// Why KVM cannot be used here; `None` if it can. /dev/kvm alone is no proof: a processor without vmx or svm (as in
/// many virtual machines) may still have the device file.
fn why_no_kvm() -> Option<String> {
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let virtual_machine = flags
        .lines()
        .filter(|line| line.starts_with("flags"))
        .flat_map(str::split_whitespace)
        .any(|flag| flag == "vmx" || flag == "svm");
    if !virtual_machine {
        return Some("the processor has neither vmx nor svm".into());
    }
    match std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
    {
        Ok(_) => None,
        Err(e) => Some(format!("cannot open /dev/kvm: {e}")),
    }
}
