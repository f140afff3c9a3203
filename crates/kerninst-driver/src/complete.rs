//! Completes the embedded kernel side to a module for one kernel: no headers, no compiler, no linker.
//!
//! The object that `build.rs` made is edited in place: undefined symbols become absolute ones with the kernel's
//! addresses (the loader then asks for no export and no version), the templates of the kernel's tables get their
//! pointers moved to the offsets that BTF tells, and the sections that the loader reads are filled.
//! Sources: kernel/module/main.c (`simplify_symbols`, `elf_validity_check`), arch/x86/kernel/module.c.

use crate::needs;
use kerninst_kernel::Kernel;
use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{FileHeader, SectionHeader};
use std::ops::Range;

/// The kernel side, for the kernel's ABI (`build.rs`).
pub(crate) static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kside.o"));

/// Why the driver cannot be made for a kernel.
#[derive(Debug, thiserror::Error)]
pub enum CompleteError {
    /// This kernel lacks things the driver needs.
    #[error("this kernel does not have what the driver needs: {}", .0.join(", "))]
    Missing(Vec<String>),
    /// The embedded object is not as this crate expects: a fault of the build, not of the kernel.
    #[error("the driver object in this program is damaged ({0}): build kerninst anew")]
    Object(&'static str),
}

/// Name of the driver module.
pub const DRIVER_NAME: &str = "kerninst";

/// Sizes and offsets of a kernel's structures, from BTF.
struct Layout {
    module_size: u64,
    module_name: u64,
    module_init: u64,
    module_exit: u64,
    fops: [u64; 5],
    misc: [u64; 2],
    misc_minor: u64,
    misc_mode: u64,
}

impl Layout {
    fn new(kernel: &Kernel, missing: &mut Vec<String>) -> Option<Layout> {
        let mut get = |structure: &str, member: &str| match needs::offset(kernel, structure, member)
        {
            Ok(offset) => offset,
            Err(what) => {
                missing.push(what);
                0
            }
        };
        let layout = Layout {
            module_size: 0,
            module_name: get("module", "name"),
            module_init: get("module", "init"),
            module_exit: get("module", "exit"),
            fops: ["owner", "open", "release", "unlocked_ioctl", "mmap"]
                .map(|m| get("file_operations", m)),
            misc: ["name", "fops"].map(|m| get("miscdevice", m)),
            misc_minor: get("miscdevice", "minor"),
            misc_mode: get("miscdevice", "mode"),
        };
        let sizes = ["module", "mutex", "file_operations", "miscdevice"]
            .map(|s| kernel.btf()?.struct_size(s));
        let [Some(module_size), Some(mutex), Some(fops), Some(misc)] = sizes else {
            missing.push(
                "sizes of struct module, mutex, file_operations and miscdevice in BTF".into(),
            );
            return None;
        };
        // The room that the templates in kside/module.rs and the lock in kside/kernel.rs leave.
        if module_size > 8192 || mutex > 256 || fops > 1024 || misc > 512 {
            missing.push("structures of the sizes that the driver has room for".into());
        }
        missing.is_empty().then_some(Layout {
            module_size,
            ..layout
        })
    }
}

/// The driver module for this kernel.
///
/// # Errors
/// [`CompleteError::Missing`] names everything that is missing, at once.
pub fn complete(kernel: &Kernel) -> Result<Vec<u8>, CompleteError> {
    let mut image = Image::new(OBJECT)?;
    image.clear_retain()?;
    let mut missing = Vec::new();
    image.resolve(|name| {
        needs::value(kernel, name)
            .map_err(|what| missing.push(what))
            .ok()
    })?;
    let vermagic = kernel.vermagic();
    if vermagic.is_none() {
        missing.push("the kernel's vermagic string".into());
    }
    let layout = Layout::new(kernel, &mut missing);
    let (Some(layout), Some(vermagic)) = (layout, vermagic) else {
        missing.sort();
        missing.dedup();
        return Err(CompleteError::Missing(missing));
    };

    image.move_pointers(
        ".gnu.linkonce.this_module",
        &[layout.module_init, layout.module_exit],
    )?;
    image.write(
        ".gnu.linkonce.this_module",
        layout.module_name,
        DRIVER_NAME.as_bytes(),
    )?;
    image.resize(".gnu.linkonce.this_module", layout.module_size)?;
    image.move_pointers(".data.ki_fops", &layout.fops)?;
    image.move_pointers(".data.ki_misc", &layout.misc)?;
    // MISC_DYNAMIC_MINOR (include/linux/miscdevice.h); 0600: root only.
    image.write(".data.ki_misc", layout.misc_minor, &255i32.to_le_bytes())?;
    image.write(".data.ki_misc", layout.misc_mode, &0o600u16.to_le_bytes())?;

    let modinfo = modinfo(DRIVER_NAME, &vermagic);
    image.write(".modinfo", 0, &modinfo)?;
    image.resize(".modinfo", modinfo.len() as u64)?;
    match kernel.symbol_crc("module_layout") {
        Some(crc) => image.write("__versions", 0, &version_entry(crc, "module_layout"))?,
        None => image.resize("__versions", 0)?,
    }
    Ok(image.bytes)
}

/// The `.modinfo` section of a module of ours.
pub fn modinfo(name: &str, vermagic: &str) -> Vec<u8> {
    format!("license=GPL\0name={name}\0retpoline=Y\0vermagic={vermagic}\0").into_bytes()
}

/// One `struct modversion_info` (include/linux/module.h): {unsigned long crc; char name[56]}.
fn version_entry(crc: u32, name: &str) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[..8].copy_from_slice(&u64::from(crc).to_le_bytes());
    for (to, from) in entry[8..63].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    entry
}

