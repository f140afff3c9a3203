//! The `kerninst` command: all of it is in the library, so that it can be tested.

fn main() -> std::process::ExitCode {
    kerninst_cli::main()
}
