//! Makes the guest's root: busybox, the files asked for, kernel modules and `/init`.

use crate::cpio::Archive;
use crate::error::{At, Error, Result};
use crate::kernel::KernelImage;
use crate::modules::ModuleIndex;
use crate::program::Program;
use object::read::elf::{FileHeader, ProgramHeader};
use std::path::{Path, PathBuf};

/// What the guest's `/init` does once the system is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Run a command and power off.
    Run(Vec<String>),
    /// An interactive shell on a terminal of (rows, columns).
    Shell(Option<(u16, u16)>),
    /// Take commands one by one ([`crate::Guest`]).
    Session,
}

/// A file of this machine that the guest gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFile {
    /// Where it is here.
    pub host: PathBuf,
    /// Where it will be in the guest, absolute.
    pub guest: String,
}

impl GuestFile {
    /// Reads `HOST[:GUEST]`. Without GUEST: `/bin/NAME` for an executable file, `/root/NAME` for another.
    pub fn parse(text: &str) -> Result<GuestFile> {
        use std::os::unix::fs::PermissionsExt;
        let (host, guest) = match text.rsplit_once(':') {
            Some((host, guest)) if guest.starts_with('/') => (host, Some(guest.to_string())),
            Some((_, guest)) if !Path::new(text).exists() => {
                return Err(Error::BadFile(format!(
                    "--file {text}: the place in the guest must be an absolute path, not \"{guest}\""
                )));
            }
            _ => (text, None),
        };
        let host = PathBuf::from(host);
        let meta = std::fs::metadata(&host).at("read", &host)?;
        if !meta.is_file() {
            return Err(Error::BadFile(format!(
                "--file {}: not a regular file",
                host.display()
            )));
        }
        let guest = match guest {
            Some(guest) => guest,
            None => {
                let name = host.file_name().and_then(|n| n.to_str()).ok_or_else(|| {
                    Error::BadFile(format!(
                        "--file {}: give it a name in the guest, HOST:/PATH",
                        host.display()
                    ))
                })?;
                let dir = if meta.permissions().mode() & 0o111 != 0 {
                    "bin"
                } else {
                    "root"
                };
                format!("/{dir}/{name}")
            }
        };
        Ok(GuestFile { host, guest })
    }
}

/// What goes into an initramfs.
#[derive(Debug, Clone)]
pub struct Contents<'a> {
    /// The kernel whose modules are taken.
    pub kernel: &'a KernelImage,
    /// What `/init` does.
    pub task: &'a Task,
    /// Files of this machine.
    pub files: &'a [GuestFile],
    /// Files given as bytes: place, mode, contents.
    pub inline: &'a [(String, u32, Vec<u8>)],
    /// Modules to load at boot, with their dependencies.
    pub load: &'a [String],
    /// Modules only to be there (`modprobe` works), with their dependencies.
    pub carry: &'a [String],
}

const INIT: &str = include_str!("init.sh");

/// The archive's bytes, uncompressed (the kernel would only have to unpack them again), and sentences about contents
/// that will probably not work.
pub fn build(contents: &Contents<'_>) -> Result<(Vec<u8>, Vec<String>)> {
    let mut archive = Archive::new();
    let mut warnings = Vec::new();
    for dir in [
        "bin", "sbin", "usr/bin", "usr/sbin", "proc", "sys", "dev", "tmp", "root", "etc", "run",
        "var", "lab", "mnt",
    ] {
        archive.dir(dir);
    }
    // Needed before devtmpfs is mounted: the first process's standard streams.
    archive.char_device("dev/console", 0o600, 5, 1);
    archive.char_device("dev/null", 0o666, 1, 3);
    archive.file(
        "etc/passwd",
        0o644,
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n",
    );
    archive.file("etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n");
    archive.file("etc/hosts", 0o644, "127.0.0.1 localhost\n");
    archive.file("etc/profile", 0o644, "export PS1='lab:\\w\\$ '\n");
    add_busybox(&mut archive)?;
    archive.file("init", 0o755, INIT);
    add_task(&mut archive, contents.task);
    add_modules(&mut archive, contents)?;
    for file in contents.files {
        add_file(&mut archive, file, &mut warnings)?;
    }
    for (place, mode, data) in contents.inline {
        archive.file(place, *mode, data.clone());
    }
    let bytes = archive.finish().map_err(Error::BadFile)?;
    Ok((bytes, warnings))
}

