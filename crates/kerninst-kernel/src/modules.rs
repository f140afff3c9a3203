//! Loaded modules.

use std::ops::Range;

/// A loaded module (or the module that a `.ko` file holds).
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Start of its text.
    pub base: u64,
    /// Bytes it occupies in all, as /proc/modules tells.
    pub size: u64,
    /// Reference count; `None` where the kernel does not tell.
    pub refs: Option<u32>,
    /// State.
    pub state: ModuleState,
    /// Modules that use it.
    pub used_by: Vec<String>,
    /// Its text: core text first, then init text while that is still there.
    pub text: Vec<Range<u64>>,
    /// Build id note, if it has one.
    pub build_id: Option<Vec<u8>>,
    /// Its sections with their addresses.
    pub sections: Vec<Section>,
    /// Address of its `struct module` (live kernel).
    pub struct_addr: Option<u64>,
}

/// Life of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModuleState {
    /// In use.
    #[default]
    Live,
    /// Being loaded.
    Coming,
    /// Being removed.
    Going,
}

/// A section of a module or image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name, such as `.text`.
    pub name: String,
    /// Address in kernel memory.
    pub addr: u64,
    /// Size in bytes where known (a live kernel does not tell).
    pub size: Option<u64>,
}

impl Module {
    /// Its section of this name.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.name == name)
    }
}
