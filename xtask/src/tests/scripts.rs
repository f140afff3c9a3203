//! `kerninst run`: exact data, clean ends, and scripts that try to break the kernel.

use super::count::leaves_no_trace;
use super::{ensure, succeed};
use crate::suite::{Context, Kernels, LabTest, Run, Session, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "scripts: every aggregation is exact on all CPUs at once",
        catches: "a lost or doubled update of a map, by key, CPU or kind of map; a pid filter that lets others in",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(exact),
    },
    LabTest {
        name: "scripts: counted and lost make all executions",
        catches: "an event or update that is lost without being counted; events out of order; --strict that forgives a loss",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(losses),
    },
    LabTest {
        name: "scripts: every kind of probe, and of end",
        catches: "a kind of probe that does not run its clause; BEGIN, END, exit(), -d or -c that is forgotten, or ends wrongly",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(kinds),
    },
    LabTest {
        name: "scripts: wrong ones are refused with the place",
        catches: "a script that is armed although it is wrong, or refused without saying where",
        kernels: Kernels::First,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(wrong),
    },
    LabTest {
        name: "scripts: reads through bad pointers",
        catches: "a read that faults the kernel, or that gives something where nothing can be read, or is not counted",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(pointers),
    },
    LabTest {
        name: "scripts: clocks, stacks and texts in NMIs, interrupts, the scheduler and the callouts' own functions",
        catches: "a callout that recurses, locks or faults where it must not: a hang or an oops",
        kernels: Kernels::All,
        timeout: Duration::from_secs(400),
        quick: false,
        run: Run::Own(contexts),
    },
    LabTest {
        name: "scripts: kill -9 at random moments with maps, events and stacks; a CPU that goes and comes",
        catches: "memory of a script that programs write after its owner died, or that nobody frees; a CPU without its cells",
        kernels: Kernels::All,
        timeout: Duration::from_secs(400),
        quick: false,
        run: Run::Own(sudden),
    },
    LabTest {
        name: "scripts: a minute of random ones",
        catches: "a script, whatever it says, that crashes or hangs the kernel, or leaves something",
        kernels: Kernels::All,
        timeout: Duration::from_secs(400),
        quick: false,
        run: Run::Own(random),
    },
];

/// The value of the only line `NAME: value` of a map.
fn value(output: &str, name: &str) -> Option<u64> {
    let key = format!("{name}: ");
    let line = output.lines().find_map(|l| l.strip_prefix(&key));
    line?.trim().parse().ok()
}

/// The sum over the keys of a map.
fn sum(output: &str, map: &str) -> u64 {
    let key = format!("{map}[");
    let lines = output.lines().filter(|l| l.starts_with(&key));
    lines
        .filter_map(|l| l.rsplit(": ").next()?.trim().parse::<u64>().ok())
        .sum()
}

