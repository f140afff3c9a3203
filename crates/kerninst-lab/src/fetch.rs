//! Fetches stock Debian kernels through apt, as any user of the distribution would.
//!
//! A fetched kernel is a directory that appears by one rename, after everything in it is written and flushed: a
//! half-finished fetch never counts as done. A lock per kernel keeps two fetches apart.

use crate::cache::{Cache, Scratch};
use crate::error::{At, Error, Result};
use crate::kernel::KernelImage;
use crate::program::Program;
use std::path::{Path, PathBuf};

/// The short names of kernels.
pub const NAMES: [&str; 6] = [
    "6.1",
    "6.1-cloud",
    "6.1-rt",
    "6.12",
    "6.12-cloud",
    "6.12-rt",
];

/// Written last into a fetched kernel's directory; a directory without it is not used.
const RECORD: &str = "kernel.json";

/// The kernel of that short name, from the cache, or fetched into it.
pub fn fetch(name: &str, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<KernelImage> {
    if !NAMES.contains(&name) {
        return Err(Error::UnknownKernel(name.to_string()));
    }
    if let Some(kernel) = cached(name, cache) {
        return Ok(kernel);
    }
    let _lock = cache.lock(&format!("fetch-{name}"), || {
        say(&format!(
            "another lab is fetching kernel {name}; waiting for it"
        ));
    })?;
    // The other one may have finished it while we waited.
    if let Some(kernel) = cached(name, cache) {
        return Ok(kernel);
    }
    let package = newest_package(name, cache, say)?;
    say(&format!("fetching package {package} (about 100 MB, once)"));
    let scratch = Scratch::exclusive(cache.root().join("tmp").join(name))?;
    download(&[&package], scratch.path())?;
    let root = scratch.path().join("root");
    unpack(scratch.path(), &root)?;
    install(name, &package, &root, &cache.kernel_dir(name))
}

/// The kernel of that name if it has been fetched completely.
pub fn cached(name: &str, cache: &Cache) -> Option<KernelImage> {
    let dir = cache.kernel_dir(name);
    let text = std::fs::read_to_string(dir.join(RECORD)).ok()?;
    let mut kernel: KernelImage = serde_json::from_str(&text).ok()?;
    // Paths are kept relative, so that the cache can be moved.
    kernel.image = dir.join(&kernel.image);
    kernel.modules = kernel.modules.map(|m| dir.join(m));
    kernel.image.is_file().then_some(kernel)
}

/// Splits "6.12-rt" into "6.12" and "rt".
fn split(name: &str) -> (&str, &str) {
    name.split_once('-').unwrap_or((name, ""))
}

fn newest_package(name: &str, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<String> {
    let apt_cache = Program::find(
        "apt-cache",
        "the lab fetches kernels through apt; on a system without it give a kernel by path: --kernel PATH-TO-VMLINUZ --modules DIR",
    )?;
    let (series, _) = split(name);
    let search = format!("^linux-image-{}\\.", series.replace('.', "\\."));
    let pick = || -> Result<Option<String>> {
        let listed = apt_cache.output(&["--names-only", "search", &search])?;
        Ok(pick(name, &listed))
    };
    if let Some(package) = pick()? {
        return Ok(package);
    }
    let mut updated = false;
    if rustix::process::geteuid().is_root() {
        let _lock = cache.lock("apt-update", || {
            say("another lab is refreshing the apt lists")
        })?;
        say("apt knows no such kernel package yet: running apt-get update");
        Program::find("apt-get", "it comes with apt")?.output(&["-q", "update"])?;
        updated = true;
        if let Some(package) = pick()? {
            return Ok(package);
        }
    } else {
        say("apt knows no such kernel package; if its lists are old, run apt-get update as root");
    }
    Err(Error::NoPackage {
        pattern: pattern_text(name),
        updated,
    })
}

fn pattern_text(name: &str) -> String {
    let (series, flavour) = split(name);
    let flavour = if flavour.is_empty() {
        String::new()
    } else {
        format!("{flavour}-")
    };
    format!("linux-image-{series}.*-{flavour}amd64")
}

/// The newest package for `name` in the output of `apt-cache search`: signed images only, of exactly that flavour.
///
/// Names seen: `linux-image-6.1.0-57-cloud-amd64`, `linux-image-6.12.117+deb12-rt-amd64`, `linux-image-6.12.48+deb13-amd64`.
fn pick(name: &str, listed: &str) -> Option<String> {
    let (series, flavour) = split(name);
    listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter_map(|package| {
            let rest = package
                .strip_prefix("linux-image-")?
                .strip_suffix("-amd64")?;
            let rest = rest.strip_prefix(series)?.strip_prefix('.')?;
            let version = match flavour {
                "" => rest,
                _ => rest.strip_suffix(flavour)?.strip_suffix('-')?,
            };
            // A generic image has nothing but numbers and "deb" left in its version: no "-rt", no "-cloud".
            let numbers: Option<Vec<u64>> = version
                .split(['.', '-', '+', '~'])
                .map(|part| part.strip_prefix("deb").unwrap_or(part).parse().ok())
                .collect();
            Some((numbers?, package))
        })
        .max()
        .map(|(_, package)| package.to_string())
}

fn download(packages: &[&str], into: &Path) -> Result<()> {
    let apt_get = Program::find("apt-get", "it comes with apt")?;
    let mut args = vec!["-q", "download"];
    args.extend(packages);
    if rustix::process::geteuid().is_root() {
        // The download user of apt may not enter our directory; without this apt only prints a warning about it.
        args.splice(0..0, ["-o", "APT::Sandbox::User=root"]);
    }
    apt_get.output_in(&args, into).map(drop)
}

fn unpack(from: &Path, root: &Path) -> Result<()> {
    let packages: Vec<PathBuf> = std::fs::read_dir(from)
        .at("read", from)?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "deb"))
        .collect();
    if packages.is_empty() {
        return Err(Error::BadKernel(
            "apt-get download succeeded but left no .deb file".into(),
        ));
    }
    std::fs::create_dir(root).at("create", root)?;
    let dpkg = Program::find("dpkg-deb", "it comes with dpkg")?;
    for package in packages {
        dpkg.output(&["-x", &package.to_string_lossy(), &root.to_string_lossy()])?;
        std::fs::remove_file(&package).at("remove", &package)?;
    }
    Ok(())
}

