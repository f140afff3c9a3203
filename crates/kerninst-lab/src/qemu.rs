//! The QEMU command line for a guest.

use crate::accel::Accel;
use crate::error::{Error, Result};
use crate::program::Program;
use std::path::{Path, PathBuf};

/// The emulated processor: all that QEMU has but `cmpxchg16b`. QEMU before 8.0 leaves operands of earlier instructions in
/// EFLAGS after it (target/i386/tcg/translate.c calls the helper without writing `cc_op` back first), up to the trap,
/// direction and nested-task flags: whoever saves the flags there and restores them, as a snippet does, crashes the guest.
/// Kernels without it call a function that does the same (arch/x86/lib/cmpxchg16b_emu.S).
const EMULATED_CPU: &str = "max,-cx16";

/// Where the lab takes QEMU from if it is not the `qemu-system-x86_64` in PATH.
pub const QEMU_VARIABLE: &str = "KERNINST_LAB_QEMU";

/// The virtual machine, without what is in it.
#[derive(Debug, Clone)]
pub struct Hardware {
    /// Number of virtual CPUs.
    pub smp: u32,
    /// Memory in MiB.
    pub mem: u32,
    /// QEMU's processor model; `None`: `max` under TCG, `host` under KVM.
    pub cpu: Option<String>,
    /// How instructions are executed.
    pub accel: Accel,
    /// Guest time and all else follows from the instructions executed: the same run gives the same figures, to the last
    /// instruction.
    pub deterministic: bool,
    /// Seed of what the guest sees as randomness (KASLR included). `None`: truly random, or 1 if deterministic.
    pub seed: Option<u64>,
}

impl Default for Hardware {
    fn default() -> Self {
        Hardware {
            smp: 1,
            mem: 1024,
            cpu: None,
            accel: Accel::Auto,
            deterministic: false,
            seed: None,
        }
    }
}

/// How the four serial ports reach this process.
pub(crate) enum Ports<'a> {
    /// UNIX sockets that this process listens on.
    Sockets(&'a [PathBuf; 4]),
    /// Files that QEMU writes; never blocks, so the guest's time does not depend on the reader.
    Files(&'a [PathBuf; 4]),
}

/// QEMU's program file.
pub(crate) fn program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(QEMU_VARIABLE).filter(|v| !v.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    Program::find(
        "qemu-system-x86_64",
        "guests run in it: install it (apt-get install qemu-system-x86)",
    )
    .map(|p| p.path().to_path_buf())
}

/// All arguments but the program's name.
pub(crate) fn arguments(
    hardware: &Hardware,
    kernel: &Path,
    series: Option<(u32, u32)>,
    initrd: &Path,
    append: &[String],
    plugin: Option<&str>,
    ports: &Ports<'_>,
) -> Result<Vec<String>> {
    if hardware.smp == 0 || hardware.smp > 64 {
        return Err(Error::Unsupported(format!(
            "--smp {}: the lab boots guests with 1 to 64 CPUs",
            hardware.smp
        )));
    }
    if hardware.mem < 256 {
        return Err(Error::Unsupported(format!(
            "--mem {}: a stock kernel with the lab's initramfs needs at least 256 (MiB)",
            hardware.mem
        )));
    }
    let emulation_only = hardware.deterministic || plugin.is_some();
    let accel = match hardware.accel {
        Accel::Kvm if emulation_only => {
            return Err(Error::Unsupported(
                "--deterministic and --meter need emulation: use --accel tcg".into(),
            ));
        }
        Accel::Auto if emulation_only => Accel::Tcg,
        other => other.resolve()?,
    };
    if hardware.deterministic && hardware.smp > 1 && series.is_some_and(|s| s < (6, 12)) {
        return Err(Error::Unsupported(
            "kernels before 6.12 hang at boot with several CPUs in deterministic mode (icount): use --smp 1, or 6.12"
                .into(),
        ));
    }
    let mut args: Vec<String> = Vec::new();
    let mut put = |words: &[&str]| args.extend(words.iter().map(|w| w.to_string()));
    put(&[
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-machine",
        "pc",
    ]);
    let accel_text = match accel {
        Accel::Kvm => "kvm",
        _ if hardware.smp > 1 => "tcg,thread=single",
        _ => "tcg",
    };
    put(&["-accel", accel_text]);
    let cpu = hardware.cpu.as_deref().unwrap_or(match accel {
        Accel::Kvm => "host",
        _ => EMULATED_CPU,
    });
    put(&[
        "-cpu",
        cpu,
        "-smp",
        &hardware.smp.to_string(),
        "-m",
        &hardware.mem.to_string(),
    ]);
    let mut seed = hardware.seed;
    if hardware.deterministic {
        put(&[
            "-icount",
            "shift=0,sleep=off",
            "-rtc",
            "clock=vm,base=2024-01-01",
        ]);
        seed = Some(seed.unwrap_or(1));
    }
    if let Some(seed) = seed {
        put(&["-seed", &seed.to_string()]);
    }
    // Without the test whether the timer's interrupts arrive: it compares emulated with real time, and a busy host fails it ("IO-APIC +
    // timer doesn't work!"). Guests of KVM leave it out by themselves (arch/x86/kernel/kvm.c).
    let timer: &[&str] = match accel {
        Accel::Kvm => &[],
        _ => &["no_timer_check"],
    };
    let words: Vec<&str> = [
        "console=ttyS0",
        "loglevel=5",
        "panic=-1",
        "8250.nr_uarts=4",
        "rdinit=/init",
    ]
    .iter()
    .chain(timer)
    .copied()
    .chain(append.iter().map(String::as_str))
    .collect();
    put(&[
        "-kernel",
        &text(kernel)?,
        "-initrd",
        &text(initrd)?,
        "-append",
        &words.join(" "),
    ]);
    if let Some(plugin) = plugin {
        put(&["-plugin", plugin]);
    }
    let (kind, paths) = match ports {
        Ports::Sockets(paths) => ("socket", paths),
        Ports::Files(paths) => ("file", paths),
    };
    for (number, path) in paths.iter().enumerate() {
        put(&[
            "-chardev",
            &format!("{kind},id=port{number},path={}", text(path)?),
        ]);
        put(&[
            "-device",
            &format!("isa-serial,chardev=port{number},index={number}"),
        ]);
    }
    Ok(args)
}

/// A path in an option of QEMU: a comma in it is doubled.
pub(crate) fn text(path: &Path) -> Result<String> {
    path.to_str().map(|t| t.replace(',', ",,")).ok_or_else(|| {
        Error::Unsupported(format!(
            "{} is not UTF-8: QEMU cannot be given it",
            path.display()
        ))
    })
}
