//! `/dev/kerninst`, typed.

use crate::abi::{self, cmd, refused};
use crate::area::Area;
use crate::modules::PatchText;
use crate::sys;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Path of the device node.
const NODE: &str = "/dev/kerninst";

/// Why the device does not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Another process has it.
    #[error("another kerninst is at work{}: wait for it, or end it", owner_text(*.0))]
    InUse(Option<i32>),
    /// There is no device.
    #[error("the driver is loaded but {NODE} cannot be opened: {0}{hint}", hint = root_hint(.0))]
    Open(io::Error),
    /// Something else answers there.
    #[error(
        "{NODE} is not kerninst's driver: remove that file (or the module that made it), then run `kerninst reset`"
    )]
    Foreign,
    /// The loaded driver is another version's.
    #[error(
        "the loaded driver speaks version {found}, this program {}: run `kerninst reset` with the program that loaded it",
        abi::ABI_VERSION
    )]
    Version {
        /// The driver's version.
        found: u32,
    },
    /// There is not so much memory.
    #[error("the kernel has not enough memory for {} KiB of data{}", .bytes.div_ceil(1024), available_text())]
    NoMemory {
        /// What was asked for.
        bytes: u64,
    },
    /// More than the driver gives at once, or nothing: a fault of this program.
    #[error(
        "an area of {bytes} bytes cannot be made: 1 to {} can",
        abi::MAX_MAPPED
    )]
    AreaSize {
        /// What was asked for.
        bytes: u64,
    },
    /// Not a BPF program that can run at a point.
    #[error(
        "this BPF program cannot run at a point: only programs of type kprobe can, for one place each, that do not sleep"
    )]
    Program,
    /// The kernel has no BPF.
    #[error(
        "this kernel has no BPF, or BTF that does not describe it: no BPF program can be attached"
    )]
    NoBpf,
    /// An area cannot be mapped.
    #[error("the driver's memory could not be mapped: {0}")]
    Map(io::Error),
    /// An ioctl failed.
    #[error("the driver could not {what}: {source}")]
    Ioctl {
        /// What was asked.
        what: &'static str,
        /// The answer.
        source: io::Error,
    },
}

fn root_hint(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::PermissionDenied => " (run as root)",
        _ => "",
    }
}

fn available_text() -> String {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    match line.and_then(|l| l.trim().strip_suffix(" kB")) {
        Some(number) => format!(" ({number} KiB are available)"),
        None => String::new(),
    }
}

fn owner_text(owner: Option<i32>) -> String {
    match owner {
        Some(pid) if pid > 0 => {
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!(" (process {pid}, {})", comm.trim())
        }
        _ => String::new(),
    }
}

/// Why a batch of sites was not written.
#[derive(Debug, thiserror::Error)]
pub enum PokeError {
    /// One site was refused, so none was written.
    #[error("nothing was armed: at {addr:#x} {why}")]
    Refused {
        /// Address of the site.
        addr: u64,
        /// Its reason.
        why: Why,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Reason of a refused site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Other bytes than expected.
    Bytes,
    /// A kprobe is there.
    Kprobe,
    /// No kernel text.
    NotText,
    /// The request is wrong: a fault of this program.
    Malformed,
    /// Its module, or the patch module, is going.
    Module,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Why::Bytes => "the kernel's text was changed meanwhile by somebody else: try again",
            Why::Kprobe => "there is a kprobe (see /sys/kernel/debug/kprobes/list): remove it or choose another point",
            Why::NotText => "there is no kernel text",
            Why::Malformed => "the request is malformed: please report this fault of kerninst",
            Why::Module => "the module is being unloaded",
        })
    }
}

/// Number of a batch of sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(pub u64);

/// What became of a batch's sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Sites that somebody else has written over, so that they were left alone.
    pub stuck: u32,
    /// Sites whose module was unloaded.
    pub gone: u32,
}

/// An area of per-CPU counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterArea {
    /// Per-CPU pointer: counter `i` of this CPU is the quadword at `gs:pointer + 8 * i`.
    pub pointer: u64,
    /// Number of 64-bit counters.
    pub counters: u32,
}

/// The open device. One process at a time may have it open for writing; closing it disarms.
#[derive(Debug)]
pub struct Device {
    file: OwnedFd,
    cpus: u32,
}

/// What [`Device::migrate`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Saved return addresses that were changed.
    pub moved: u32,
    /// Tasks among them whose visits could not be counted.
    pub unsure: u32,
}

