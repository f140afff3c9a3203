//! Programs of this machine that the lab runs to their end.

use crate::error::{At, Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program found in PATH (or the usual directories of system programs).
#[derive(Debug, Clone)]
pub(crate) struct Program {
    path: PathBuf,
}

impl Program {
    /// Finds a program; `remedy` says what to do if there is none.
    pub(crate) fn find(name: &str, remedy: &'static str) -> Result<Program> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .chain(["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from))
            .map(|dir| dir.join(name))
            .find(|p| is_executable(p))
            .map(|path| Program { path })
            .ok_or_else(|| Error::Missing {
                program: name.to_string(),
                remedy,
            })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs it to its end and returns what it printed; a failure carries what it said on standard error.
    pub(crate) fn output(&self, args: &[&str]) -> Result<String> {
        self.output_in(args, Path::new("."))
    }

    /// The same, in a directory.
    pub(crate) fn output_in(&self, args: &[&str], dir: &Path) -> Result<String> {
        let bytes = self.run(args, dir)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn run(&self, args: &[&str], dir: &Path) -> Result<Vec<u8>> {
        let output = Command::new(&self.path)
            .args(args)
            .current_dir(dir)
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output()
            .at("run", &self.path)?;
        if !output.status.success() {
            return Err(Error::Program {
                program: format!("{} {}", self.path.display(), args.join(" ")),
                status: output.status,
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        Ok(output.stdout)
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