/// The number in `Lost N WHAT` on standard error.
fn lost(said: &str, what: &str) -> u64 {
    let rest = said.lines().find_map(|l| {
        let (n, of) = l.split_once("Lost ")?.1.split_once(' ')?;
        of.starts_with(what).then_some(n)
    });
    rest.and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn same(what: &str, got: &[u64], want: &[u64], all: &str) -> TestResult {
    ensure(got == want, || {
        format!("{what}: {got:?}, wanted {want:?}:\n{all}")
    })
}

fn exact(session: &mut Session) -> TestResult {
    // What the kernel flips at first use is flipped before the hash is taken.
    session.sh("kerninst run -e 'entry:__x64_sys_getppid { @ = count(); }' -c 'kerninst-guest getppid-all-cpus 10'")?;
    let out = leaves_no_trace(
        session,
        "kerninst run -e 'entry:__x64_sys_getppid /comm == \"kerninst-guest\"/ { @n = count(); @c[comm] = count(); @p[cpu] = count();
             @two[cpu, pid] = sum(2); @h = hist(cpu + 1); @l = lhist(cpu, 0, 4, 1); @s = stats(5); @t = sum(cpu + 1); @a = avg(7);
             @lo = min(cpu + 3); @hi = max(cpu + 3); @plus++; @last = 42; }' -c 'kerninst-guest getppid-all-cpus 20000'",
    )?;
    let one = |name| value(&out, name).unwrap_or(u64::MAX);
    same("@n, @plus", &[one("@n"), one("@plus")], &[20000; 2], &out)?;
    same("@c", &[sum(&out, "@c"), sum(&out, "@p")], &[20000; 2], &out)?;
    same(
        "@two, @t",
        &[sum(&out, "@two"), one("@t")],
        &[40000, 30000],
        &out,
    )?;
    same("CPUs", &[one("@p[0]"), one("@p[1]")], &[10000; 2], &out)?;
    same(
        "@a, @lo, @hi, @last",
        &[one("@a"), one("@lo"), one("@hi"), one("@last")],
        &[7, 3, 4, 42],
        &out,
    )?;
    ensure(out.contains("count 20000, average 5, total 100000"), || {
        out.clone()
    })?;
    let rows = |start: &str| {
        out.lines()
            .filter(|l| l.starts_with(start) && l.contains(" 10000 |"))
            .count()
    };
    ensure(rows("[1]") == 1 && rows("[2, 4)") == 1, || {
        format!("hist:\n{out}")
    })?;
    ensure(rows("[0, 1)") == 1 && rows("[1, 2)") == 1, || {
        format!("lhist:\n{out}")
    })?;
    // Only the process that -p and the filter name.
    let out = leaves_no_trace(
        session,
        "(sleep 1; exec dd if=/dev/zero of=/dev/null bs=1 count=500 2>/dev/null) & one=$!
         sleep 0.1
         kerninst run -p $one -e 'entry:vfs_read /pid == $1/ { @mine = count(); } entry:vfs_read /pid != $1/ { @others = count(); }' \
             $one -c \"wait; dd if=/dev/zero of=/dev/null bs=1 count=100 2>/dev/null; while [ -d /proc/$one ]; do sleep 0.1; done\"",
    )?;
    ensure(value(&out, "@others") == Some(0), || out.clone())?;
    ensure(value(&out, "@mine").is_some(), || out.clone())
}

fn losses(session: &mut Session) -> TestResult {
    // A buffer with room for all: each of them, and on each CPU in order of time. (Across CPUs the clause's own look at the
    // clock, which is before the event's, says little.)
    let out = leaves_no_trace(
        session,
        "kerninst run --strict --buffer 8192 -e 'entry:__x64_sys_getppid /comm == \"kerninst-guest\"/ { printf(\"at %d %d\\n\", cpu, nsecs); }' \
             -c 'kerninst-guest getppid-all-cpus 3000'",
    )?;
    for cpu in ["at 0 ", "at 1 "] {
        let times = out
            .lines()
            .filter_map(|l| l.strip_prefix(cpu)?.parse().ok());
        let times: Vec<u64> = times.collect();
        ensure(times.len() == 1500, || {
            format!("{cpu}: {} of 1500 events", times.len())
        })?;
        ensure(times.is_sorted(), || format!("{cpu}: not in order of time"))?;
    }
    for (room, script, what) in [
        (
            "--buffer 4",
            "printf(\"at %s %d %d\\n\", comm, cpu, nsecs);",
            "events",
        ),
        (
            "--keys 16",
            "@k[nsecs] = count();",
            "updates of maps: no room",
        ),
    ] {
        let done = session.run(&format!(
            "kerninst run --strict {room} -e 'entry:__x64_sys_getppid /comm == \"kerninst-guest\"/ {{ @n = count(); {script} }}' \
                 -c 'kerninst-guest getppid-all-cpus 50000'"
        ))?;
        let (out, said) = (&done.stdout, &done.stderr);
        let events = out.lines().filter(|l| l.starts_with("at ")).count() as u64;
        let kept = events + sum(out, "@k");
        let lost = lost(said, what);
        ensure(
            value(out, "@n") == Some(50000) && kept + lost == 50000 && lost > 0,
            || format!("{room}: {kept} kept, {lost} lost of 50000\n{said}"),
        )?;
        ensure(done.status == 3, || {
            format!("{room}: status {}\n{said}", done.status)
        })?;
    }
    Ok(())
}

