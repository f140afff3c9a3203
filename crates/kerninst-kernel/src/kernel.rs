//! [`Kernel`]: one picture of a kernel.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use crate::memory::Segments;
use crate::{Btf, Error, Memory, Module, OffLimits, Symbols, SymbolsBuilder, Tables, Text};

/// A value made on first use.
pub(crate) type Lazy<T> = LazyLock<T, Box<dyn FnOnce() -> T + Send>>;

pub(crate) fn lazy<T>(make: impl FnOnce() -> T + Send + 'static) -> Lazy<T> {
    LazyLock::new(Box::new(make))
}

/// A picture of a kernel: the running one, or one in a file.
///
/// Symbols and modules are there from the start; text, tables, types and what is off limits are read when first
/// asked for, and then stay as they were.
pub struct Kernel {
    pub(crate) live: bool,
    pub(crate) release: Option<String>,
    pub(crate) build_id: Option<Vec<u8>>,
    pub(crate) symbols: Arc<Symbols>,
    pub(crate) text: Arc<Lazy<Vec<Text>>>,
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) tables: Lazy<Tables>,
    pub(crate) modules: Arc<Vec<Module>>,
    pub(crate) btf: Arc<Lazy<Option<Btf>>>,
    pub(crate) off_limits: Lazy<OffLimits>,
    pub(crate) code_pointers: Lazy<Vec<u64>>,
    pub(crate) remarks: Vec<String>,
    /// Where it is not in kernel memory: that of a module file.
    pub(crate) vermagic: Option<String>,
}

impl Kernel {
    /// The running kernel: needs root.
    ///
    /// # Errors
    /// [`Error::AddressesHidden`], [`Error::Io`], [`Error::Unsupported`].
    pub fn live() -> Result<Kernel, Error> {
        crate::live::kernel()
    }
    /// A kernel or module in a file.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NotAKernel`], [`Error::Corrupt`].
    pub fn from_file(path: &Path) -> Result<Kernel, Error> {
        crate::file::kernel(path)
    }
    /// A kernel made of values: for tests and tools.
    #[must_use]
    pub fn builder() -> KernelBuilder {
        KernelBuilder::default()
    }
    /// The running kernel?
    #[must_use]
    #[inline]
    pub fn is_live(&self) -> bool {
        self.live
    }
    /// Release, as `uname -r` prints it.
    #[must_use]
    pub fn release(&self) -> Option<&str> {
        self.release.as_deref()
    }
    /// GNU build id.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }
    /// All symbols.
    #[must_use]
    #[inline]
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }
    /// Executable ranges: the core kernel's first, then modules', each group by address.
    #[must_use]
    #[inline]
    pub fn text(&self) -> &[Text] {
        &self.text
    }
    /// The executable range that holds `addr`.
    #[must_use]
    #[inline]
    pub fn text_at(&self, addr: u64) -> Option<&Text> {
        self.text().iter().find(|t| t.range().contains(&addr))
    }
    /// Bytes of text, as they were at the snapshot. See [`Kernel::read`] for other memory.
    #[must_use]
    #[inline]
    pub fn bytes(&self, addr: u64, len: usize) -> Option<&[u8]> {
        self.text_at(addr)?.get(addr, len)
    }
    /// Any kernel memory, as it is now.
    ///
    /// # Errors
    /// [`Error::Unmapped`], [`Error::Io`].
    pub fn read(&self, addr: u64, len: usize) -> Result<Vec<u8>, Error> {
        self.memory.read(addr, len)
    }
    /// The site tables.
    #[must_use]
    #[inline]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }
    /// Loaded modules.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }
    /// Type information, if the kernel has it.
    #[must_use]
    pub fn btf(&self) -> Option<&Btf> {
        (**self.btf).as_ref()
    }
    /// Was the kernel rewriting one of its own sites (a static key's, a static call's, ftrace's) when the text was read? Such a
    /// site begins with an int3 for a moment (arch/x86/kernel/alternative.c, `text_poke_bp_batch`).
    #[must_use]
    pub fn was_rewriting(&self) -> bool {
        let tables = self.tables();
        let hidden = |addr: u64| self.bytes(addr, 1) == Some(&[0xcc]);
        tables.jump_labels.entries().iter().any(|e| hidden(e.code))
            || tables.static_calls.entries().iter().any(|e| hidden(e.addr))
            || tables.fentry.entries().iter().any(|e| hidden(e.addr))
    }
    /// Is this data that is read-only since boot, or since its module was initialised (`__ro_after_init`,
    /// include/linux/cache.h)? A static key there never changes again, and nobody may link anything to it.
    #[must_use]
    pub fn is_sealed(&self, addr: u64) -> bool {
        let bound = |name| self.symbols().addr_of(name);
        let core = bound("__start_ro_after_init").zip(bound("__end_ro_after_init"));
        if core.is_some_and(|(start, end)| (start..end).contains(&addr)) {
            return true;
        }
        // A live kernel does not tell how long sections are: the last one that begins before.
        let sections = self.modules().iter().flat_map(|m| m.sections());
        let before = sections.filter(|s| s.addr <= addr);
        let last = before.max_by_key(|s| s.addr);
        last.is_some_and(|s| s.name == ".data..ro_after_init")
    }
    /// Text that must not be instrumented.
    #[must_use]
    pub fn off_limits(&self) -> &OffLimits {
        &self.off_limits
    }
    /// Addresses inside functions (not of any code symbol) that words of read-only data hold: possible targets of a
    /// computed goto, such as the BPF interpreter's. Sorted; some may be there by chance. A live kernel's are looked for in
    /// the core kernel's and the modules' read-only data.
    #[must_use]
    pub fn code_pointers(&self) -> &[u64] {
        &self.code_pointers
    }
    /// [`Kernel::code_pointers`] into `range`.
    #[must_use]
    pub fn code_pointers_in(&self, range: std::ops::Range<u64>) -> &[u64] {
        let all = self.code_pointers();
        let from = all.partition_point(|&a| a < range.start);
        let to = all.partition_point(|&a| a < range.end).max(from);
        all.get(from..to).unwrap_or(&[])
    }
    /// What could not be read the usual way, in sentences; empty when all went well.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }
    /// The kernel's `vermagic` string, which a module must carry.
    #[must_use]
    pub fn vermagic(&self) -> Option<String> {
        self.vermagic
            .clone()
            .or_else(|| crate::exports::vermagic(&self.symbols, &*self.memory))
    }
    /// The version checksum of an exported symbol (`CONFIG_MODVERSIONS`), such as `module_layout`.
    #[must_use]
    pub fn symbol_crc(&self, name: &str) -> Option<u32> {
        crate::exports::symbol_crc(&self.symbols, &*self.memory, name)
    }
}

