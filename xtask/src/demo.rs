//! `cargo xtask demo`: from nothing to the main job on a stock kernel, in one command.
//!
//! What happens in the guest is in `demo.sh`, and only there.

use crate::{Failure, programs, say, setup};
use kerninst_lab::{Lab, PortName};
use std::io::Write;
use std::time::Duration;

/// Arguments of the demo.
#[derive(clap::Args)]
pub struct Args {
    /// The kernel, as kerninst-lab names it
    #[arg(long, default_value = "6.12")]
    kernel: String,
}

const SCRIPT: &str = include_str!("demo.sh");

/// Runs the demo; returns its exit status.
pub fn run(args: &Args) -> Result<i32, Failure> {
    setup::run()?;
    let programs = programs::build()?;
    let lab = Lab::named(&args.kernel)
        .map_err(|e| e.to_string())?
        .smp(2)
        .timeout(Duration::from_secs(180))
        .files(programs.guest_files());
    say(&format!(
        "booting the stock kernel {} in QEMU (a few seconds); this machine's kernel is left alone",
        lab.kernel().release
    ));
    let mut sink = |port: PortName, bytes: &[u8]| {
        let _ = match port {
            PortName::Out => std::io::stdout()
                .write_all(bytes)
                .and_then(|()| std::io::stdout().flush()),
            PortName::Err => std::io::stderr().write_all(bytes),
            PortName::Console | PortName::Control => Ok(()),
        };
    };
    let outcome = lab
        .run_words(&[SCRIPT.to_string()], &mut sink)
        .map_err(|e| e.to_string())?;
    if !outcome.is_success() {
        say(&outcome.report());
    }
    Ok(outcome.exit_code())
}