/// Script and words after it, exit status, what must be in the output.
const KINDS: &[(&str, i32, &[&str])] = &[
    (
        "-e 'exit:__x64_sys_getppid { @r[retval > 0] = count(); }' -c 'kerninst-guest getppid 50'",
        0,
        &["@r[1]: 5"],
    ),
    (
        "-e 'insn:__x64_sys_getppid+0x0, block:__x64_sys_getppid/0 /comm == \"kerninst-guest\"/ { @i[ip == 0] = count(); }' -c 'kerninst-guest getppid 50'",
        0,
        &["@i[0]: 100"],
    ),
    (
        "-e 'call:ksys_read->vfs_read /comm == \"dd\"/ { @c[callee] = count(); }' -c 'dd if=/dev/zero of=/dev/null bs=1 count=70'",
        0,
        &["@c[vfs_read]: 7"],
    ),
    (
        "-e 'BEGIN { printf(\"first\\n\"); } entry:vfs_read { @ = count(); } END { printf(\"last\\n\"); }' -d 0.2",
        0,
        &["first", "last"],
    ),
    (
        "-e 'BEGIN { exit(); } END { printf(\"last\\n\"); }'",
        0,
        &["last"],
    ),
    (
        "-e 'BEGIN { @i = 0; } interval:ms:100 { @i = @i + 1; if (@i == 3) { exit(); } } entry:vfs_read { @n = count(); }'",
        0,
        &["@i: 3"],
    ),
    (
        "-e 'entry:__x64_sys_getppid { printf(\"seen\\n\"); exit(); }' -c 'kerninst-guest getppid 10; sleep 30'",
        0,
        &["seen"],
    ),
    (
        "-e 'entry:vfs_read { @ = count(); }' -c 'exit 7'",
        7,
        &["@: "],
    ),
    (
        "-e 'entry:vfs_read { @ = count(); }' -c /no/such/command",
        127,
        &[],
    ),
    (
        "-e 'entry:no_such_thing_at_all { @ = count(); }' -d 1",
        2,
        &[],
    ),
];

fn kinds(session: &mut Session) -> TestResult {
    let mut problems = Vec::new();
    leaves_no_trace(session, "true")?;
    let before = session.sh("kerninst-torture text")?;
    for (words, status, needles) in KINDS {
        let done = session.run(&format!("kerninst run {words} </dev/null"))?;
        let has = needles.iter().all(|n| done.stdout.contains(n));
        if done.status != *status || !has || done.stderr.contains("panicked") {
            problems.push(format!(
                "`kerninst run {words}`: status {} (wanted {status}), not {needles:?}: {}{}",
                done.status, done.stdout, done.stderr
            ));
        }
    }
    ensure(problems.is_empty(), || problems.join("\n"))?;
    let after = session.sh("kerninst-torture text; grep ^kerninst /proc/modules; true")?;
    ensure(before == after, || format!("left:\n{before}{after}"))
}

/// Scripts that are wrong, and what is said of them.
const WRONG: &[(&str, &str)] = &[
    ("entry:vfs_read { @x = count() ", "expected"),
    ("entry:vfs_read { @x = nosuch; }", "nosuch"),
    ("entry:vfs_read { @x = args.nosuch; }", "nosuch"),
    ("entry:vfs_read { @x = retval; }", "retval"),
    ("entry:vfs_read { while (1) { } }", "limit"),
    ("entry:vfs_read { @x = count(); @x = sum(1); }", "@x"),
    ("entry:vfs_read { @x[1] = 1; @x[comm] = 1; }", "@x"),
    ("entry:vfs_read { *(uint64 *)curtask = 1; }", "--unsafe"),
    ("entry:vfs_read { reg(\"rax\") = 1; }", "--unsafe"),
    ("entry:vfs_read { return 1; }", "--unsafe"),
    (
        "entry:vfs_read { @x = ((struct nosuch *)arg0)->a; }",
        "nosuch",
    ),
];

