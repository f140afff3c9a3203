# What `cargo xtask demo` shows, run by the guest's shell as root on a stock kernel.
set -e
echo "Running on Linux $(uname -r), $(nproc) CPUs, unmodified."
kerninst --version
