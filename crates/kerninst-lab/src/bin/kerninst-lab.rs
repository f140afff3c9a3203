//! The `kerninst-lab` command.

fn main() -> std::process::ExitCode {
    let code = kerninst_lab::cli::main(std::env::args_os(), &kerninst_lab::cli::Extras::default());
    std::process::ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
