//! The programs that go into guests, and the meter plugin.

use crate::cargo::{cargo, succeed, work_dir};
use crate::{Failure, say};
use kerninst_lab::GuestFile;
use std::path::{Path, PathBuf};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What [`build`] made.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The static `kerninst`.
    pub kerninst: PathBuf,
    /// The static `kerninst-guest`: workloads and markers.
    pub guest: PathBuf,
    /// The static `kerninst-torture`: tries to break an armed kernel.
    pub torture: PathBuf,
    /// The meter plugin for QEMU.
    pub meter: PathBuf,
}

impl Programs {
    /// All files.
    pub fn all(&self) -> [&Path; 4] {
        [&self.kerninst, &self.guest, &self.torture, &self.meter]
    }

    /// What every guest gets, in /bin.
    pub fn guest_files(&self) -> Vec<GuestFile> {
        let place = |host: &Path, name: &str| GuestFile {
            host: host.to_path_buf(),
            guest: format!("/bin/{name}"),
        };
        vec![
            place(&self.kerninst, "kerninst"),
            place(&self.guest, "kerninst-guest"),
            place(&self.torture, "kerninst-torture"),
        ]
    }
}

/// Builds them (quick if nothing changed).
pub fn build() -> Result<Programs, Failure> {
    say("building the static programs and the meter");
    let dir = work_dir().join("build");
    // With --target, flags for the guest's programs do not reach build scripts and procedural macros.
    succeed(
        cargo(&["build", "--quiet", "--release", "--target", TARGET])
            .args([
                "-p",
                "kerninst-cli",
                "-p",
                "kerninst-guest",
                "-p",
                "kerninst-torture",
            ])
            .env("CARGO_TARGET_DIR", &dir)
            .env("RUSTFLAGS", "-C target-feature=+crt-static"),
    )?;
    succeed(
        cargo(&["build", "--quiet", "--release", "-p", "kerninst-meter"])
            .env("CARGO_TARGET_DIR", &dir),
    )?;
    let programs = Programs {
        kerninst: strip(&dir.join(TARGET).join("release/kerninst"))?,
        guest: strip(&dir.join(TARGET).join("release/kerninst-guest"))?,
        torture: strip(&dir.join(TARGET).join("release/kerninst-torture"))?,
        meter: dir.join("release/libkerninst_meter.so"),
    };
    for path in programs.all() {
        if !path.is_file() {
            return Err(format!(
                "the build succeeded but made no {}",
                path.display()
            ));
        }
    }
    Ok(programs)
}

/// A copy without debug information: it would only make every guest's initramfs larger. Without `strip` the program
/// itself is used.
fn strip(program: &Path) -> Result<PathBuf, Failure> {
    let out = program.with_extension("stripped");
    let modified = |p: &Path| std::fs::metadata(p).and_then(|m| m.modified()).ok();
    if modified(&out).is_some() && modified(&out) >= modified(program) {
        return Ok(out);
    }
    let status = std::process::Command::new("strip")
        .arg("--strip-debug")
        .arg("-o")
        .arg(&out)
        .arg(program)
        .status();
    match status {
        Ok(status) if status.success() => Ok(out),
        Ok(status) => Err(format!("strip {} failed ({status})", program.display())),
        Err(_) => Ok(program.to_path_buf()),
    }
}
