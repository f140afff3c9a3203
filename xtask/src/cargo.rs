//! Runs cargo on this workspace.

use crate::Failure;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The workspace's directory.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The directory of everything that xtask builds or writes, below cargo's own target directory.
pub fn work_dir() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").filter(|v| !v.is_empty());
    target
        .map_or_else(|| root().join("target"), |dir| root().join(dir))
        .join("lab")
}

/// A cargo command in the workspace's directory.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root()).stdin(Stdio::null());
    // Set by cargo for xtask itself; they would make an inner cargo believe that it builds xtask.
    for variable in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "RUSTFLAGS"] {
        command.env_remove(variable);
    }
    // What is built here is built once; the state that would make the next build quicker is half of the disk's use.
    command.env("CARGO_INCREMENTAL", "0");
    command
}

/// Runs it to its end; a failure names the command.
pub fn succeed(command: &mut Command) -> Result<(), Failure> {
    let text = format!("{command:?}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{text} failed ({status})")),
        Err(e) => Err(format!("cannot run {text}: {e}")),
    }
}
