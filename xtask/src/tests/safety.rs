//! What must never happen: a crash, a byte that stays changed, code freed under somebody.

use super::succeed;
use crate::suite::{Context, Kernels, LabTest, Run, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "safety: kill -9 at 200 random moments",
        catches: "text left changed, an oops, or a next run that fails after a death while arming, armed or disarming",
        kernels: Kernels::All,
        timeout: Duration::from_secs(900),
        quick: false,
        run: Run::Own(kill),
    },
    LabTest {
        name: "safety: arming and disarming in a storm",
        catches: "a race of text writing with running code, interrupts, softirqs and the scheduler; a wrong count",
        kernels: Kernels::All,
        timeout: Duration::from_secs(400),
        quick: false,
        run: Run::Own(storm),
    },
    LabTest {
        name: "safety: threads asleep in patches that are taken out",
        catches: "a patch that is freed while a sleeping thread will return into it",
        kernels: Kernels::All,
        timeout: Duration::from_secs(240),
        quick: true,
        run: Run::Own(sleepers),
    },
    LabTest {
        name: "safety: faults in displaced instructions",
        catches: "a copy of an instruction that faults and does not continue at its fixup: an oops, or a wrong error",
        kernels: Kernels::All,
        timeout: Duration::from_secs(240),
        quick: true,
        run: Run::Own(faults),
    },
    LabTest {
        name: "safety: stacks stay readable",
        catches: "a sleeping task whose stack ends, or lies, where it went through a patch",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Own(stacks),
    },
];

/// Busy functions of all kinds: process context, scheduler, timers, softirqs, network, wake-ups.
const BUSY: &str = "'block:vfs_read/*' 'entry:tcp_*' 'exit:do_sys_openat2' 'block:schedule/*' \
    'block:hrtimer_interrupt/*' 'block:try_to_wake_up/*' 'block:__local_bh_enable_ip/*' 'entry:ktime_get*' 'exit:ktime_get*'";

fn guest(context: &Context<'_>, script: &str) -> TestResult {
    succeed(context.lab().smp(2), script).map(|_| ())
}

fn kill(context: &Context<'_>) -> TestResult {
    guest(
        context,
        "kerninst-torture kill --times 200 'block:vfs_read/*' 'exit:do_sys_openat2' 'block:schedule/*' 'entry:tcp_v4_*'",
    )
}

fn storm(context: &Context<'_>) -> TestResult {
    guest(
        context,
        &format!("kerninst-guest load 150 >/dev/null & kerninst-torture storm --seconds 60 {BUSY}"),
    )
}

fn sleepers(context: &Context<'_>) -> TestResult {
    guest(context, "kerninst-torture sleepers")
}

fn faults(context: &Context<'_>) -> TestResult {
    guest(context, "kerninst-torture faults")
}

fn stacks(context: &Context<'_>) -> TestResult {
    // The same task, asleep in the same call, with and without patches on its way.
    guest(
        context,
        "take() { sleep 3 & sleep 1; sed 's/^[^ ]* //' /proc/$!/stack > $1; wait; }
         take /tmp/plain; grep -q nanosleep /tmp/plain || exit 3
         echo 'take() { sleep 3 & sleep 1; sed \"s/^[^ ]* //\" /proc/$!/stack > $1; wait; }; take /tmp/armed' > /tmp/take
         through() { kerninst count --means $1 'block:do_nanosleep/*' 'block:hrtimer_nanosleep/*' 'block:schedule/*' \
            'block:common_nsleep/*' -- sh /tmp/take > /tmp/counts || exit 4; }
         # Below splices no stack holds an address of a patch: it is the same to the byte.
         through splices; cmp /tmp/plain /tmp/armed || { cat /tmp/plain /tmp/armed; exit 5; }
         # Versions have names of their own, and are not left out as scheduler functions are: the same way to the entry.
         through versions; grep -q '^hrtimer_nanosleep.kerninst+.*\\[kerninst_p' /tmp/armed || { cat /tmp/armed; exit 6; }
         names() { sed 's/+.*//; s/[.]kerninst$//' $1; }
         names /tmp/plain > /tmp/plain.names; names /tmp/armed | tail -n $(wc -l < /tmp/plain) > /tmp/armed.names
         cmp /tmp/plain.names /tmp/armed.names || { cat /tmp/plain /tmp/armed; exit 7; }",
    )
}