impl Device {
    /// Opens it for arming.
    ///
    /// # Errors
    /// [`DeviceError::InUse`] names the other user.
    pub fn open() -> Result<Device, DeviceError> {
        match open_node(true) {
            Ok(file) => Device::check(file),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                let owner = Device::observe()
                    .and_then(|d| d.info())
                    .map(|i| i.owner)
                    .ok();
                Err(DeviceError::InUse(owner))
            }
            Err(e) => Err(DeviceError::Open(e)),
        }
    }

    /// Opens it for status only: works beside a client that arms.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn observe() -> Result<Device, DeviceError> {
        Device::check(open_node(false).map_err(DeviceError::Open)?)
    }

    fn check(file: OwnedFd) -> Result<Device, DeviceError> {
        let mut device = Device { file, cpus: 0 };
        let info = device.info().map_err(|e| match e {
            // No driver of ours ever lacked this request.
            DeviceError::Ioctl { source, .. }
                if matches!(source.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) =>
            {
                DeviceError::Foreign
            }
            other => other,
        })?;
        if info.abi != abi::ABI_VERSION {
            return Err(DeviceError::Version { found: info.abi });
        }
        device.cpus = info.cpus;
        Ok(device)
    }

    /// The driver's state.
    ///
    /// # Errors
    /// [`DeviceError::Ioctl`].
    pub fn info(&self) -> Result<abi::Info, DeviceError> {
        let mut info = abi::Info::default();
        self.call("tell its state", cmd::INFO, &mut info)?;
        Ok(info)
    }

    /// Writes sites, all or none, and pins the patch module they lead to. `checks` are bytes that must be as they were though
    /// they are not written.
    ///
    /// # Errors
    /// [`PokeError::Refused`] with the first site or check that fails: nothing was changed then.
    pub fn poke(
        &self,
        sites: &[abi::Site],
        checks: &[abi::Check],
        patch: &PatchText,
    ) -> Result<BatchId, PokeError> {
        let mut sites = sites.to_vec();
        sites.sort_by_key(|s| s.addr);
        let mut request = abi::Poke {
            sites: sites.as_ptr() as u64,
            checks: checks.as_ptr() as u64,
            count: u32::try_from(sites.len()).unwrap_or(u32::MAX),
            check_count: u32::try_from(checks.len()).unwrap_or(u32::MAX),
            refused: refused::NO,
            index: 0,
            module: [0; 56],
            text: patch.base,
            text_len: patch.len,
            batch: 0,
        };
        for (to, from) in request.module[..55].iter_mut().zip(patch.name.bytes()) {
            *to = from;
        }
        let result = self.call("arm", cmd::POKE, &mut request);
        let why = match request.refused {
            refused::BYTES => Why::Bytes,
            refused::KPROBE => Why::Kprobe,
            refused::NOT_TEXT => Why::NotText,
            refused::MALFORMED => Why::Malformed,
            refused::MODULE => Why::Module,
            _ => {
                result?;
                return Ok(BatchId(request.batch));
            }
        };
        let index = request.index as usize;
        let addr = match index.checked_sub(sites.len()) {
            None => sites.get(index).map_or(0, |s| s.addr),
            Some(check) => checks.get(check).map_or(0, |c| c.addr),
        };
        Err(PokeError::Refused { addr, why })
    }

    /// Puts the old bytes of a batch back (boards later, with [`Device::forget`]).
    ///
    /// # Errors
    /// [`DeviceError::Ioctl`].
    pub fn restore(&self, batch: BatchId) -> Result<RestoreReport, DeviceError> {
        let mut request = abi::Restore {
            batch: batch.0,
            ..Default::default()
        };
        self.call("disarm", cmd::RESTORE, &mut request)?;
        Ok(RestoreReport {
            stuck: request.stuck,
            gone: request.gone,
        })
    }

    /// Restores the boards of a batch that is down, unpins its patch module and drops it. Only after
    /// [`Device::prove_clear`] of the patch module and the boards. False: something of it is still armed.
    ///
    /// # Errors
    /// [`DeviceError::Ioctl`].
    pub fn forget(&self, batch: BatchId) -> Result<bool, DeviceError> {
        let mut request = abi::Forget { batch: batch.0 };
        match self.call("free a batch", cmd::FORGET, &mut request) {
            Ok(()) => Ok(true),
            Err(DeviceError::Ioctl { source, .. })
                if source.raw_os_error() == Some(libc::EBUSY) =>
            {
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// All batches, newest first.
    ///
    /// # Errors
    /// [`DeviceError::Ioctl`].
    pub fn batches(&self) -> Result<Vec<abi::Batch>, DeviceError> {
        let empty = abi::Batch {
            id: 0,
            owner: 0,
            sites: 0,
            armed: 0,
            stuck: 0,
            gone: 0,
            boards: 0,
            owned: 0,
            reserved: 0,
            text: 0,
            text_len: 0,
            module: [0; 56],
        };
        self.list(cmd::BATCHES, 0, empty)
    }

    /// The sites of a batch, by address.
    ///
    /// # Errors
    /// [`DeviceError::Ioctl`].
    pub fn sites(&self, batch: BatchId) -> Result<Vec<abi::SiteState>, DeviceError> {
        self.list(cmd::SITES, batch.0, abi::SiteState::default())
    }

    fn list<T: Copy>(&self, command: u32, batch: u64, empty: T) -> Result<Vec<T>, DeviceError> {
        let mut rows = vec![empty; 64];
        loop {
            let mut request = abi::List {
                batch,
                out: rows.as_mut_ptr() as u64,
                capacity: rows.len() as u32,
                count: 0,
            };
            self.call("list what is armed", command, &mut request)?;
            let count = request.count as usize;
            if count <= rows.len() {
                rows.truncate(count);
                return Ok(rows);
            }
            rows.resize(count + 16, empty);
        }
    }

    /// Allocates per-CPU counters, zeroed; at most [`abi::MAX_AREA`] / 8 at once.
    ///
    /// # Errors
    /// [`DeviceError::Ioctl`].
    pub fn alloc(&self, counters: u32) -> Result<CounterArea, DeviceError> {
        self.alloc_from(counters, false)
    }

    /// As [`Device::alloc`], with a pointer that fits a sign-extended 32-bit displacement: from the kernel's small reserve
    /// for modules; at most [`abi::MAX_NEAR`] / 8. It may be exhausted.
    ///
    /// # Errors
    /// [`DeviceError::Ioctl`].
    pub fn alloc_near(&self, counters: u32) -> Result<CounterArea, DeviceError> {
        self.alloc_from(counters, true)
    }

    fn alloc_from(&self, counters: u32, near: bool) -> Result<CounterArea, DeviceError> {
        let mut request = abi::Alloc {
            bytes: counters.saturating_mul(8),
            near: u32::from(near),
            pointer: 0,
        };
        self.call("allocate counters", cmd::ALLOC, &mut request)?;
        Ok(CounterArea {
            pointer: request.pointer,
            counters,
        })
    }

    /// Every possible CPU's counters: `rows[cpu][counter]`.
    ///
    /// # Errors
    /// [`DeviceError::Ioctl`].
    pub fn read(&self, area: CounterArea) -> Result<Vec<Vec<u64>>, DeviceError> {
        let width = area.counters as usize;
        let mut flat = vec![0u64; width * self.cpus as usize];
        let mut request = abi::Read {
            pointer: area.pointer,
            out: flat.as_mut_ptr() as u64,
        };
        self.call("read counters", cmd::READ, &mut request)?;
        Ok(flat.chunks(width.max(1)).map(<[u64]>::to_vec).collect())
    }

    /// Allocates memory that generated code may write, zeroed, and maps it: at least so many bytes, rounded up to pages. It
    /// belongs to this device, and is mapped as long as the [`Area`] lives.
    ///
    /// # Errors
    /// [`DeviceError::NoMemory`] before anybody else gets into need of it; [`DeviceError::AreaSize`], [`DeviceError::Map`],
    /// [`DeviceError::Ioctl`].
    pub fn area(&self, bytes: usize) -> Result<Area, DeviceError> {
        const PAGE: u64 = 4096;
        let asked = bytes as u64;
        let bytes = asked
            .checked_next_multiple_of(PAGE)
            .filter(|b| (1..=abi::MAX_MAPPED).contains(b))
            .ok_or(DeviceError::AreaSize { bytes: asked })?;
        let mut request = abi::Area {
            bytes,
            ..abi::Area::default()
        };
        match self.call("allocate memory", cmd::AREA, &mut request) {
            Err(DeviceError::Ioctl { source, .. })
                if source.raw_os_error() == Some(libc::ENOMEM) =>
            {
                return Err(DeviceError::NoMemory { bytes });
            }
            other => other?,
        }
        Area::map(&self.file, &request).map_err(DeviceError::Map)
    }

    /// Takes a reference on a loaded BPF program of type kprobe, which this device then holds, so that generated code may run it;
    /// gives what callout `bpf` takes.
    ///
    /// # Errors
    /// [`DeviceError::Program`], [`DeviceError::NoBpf`], [`DeviceError::Ioctl`].
    pub fn program(&self, fd: BorrowedFd<'_>) -> Result<u64, DeviceError> {
        let mut request = abi::Program {
            fd: fd.as_raw_fd() as u32,
            ..abi::Program::default()
        };
        match self.call("take a BPF program", cmd::PROGRAM, &mut request) {
            Ok(()) => Ok(request.address),
            Err(DeviceError::Ioctl { source, .. })
                if source.raw_os_error() == Some(libc::EINVAL) =>
            {
                Err(DeviceError::Program)
            }
            Err(DeviceError::Ioctl { source, .. })
                if source.raw_os_error() == Some(libc::EOPNOTSUPP) =>
            {
                Err(DeviceError::NoBpf)
            }
            Err(e) => Err(e),
        }
    }

    /// Addresses of the functions that generated code may call.
    ///
    /// # Errors
    /// [`DeviceError::Ioctl`].
    pub fn callouts(&self) -> Result<abi::Callouts, DeviceError> {
        let mut all = abi::Callouts::default();
        self.call("tell its callouts", cmd::CALLOUTS, &mut all)?;
        Ok(all)
    }

    /// One look at all other tasks' stacks for words in `ranges` (sorted and joined here); `settle`: see `abi::Scan`.
    pub(crate) fn scan(
        &self,
        ranges: &[(u64, u64)],
        settle: bool,
    ) -> Result<Vec<abi::Task>, DeviceError> {
        let mut list: Vec<[u64; 2]> = ranges
            .iter()
            .filter(|r| r.0 < r.1)
            .map(|r| [r.0, r.1])
            .collect();
        list.sort_unstable();
        list.dedup_by(|next, last| {
            let joined = next[0] <= last[1];
            if joined {
                last[1] = last[1].max(next[1]);
            }
            joined
        });
        let mut tasks = vec![abi::Task::default(); 1024];
        loop {
            let mut request = abi::Scan {
                list: list.as_ptr() as u64,
                ranges: list.len() as u32,
                capacity: tasks.len() as u32,
                out: tasks.as_mut_ptr() as u64,
                count: 0,
                settle: u32::from(settle),
            };
            self.call("look through the tasks", cmd::SCAN, &mut request)?;
            let count = request.count as usize;
            if count <= tasks.len() {
                tasks.truncate(count);
                return Ok(tasks);
            }
            tasks.resize(count + count / 4, abi::Task::default());
        }
    }

    /// Lets tasks that sleep below a call of a version of `batch` return to the original: see [`abi::Migrate`]. Each pair
    /// tells its own share.
    ///
    /// # Errors
    /// [`DeviceError::Ioctl`]: the batch is still armed, or a pair is not of its text. Nothing is changed then.
    pub fn migrate(
        &self,
        batch: BatchId,
        pairs: &mut [abi::Pair],
    ) -> Result<Migrated, DeviceError> {
        let mut all = Migrated::default();
        for part in pairs.chunks_mut(abi::MAX_PAIRS as usize) {
            let mut request = abi::Migrate {
                batch: batch.0,
                list: part.as_mut_ptr() as u64,
                pairs: part.len() as u32,
                ..abi::Migrate::default()
            };
            self.call("let tasks return to originals", cmd::MIGRATE, &mut request)?;
            all.moved += request.moved;
            all.unsure += request.unsure;
        }
        Ok(all)
    }

    fn call<T: Copy>(
        &self,
        what: &'static str,
        command: u32,
        argument: &mut T,
    ) -> Result<(), DeviceError> {
        // SAFETY: every caller above passes the type that `abi::cmd` documents for its command, with addresses of
        // buffers that live across the call and have the stated sizes.
        unsafe { sys::ioctl(&self.file, command, argument) }
            .map_err(|source| DeviceError::Ioctl { what, source })
    }
}

/// Opens the node; makes it first where no devtmpfs did.
fn open_node(write: bool) -> io::Result<OwnedFd> {
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(libc::O_CLOEXEC)
            .open(NODE)
    };
    match open() {
        Err(e)
            if e.kind() == io::ErrorKind::NotFound
                && Path::new("/sys/class/misc/kerninst/dev").exists() =>
        {
            sys::make_node(
                NODE,
                &std::fs::read_to_string("/sys/class/misc/kerninst/dev")?,
            )?;
            open()
        }
        other => other,
    }
    .map(OwnedFd::from)
}