fn wrong(session: &mut Session) -> TestResult {
    let mut problems = Vec::new();
    for (script, needle) in WRONG {
        let done = session.run(&format!("kerninst run -e '{script}' -d 1 </dev/null"))?;
        let told = done.stderr.contains(needle)
            && done.stderr.contains('^')
            && done.stderr.contains("nothing was armed");
        if done.status != 2 || !told || done.stderr.contains("panicked") {
            problems.push(format!("{script}: status {}: {}", done.status, done.stderr));
        }
    }
    ensure(problems.is_empty(), || problems.join("\n"))?;
    let left = session.sh("grep ^kerninst /proc/modules; true")?;
    ensure(left.is_empty(), || left)
}

/// Addresses with nothing that may be read as the kernel's: user's, the hole, direct map's end, vsyscall page, errors.
const BAD: &[&str] = &[
    "0",
    "0x10",
    "0x7fffffffeffc",
    "0x7ffffffffffc",
    "0x800000000000",
    "0x8000000000000000",
    "0xdead000000000000",
    "0xffff7ffffffffffc",
    "0xffffffffff600000",
    "0xffffffffff5ffffc",
    "0xfffffffffffffff4",
    "0xfffffffffffffffc",
    "0xffffffffffffffff",
];

fn pointers(session: &mut Session) -> TestResult {
    for read in [
        "*(uint64 *)(ADDR)",
        "*(uint8 *)(ADDR)",
        "*(uint64 *)uptr(0xffff888000000000 | ADDR)",
    ] {
        let reads: String = BAD
            .iter()
            // An address of the kernel, however it is made, is none of the program's.
            .map(|addr| format!("@sum = sum({} != 0); ", read.replace("ADDR", addr)))
            .collect();
        let out = leaves_no_trace(
            session,
            &format!(
                "kerninst run -e 'entry:__x64_sys_getppid /comm == \"kerninst-guest\"/ {{ {reads} }}' -c 'kerninst-guest getppid 100' 2>&1"
            ),
        )?;
        ensure(value(&out, "@sum") == Some(0), || {
            format!("{read}: something was read:\n{out}")
        })?;
        let lost = lost(&out, "reads");
        let all = 100 * BAD.len() as u64;
        ensure(lost == all, || {
            format!("{read}: {lost} of {all} bad reads counted:\n{out}")
        })?;
    }
    let texts: String = BAD
        .iter()
        .map(|addr| format!("@t[str({addr}), str(uptr(0xffff800000000000 | {addr}), 9)] = count(); @b[buf({addr}, 64)] = count(); "))
        .collect();
    let out = session.sh(&format!(
        "kerninst run -e 'entry:__x64_sys_getppid /comm == \"kerninst-guest\"/ {{ {texts} }}' -c 'kerninst-guest getppid 100'"
    ))?;
    let all = 100 * BAD.len() as u64;
    same(
        "texts",
        &[value(&out, "@t[, ]").unwrap_or(0), sum(&out, "@b")],
        &[all, all],
        &out,
    )
}

/// Functions of all contexts, and those that the callouts use. Which of them a kernel has out of line differs.
const EVERYWHERE: &str = "nmi_handle default_do_nmi __schedule try_to_wake_up enqueue_task enqueue_task_fair handle_mm_fault \
    ktime_get_mono_fast_ns copy_from_kernel_nofault copy_from_kernel_nofault_allowed stack_trace_save_regs unwind_next_frame \
    arch_stack_walk copy_from_user_nmi hrtimer_interrupt update_process_times __do_softirq handle_softirqs rcu_core \
    native_queued_spin_lock_slowpath _raw_spin_lock_irqsave orc_find get_stack_info perf_event_nmi_handler";