fn add_busybox(archive: &mut Archive) -> Result<()> {
    const REMEDY: &str =
        "the guest's shell and tools are busybox's: install it (apt-get install busybox-static)";
    let busybox = Program::find("busybox", REMEDY)?;
    let data = std::fs::read(busybox.path()).at("read", busybox.path())?;
    if let Some(interpreter) = interpreter(&data) {
        return Err(Error::BadFile(format!(
            "{} needs {interpreter}, which the guest does not have: install the static one (apt-get install busybox-static)",
            busybox.path().display()
        )));
    }
    for applet in busybox.output(&["--list"])?.lines() {
        if applet != "busybox" && !applet.contains('/') && !applet.is_empty() {
            archive.link(&format!("bin/{applet}"), "busybox");
        }
    }
    archive.file("bin/busybox", 0o755, data);
    Ok(())
}

fn add_task(archive: &mut Archive, task: &Task) {
    let mode = match task {
        Task::Run(words) => {
            archive.file("lab/command", 0o644, script(words));
            "run\n"
        }
        Task::Shell(size) => {
            if let Some((rows, columns)) = size {
                archive.file("lab/size", 0o644, format!("rows {rows} cols {columns}\n"));
            }
            "shell\n"
        }
        Task::Session => "session\n",
    };
    archive.file("lab/mode", 0o644, mode);
}

/// One word is a line of shell; several are a program and its arguments, passed on exactly.
pub(crate) fn script(words: &[String]) -> String {
    match words {
        [line] => format!("{line}\n"),
        _ => {
            let quoted: Vec<String> = words
                .iter()
                .map(|w| format!("'{}'", w.replace('\'', "'\\''")))
                .collect();
            format!("exec {}\n", quoted.join(" "))
        }
    }
}

fn add_modules(archive: &mut Archive, contents: &Contents<'_>) -> Result<()> {
    if contents.load.is_empty() && contents.carry.is_empty() {
        return Ok(());
    }
    let index = ModuleIndex::new(contents.kernel)?;
    let load = index.with_needs(contents.load)?;
    let carry = index.with_needs(contents.carry)?;
    let dir = format!("lib/modules/{}", contents.kernel.release);
    let order: String = load
        .iter()
        .map(|m| format!("/{dir}/{}.ko\n", m.name))
        .collect();
    archive.file("lab/modules", 0o644, order);
    let mut dependencies = std::collections::BTreeMap::new();
    for module in load.into_iter().chain(carry) {
        // The format of modules.dep: what must be loaded first stands last.
        let needs: String = module
            .needs
            .iter()
            .rev()
            .map(|n| format!(" {n}.ko"))
            .collect();
        dependencies.insert(module.name.clone(), format!("{}.ko:{needs}\n", module.name));
        archive.file(&format!("{dir}/{}.ko", module.name), 0o644, module.data);
    }
    let text: String = dependencies.into_values().collect();
    archive.file(&format!("{dir}/modules.dep"), 0o644, text);
    Ok(())
}

fn add_file(archive: &mut Archive, file: &GuestFile, warnings: &mut Vec<String>) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let data = std::fs::read(&file.host).at("read", &file.host)?;
    let mode = std::fs::metadata(&file.host)
        .at("read", &file.host)?
        .permissions()
        .mode();
    if let Some(interpreter) = interpreter(&data) {
        warnings.push(format!(
            "{} is dynamically linked (it needs {interpreter}) and will not run in the guest unless its libraries are \
             there; static programs: cargo xtask build",
            file.host.display()
        ));
    }
    let mode = if mode & 0o111 != 0 { 0o755 } else { 0o644 };
    archive.file(&file.guest, mode, data);
    Ok(())
}

/// The dynamic loader that an ELF program asks for; `None` for a static program or any other file.
pub fn interpreter(data: &[u8]) -> Option<String> {
    let header = object::elf::FileHeader64::<object::Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    header
        .program_headers(endian, data)
        .ok()?
        .iter()
        .find_map(|p| p.interpreter(endian, data).ok().flatten())
        .map(|name| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_guest_exactly() {
        let words = |w: &[&str]| w.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        assert_eq!(script(&words(&["a | b"])), "a | b\n");
        assert_eq!(
            script(&words(&["echo", "it's", "$HOME"])),
            "exec 'echo' 'it'\\''s' '$HOME'\n"
        );
    }
}