/// The object, edited in place.
struct Image {
    bytes: Vec<u8>,
    sections: Vec<Section>,
}

struct Section {
    name: String,
    kind: elf::SectionType,
    /// Place of its header in the file.
    header: usize,
    data: Range<usize>,
    /// `sh_info`: for relocations the section they apply to.
    info: usize,
}

const SHN_ABS: u16 = 0xfff1;
/// Offsets within `Elf64_Shdr`, `Elf64_Sym` and `Elf64_Rela`.
const SH_FLAGS: usize = 8;
const SH_SIZE: usize = 32;
const SYM_SIZE: usize = 24;
const RELA_SIZE: usize = 24;

impl Image {
    fn new(object: &[u8]) -> Result<Image, CompleteError> {
        let bad = |_| CompleteError::Object("ELF headers");
        let header = elf::FileHeader64::<LE>::parse(object).map_err(bad)?;
        let endian = header.endian().map_err(bad)?;
        let table = header.sections(endian, object).map_err(bad)?;
        let at = header.e_shoff.get(endian) as usize;
        let mut sections = Vec::new();
        for (i, s) in table.iter().enumerate() {
            let name = table.section_name(endian, s).map_err(bad)?;
            let offset = s.sh_offset(endian) as usize;
            sections.push(Section {
                name: String::from_utf8_lossy(name).into_owned(),
                kind: s.sh_type(endian),
                header: at + i * size_of::<elf::SectionHeader64<LE>>(),
                data: offset..offset + s.sh_size(endian) as usize,
                info: s.sh_info(endian) as usize,
            });
        }
        Ok(Image {
            bytes: object.to_vec(),
            sections,
        })
    }

    fn section(&self, name: &str) -> Result<usize, CompleteError> {
        self.sections
            .iter()
            .position(|s| s.name == name)
            .ok_or(CompleteError::Object("a section is missing"))
    }

