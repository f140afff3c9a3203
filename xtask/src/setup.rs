//! Installs what this machine lacks, saying so.

use crate::{Failure, say};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Something that must be there.
struct Need {
    /// What is missing, in words.
    what: &'static str,
    /// The Debian package that has it.
    package: &'static str,
    present: fn() -> bool,
}

const NEEDS: [Need; 5] = [
    Need {
        what: "QEMU for x86-64 guests",
        package: "qemu-system-x86",
        present: || find("qemu-system-x86_64").is_some(),
    },
    Need {
        what: "a static busybox",
        package: "busybox-static",
        present: || find("busybox").is_some_and(|p| is_static(&p)),
    },
    Need {
        what: "a linker (cc)",
        package: "gcc",
        present: || find("cc").is_some(),
    },
    Need {
        what: "the static C library (libc.a)",
        package: "libc6-dev",
        present: has_libc,
    },
    Need {
        what: "dpkg-deb, to unpack kernel packages",
        package: "dpkg",
        present: || find("dpkg-deb").is_some(),
    },
];

/// What a whole test run on a fresh machine writes, in MiB: two builds, and the kernels.
const DISK: u64 = 4096;

/// Says so if the disk may not have room for a `whole` run from nothing: a compiler's message about it is hard to find.
pub fn disk(whole: bool) {
    let free = rustix::fs::statvfs(crate::cargo::root())
        .map_or(u64::MAX, |s| s.f_bavail.saturating_mul(s.f_frsize) >> 20);
    if whole && free < DISK {
        say(&format!(
            "only {free} MiB of disk are free here; a whole run from nothing needs {DISK}: if it fails for lack of room, free some"
        ));
    }
}

/// Checks every need and installs the packages of those that are not met.
pub fn run() -> Result<(), Failure> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|n| !(n.present)()).collect();
    if missing.is_empty() {
        say("everything the lab needs is installed");
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|n| n.package).collect();
    for need in &missing {
        say(&format!(
            "{} is missing (package {})",
            need.what, need.package
        ));
    }
    let list = packages.join(" ");
    let Some(apt) = find("apt-get") else {
        return Err(format!(
            "this is no Debian or Ubuntu system (no apt-get): install what these packages have by hand: {list}"
        ));
    };
    let root = kerninst_lab::is_root();
    let sudo = find("sudo");
    if !root && sudo.is_none() {
        return Err(format!(
            "not root, and there is no sudo: as root, run: apt-get install {list}"
        ));
    }
    let apt_get = |args: &[&str]| -> Result<bool, Failure> {
        let mut command = match &sudo {
            Some(sudo) if !root => {
                let mut command = Command::new(sudo);
                command.arg(&apt);
                command
            }
            _ => Command::new(&apt),
        };
        command
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null())
            .status()
            .map(|s| s.success())
            .map_err(|e| format!("cannot run apt-get: {e}"))
    };
    say(&format!("installing {list}"));
    let install: Vec<&str> = ["install", "-q", "-y", "--no-install-recommends"]
        .into_iter()
        .chain(packages.iter().copied())
        .collect();
    if !apt_get(&install)? {
        say("that failed; refreshing the package lists (apt-get update) and trying again");
        apt_get(&["update", "-q"])?;
        if !apt_get(&install)? {
            return Err(format!(
                "apt-get cannot install {list}: see its messages above"
            ));
        }
    }
    match NEEDS.iter().find(|n| !(n.present)()) {
        None => Ok(()),
        Some(need) => Err(format!(
            "{} is still missing after installing {}",
            need.what, need.package
        )),
    }
}

/// A program in PATH or the usual directories.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|p| p.is_file())
}

fn is_static(program: &Path) -> bool {
    std::fs::read(program).is_ok_and(|data| kerninst_lab::interpreter(&data).is_none())
}

fn has_libc() -> bool {
    let output = Command::new("cc").arg("-print-file-name=libc.a").output();
    // The compiler answers with the bare name if it has no such file.
    output.is_ok_and(|o| Path::new(String::from_utf8_lossy(&o.stdout).trim()).is_absolute())
}
