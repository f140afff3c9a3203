//! The kernel module that carries a batch of code patches.

use crate::elf::{
    self, ElfError, Names, Object, Place, RelocType, Relocation, SectionId, SymbolId,
};
use crate::{CodePatch, Fixup, RelocKind, orc};
use kerninst_snippet::HitSite;

/// What a module must look like for one kernel. Read from the kernel it is for (BTF, `vermagic`, symbol checksums).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleInfo {
    /// The module's name: letters, digits, `_`.
    pub name: String,
    /// The kernel's `vermagic` string, without the final newline or NUL.
    pub vermagic: String,
    /// `sizeof(struct module)`.
    pub struct_module_size: u64,
    /// Offset of `name` in `struct module`.
    pub name_offset: u64,
    /// Bytes of `name` in `struct module`: 64 - 8 = 56 on x86-64 (`MODULE_NAME_LEN`, include/linux/moduleparam.h).
    pub name_len: u64,
    /// Checksum of the symbol `module_layout`, where the kernel has `CONFIG_MODVERSIONS`.
    pub layout_crc: Option<u32>,
    /// Whether the kernel unwinds with ORC data.
    pub has_orc: bool,
}

/// A module that cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The name is empty, too long, or has other characters than letters, digits and `_`.
    #[error("{0:?} cannot be the name of a kernel module")]
    Name(String),
    /// The name does not fit into `struct module` as described.
    #[error("struct module of {size} bytes cannot have a name at offset {offset}")]
    Layout {
        /// Bytes of the structure.
        size: u64,
        /// Offset of the name.
        offset: u64,
    },
    /// More code than one module may hold.
    #[error("the patches of one module exceed {0} bytes")]
    TooLarge(u64),
    /// The object could not be written.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// A batch of code patches on the way to a `.ko` file. It has no code of its own and no init function: loading it
/// changes nothing. The kernel's loader registers its unwind data, exception table, bug table and symbols.
#[derive(Debug, Clone)]
pub struct PatchModule {
    info: ModuleInfo,
    object: Object,
    text: SectionId,
    text_symbol: SymbolId,
    /// Absolute zero: with the address as addend it reaches every kernel address.
    zero: SymbolId,
    orc: Vec<(u64, [u8; 6])>,
    extable: Vec<(u64, Fixup2, u32)>,
    bugs: Vec<(u64, u64, u16, u16)>,
    jump_labels: Vec<(u64, Fixup2, u64)>,
    static_calls: Vec<(u64, u64)>,
    returns: Vec<(u64, u64)>,
    /// Displacements of instructions that set a byte: offset of the field, number of the byte.
    hits: Vec<(u64, u32)>,
}

/// A fixup, as an offset in .text or a kernel address.
#[derive(Debug, Clone, Copy)]
enum Fixup2 {
    Text(u64),
    Kernel(u64),
}

/// Section of a patch module that tells where its versions' calls return to in the originals, for whoever has to empty it,
/// be it a later process: a 64-bit count; then for each call, ascending, two 32-bit words: offset of the return address in
/// `.text`, and the low half of the address in the original (kernel text is in the top 2 GiB).
pub const RETURNS: &str = ".kerninst.returns";

/// Section of a patch module with the bytes that its code sets, by number.
pub const HITS: &str = ".kerninst.hits";

/// Alignment of each patch: as the kernel aligns functions.
const ALIGN: u64 = 16;
/// Most bytes of code: far below what the module area holds, so that every offset fits 32 bits.
const MOST: u64 = 512 << 20;

impl PatchModule {
    /// An empty module.
    pub fn new(info: &ModuleInfo) -> PatchModule {
        let mut object = Object::new();
        let text = object.section(".text", false, true, ALIGN);
        let text_symbol = object.section_symbol(text);
        let zero = object.absolute("kerninst_zero", 0);
        PatchModule {
            info: info.clone(),
            object,
            text,
            text_symbol,
            zero,
            orc: Vec::new(),
            extable: Vec::new(),
            bugs: Vec::new(),
            jump_labels: Vec::new(),
            static_calls: Vec::new(),
            returns: Vec::new(),
            hits: Vec::new(),
        }
    }

    /// Bytes of code so far.
    pub fn len(&self) -> u64 {
        self.object
            .get(self.text)
            .map_or(0, |s| s.data.len() as u64)
    }

