//! The project's tasks: `cargo xtask TASK`.
//!
//! `setup` installs what this machine lacks, `build` makes the static programs, `lab` boots a guest with them, `demo` shows
//! the main job on a stock kernel, `test` runs every test there is.

mod bench;
mod bench_cover;
mod bench_scripts;
mod bpftrace;
mod cargo;
mod demo;
mod fuzz;
mod programs;
mod setup;
mod suite;
mod sweep;
mod test;
mod tests;

use clap::{Parser, Subcommand};
use kerninst_lab::cli::Extras;
use std::ffi::OsString;
use std::process::ExitCode;

/// The project's tasks
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what this machine lacks (QEMU, busybox), saying so
    Setup,
    /// Build the static programs for guests and the meter plugin
    Build,
    /// kerninst-lab with kerninst and kerninst-guest in the guest's /bin; --meter needs no value
    #[command(disable_help_flag = true)]
    Lab {
        /// Arguments of kerninst-lab
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// kerninst-lab as it is, without building anything (for the lab's own tests)
    #[command(hide = true, disable_help_flag = true)]
    BareLab {
        /// Arguments of kerninst-lab
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Set up, build, boot a stock kernel, and show the main job on a real workload
    Demo(demo::Args),
    /// Run all tests: formatting, lints, licences, unit tests, and the lab's on stock kernels
    Test(test::Args),
    /// Compare counts of points drawn over the whole kernel with the emulator's own, to the last execution
    Oracle(tests::oracle::Args),
    /// Instrument every instruction of every function of a kernel once, in batches under load, and check the counts
    Sweep(sweep::Args),
    /// Run random scripts of the probe language in guests under load
    Fuzz(fuzz::Args),
    /// Measure what a count costs, beside the kernel's own facilities, and print it as Markdown
    Bench(bench::Args),
}

/// A sentence for the user.
pub type Failure = String;

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Setup => setup::run().map(|()| 0),
        Task::Build => programs::build().map(|programs| {
            for path in programs.all() {
                println!("{}", path.display());
            }
            0
        }),
        Task::Lab { args } => programs::build().map(|programs| {
            let extras = Extras {
                files: programs.guest_files(),
                meter: Some(programs.meter),
            };
            lab(args, &extras)
        }),
        Task::BareLab { args } => Ok(lab(args, &Extras::default())),
        Task::Demo(args) => demo::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Oracle(args) => tests::oracle::run(&args),
        Task::Sweep(args) => sweep::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Bench(args) => bench::run(&args),
    };
    match result {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        Err(failure) => {
            say(&failure);
            ExitCode::FAILURE
        }
    }
}

/// Tells the user what is being done.
pub fn say(text: &str) {
    eprintln!("xtask: {text}");
}

fn lab(args: Vec<OsString>, extras: &Extras) -> i32 {
    let name = OsString::from("cargo xtask lab");
    kerninst_lab::cli::main(std::iter::once(name).chain(args), extras)
}
