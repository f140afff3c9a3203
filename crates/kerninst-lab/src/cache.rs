//! Where fetched kernels live, and the locks that keep two labs apart.

use crate::error::{At, Result};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The environment variable that moves the cache elsewhere.
pub const CACHE_VARIABLE: &str = "KERNINST_LAB_CACHE";

/// A directory of fetched kernels.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache that `KERNINST_LAB_CACHE` names, else `.lab` beside the outermost `Cargo.toml` that has a
    /// `[workspace]` (searched upwards from the current directory), else `.lab` in the current directory.
    pub fn standard() -> Result<Cache> {
        if let Some(dir) = std::env::var_os(CACHE_VARIABLE).filter(|v| !v.is_empty()) {
            return Ok(Cache::at(PathBuf::from(dir)));
        }
        let here = std::env::current_dir().at("find", ".")?;
        let root = workspace_root(&here).unwrap_or(here);
        Ok(Cache::at(root.join(".lab")))
    }

    /// A cache at a given place; made when first written to.
    pub fn at(root: PathBuf) -> Cache {
        Cache { root }
    }

    /// The cache's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the kernel of that short name is, or will be.
    pub fn kernel_dir(&self, name: &str) -> PathBuf {
        self.root.join("kernels").join(name)
    }

    /// Takes the lock of that name, waiting for another process to give it back. `waiting` is called when it must wait.
    /// The lock is held until the returned file is dropped, however its holder dies.
    pub(crate) fn lock(&self, name: &str, waiting: impl FnOnce()) -> Result<File> {
        std::fs::create_dir_all(&self.root).at("create", &self.root)?;
        let path = self.root.join(format!("{name}.lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .at("open", &path)?;
        if file.try_lock().is_err() {
            waiting();
            file.lock().at("lock", &path)?;
        }
        Ok(file)
    }
}

/// The directory of the workspace that `from` lies in.
pub fn workspace_root(from: &Path) -> Option<PathBuf> {
    from.ancestors()
        .filter(|dir| {
            std::fs::read_to_string(dir.join("Cargo.toml"))
                .is_ok_and(|text| text.lines().any(|line| line.trim() == "[workspace]"))
        })
        .last()
        .map(Path::to_path_buf)
}

/// A directory that is removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// An empty directory at a fixed place that this process holds the lock of; what an earlier, killed process left there
    /// is removed.
    pub(crate) fn exclusive(path: PathBuf) -> Result<Scratch> {
        if path.exists() {
            std::fs::remove_dir_all(&path).at("remove", &path)?;
        }
        std::fs::create_dir_all(&path).at("create", &path)?;
        Ok(Scratch { path })
    }

    /// A new empty directory below `parent`, readable by this user only.
    pub(crate) fn new(parent: &Path, prefix: &str) -> Result<Scratch> {
        use std::os::unix::fs::DirBuilderExt;
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        std::fs::create_dir_all(parent).at("create", parent)?;
        sweep(parent, prefix);
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{prefix}{}-{n}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch { path }),
                // Left over from a killed process of the same number: take the next name.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e).at("create", path),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes directories of that prefix whose process is gone: it was killed before it could.
fn sweep(parent: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| {
            n.strip_prefix(prefix)?
                .split_once('-')?
                .0
                .parse::<u32>()
                .ok()
        });
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another user's, or another lab was faster: no harm.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
