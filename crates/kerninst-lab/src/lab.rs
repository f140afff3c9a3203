//! The lab's front door: describe a guest, run it.

use crate::cache::{Cache, Scratch};
use crate::error::{At, Error, Result};
use crate::initramfs::{self, Contents, GuestFile, Task};
use crate::kernel::KernelImage;
use crate::machine::{End, Machine, Sink, Word};
use crate::meter::Meter;
use crate::outcome::Outcome;
use crate::port::{self, Port, PortName};
use crate::qemu::{self, Hardware, Ports};
use crate::{Accel, guest::Guest};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A guest to be booted. Setters take and return it; [`Lab::run`] may be called again and again, each time a fresh boot.
#[derive(Debug, Clone)]
pub struct Lab {
    kernel: KernelImage,
    hardware: Hardware,
    append: Vec<String>,
    files: Vec<GuestFile>,
    inline: Vec<(String, u32, Vec<u8>)>,
    load: Vec<String>,
    carry: Vec<String>,
    timeout: Duration,
    meter: Option<Meter>,
    interrupt: Option<Arc<AtomicBool>>,
}

/// A started guest and what must live as long.
pub(crate) struct Started {
    pub(crate) machine: Machine,
    pub(crate) since: Instant,
    meter: Option<(Meter, std::path::PathBuf)>,
    _dir: Scratch,
}

impl Lab {
    /// A guest with this kernel, one CPU, 1 GiB and a timeout of two minutes.
    pub fn new(kernel: KernelImage) -> Lab {
        Lab {
            kernel,
            hardware: Hardware::default(),
            append: Vec::new(),
            files: Vec::new(),
            inline: Vec::new(),
            load: Vec::new(),
            carry: Vec::new(),
            timeout: Duration::from_secs(120),
            meter: None,
            interrupt: None,
        }
    }

    /// A guest with the kernel of that name or path, fetched into the standard cache if needed.
    pub fn named(name: &str) -> Result<Lab> {
        let cache = Cache::standard()?;
        let kernel = KernelImage::find(name, None, &cache, &mut |text| {
            eprintln!("kerninst-lab: {text}")
        })?;
        Ok(Lab::new(kernel))
    }

    /// The kernel.
    pub fn kernel(&self) -> &KernelImage {
        &self.kernel
    }

    /// Number of virtual CPUs.
    pub fn smp(mut self, count: u32) -> Lab {
        self.hardware.smp = count;
        self
    }

    /// Memory in MiB.
    pub fn mem(mut self, mib: u32) -> Lab {
        self.hardware.mem = mib;
        self
    }

    /// QEMU's processor model.
    pub fn cpu(mut self, model: impl Into<String>) -> Lab {
        self.hardware.cpu = Some(model.into());
        self
    }

    /// The accelerator.
    pub fn accel(mut self, accel: Accel) -> Lab {
        self.hardware.accel = accel;
        self
    }

    /// More words for the kernel's command line.
    pub fn append(mut self, words: impl Into<String>) -> Lab {
        self.append.push(words.into());
        self
    }

    /// A file of this machine for the guest; a `guest` path of `None` means `/bin/NAME` if executable, else `/root/NAME`.
    pub fn file(mut self, host: impl AsRef<Path>, guest: Option<&str>) -> Result<Lab> {
        let host = host.as_ref();
        let text = host.display().to_string();
        let mut file = GuestFile::parse(&text)?;
        if let Some(guest) = guest {
            file.guest = guest.to_string();
        }
        self.files.push(file);
        Ok(self)
    }

    /// Files of this machine for the guest.
    pub fn files(mut self, files: impl IntoIterator<Item = GuestFile>) -> Lab {
        self.files.extend(files);
        self
    }

    /// A file for the guest given by its bytes, at an absolute path, with permission bits.
    pub fn inline_file(
        mut self,
        guest: impl Into<String>,
        mode: u32,
        data: impl Into<Vec<u8>>,
    ) -> Lab {
        self.inline.push((guest.into(), mode, data.into()));
        self
    }

    /// A kernel module to be loaded at boot, with all it depends on.
    pub fn load_module(mut self, name: impl Into<String>) -> Lab {
        self.load.push(name.into());
        self
    }

    /// A kernel module to be there for `modprobe`, with all it depends on.
    pub fn carry_module(mut self, name: impl Into<String>) -> Lab {
        self.carry.push(name.into());
        self
    }

    /// How long the guest may take, boot included.
    pub fn timeout(mut self, timeout: Duration) -> Lab {
        self.timeout = timeout;
        self
    }

    /// The same run gives the same instructions (`-icount` and what else it takes; see [`Hardware::deterministic`]).
    pub fn deterministic(mut self, on: bool) -> Lab {
        self.hardware.deterministic = on;
        self
    }

    /// Seed of the guest's randomness, KASLR included.
    pub fn seed(mut self, seed: u64) -> Lab {
        self.hardware.seed = Some(seed);
        self
    }