    /// Nothing added yet?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a patch under a symbol name, such as `vfs_read+0x1c.kerninst`; the offset in `.text` where it starts.
    pub fn add(&mut self, patch: &CodePatch, symbol: &str) -> u64 {
        let end = self.len();
        let base = end.next_multiple_of(ALIGN);
        let fill = vec![0xcc; (base - end) as usize];
        self.object.append(self.text, &fill);
        self.object.append(self.text, &patch.bytes);
        let place = Place::Section(self.text, base);
        let size = patch.bytes.len() as u64;
        let name = symbol.to_string();
        self.object.symbol(elf::Symbol {
            name,
            place,
            size,
            names: Names::Function,
            global: false,
        });
        for r in &patch.relocs {
            let kind = match r.kind {
                RelocKind::Pc32 => RelocType::Pc32,
                RelocKind::Abs64 => RelocType::Abs64,
                RelocKind::Abs32S => RelocType::Abs32S,
            };
            let addend = (r.target as i64).wrapping_add(r.addend);
            let offset = base + u64::from(r.offset);
            self.object.relocate(
                self.text,
                Relocation {
                    offset,
                    kind,
                    symbol: self.zero,
                    addend,
                },
            );
        }
        if self.info.has_orc {
            // A patch without data of its own must not inherit the previous one's.
            if patch.orc.first().is_none_or(|o| o.offset > 0) {
                self.unwind(base, orc::UNDEFINED);
            }
            for o in &patch.orc {
                self.unwind(base + u64::from(o.offset), o.raw);
            }
        }
        let within = |to: Fixup| match to {
            Fixup::Inside(offset) => Fixup2::Text(base + u64::from(offset)),
            Fixup::Address(a) => Fixup2::Kernel(a),
        };
        for e in &patch.extable {
            self.extable
                .push((base + u64::from(e.offset), within(e.fixup), e.data));
        }
        for j in &patch.jump_labels {
            self.jump_labels
                .push((base + u64::from(j.offset), within(j.target), j.key));
        }
        for c in &patch.static_calls {
            self.static_calls.push((base + u64::from(c.offset), c.key));
        }
        let field = |h: &HitSite| (base + u64::from(h.offset + HitSite::FIELD), h.flag);
        self.hits.extend(patch.hits.iter().map(field));
        let returns = patch.returns.iter();
        self.returns
            .extend(returns.map(|(offset, original)| (base + u64::from(*offset), *original)));
        for b in &patch.bugs {
            self.bugs
                .push((base + u64::from(b.offset), b.file, b.line, b.flags));
        }
        base
    }

    fn unwind(&mut self, at: u64, raw: [u8; 6]) {
        if self.orc.last().is_none_or(|(_, last)| *last != raw) {
            self.orc.push((at, raw));
        }
    }

    /// The file for `finit_module`.
    pub fn build(mut self) -> Result<Vec<u8>, BuildError> {
        self.check()?;
        self.exception_table();
        self.bug_table();
        self.jump_table();
        self.static_call_sites();
        self.orc_tables();
        self.return_addresses();
        self.hit_bytes();
        let modinfo = self.object.section(".modinfo", false, false, 1);
        let info = &self.info;
        let text = format!(
            "license=GPL\0name={}\0retpoline=Y\0vermagic={}\0",
            info.name, info.vermagic
        );
        self.object.append(modinfo, text.as_bytes());
        self.versions();
        self.this_module();
        Ok(self.object.write()?)
    }

    fn check(&self) -> Result<(), BuildError> {
        let i = &self.info;
        let word = i
            .name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if i.name.is_empty() || !word || i.name.len() as u64 >= i.name_len {
            return Err(BuildError::Name(i.name.clone()));
        }
        let fits = i
            .name_offset
            .checked_add(i.name_len)
            .is_some_and(|end| end <= i.struct_module_size);
        if !fits || i.struct_module_size > 1 << 20 {
            return Err(BuildError::Layout {
                size: i.struct_module_size,
                offset: i.name_offset,
            });
        }
        if self.len() > MOST {
            return Err(BuildError::TooLarge(MOST));
        }
        Ok(())
    }

    /// A 32-bit field relative to itself that names an offset in .text, or a kernel address.
    fn field(&mut self, section: SectionId, to: Fixup2) {
        let offset = self.object.append(section, &[0; 4]);
        let (symbol, addend) = match to {
            Fixup2::Text(at) => (self.text_symbol, at as i64),
            Fixup2::Kernel(addr) => (self.zero, addr as i64),
        };
        self.object.relocate(
            section,
            Relocation {
                offset,
                kind: RelocType::Pc32,
                symbol,
                addend,
            },
        );
    }

    /// `struct exception_table_entry`: s32 insn, fixup; u32 data (arch/x86/include/asm/extable.h).
    fn exception_table(&mut self) {
        if self.extable.is_empty() {
            return;
        }
        let s = self.object.section("__ex_table", false, false, 4);
        for (insn, fixup, data) in std::mem::take(&mut self.extable) {
            self.field(s, Fixup2::Text(insn));
            self.field(s, fixup);
            self.object.append(s, &data.to_le_bytes());
        }
    }

