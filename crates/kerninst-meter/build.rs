//! The functions of QEMU that the plugin calls are found when QEMU loads it, not when it is linked.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,undefs");
}
