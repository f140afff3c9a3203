//! Compiles the kernel side (`kside/`) to a relocatable object with the same stable rustc, for the kernel's code
//! model: no red zone, no vector registers (user space's are live in the kernel), addresses in the top 2 GiB,
//! no jump tables (an indirect jump would need a retpoline). User space completes the object for the running
//! kernel (`src/complete.rs`).

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=kside");
    println!("cargo:rerun-if-changed=src/abi.rs");
    let out =
        PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("kside.o");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut emit = std::ffi::OsString::from("--emit=obj=");
    emit.push(&out);
    let result = Command::new(rustc)
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "lib",
            "--crate-name",
            "kerninst_kside",
        ])
        // x86_64-unknown-none would be the natural target, but a plain toolchain does not have its `core`.
        .args(["--target", "x86_64-unknown-linux-gnu"])
        .args([
            "-C",
            "opt-level=2",
            "-C",
            "codegen-units=1",
            "-C",
            "panic=abort",
        ])
        .args(["-C", "overflow-checks=off", "-C", "debug-assertions=off"])
        .args([
            "-C",
            "relocation-model=static",
            "-C",
            "code-model=kernel",
            "-C",
            "no-redzone=yes",
        ])
        .args([
            "-C",
            "target-feature=-sse,-sse2,-avx",
            "-C",
            "jump-tables=no",
        ])
        .arg(emit)
        .arg("kside/lib.rs")
        // The flags of the program around it are not the kernel side's.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output();
    match result {
        Ok(o) if o.status.success() => {}
        Ok(o) => {
            eprintln!("{}", String::from_utf8_lossy(&o.stderr));
            panic!("the kernel side does not compile");
        }
        Err(e) => panic!("cannot run rustc for the kernel side: {e}"),
    }
}