/// The directory with the files of a Debian package and of all that it depends on, from the cache, or fetched into it: for a
/// program to measure against, which is installed nowhere.
pub fn package_tree(name: &str, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let place = cache.root().join("packages").join(name);
    if place.is_dir() {
        return Ok(place);
    }
    let _lock = cache.lock(&format!("fetch-{name}"), || {
        say(&format!(
            "another lab is fetching package {name}; waiting for it"
        ));
    })?;
    if place.is_dir() {
        return Ok(place);
    }
    let apt_cache = Program::find("apt-cache", "it comes with apt")?;
    let listed = apt_cache.output(&[
        "depends",
        "--recurse",
        "--no-recommends",
        "--no-suggests",
        "--no-conflicts",
        "--no-breaks",
        "--no-replaces",
        "--no-enhances",
        name,
    ])?;
    // Packages stand at the start of their lines; virtual ones in angle brackets.
    let mut packages: Vec<&str> = listed
        .lines()
        .filter(|l| l.starts_with(|c: char| c.is_ascii_alphanumeric()))
        .collect();
    packages.sort_unstable();
    packages.dedup();
    say(&format!(
        "fetching package {name} with the {} that it needs (once)",
        packages.len().saturating_sub(1)
    ));
    let scratch = Scratch::exclusive(cache.root().join("tmp").join(name))?;
    download(&packages, scratch.path())?;
    let root = scratch.path().join("root");
    unpack(scratch.path(), &root)?;
    rustix::fs::syncfs(std::fs::File::open(&root).at("open", &root)?).at("flush", &root)?;
    let parent = place.parent().unwrap_or(&place);
    std::fs::create_dir_all(parent).at("create", parent)?;
    std::fs::rename(&root, &place).at("create", &place)?;
    Ok(place)
}