fn contexts(context: &Context<'_>) -> TestResult {
    succeed(
        context.lab().smp(2).mem(2048),
        &format!(
            "echo '{{ @k[kstack(8)] = count(); @u[ustack(8)] = count(); @t = max(nsecs); @s[str(curtask, 8)] = count();
                 @x[str(uptr(reg(\"rdi\")), 8)] = count(); @n = count(); printf(\"%s\", kstack(3)); }}' > /tmp/body
             echo 'for i in 1 2 3 4 5; do echo l > /proc/sysrq-trigger; done; kerninst-guest fork 20; kerninst-guest tcp 1; ls -R /proc/self' > /tmp/work
             dmesg > /tmp/dmesg.before; all=
             for f in {EVERYWHERE}; do
                 grep -q \" $f\\$\" /proc/kallsyms || continue
                 echo \"entry:$f\" >> /tmp/list
                 # Points that cannot be are told, and are no failure.
                 kerninst run -e \"entry:$f $(cat /tmp/body)\" -c 'sh /tmp/work' > /tmp/out 2> /tmp/err; status=$?
                 case $status in 0|2) ;; *) cat /tmp/err; exit 3;; esac
                 [ $status = 0 ] || grep -q 'none of the points' /tmp/err || {{ cat /tmp/err; exit 4; }}
                 kerninst reset --wait 30 > /dev/null || exit 5
             done
             kerninst run -e \"$(tr '\\n' ',' < /tmp/list | sed 's/,$//') $(cat /tmp/body)\" -c 'sh /tmp/work' > /tmp/out 2> /tmp/err || {{ cat /tmp/err; exit 6; }}
             kerninst reset --wait 30 > /dev/null; grep ^kerninst /proc/modules && exit 7
             dmesg | tail -n +$(wc -l < /tmp/dmesg.before) | grep -E 'BUG:|WARNING:|Oops|self-detected|general protection' && exit 8
             true"
        ),
    )
    .map(drop)
}

fn sudden(context: &Context<'_>) -> TestResult {
    succeed(
        context.lab().smp(2).mem(2048),
        "script='entry:vfs_read, entry:tcp_sendmsg, exit:do_sys_openat2, entry:try_to_wake_up { @k[kstack(6), comm] = count(); @h[pid] = hist(nsecs); printf(\"%s %d\\n\", func, nsecs); }'
         kerninst run -d 0.3 -e \"$script\" > /dev/null 2>&1 || exit 3
         kerninst-torture text > /tmp/before; sleep 1
         free() { sed -n 's/^MemAvailable: *\\([0-9]*\\).*/\\1/p' /proc/meminfo; }
         start=$(free)
         kerninst-guest load 200 > /dev/null 2>&1 & load=$!
         for wait in 0.2 0.6 1 1.4 1.8 2.2 2.6 3 3.4 3.8; do
             kerninst run -e \"$script\" > /tmp/out 2> /tmp/err & pid=$!
             sleep $wait; kill -9 $pid; wait $pid
             kerninst status > /dev/null || exit 4
             kerninst reset --wait 30 > /tmp/reset 2>&1 || { cat /tmp/reset; exit 5; }
         done
         # Both ways: a CPU that is gone when it ends, and one that was not there when it began.
         cd /sys/devices/system/cpu/cpu1
         if [ -e online ]; then
             kerninst run -d 4 -e \"$script\" > /tmp/out 2> /tmp/err & pid=$!
             sleep 2.5; echo 0 > online || exit 6
             sleep 0.5; echo 1 > online || exit 6
             wait $pid || { cat /tmp/err; exit 7; }
             echo 0 > online
             kerninst run -d 3 -e \"$script\" > /tmp/out 2> /tmp/err & pid=$!
             sleep 2.5; echo 1 > online
             wait $pid || { cat /tmp/err; exit 8; }
         fi
         kill $load; wait $load; killall -q kerninst-guest; sleep 1
         kerninst reset --wait 30; grep ^kerninst /proc/modules && exit 9
         kerninst-torture text > /tmp/after; cmp /tmp/before /tmp/after || exit 10
         # Each run had some 20 MiB.
         echo 3 > /proc/sys/vm/drop_caches; sleep 1; end=$(free)
         [ $((start - end)) -lt 60000 ] || { echo \"$start kB were available, $end kB are\"; exit 11; }",
    )
    .map(drop)
}

fn random(context: &Context<'_>) -> TestResult {
    succeed(
        context.lab().smp(2).mem(2048),
        "kerninst-torture fuzz --seed 1000000 --seconds 60",
    )
    .map(drop)
}