    /// Counts instructions with the meter plugin.
    pub fn meter(mut self, meter: Meter) -> Lab {
        self.meter = Some(meter);
        self
    }

    /// A flag that ends the guest when set, e.g. by a signal handler; the run then fails with [`Error::Interrupted`].
    pub fn interrupt(mut self, flag: Arc<AtomicBool>) -> Lab {
        self.interrupt = Some(flag);
        self
    }

    /// Boots, runs a line of shell, and returns what became of it.
    pub fn run(&self, command: &str) -> Result<Outcome> {
        self.run_words(&[command.to_string()], &mut |_, _| {})
    }

    /// Boots and runs a command: one word is a line of shell, several are a program with its arguments. `sink` gets all
    /// output as it comes.
    pub fn run_words(&self, words: &[String], sink: &mut Sink<'_>) -> Result<Outcome> {
        let mut started = self.start(&Task::Run(words.to_vec()))?;
        let deadline = started.since + self.timeout;
        let end = loop {
            if let Some(end) = started.machine.step(deadline, None, sink)? {
                break end;
            }
        };
        started.outcome(end)
    }

    /// Boots a guest that takes commands one after the other: many tests for the price of one boot.
    pub fn boot(&self) -> Result<Guest> {
        if self.hardware.deterministic {
            return Err(Error::Unsupported(
                "a deterministic guest takes no commands from outside (they come at no fixed instruction): use run".into(),
            ));
        }
        Guest::boot(self.start(&Task::Session)?, self.timeout)
    }

    /// Starts QEMU with the guest.
    pub(crate) fn start(&self, task: &Task) -> Result<Started> {
        let program = qemu::program()?;
        let dir = Scratch::new(&std::env::temp_dir(), "kerninst-lab-")?;
        let initrd = dir.path().join("initrd");
        let (bytes, warnings) = initramfs::build(&Contents {
            kernel: &self.kernel,
            task,
            files: &self.files,
            inline: &self.inline,
            load: &self.load,
            carry: &self.carry,
        })?;
        for warning in warnings {
            eprintln!("kerninst-lab: {warning}");
        }
        std::fs::write(&initrd, bytes).at("write", &initrd)?;
        let meter = self.meter.clone().map(|m| {
            let out = dir.path().join("meter");
            (m, out)
        });
        let plugin = meter.as_ref().map(|(m, out)| m.argument(out)).transpose()?;
        let paths = port::paths(dir.path());
        let ports = if self.hardware.deterministic {
            Ports::Files(&paths)
        } else {
            Ports::Sockets(&paths)
        };
        let args = qemu::arguments(
            &self.hardware,
            &self.kernel.image,
            self.kernel.series(),
            &initrd,
            &self.append,
            plugin.as_deref(),
            &ports,
        )?;
        let open = |path: &std::path::PathBuf| match ports {
            Ports::Sockets(_) => Port::socket(path),
            Ports::Files(_) => Port::file(path),
        };
        let [a, b, c, d] = &paths;
        let opened = [open(a)?, open(b)?, open(c)?, open(d)?];
        let since = Instant::now();
        let machine = Machine::start(&program, &args, opened, dir.path(), self.interrupt.clone())?;
        Ok(Started {
            machine,
            since,
            meter,
            _dir: dir,
        })
    }

    /// How long the guest may take.
    pub(crate) fn time(&self) -> Duration {
        self.timeout
    }
}

impl Started {
    /// Gathers what became of the guest, which has ended.
    pub(crate) fn outcome(mut self, end: End) -> Result<Outcome> {
        self.outcome_so_far(end)
    }

    /// The same, for a guest whose directory must live on.
    pub(crate) fn outcome_so_far(&mut self, end: End) -> Result<Outcome> {
        while let Some(word) = self.machine.word() {
            if let Word::ModuleFailed(path) = word {
                eprintln!(
                    "kerninst-lab: the guest's kernel refused the module {path}; its messages are on the console"
                );
            }
        }
        let crash = self.machine.verdict(end);
        let text = |machine: &Machine, port: PortName| {
            machine
                .logs
                .get(port as usize)
                .map(|log| String::from_utf8_lossy(log).into_owned())
                .unwrap_or_default()
        };
        let meter = match &self.meter {
            Some((meter, out)) => {
                let whole = end == End::Exited && crash.is_none();
                Some(meter.read(out, whole)?)
            }
            None => None,
        };
        Ok(Outcome {
            status: self.machine.exit(),
            stdout: text(&self.machine, PortName::Out),
            stderr: text(&self.machine, PortName::Err),
            console: text(&self.machine, PortName::Console).replace('\r', ""),
            crash,
            timed_out: end == End::TimedOut,
            warnings: self.machine.warnings().to_vec(),
            meter,
            truncated: self.machine.truncated,
            elapsed: self.since.elapsed(),
        })
    }
}
