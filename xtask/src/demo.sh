# What `cargo xtask demo` shows, run by the guest's shell as root on a stock kernel.
run() { echo; echo "# kerninst $*"; kerninst "$@"; }

echo "Linux $(uname -r), $(nproc) CPUs: a stock kernel, not rebuilt, no headers, no debug information."
run doctor || exit 1
echo
echo "How would the instructions of getppid be instrumented?"
run show __x64_sys_getppid
echo
echo "Calls, and every way out, of a system call that is made 20,000 times on all CPUs at once:"
run count entry:__x64_sys_getppid exit:__x64_sys_getppid -- kerninst-guest getppid-all-cpus 20000 || exit 1
echo
echo "Which blocks of the TCP receive path run, and how often, while a megabyte goes over loopback?"
echo
echo "# kerninst count 'block:tcp_rcv_established/*' 'block:tcp_recvmsg_locked/*' -- kerninst-guest tcp 1   (the busiest)"
kerninst count 'block:tcp_rcv_established/*' 'block:tcp_recvmsg_locked/*' -- kerninst-guest tcp 1 > /tmp/blocks || exit 1
head -n 20 /tmp/blocks
echo "..."
tail -n 2 /tmp/blocks
echo
echo "Nothing is left:"
run status
grep kerninst /proc/modules && exit 1
exit 0
