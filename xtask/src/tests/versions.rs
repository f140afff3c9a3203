//! Instrumented versions of whole functions: exact, harmless to everyone else's probes, and gone when they are gone.

use super::{ensure, lines, succeed, total};
use crate::suite::{Context, Kernels, LabTest, Run, Session, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "versions: exact counts on all CPUs, of every block and way out",
        catches: "a version that loses or repeats a block, or counts that differ between CPUs",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: true,
        run: Run::Shared(exact),
    },
    LabTest {
        name: "versions: static keys and static calls flipped while armed and disarmed",
        catches: "a version whose static key or static call site is not updated with all others, or is updated after it is freed",
        kernels: Kernels::All,
        timeout: Duration::from_secs(300),
        quick: false,
        run: Run::Own(flips),
    },
    LabTest {
        name: "versions: tracers and return probes while tasks sleep in them",
        catches: "a tracer that misses calls of a function with a version; a return address that a tracer keeps, led into freed code",
        kernels: Kernels::All,
        timeout: Duration::from_secs(300),
        quick: false,
        run: Run::Own(tracers),
    },
    LabTest {
        name: "versions: tasks asleep in them go on in the original",
        catches: "a version that is freed under a sleeping task, that stays for one, or a visit under way that is lost from the profile",
        kernels: Kernels::All,
        timeout: Duration::from_secs(240),
        quick: true,
        run: Run::Own(asleep),
    },
    LabTest {
        name: "versions: a crash report names them and goes on to the entry",
        catches: "a stack through a version that cannot be unwound",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: false,
        run: Run::Own(crash),
    },
    LabTest {
        name: "versions: a WARN inside is reported as in the original, and resumed",
        catches: "a WARN in a version that crashes, is lost, repeated or shown at another place; a report that does not name the version \
            or ends at it; a block behind a WARN that is not counted",
        kernels: Kernels::All,
        timeout: Duration::from_secs(240),
        quick: false,
        run: Run::Own(warns),
    },
    LabTest {
        name: "versions: a storm, faults with fixups, and kill -9",
        catches: "a fault in a version that misses its fixup, a race of arming with running code, a dead session's version that stays",
        kernels: Kernels::All,
        timeout: Duration::from_secs(700),
        quick: false,
        run: Run::Own(torture),
    },
    LabTest {
        name: "versions: tasks that stay in old bodies are told, loops of kernel threads are spliced",
        catches: "executions that are missed without a word, since a task never leaves the original",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: false,
        run: Run::Shared(old_bodies),
    },
    LabTest {
        name: "versions: calls of a function whose first instruction is the head of a loop",
        catches: "rounds of the loop that are counted as calls, or calls that are not counted",
        kernels: Kernels::All,
        timeout: Duration::from_secs(90),
        quick: false,
        run: Run::Shared(loop_heads),
    },
    LabTest {
        name: "versions: a function with a static key that is read-only since boot",
        catches: "a patch module whose loading makes the kernel write to a key in read-only memory (6.1 crashes of it)",
        kernels: Kernels::All,
        timeout: Duration::from_secs(90),
        quick: false,
        run: Run::Shared(sealed_key),
    },
    LabTest {
        name: "versions: memory is back where it was",
        catches: "patch modules, counters or tables that are kept when a session is over",
        kernels: Kernels::All,
        timeout: Duration::from_secs(120),
        quick: false,
        run: Run::Shared(memory),
    },
];

/// Runs a script in a guest of its own with two CPUs; its output.
fn guest(context: &Context<'_>, script: &str) -> Result<String, String> {
    let outcome = succeed(context.lab().smp(2), script)?;
    Ok(outcome.stdout + &outcome.stderr)
}

fn exact(session: &mut Session) -> TestResult {
    let output = session.sh(
        "kerninst count --means versions --json entry:__x64_sys_getppid exit:__x64_sys_getppid 'block:__x64_sys_getppid/*' \
            'block:pipe_write/*' entry:pipe_write exit:pipe_write -- sh -c \
            'kerninst-guest getppid-all-cpus 1000 >/dev/null; kerninst-guest pipe 300 >/dev/null'; \
         grep -c ^kerninst /proc/modules; true",
    )?;
    let rows = lines(&output, "kerninst.count/1");
    let not_version = rows.iter().find(|r| r["tactic"] != "version");
    ensure(!rows.is_empty() && not_version.is_none(), || {
        format!("not by a version: {not_version:?}\n{output}")
    })?;
    let of = |prefix, kind| total(&output, prefix, kind);
    let getppid = ["entry", "exit"].map(|k| of("__do_sys_getppid", k) + of("__x64_sys_getppid", k));
    // Shells make a call of their own as they start.
    ensure(
        getppid[0] == getppid[1] && (1000..=1002).contains(&getppid[0]),
        || format!("getppid {getppid:?} of 1000:\n{output}"),
    )?;
    let pipe = ["entry", "exit"].map(|k| of("pipe_write", k));
    ensure(pipe[0] == pipe[1] && pipe[0] >= 600, || {
        format!("pipe_write {pipe:?} of at least 600:\n{output}")
    })?;
    ensure(output.trim_end().ends_with('0'), || {
        format!("something stayed loaded:\n{output}")
    })
}

