//! The `kerninst-lab` command; `cargo xtask lab` is the same with the project's own programs in the guest.

use crate::{
    Accel, Cache, EXIT_LAB, Error, GuestFile, KernelImage, Lab, Meter, MeterReport, Outcome,
    PortName, fetch,
};
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Boot a stock kernel in QEMU and run a command or a shell in it.
#[derive(Parser)]
#[command(
    version,
    after_help = "Exit status: the command's own; 124 the timeout passed; 125 the lab itself failed; 126 the guest's \
                  kernel crashed (an oops anywhere counts, even if the command succeeded)."
)]
struct Cli {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Run a command in a guest; one word is a line of shell, several are a program and its arguments
    Run {
        #[command(flatten)]
        guest: GuestArgs,
        /// Show the kernel's messages on standard error as they come
        #[arg(long)]
        console: bool,
        /// Count instructions with this plugin (libkerninst_meter.so); the guest steers it (kerninst-guest)
        #[arg(long, value_name = "PLUGIN", num_args = 0..=1)]
        meter: Option<Option<PathBuf>>,
        /// Write what the meter counted to this file, as JSON [default: standard error, without histograms]
        #[arg(long, value_name = "FILE", requires = "meter")]
        meter_out: Option<PathBuf>,
        /// The command
        #[arg(last = true, required = true, value_name = "COMMAND")]
        words: Vec<String>,
    },
    /// An interactive shell in a guest (Ctrl-] ends the guest)
    Shell {
        #[command(flatten)]
        guest: GuestArgs,
    },
    /// Fetch kernels into the cache: all names, or those given
    Fetch {
        /// Names of kernels
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// List the kernels' names and what is in the cache
    List,
}

#[derive(Args)]
struct GuestArgs {
    /// The kernel: a name (6.1, 6.1-cloud, 6.1-rt, 6.12, 6.12-cloud, 6.12-rt) or the path of a vmlinuz or vmlinux
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// The directory lib/modules/RELEASE of a kernel given by path
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// Number of virtual CPUs
    #[arg(long, default_value_t = 1)]
    smp: u32,
    /// Memory in MiB
    #[arg(long, default_value_t = 1024)]
    mem: u32,
    /// QEMU's processor model [default: max, with KVM host]
    #[arg(long)]
    cpu: Option<String>,
    /// auto, tcg or kvm
    #[arg(long, default_value = "auto")]
    accel: Accel,
    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    append: Vec<String>,
    /// End the guest after so many seconds (for shell: 0 is never)
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// A file for the guest [default place: /bin/NAME if executable, else /root/NAME]
    #[arg(long, value_name = "HOST[:GUEST]")]
    file: Vec<String>,
    /// A kernel module to load at boot, with what it depends on
    #[arg(long, value_name = "NAME")]
    guest_module: Vec<String>,
    /// A kernel module to be there for modprobe, with what it depends on
    #[arg(long, value_name = "NAME")]
    carry_module: Vec<String>,
    /// Make the run repeatable to the instruction (emulation only)
    #[arg(long)]
    deterministic: bool,
    /// Seed of the guest's randomness, KASLR included
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// What a program that offers this command adds to it.
#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// Files that every guest gets.
    pub files: Vec<GuestFile>,
    /// The plugin that `--meter` without a value means.
    pub meter: Option<PathBuf>,
}

/// Runs the command with these arguments (the first is the program's name) and returns its exit status. Messages go to
/// standard error; wrong usage ends the process as clap does.
pub fn main(args: impl IntoIterator<Item = OsString>, extras: &Extras) -> i32 {
    match execute(Cli::parse_from(args), extras) {
        Ok(code) => code,
        Err(error) => {
            say(&error.to_string());
            EXIT_LAB
        }
    }
}

fn say(text: &str) {
    eprintln!("kerninst-lab: {text}");
}

fn execute(cli: Cli, extras: &Extras) -> Result<i32, Error> {
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, interrupt.clone()).map_err(|source| Error::System {
            what: "watch for signals",
            source,
        })?;
    }
    match cli.command {
        Sub::Run {
            guest,
            console,
            meter,
            meter_out,
            words,
        } => {
            let mut lab = lab(&guest, 120, extras)?.interrupt(interrupt);
            if let Some(plugin) = meter {
                let plugin = plugin.or_else(|| extras.meter.clone()).ok_or_else(|| {
                    Error::BadFile(
                        "--meter needs the plugin's file (cargo xtask lab knows it)".into(),
                    )
                })?;
                lab = lab.meter(Meter::new(plugin));
            }
            let outcome =
                lab.run_words(&words, &mut |port, bytes| pass_on(port, bytes, console))?;
            let code = conclude(&outcome);
            let sure = match outcome.meter {
                Some(report) => tell_meter(report, meter_out)?,
                None => true,
            };
            Ok(if code == 0 && !sure { EXIT_LAB } else { code })
        }
        Sub::Shell { guest } => {
            say("Ctrl-] ends the guest");
            let outcome = lab(&guest, 0, extras)?.interrupt(interrupt).shell()?;
            Ok(conclude(&outcome))
        }
        Sub::Fetch { names } => {
            let cache = Cache::standard()?;
            let names = if names.is_empty() {
                fetch::NAMES.map(String::from).to_vec()
            } else {
                names
            };
            for name in names {
                let kernel = fetch::fetch(&name, &cache, &mut say)?;
                println!("{name}\t{}\t{}", kernel.release, kernel.image.display());
            }
            Ok(0)
        }
        Sub::List => {
            let cache = Cache::standard()?;
            for name in fetch::NAMES {
                match fetch::cached(name, &cache) {
                    Some(k) => println!("{name}\t{}\t{}", k.release, k.image.display()),
                    None => println!("{name}\t-\tnot fetched"),
                }
            }
            Ok(0)
        }
    }
}