    /// `struct bug_entry` with relative pointers and CONFIG_DEBUG_BUGVERBOSE: s32 addr, file; u16 line, flags
    /// (include/asm-generic/bug.h). The kernel writes the flags.
    fn bug_table(&mut self) {
        if self.bugs.is_empty() {
            return;
        }
        let s = self.object.section("__bug_table", true, false, 4);
        for (addr, file, line, flags) in std::mem::take(&mut self.bugs) {
            self.field(s, Fixup2::Text(addr));
            if file == 0 {
                self.object.append(s, &[0; 4]);
            } else {
                self.field(s, Fixup2::Kernel(file));
            }
            self.object.append(s, &line.to_le_bytes());
            self.object.append(s, &flags.to_le_bytes());
        }
    }

    /// `struct jump_entry`: s32 code, target; s64 key, all relative to themselves (include/linux/jump_label.h with
    /// CONFIG_HAVE_ARCH_JUMP_LABEL_RELATIVE).
    fn jump_table(&mut self) {
        if self.jump_labels.is_empty() {
            return;
        }
        let s = self.object.section("__jump_table", true, false, 8);
        for (code, target, key) in std::mem::take(&mut self.jump_labels) {
            self.field(s, Fixup2::Text(code));
            self.field(s, target);
            let offset = self.object.append(s, &[0; 8]);
            let (kind, symbol, addend) = (RelocType::Pc64, self.zero, key as i64);
            self.object.relocate(
                s,
                Relocation {
                    offset,
                    kind,
                    symbol,
                    addend,
                },
            );
        }
    }

    /// `struct static_call_site`: s32 address, key with flags (include/linux/static_call_types.h).
    fn static_call_sites(&mut self) {
        if self.static_calls.is_empty() {
            return;
        }
        let s = self.object.section(".static_call_sites", true, false, 8);
        for (addr, key) in std::mem::take(&mut self.static_calls) {
            self.field(s, Fixup2::Text(addr));
            self.field(s, Fixup2::Kernel(key));
        }
    }

    /// Two parallel tables: s32 address, 6-byte entry (arch/x86/kernel/unwind_orc.c sorts them for a module).
    fn orc_tables(&mut self) {
        if self.orc.is_empty() {
            return;
        }
        let ip = self.object.section(".orc_unwind_ip", false, false, 4);
        let unwind = self.object.section(".orc_unwind", false, false, 2);
        for (at, raw) in std::mem::take(&mut self.orc) {
            self.field(ip, Fixup2::Text(at));
            self.object.append(unwind, &raw);
        }
    }

    /// See [`RETURNS`].
    fn return_addresses(&mut self) {
        if self.returns.is_empty() {
            return;
        }
        let s = self.object.section(RETURNS, false, false, 8);
        let all = std::mem::take(&mut self.returns);
        self.object.append(s, &(all.len() as u64).to_le_bytes());
        for (offset, original) in all {
            self.object.append(s, &(offset as u32).to_le_bytes());
            self.object.append(s, &(original as u32).to_le_bytes());
        }
    }

    /// See [`HITS`].
    fn hit_bytes(&mut self) {
        let Some(last) = self.hits.iter().map(|(_, flag)| *flag).max() else {
            return;
        };
        let s = self.object.section(HITS, true, false, 64);
        self.object.append(s, &vec![0; last as usize + 1]);
        let symbol = self.object.section_symbol(s);
        // The displacement counts from the end of the instruction.
        let back = i64::from(HitSite::LEN - HitSite::FIELD);
        for (offset, flag) in std::mem::take(&mut self.hits) {
            self.object.relocate(
                self.text,
                Relocation {
                    offset,
                    kind: RelocType::Pc32,
                    symbol,
                    addend: i64::from(flag) - back,
                },
            );
        }
    }

    /// One `struct modversion_info` {unsigned long crc; char name[56]} (include/linux/moduleparam.h).
    fn versions(&mut self) {
        let Some(crc) = self.info.layout_crc else {
            return;
        };
        let s = self.object.section("__versions", false, false, 32);
        let mut entry = [0u8; 64];
        let fields = u64::from(crc)
            .to_le_bytes()
            .into_iter()
            .chain(*b"module_layout");
        entry
            .iter_mut()
            .zip(fields)
            .for_each(|(to, from)| *to = from);
        self.object.append(s, &entry);
    }

    fn this_module(&mut self) {
        let s = self
            .object
            .section(".gnu.linkonce.this_module", true, false, 64);
        let mut image = vec![0u8; usize::try_from(self.info.struct_module_size).unwrap_or(0)];
        let at = usize::try_from(self.info.name_offset).unwrap_or(usize::MAX);
        let name = image.iter_mut().skip(at);
        name.zip(self.info.name.bytes())
            .for_each(|(to, from)| *to = from);
        self.object.append(s, &image);
        let place = Place::Section(s, 0);
        let (name, size) = ("__this_module".to_string(), image.len() as u64);
        self.object.symbol(elf::Symbol {
            name,
            place,
            size,
            names: Names::Object,
            global: true,
        });
    }
}
