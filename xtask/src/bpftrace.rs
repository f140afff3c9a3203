//! Debian's bpftrace with its libraries, for a guest: to measure against it, not to install it.

use crate::{Failure, say};
use kerninst_lab::{Cache, GuestFile, fetch};
use std::path::Path;
use std::process::Command;

/// Where the libraries are in the guest; its loader is told by `LD_LIBRARY_PATH`.
pub const LIBRARIES: &str = "/usr/lib/peer";

/// All files that bpftrace needs in the guest: the program in /bin, its loader, its libraries in [`LIBRARIES`].
pub fn files() -> Result<Vec<GuestFile>, Failure> {
    let cache = Cache::standard().map_err(|e| e.to_string())?;
    let root =
        fetch::package_tree("bpftrace", &cache, &mut |t| say(t)).map_err(|e| e.to_string())?;
    let program = root.join("usr/bin/bpftrace");
    let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|dir| root.join(dir));
    let path = libraries.map(|l| l.display().to_string()).join(":");
    let loader = [
        "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    ];
    let loader = loader
        .iter()
        .map(|l| root.join(l))
        .find(|l| l.is_file())
        .ok_or("the package of the C library has no loader")?;
    let output = Command::new(&loader)
        .args(["--library-path", &path, "--list"])
        .arg(&program)
        .output()
        .map_err(|e| format!("cannot run bpftrace's loader: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "bpftrace does not load: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let file = |host: &Path, guest: String| GuestFile {
        host: host.to_path_buf(),
        guest,
    };
    let mut files = vec![
        file(&program, "/bin/bpftrace".into()),
        file(&loader, "/lib64/ld-linux-x86-64.so.2".into()),
    ];
    // Lines are: NAME => PATH (ADDRESS).
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((name, rest)) = line.trim().split_once(" => ") else {
            continue;
        };
        let host = rest.rsplit_once(" (").map_or(rest, |(path, _)| path);
        files.push(file(Path::new(host), format!("{LIBRARIES}/{name}")));
    }
    Ok(files)
}