fn lab(args: &GuestArgs, default_timeout: u64, extras: &Extras) -> Result<Lab, Error> {
    let cache = Cache::standard()?;
    let kernel = KernelImage::find(&args.kernel, args.modules.as_deref(), &cache, &mut say)?;
    let files = args
        .file
        .iter()
        .map(|text| GuestFile::parse(text))
        .collect::<Result<Vec<_>, _>>()?;
    // Ten years stand for "never": a deadline needs a number.
    let timeout = match args.timeout.unwrap_or(default_timeout) {
        0 => Duration::from_secs(10 * 365 * 86_400),
        seconds => Duration::from_secs(seconds.min(10 * 365 * 86_400)),
    };
    let mut lab = Lab::new(kernel)
        .smp(args.smp)
        .mem(args.mem)
        .accel(args.accel)
        .timeout(timeout)
        .deterministic(args.deterministic)
        .files(extras.files.iter().cloned())
        .files(files);
    if let Some(cpu) = &args.cpu {
        lab = lab.cpu(cpu);
    }
    if let Some(seed) = args.seed {
        lab = lab.seed(seed);
    }
    for words in &args.append {
        lab = lab.append(words);
    }
    for name in &args.guest_module {
        lab = lab.load_module(name);
    }
    for name in &args.carry_module {
        lab = lab.carry_module(name);
    }
    Ok(lab)
}

fn pass_on(port: PortName, bytes: &[u8], console: bool) {
    // A closed pipe on our side is no reason to end the guest: its status still counts.
    let _ = match port {
        PortName::Out => {
            let mut out = std::io::stdout();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        PortName::Err => std::io::stderr().write_all(bytes),
        PortName::Console if console => std::io::stderr().write_all(bytes),
        PortName::Console | PortName::Control => Ok(()),
    };
}

fn conclude(outcome: &Outcome) -> i32 {
    if outcome.crash.is_some() || outcome.timed_out || outcome.status.is_none() {
        say(&outcome.report());
    }
    if outcome.truncated {
        say("the guest said more than the lab keeps; what was streamed is complete");
    }
    outcome.exit_code()
}

/// Passes on what the meter counted; false if it cannot be trusted.
fn tell_meter(mut report: MeterReport, out: Option<PathBuf>) -> Result<bool, Error> {
    for problem in &report.problems {
        say(problem);
    }
    if out.is_none() {
        for histogram in std::mem::take(&mut report.histograms) {
            say(&format!(
                "histogram {} has {} rows; --meter-out FILE keeps them",
                histogram.id,
                histogram.rows.len()
            ));
        }
    }
    let text = serde_json::to_string_pretty(&report).map_err(|e| Error::System {
        what: "write the meter's report",
        source: e.into(),
    })?;
    match out {
        None => eprintln!("{text}"),
        Some(path) => std::fs::write(&path, text).map_err(|source| Error::Io {
            what: "write",
            path,
            source,
        })?,
    }
    Ok(report.problems.is_empty())
}