/// Moves the unpacked package's kernel and modules to their place in the cache, by one rename at the end.
fn install(name: &str, package: &str, root: &Path, place: &Path) -> Result<KernelImage> {
    let boot = root.join("boot");
    let image = std::fs::read_dir(&boot)
        .at("read", &boot)?
        .filter_map(|e| Some(e.ok()?.path()))
        .find(|p| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz-"))
        })
        .ok_or_else(|| Error::BadKernel(format!("package {package} has no boot/vmlinuz-*")))?;
    let mut kernel = KernelImage::from_path(&image, None)?;
    let inside = |path: &Path| -> PathBuf { path.strip_prefix(root).unwrap_or(path).to_path_buf() };
    kernel.name = name.to_string();
    kernel.package = Some(package.to_string());
    kernel.image = inside(&kernel.image);
    kernel.modules = kernel.modules.as_deref().map(inside);
    if kernel.modules.is_none() {
        return Err(Error::BadKernel(format!(
            "package {package} has no modules for its kernel {}",
            kernel.release
        )));
    }
    let _ = std::fs::remove_dir_all(root.join("usr/share"));
    let record = root.join(RECORD);
    let text = serde_json::to_string_pretty(&kernel)
        .map_err(|e| Error::BadKernel(format!("cannot write its record: {e}")))?;
    std::fs::write(&record, text).at("write", &record)?;
    // Everything must be on disk before the directory gets its final name.
    rustix::fs::syncfs(std::fs::File::open(&record).at("open", &record)?).at("flush", root)?;
    if place.exists() {
        // Without a record: a fetch of an older lab that was cut short, or a moved file.
        std::fs::remove_dir_all(place).at("remove", place)?;
    }
    let parent = place.parent().unwrap_or(place);
    std::fs::create_dir_all(parent).at("create", parent)?;
    std::fs::rename(root, place).at("create", place)?;
    kernel.image = place.join(&kernel.image);
    kernel.modules = kernel.modules.map(|m| place.join(m));
    Ok(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "\
linux-image-6.1.0-9-amd64 - Linux 6.1 for 64-bit PCs (signed)
linux-image-6.1.0-57-amd64 - Linux 6.1 for 64-bit PCs (signed)
linux-image-6.1.0-57-amd64-dbg - Debug symbols
linux-image-6.1.0-58-amd64-unsigned - Linux 6.1 for 64-bit PCs
linux-image-6.1.0-57-cloud-amd64 - cloud
linux-image-6.1.0-56-rt-amd64 - rt
linux-image-6.12-amd64 - Linux for 64-bit PCs (meta-package)
linux-image-6.12.9+deb12-amd64 - Linux 6.12 for 64-bit PCs (signed)
linux-image-6.12.117+deb12-amd64 - Linux 6.12 for 64-bit PCs (signed)
linux-image-6.12.117+deb12-rt-amd64 - Linux 6.12 for 64-bit PCs (signed), PREEMPT_RT
linux-image-6.12.48+deb13-cloud-amd64 - trixie
";

    #[track_caller]
    fn check(name: &str, expected: Option<&str>) {
        assert_eq!(pick(name, LISTED).as_deref(), expected);
    }

    #[test]
    fn the_newest_signed_image_of_the_flavour_is_picked() {
        check("6.1", Some("linux-image-6.1.0-57-amd64"));
        check("6.1-cloud", Some("linux-image-6.1.0-57-cloud-amd64"));
        check("6.1-rt", Some("linux-image-6.1.0-56-rt-amd64"));
        check("6.12", Some("linux-image-6.12.117+deb12-amd64"));
        check("6.12-rt", Some("linux-image-6.12.117+deb12-rt-amd64"));
        check("6.12-cloud", Some("linux-image-6.12.48+deb13-cloud-amd64"));
        check("6.11", None);
    }
}