/// Makes a [`Kernel`] of values.
#[derive(Default)]
pub struct KernelBuilder {
    live: bool,
    release: Option<String>,
    symbols: SymbolsBuilder,
    text: Vec<Text>,
    memory: Segments,
    tables: Tables,
    modules: Vec<Module>,
    off_limits: OffLimits,
    code_pointers: Vec<u64>,
}

impl KernelBuilder {
    /// Sets the release.
    #[must_use]
    pub fn release(mut self, release: &str) -> Self {
        self.release = Some(release.to_string());
        self
    }
    /// Adds a core symbol; `letter` as in kallsyms: `t`, `T`, `d` …
    #[must_use]
    pub fn symbol(mut self, name: &str, addr: u64, letter: char) -> Self {
        self.symbols.add(name, addr, None, letter as u8, None);
        self
    }
    /// Adds a module's symbol.
    #[must_use]
    pub fn module_symbol(mut self, module: &str, name: &str, addr: u64, letter: char) -> Self {
        self.symbols
            .add(name, addr, None, letter as u8, Some(module));
        self
    }
    /// Adds core kernel text.
    #[must_use]
    #[inline]
    pub fn text(self, start: u64, bytes: &[u8]) -> Self {
        self.add_text(Text {
            module: None,
            start,
            bytes: bytes.to_vec(),
            init: false,
        })
    }
    /// Adds any text.
    #[must_use]
    pub fn add_text(mut self, text: Text) -> Self {
        self.symbols.limit(text.range());
        self.memory.add(text.start, text.bytes.clone());
        self.text.push(text);
        self
    }
    /// Adds data memory for [`Kernel::read`].
    #[must_use]
    pub fn data(mut self, start: u64, bytes: &[u8]) -> Self {
        self.memory.add(start, bytes.to_vec());
        self
    }
    /// Sets the site tables.
    #[must_use]
    #[inline]
    pub fn tables(mut self, tables: Tables) -> Self {
        self.tables = tables;
        self
    }
    /// Adds a module.
    #[must_use]
    pub fn module(mut self, module: Module) -> Self {
        self.modules.push(module);
        self
    }
    /// Sets what is off limits.
    #[must_use]
    pub fn off_limits(mut self, off_limits: OffLimits) -> Self {
        self.off_limits = off_limits;
        self
    }
    /// Adds an address to [`Kernel::code_pointers`].
    #[must_use]
    pub fn code_pointer(mut self, addr: u64) -> Self {
        let at = self.code_pointers.partition_point(|&a| a < addr);
        self.code_pointers.insert(at, addr);
        self
    }
    /// Makes [`Kernel::is_live`] say yes.
    #[must_use]
    pub fn live(mut self) -> Self {
        self.live = true;
        self
    }
    /// The kernel.
    #[must_use]
    pub fn build(mut self) -> Kernel {
        self.text.sort_by_key(|t| (t.module.is_some(), t.start));
        let text = self.text;
        Kernel {
            live: self.live,
            release: self.release,
            build_id: None,
            symbols: Arc::new(self.symbols.build()),
            text: Arc::new(lazy(move || text)),
            memory: Arc::new(self.memory),
            tables: lazy(move || self.tables),
            modules: Arc::new(self.modules),
            btf: Arc::new(lazy(|| None)),
            off_limits: lazy(move || self.off_limits),
            code_pointers: lazy(move || self.code_pointers),
            remarks: Vec::new(),
            vermagic: None,
        }
    }
}
