//! The `kerninst` command.
fn main() {}
