//! A writer of "newc" cpio archives (Documentation/driver-api/early-userspace/buffer-format.rst, 6.12).
//!
//! Same entries in, same bytes out: entries are sorted by path, owned by root:root, all of one fixed time, and inode
//! numbers are given in order. Deterministic guests need it: two archives that differ in one time stamp make boots that
//! differ by millions of instructions.

use std::collections::BTreeMap;

/// One entry of the archive.
enum Node {
    Dir,
    File { mode: u32, data: Vec<u8> },
    Link { target: String },
    Char { mode: u32, major: u32, minor: u32 },
}

/// An archive under construction. Paths are relative to the guest's root, without a leading slash.
#[derive(Default)]
pub struct Archive {
    nodes: BTreeMap<String, Node>,
}

/// All entries carry this time: 2024-01-01 00:00:00 UTC.
const MTIME: u32 = 1_704_067_200;
const S_IFDIR: u32 = 0o040000;
const S_IFREG: u32 = 0o100000;
const S_IFLNK: u32 = 0o120000;
const S_IFCHR: u32 = 0o020000;

fn relative(path: &str) -> String {
    path.split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect::<Vec<_>>()
        .join("/")
}

impl Archive {
    /// An archive that has nothing but its root.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory and its parents, all mode 0755.
    pub fn dir(&mut self, path: &str) {
        let path = relative(path);
        self.parents(&path);
        if !path.is_empty() {
            self.nodes.entry(path).or_insert(Node::Dir);
        }
    }

    /// Adds a regular file, replacing an entry of that name. `mode` has the permission bits only.
    pub fn file(&mut self, path: &str, mode: u32, data: impl Into<Vec<u8>>) {
        let data = data.into();
        self.put(
            path,
            Node::File {
                mode: mode & 0o7777,
                data,
            },
        );
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.put(
            path,
            Node::Link {
                target: target.to_string(),
            },
        );
    }

    /// Adds a character device.
    pub fn char_device(&mut self, path: &str, mode: u32, major: u32, minor: u32) {
        self.put(
            path,
            Node::Char {
                mode: mode & 0o7777,
                major,
                minor,
            },
        );
    }

    fn put(&mut self, path: &str, node: Node) {
        let path = relative(path);
        if path.is_empty() {
            return;
        }
        self.parents(&path);
        self.nodes.insert(path, node);
    }

    fn parents(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            if let Some(parent) = path.get(..at) {
                self.nodes.entry(parent.to_string()).or_insert(Node::Dir);
            }
        }
    }

    /// The archive's bytes. A file of 4 GiB or more does not fit the format and is an error that names it.
    pub fn finish(&self) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        // The root itself: without it the kernel makes it 0700 for programs that drop privileges.
        let root = (String::from("."), Node::Dir);
        let all = std::iter::once((&root.0, &root.1)).chain(self.nodes.iter());
        for (inode, (path, node)) in (1..).zip(all) {
            let (mode, data, device): (u32, &[u8], (u32, u32)) = match node {
                Node::Dir => (S_IFDIR | 0o755, &[], (0, 0)),
                Node::File { mode, data } => (S_IFREG | mode, data, (0, 0)),
                Node::Link { target } => (S_IFLNK | 0o777, target.as_bytes(), (0, 0)),
                Node::Char { mode, major, minor } => (S_IFCHR | mode, &[], (*major, *minor)),
            };
            let links = if matches!(node, Node::Dir) { 2 } else { 1 };
            entry(&mut out, path, inode, mode, links, device, data)?;
        }
        entry(&mut out, "TRAILER!!!", 0, 0, 1, (0, 0), &[])?;
        pad(&mut out, 512);
        Ok(out)
    }
}

fn entry(
    out: &mut Vec<u8>,
    path: &str,
    inode: u32,
    mode: u32,
    links: u32,
    (major, minor): (u32, u32),
    data: &[u8],
) -> Result<(), String> {
    let size = u32::try_from(data.len()).map_err(|_| {
        format!(
            "{path} is too large for an initramfs ({} bytes)",
            data.len()
        )
    })?;
    let name_size = u32::try_from(path.len() + 1).map_err(|_| "a path is too long".to_string())?;
    let mtime = if inode == 0 { 0 } else { MTIME };
    out.extend_from_slice(b"070701");
    for field in [
        inode, mode, 0, 0, links, mtime, size, 0, 0, major, minor, name_size, 0,
    ] {
        out.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    out.extend_from_slice(path.as_bytes());
    out.push(0);
    pad(out, 4);
    out.extend_from_slice(data);
    pad(out, 4);
    Ok(())
}

fn pad(out: &mut Vec<u8>, to: usize) {
    while !out.len().is_multiple_of(to) {
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_entries_in_any_order_make_the_same_bytes() {
        let mut one = Archive::new();
        one.file("/bin/a", 0o755, b"A".to_vec());
        one.link("bin/b", "a");
        one.char_device("dev/console", 0o600, 5, 1);
        let mut two = Archive::new();
        two.char_device("dev/console", 0o600, 5, 1);
        two.link("/bin//b", "a");
        two.file("bin/a", 0o755, b"A".to_vec());
        assert_eq!(one.finish(), two.finish());
    }

    #[test]
    fn busybox_and_gnu_cpio_would_read_it() {
        let mut archive = Archive::new();
        archive.file("a/b", 0o644, b"hello".to_vec());
        let bytes = archive.finish().expect("small");
        let text = String::from_utf8_lossy(&bytes);
        // ".", "a", "a/b" and the trailer, each with the magic number; parents come before children.
        assert_eq!(text.matches("070701").count(), 4);
        let parent = text.find("a\0").expect("parent");
        let child = text.find("a/b\0").expect("child");
        assert!(parent < child && child < text.find("TRAILER!!!").expect("trailer"));
        assert_eq!(bytes.len() % 512, 0);
    }
}