    fn get<const N: usize>(&self, at: usize) -> Result<[u8; N], CompleteError> {
        let bytes = at.checked_add(N).and_then(|end| self.bytes.get(at..end));
        bytes
            .and_then(|b| b.try_into().ok())
            .ok_or(CompleteError::Object("truncated"))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> Result<(), CompleteError> {
        let end = at.checked_add(bytes.len());
        let to = end
            .and_then(|end| self.bytes.get_mut(at..end))
            .ok_or(CompleteError::Object("truncated"))?;
        to.copy_from_slice(bytes);
        Ok(())
    }

    /// Clears a section flag that the compiler sets for the linker (`#[used]`: `SHF_GNU_RETAIN`) and that means
    /// something else to the kernel: `SHF_RO_AFTER_INIT` (include/linux/module.h, kernel/module/main.c). With it the
    /// kernel would make `struct module` itself read-only, and crash on its next write to it.
    fn clear_retain(&mut self) -> Result<(), CompleteError> {
        const RETAIN: u64 = 0x20_0000;
        for i in 0..self.sections.len() {
            let at = self.sections[i].header + SH_FLAGS;
            let flags = u64::from_le_bytes(self.get(at)?);
            self.put(at, &(flags & !RETAIN).to_le_bytes())?;
        }
        Ok(())
    }

    /// Gives every undefined symbol an absolute value. A name that `value` cannot resolve stays undefined.
    fn resolve(&mut self, mut value: impl FnMut(&str) -> Option<u64>) -> Result<(), CompleteError> {
        let table = self.section(".symtab")?;
        let strings = self.section(".strtab")?;
        let (symbols, strings) = (
            self.sections[table].data.clone(),
            self.sections[strings].data.clone(),
        );
        for at in symbols.clone().step_by(SYM_SIZE).skip(1) {
            if u16::from_le_bytes(self.get(at + 6)?) != 0 {
                continue;
            }
            let name = strings.start + u32::from_le_bytes(self.get(at)?) as usize;
            let name = self.bytes.get(name..strings.end).unwrap_or_default();
            let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
            let name = String::from_utf8_lossy(&name[..end]).into_owned();
            if let Some(value) = value(&name) {
                self.put(at + 6, &SHN_ABS.to_le_bytes())?;
                self.put(at + 8, &value.to_le_bytes())?;
            }
        }
        Ok(())
    }

    /// Moves the relocations of a template: the pointer that the source has n-th goes to `offsets[n]`.
    fn move_pointers(&mut self, name: &str, offsets: &[u64]) -> Result<(), CompleteError> {
        let target = self.section(name)?;
        let relocations = self
            .sections
            .iter()
            .find(|s| s.kind == elf::SHT_RELA && s.info == target)
            .ok_or(CompleteError::Object("a template has no pointers"))?;
        let range = relocations.data.clone();
        if range.len() != offsets.len() * RELA_SIZE {
            return Err(CompleteError::Object("a template has other pointers"));
        }
        for at in range.step_by(RELA_SIZE) {
            let index = u64::from_le_bytes(self.get(at)?) / 8;
            let offset = offsets
                .get(index as usize)
                .ok_or(CompleteError::Object("a template's pointer"))?;
            self.put(at, &offset.to_le_bytes())?;
        }
        Ok(())
    }

    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), CompleteError> {
        let section = self.section(name)?;
        let data = self.sections[section].data.clone();
        let at = data
            .start
            .checked_add(offset as usize)
            .ok_or(CompleteError::Object("offset"))?;
        if at.checked_add(bytes.len()).is_none_or(|end| end > data.end) {
            return Err(CompleteError::Object("a template is too small"));
        }
        self.put(at, bytes)
    }

    fn resize(&mut self, name: &str, size: u64) -> Result<(), CompleteError> {
        let section = self.section(name)?;
        if size > self.sections[section].data.len() as u64 {
            return Err(CompleteError::Object("a template is too small"));
        }
        self.put(self.sections[section].header + SH_SIZE, &size.to_le_bytes())
    }
}