fn flips(context: &Context<'_>) -> TestResult {
    let output = guest(
        context,
        "T=/sys/kernel/tracing; kerninst-torture text > /tmp/before
         flip() { while [ -e /tmp/flip ]; do
             for e in sched/sched_switch sched/sched_waking raw_syscalls/sys_enter; do echo 1 > $T/events/$e/enable; done
             sysctl -wq kernel.sched_schedstats=1
             for e in sched/sched_switch sched/sched_waking raw_syscalls/sys_enter; do echo 0 > $T/events/$e/enable; done
             sysctl -wq kernel.sched_schedstats=0; echo x >> /tmp/flips; done; }
         touch /tmp/flip; flip & flipper=$!
         for i in 1 2 3; do
             kerninst count --means versions --json 'block:__schedule/*' 'block:try_to_wake_up/*' 'block:enqueue_task_fair/*' \
                'block:dequeue_task_fair/*' 'block:pipe_write/*' entry:pipe_write exit:pipe_write \
                -- kerninst-guest pipe 300 > /tmp/out 2>/tmp/err || { cat /tmp/err; exit 3; }
             grep -q '\"tactic\":\"version\"' /tmp/out || exit 4
             grep -v '^{\"schema\":\"kerninst.kernel' /tmp/out | grep pipe_write | grep -E '\"kind\":\"(entry|exit)\"'
         done
         rm /tmp/flip; wait $flipper; echo flips $(wc -l < /tmp/flips)
         # A key that is flipped while the version is armed must take effect in it.
         echo > $T/trace
         kerninst count --means versions --json 'block:__schedule/*' -- sh -c \"
             echo 1 > $T/events/sched/sched_switch/enable; kerninst-guest pipe 50 >/dev/null
             echo 0 > $T/events/sched/sched_switch/enable\" > /tmp/out || exit 5
         echo events $(grep -c sched_switch: $T/trace)
         kerninst reset --wait 5; kerninst-torture text > /tmp/after; cmp /tmp/before /tmp/after || exit 6
         grep ^kerninst /proc/modules && exit 7; true",
    )?;
    let number = |word: &str| {
        let line = output.lines().find_map(|l| l.strip_prefix(word));
        line.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    ensure(number("flips ") >= 3 && number("events ") >= 50, || {
        format!("flips or events are too few:\n{output}")
    })?;
    let entries = ["entry", "exit"].map(|k| total(&output, "pipe_write", k));
    ensure(entries[0] == entries[1] && entries[0] >= 1800, || {
        format!("pipe_write {entries:?} of at least 1800:\n{output}")
    })
}

fn tracers(context: &Context<'_>) -> TestResult {
    let output = guest(
        context,
        "T=/sys/kernel/tracing; mkfifo /tmp/f; sleep 1000 > /tmp/f & holder=$!
         blocks=\"block:pipe_read/* block:vfs_read/* block:schedule/* block:ksys_read/*\"
         for tracer in function function_graph; do
             echo 'pipe_read vfs_read schedule ksys_read' | tr ' ' '\\n' > $T/set_ftrace_filter
             echo 'pipe_read vfs_read schedule ksys_read' | tr ' ' '\\n' > $T/set_graph_function
             echo $tracer > $T/current_tracer
             # A reader that goes to sleep in versions, with the tracer's return addresses below, and is still there when they go.
             kerninst count --means versions --json $blocks -- sh -c '
                 cat /tmp/f > /tmp/got & sleep 1; kerninst-guest getppid 1 >/dev/null
                 echo 0 > /sys/kernel/tracing/tracing_on; grep -c vfs_read /sys/kernel/tracing/trace; echo 1 > /sys/kernel/tracing/tracing_on' > /tmp/out || exit 3
             grep -E '^[0-9]+$' /tmp/out | sed \"s/^/$tracer /\"
             grep ^kerninst /proc/modules && exit 4
             echo hello > /tmp/f; sleep 1; kill $(pidof cat); grep -q hello /tmp/got || exit 5
             echo nop > $T/current_tracer; echo > $T/trace
         done
         echo > $T/set_ftrace_filter
         # A return probe and one at the entry.
         echo 'r:ki_r pipe_read' > $T/kprobe_events; echo 'p:ki_e pipe_read' >> $T/kprobe_events
         echo 1 > $T/events/kprobes/enable
         kerninst count --means versions --json $blocks -- sh -c '
             cat /tmp/f > /tmp/got & sleep 1; true' > /tmp/out || exit 6
         grep ^kerninst /proc/modules && exit 7
         echo again > /tmp/f; sleep 1; kill $(pidof cat); grep -q again /tmp/got || exit 8
         cat $T/kprobe_profile | sed 's/^ */probe /'
         echo 0 > $T/events/kprobes/enable; echo > $T/kprobe_events; kill $holder",
    )?;
    for tracer in ["function", "function_graph"] {
        let seen = output
            .lines()
            .filter_map(|l| l.strip_prefix(tracer)?.strip_prefix(' '));
        let seen = seen.filter_map(|n| n.trim().parse::<u64>().ok()).max();
        ensure(seen.is_some_and(|n| n > 0), || {
            format!("{tracer} saw nothing of vfs_read:\n{output}")
        })?;
    }
    for probe in ["ki_r", "ki_e"] {
        let row = output.lines().find(|l| l.contains(probe));
        let hits = row.and_then(|l| l.split_whitespace().nth(2)?.parse::<u64>().ok());
        ensure(hits.is_some_and(|n| n >= 1), || {
            format!("{probe} had no hits:\n{output}")
        })?;
    }
    Ok(())
}

fn asleep(context: &Context<'_>) -> TestResult {
    let output = guest(
        context,
        "mkfifo /tmp/f; sleep 1000 > /tmp/f & holder=$!; kerninst-torture text > /tmp/before
         for i in 1 2 3; do
             kerninst blocks pipe_read schedule anon_pipe_read --json -- sh -c 'cat /tmp/f > /tmp/got & sleep 1; \
                 for s in /proc/$(pidof cat)/stack; do cat $s; done' > /tmp/out 2> /tmp/err
             status=$?; [ $status = 0 ] || { cat /tmp/err; kerninst blocks pipe_read schedule --json -- sh -c 'cat /tmp/f > /tmp/got & sleep 1; cat /proc/$(pidof cat)/stack' > /tmp/out || exit 3; }
             grep -q 'pipe_read.kerninst' /tmp/out || { cat /tmp/out; exit 4; }
             grep ^kerninst /proc/modules && exit 5
             grep -o 'pipe_read[^ ]*' /proc/$(pidof cat)/stack; grep kerninst /proc/$(pidof cat)/stack && exit 6
             echo hello > /tmp/f; sleep 1; kill $(pidof cat); grep -q hello /tmp/got || exit 7
             grep '\"kerninst.blocks' /tmp/out
         done
         kerninst-torture text > /tmp/after; cmp /tmp/before /tmp/after || exit 8; kill $holder",
    )?;
    let violated = output.lines().find(|l| l.contains("\"violations\":[{"));
    ensure(violated.is_none(), || {
        format!("counts do not add up: {violated:?}")
    })?;
    ensure(output.contains("\"in_flight\":1"), || {
        format!("the sleeping visit is not shown:\n{output}")
    })
}

fn crash(context: &Context<'_>) -> TestResult {
    let outcome = context
        .lab()
        .smp(2)
        .run(
            "kerninst count --means versions 'block:sysrq_handle_crash/*' entry:sysrq_handle_crash 'block:__handle_sysrq/*' \
                'block:write_sysrq_trigger/*' -- sh -c 'echo c > /proc/sysrq-trigger'",
        )
        .map_err(|e| e.to_string())?;
    ensure(!outcome.is_success(), || "it did not crash".into())?;
    let report = outcome.report();
    let text = format!("{}{}{report}", outcome.stdout, outcome.stderr);
    let frames = [
        "sysrq_handle_crash.kerninst",
        "__handle_sysrq.kerninst",
        "write_sysrq_trigger.kerninst",
        "entry_SYSCALL_64_after_hwframe",
    ];
    let missing = frames.iter().find(|f| !text.contains(**f));
    ensure(missing.is_none(), || {
        format!("{missing:?} is not in the report:\n{text}")
    })
}

fn torture(context: &Context<'_>) -> TestResult {
    guest(
        context,
        "kerninst-guest load 200 >/dev/null &
         kerninst-torture --means versions storm --seconds 15 'block:vfs_read/*' 'block:tcp_sendmsg_locked/*' \
            'block:schedule/*' 'block:try_to_wake_up/*' 'block:__schedule/*' 'block:handle_mm_fault/*' 'block:do_sys_openat2/*' || exit 3
         kerninst-torture --means versions faults || exit 4
         kerninst-torture --means versions kill --times 12 'block:vfs_read/*' 'block:do_sys_openat2/*' 'block:schedule/*' 'block:__schedule/*'",
    )
    .map(|_| ())
}

fn old_bodies(session: &mut Session) -> TestResult {
    // A kernel thread sleeps in the middle of this function for good, and wakes up for work.
    let out = session.sh(
        "kerninst count --json 'block:worker_thread/*' -- sh -c 'for i in 1 2 3 4 5; do kerninst-guest files 20; sleep 0.2; done' | grep schema",
    )?;
    let points = lines(&out, "kerninst.count/1");
    ensure(!points.is_empty(), || out.clone())?;
    let splices = points.iter().filter(|p| p["tactic"] != "version");
    ensure(splices.count() == points.len(), || {
        format!("the loop of a kernel thread by a version: {out}")
    })?;
    let counted: u64 = points.iter().filter_map(|p| p["count"].as_u64()).sum();
    ensure(counted > 5, || {
        format!("worker threads woke up, and nothing was counted: {out}")
    })?;

    let out = session.sh("sleep 30 & one=$!; sleep 0.5
         kerninst blocks hrtimer_nanosleep -- sleep 0.1 2>&1; echo status $?
         kill $one")?;
    let told = |l: &&str| l.contains("finish there uncounted: hrtimer_nanosleep (1)");
    let still = |l: &&str| l.contains("not left to the end: hrtimer_nanosleep (1)");
    ensure(out.lines().any(|l| told(&l) && still(&l)), || {
        format!("the task that slept inside is not told: {out}")
    })?;
    ensure(out.contains("status 0"), || out.clone())
}

fn loop_heads(session: &mut Session) -> TestResult {
    let out = session.sh(
        "kerninst count --json entry:hrtimer_cancel exit:hrtimer_cancel insn:hrtimer_cancel -- kerninst-guest timers 60 | grep schema",
    )?;
    let count = |kind: &str| total(&out, "hrtimer_cancel", kind);
    let (entries, exits, fentry) = (count("entry"), count("exit"), count("insn"));
    ensure(entries > 0 && entries == exits && entries == fentry, || {
        format!("{entries} entries, {exits} exits, {fentry} at the fentry site: {out}")
    })
}

fn sealed_key(session: &mut Session) -> TestResult {
    // arch/x86/include/asm/entry-common.h: randomize_kstack_offset is a DEFINE_STATIC_KEY_MAYBE_RO, which every way to user space
    // asks.
    let out = session.sh(
        "kerninst count --means versions --json 'entry:*exit_to_user_mode_prepare*' entry:blake2s_compress -- kerninst-guest files 20 | grep schema",
    )?;
    let points = lines(&out, "kerninst.count/1");
    let counted: u64 = points.iter().filter_map(|p| p["count"].as_u64()).sum();
    let by_version = points.iter().any(|p| p["tactic"] == "version");
    ensure(by_version && counted >= 20, || out)
}

/// The kernel's reports of one stretch of its log: the place in the source, the function, and all the text.
fn reports(log: &str) -> Vec<(&str, &str, &str)> {
    let parts = log.split("WARNING: CPU:").skip(1);
    // "0 PID: 99 at fs/inode.c:336 drop_nlink+0x29/0x40"
    let parsed = parts.filter_map(|report| {
        let line = report.lines().next()?;
        let mut words = line.split(" at ").nth(1)?.split(' ');
        let (place, function) = (words.next()?, words.next()?);
        Some((place, function.split('+').next()?, report))
    });
    parsed.collect()
}

/// In which of a function's blocks that follow a WARN the visits went on, and how often.
fn resumed(function: &serde_json::Value) -> u64 {
    let edges = function["edges"].as_array().into_iter().flatten();
    let edges = edges.filter(|e| e["kind"] == "trap-resume");
    edges.filter_map(|e| e["count"].as_u64()).sum()
}

fn warns(context: &Context<'_>) -> TestResult {
    let output = guest(
        context,
        "once=$(awk '$3 ~ /^(__)?kvmalloc_node(_noprof)?$/ {print $3}' /proc/kallsyms)
         mount -t debugfs none /sys/kernel/debug 2>/dev/null; [ -e /sys/kernel/debug/clear_warn_once ] || exit 3
         dmesg -c > /dev/null
         warn() { kerninst-torture warn $1 > /tmp/out || exit 4; echo \"==== $2\"; dmesg -c; }
         blocks() { kerninst blocks --json drop_nlink remove_proc_entry $once -- kerninst-torture warn $1 > /tmp/out || exit 5
             echo \"==== $2\"; dmesg -c; grep kerninst.blocks/1 /tmp/out; }
         warn 2 plain; kerninst-torture text > /tmp/before
         blocks 5 armed
         # As if it had never happened: what warns once does so in the version too.
         echo 1 > /sys/kernel/debug/clear_warn_once; blocks 3 anew
         warn 2 after; kerninst-torture text > /tmp/after; cmp /tmp/before /tmp/after || exit 6
         grep ^kerninst /proc/modules && exit 7
         echo ==== end; echo \"once $once\"",
    )?;
    let part = |name: &str| {
        let text = output.split("==== ").find_map(|p| p.strip_prefix(name));
        text.ok_or_else(|| format!("no part {name}:\n{output}"))
    };
    let once = part("end")?.split_whitespace().nth(1).unwrap_or_default();
    let plain = reports(part("plain")?);
    for (name, times, version, of_once) in [
        ("plain", 2, false, 1),
        ("armed", 5, true, 0),
        ("anew", 3, true, 1),
        ("after", 2, false, 1),
    ] {
        let text = part(name)?;
        let seen = reports(text);
        for (function, wanted) in [
            ("drop_nlink", times),
            ("remove_proc_entry", times),
            (once, of_once),
        ] {
            let shown = if version {
                format!("{function}.kerninst")
            } else {
                function.to_string()
            };
            let these: Vec<_> = seen.iter().filter(|r| r.1 == shown).collect();
            ensure(these.len() == wanted, || {
                format!(
                    "{name}: {} WARNs of {shown}, not {wanted}:\n{text}",
                    these.len()
                )
            })?;
            let place = plain.iter().find(|r| r.1 == function).map(|r| r.0);
            for (at, _, report) in these {
                ensure(Some(*at) == place, || {
                    format!("{name}: {shown} warns at {at}, the original at {place:?}")
                })?;
                let frames = [
                    format!("RIP: 0010:{shown}+"),
                    " do_one_initcall+".into(),
                    " entry_SYSCALL_64_after_hwframe+".into(),
                ];
                for frame in frames {
                    let line = report.lines().find(|l| l.contains(&frame));
                    // With a question mark: found on the stack, but not on the way.
                    ensure(line.is_some_and(|l| !l.contains("? ")), || {
                        format!("{name}: {frame} is not in the report, or not on the way: {report}")
                    })?;
                }
            }
        }
        ensure(seen.len() == times * 2 + of_once, || {
            format!("{name}: other WARNs:\n{text}")
        })?;
        let counted = lines(text, "kerninst.blocks/1");
        ensure(counted.len() == if version { 3 } else { 0 }, || {
            format!("{name}: not all functions counted:\n{text}")
        })?;
        for f in &counted {
            let (resumed, entered) = (resumed(f), f["entered"].as_u64());
            ensure(f["exact"] == true && resumed == times as u64, || {
                format!("{name}: not exact, or resumed {resumed} times and not {times}: {f}")
            })?;
            // drop_nlink: one visit in four warns.
            let visits = if f["function"] == "drop_nlink" { 4 } else { 1 };
            ensure(entered >= Some(visits * times as u64), || {
                format!("{name}: only {entered:?} visits: {f}")
            })?;
        }
    }
    Ok(())
}

/// Some thousand counters in hundreds of versions take megabytes; a single kept area or module would show.
fn memory(session: &mut Session) -> TestResult {
    session.sh(
        "used() { awk '/^(VmallocUsed|Percpu):/ { sum += $2 } END { print sum }' /proc/meminfo; }
         cover() { kerninst cover 'vfs_*' 'pipe_*' 'do_*' -- ls / >/dev/null 2>&1 || exit 3; }
         cover
         before=$(used)
         cover; cover; cover
         # The kernel gives some of it back later, from a work queue.
         for i in 1 2 3 4 5 6 7 8 9 10; do
             after=$(used); [ $after -le $((before + 64)) ] && exit 0; sleep 1
         done
         echo \"$before kB before, $after kB after\" >&2; exit 4",
    )?;
    Ok(())
}
