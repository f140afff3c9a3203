//! Loaded modules.

use std::ops::Range;
use std::sync::OnceLock;

use crate::live::sysfs;

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
    /// Address of its `struct module` (live kernel).
    pub struct_addr: Option<u64>,
    /// Read from sysfs on first use, where the kernel is live.
    sections: OnceLock<Vec<Section>>,
    build_id: OnceLock<Option<Vec<u8>>>,
    live: bool,
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
    /// A module in state live with this text.
    #[must_use]
    pub fn new(name: &str, text: Range<u64>) -> Self {
        Self {
            name: name.into(),
            base: text.start,
            size: text.end.saturating_sub(text.start),
            text: vec![text],
            ..Self::default()
        }
    }
    /// Says that this module is in the running kernel: its sections and build id are in `/sys/module`.
    pub(crate) fn set_live(&mut self) {
        self.live = true;
    }
    pub(crate) fn set_sections(&mut self, sections: Vec<Section>, build_id: Option<Vec<u8>>) {
        self.sections = OnceLock::from(sections);
        self.build_id = OnceLock::from(build_id);
    }
    /// Its sections by address; empty where neither file nor sysfs tells.
    #[must_use]
    pub fn sections(&self) -> &[Section] {
        self.sections.get_or_init(|| {
            if self.live {
                sysfs::module_sections(&self.name)
            } else {
                Vec::new()
            }
        })
    }
    /// Its GNU build id, if it has one.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id
            .get_or_init(|| {
                if self.live {
                    sysfs::module_build_id(&self.name)
                } else {
                    None
                }
            })
            .as_deref()
    }
    /// Its section of this name.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections().iter().find(|s| s.name == name)
    }
}
