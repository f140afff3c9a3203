//! Modules made here for the running kernel, without its headers: layouts from BTF, the rest of what the loader wants.

use crate::Failure;
use kerninst_kernel::{Btf, Kernel};
use kerninst_patch::elf::{Names, Object, Place, RelocType, Relocation, Symbol, SymbolId};
use std::time::{Duration, Instant};

/// Sizes and offsets of the running kernel's structures.
pub struct Layout<'a>(&'a Btf);

impl<'a> Layout<'a> {
    /// Of this kernel.
    pub fn of(kernel: &'a Kernel) -> Result<Layout<'a>, Failure> {
        Ok(Layout(kernel.btf().ok_or("no BTF")?))
    }

    /// Bytes of a structure.
    pub fn size(&self, structure: &str) -> Result<u64, Failure> {
        let size = self.0.struct_size(structure);
        size.ok_or_else(|| format!("no struct {structure} in BTF"))
    }

    /// Offset of a member.
    pub fn at(&self, structure: &str, member: &str) -> Result<u64, Failure> {
        let offset = self.0.offset(structure, member);
        offset.ok_or_else(|| format!("no {member} in struct {structure}"))
    }
}

/// Adds `struct module`, with the offsets of `init_module` and `cleanup_module` in the text; its symbol.
pub fn this_module(
    object: &mut Object,
    layout: &Layout<'_>,
    name: &str,
    text: SymbolId,
    init: i64,
    exit: i64,
) -> Result<SymbolId, Failure> {
    let section = object.section(".gnu.linkonce.this_module", true, false, 64);
    let mut image = vec![0; usize::try_from(layout.size("module")?).unwrap_or(0)];
    let at = usize::try_from(layout.at("module", "name")?).unwrap_or(0);
    let place = image.iter_mut().skip(at);
    place.zip(name.bytes()).for_each(|(to, from)| *to = from);
    object.append(section, &image);
    for (member, addend) in [("init", init), ("exit", exit)] {
        let r = Relocation {
            offset: layout.at("module", member)?,
            kind: RelocType::Abs64,
            symbol: text,
            addend,
        };
        object.relocate(section, r);
    }
    Ok(object.symbol(Symbol {
        name: "__this_module".into(),
        place: Place::Section(section, 0),
        size: image.len() as u64,
        names: Names::Object,
        global: true,
    }))
}

/// Adds what the loader checks first: licence, version magic (and `more`, each ended by a zero byte), and the checksum of
/// `module_layout` where the kernel has one.
pub fn information(
    object: &mut Object,
    kernel: &Kernel,
    name: &str,
    more: &str,
) -> Result<(), Failure> {
    let vermagic = kernel.vermagic().ok_or("no vermagic")?;
    let section = object.section(".modinfo", false, false, 1);
    let text = format!("license=GPL\0name={name}\0{more}retpoline=Y\0vermagic={vermagic}\0");
    object.append(section, text.as_bytes());
    if let Some(crc) = kernel.symbol_crc("module_layout") {
        let versions = object.section("__versions", false, false, 32);
        let mut entry = u64::from(crc).to_le_bytes().to_vec();
        entry.extend(*b"module_layout");
        entry.resize(64, 0);
        object.append(versions, &entry);
    }
    Ok(())
}

/// Loads it; what its `init_module` returned, if that was an error.
pub fn load(image: &[u8]) -> std::io::Result<()> {
    // SAFETY: the image is readable for its length, the parameters are a string.
    let result = unsafe {
        libc::syscall(
            libc::SYS_init_module,
            image.as_ptr(),
            image.len(),
            c"".as_ptr(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Unloads it, as soon as nobody uses it.
pub fn unload(name: &str) -> Result<(), Failure> {
    let c_name = std::ffi::CString::new(name).map_err(|e| e.to_string())?;
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        // SAFETY: the name is a string.
        let result =
            unsafe { libc::syscall(libc::SYS_delete_module, c_name.as_ptr(), libc::O_NONBLOCK) };
        if result == 0 {
            return Ok(());
        }
        if Instant::now() > until {
            let why = std::io::Error::last_os_error();
            return Err(format!("module {name} does not go: {why}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
