//! Machines on which counting cannot work, or works only partly: a right sentence and exit code, and nothing armed.

use super::{ensure, lines, succeed};
use crate::suite::{Context, Kernels, LabTest, Run, Session, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[
    LabTest {
        name: "machine: hidden addresses, no BTF, foreign drivers, no root, signatures, modules switched off",
        catches: "a riddle in place of a reason, a wrong exit code, or something left armed, on a machine that does not allow it",
        kernels: Kernels::All,
        timeout: Duration::from_secs(180),
        quick: false,
        run: Run::Own(restrictions),
    },
    LabTest {
        name: "machine: kernel lockdown",
        catches: "doctor or count that do not know lockdown (secure boot)",
        kernels: Kernels::First,
        timeout: Duration::from_secs(120),
        quick: false,
        run: Run::Own(lockdown),
    },
    LabTest {
        name: "machine: processors go offline and come back, armed and while arming",
        catches: "counts of a processor that is gone, a proof that waits for it, text writing that dies with it",
        kernels: Kernels::All,
        timeout: Duration::from_secs(300),
        quick: false,
        run: Run::Shared(hotplug),
    },
];

/// Runs a script in a guest of its own, which must not crash; gives both outputs.
fn guest(context: &Context<'_>, append: &str, script: &str) -> Result<(String, String), String> {
    let mut lab = context.lab().smp(2);
    if !append.is_empty() {
        lab = lab.append(append);
    }
    let outcome = succeed(lab, script)?;
    Ok((outcome.stdout, outcome.stderr))
}

/// What `doctor` (its bad checks) and `count` say in one situation, after "== NAME" lines.
struct Said {
    doctor: String,
    count: String,
    status: String,
    left: String,
}

/// A function of shell that asks doctor and count, and looks at what is left.
const ASK: &str = r#"
ask() {
    echo "== $1"; shift
    "$@" kerninst doctor > /tmp/doctor 2>&1; ds=$?; grep '^bad' /tmp/doctor | sed 's/^/doctor /'
    "$@" kerninst count entry:vfs_read -- true > /tmp/count 2>&1; cs=$?; sed 's/^/count /' /tmp/count
    echo "status $ds $cs"
    echo "left $(cut -d' ' -f1 /proc/modules | grep -c '^kerninst')"
}
"#;

fn said(output: &str, name: &str) -> Result<Said, String> {
    let section = output
        .split("== ")
        .find(|s| s.lines().next() == Some(name))
        .ok_or_else(|| format!("no section {name}: {output}"))?;
    let all = |word: &str| -> String {
        let lines = section.lines().filter_map(|l| l.strip_prefix(word));
        lines.collect::<Vec<_>>().join("\n")
    };
    Ok(Said {
        doctor: all("doctor "),
        count: all("count "),
        status: all("status "),
        left: all("left "),
    })
}

/// One situation: what doctor's and count's sentences must contain.
fn check(output: &str, name: &str, doctor: &str, count: &str) -> TestResult {
    let s = said(output, name)?;
    let right = s.status == "2 2"
        && s.left == "0"
        && s.doctor.contains(doctor)
        && s.count.contains(count)
        && s.count.lines().count() == 1
        && !s.count.contains("panicked");
    ensure(right, || {
        format!(
            "{name}: status {} (2 2), left {} (0), doctor (wants {doctor:?}):\n{}\ncount (wants {count:?}):\n{}",
            s.status, s.left, s.doctor, s.count
        )
    })
}

fn restrictions(context: &Context<'_>) -> TestResult {
    let script = format!(
        "{ASK}
         echo 'nobody:x:65534:65534::/tmp:/bin/sh' > /etc/passwd; echo 'nobody:x:65534:' > /etc/group
         as_nobody() {{ su nobody -s /bin/sh -c \"$*\"; }}
         kerninst-torture text > /tmp/before
         ask nobody as_nobody
         echo 2 > /proc/sys/kernel/kptr_restrict; ask hidden; echo 0 > /proc/sys/kernel/kptr_restrict
         mount -t tmpfs none /sys/kernel/btf; ask btf; umount /sys/kernel/btf
         kerninst-torture impostor load; ask impostor
         mknod /dev/kerninst c 1 3; ask null; rm /dev/kerninst; kerninst-torture impostor unload
         kerninst count entry:vfs_read -- cat /proc/version >/dev/null; echo works $?
         echo 1 > /sys/module/module/parameters/sig_enforce; ask signatures
         echo 1 > /proc/sys/kernel/modules_disabled; ask disabled
         kerninst-torture text | cmp - /tmp/before && echo same"
    );
    let (output, errors) = guest(context, "", &script)?;
    check(
        &output,
        "nobody",
        "run as root",
        "root (CAP_SYS_RAWIO) is needed",
    )?;
    check(&output, "hidden", "kptr_restrict", "kptr_restrict")?;
    check(&output, "btf", "BTF", "BTF")?;
    // Only here something called kerninst is loaded: not by us.
    for name in ["impostor", "null"] {
        let left = output.replace("left 1", "left 0");
        check(&left, name, "/dev/kerninst", "/dev/kerninst")?;
    }
    check(&output, "signatures", "sig_enforce", "signed modules only")?;
    check(&output, "disabled", "modules_disabled", "modules_disabled")?;
    for line in ["works 0", "same"] {
        ensure(output.lines().any(|l| l == line), || {
            format!("no {line:?}: {output}{errors}")
        })?;
    }
    Ok(())
}

fn lockdown(context: &Context<'_>) -> TestResult {
    let script = format!(
        "{ASK}\nask integrity\necho confidentiality > /sys/kernel/security/lockdown\nask confidentiality"
    );
    let (output, _) = guest(context, "lockdown=integrity", &script)?;
    check(&output, "integrity", "locked down", "locked down")?;
    check(
        &output,
        "confidentiality",
        "/proc/kcore",
        "lockdown in confidentiality",
    )
}

fn hotplug(session: &mut Session) -> TestResult {
    let cpu1 = "/sys/devices/system/cpu/cpu1/online";
    let before = session.sh("kerninst-torture text")?;
    // Armed: what the second processor counted stays counted when it is gone, and it counts again when it is back.
    let output = session.sh(&format!(
        "kerninst count --means splices --json entry:__x64_sys_getppid exit:__x64_sys_getppid 'block:schedule/*' -- sh -c '
            kerninst-guest getppid-all-cpus 501 >/dev/null
            echo 0 > {cpu1} || exit 1; kerninst-guest getppid-all-cpus 300 >/dev/null
            echo 1 > {cpu1} || exit 1; kerninst-guest getppid-all-cpus 501 >/dev/null'"
    ))?;
    for kind in ["entry", "exit"] {
        let n = total_getppid(&output, kind);
        // The shell makes one call of its own as it starts.
        ensure((1302..=1303).contains(&n), || {
            format!("{kind} counts {n} of 1302 (or 1303):\n{output}")
        })?;
    }
    // While arming and disarming: the processor comes and goes all the time.
    let output = session.sh(&format!(
        "(while [ ! -e /tmp/over ]; do echo 0 > {cpu1}; echo 1 > {cpu1}; done) & toggles=$!
         for i in 1 2 3 4; do
            kerninst count --means splices --json entry:__x64_sys_getppid exit:__x64_sys_getppid 'block:schedule/*' 'block:vfs_read/*' 'entry:tcp_*' \
                -- kerninst-guest getppid 700 2>/tmp/err || {{ cat /tmp/err; touch /tmp/over; exit 1; }}
         done | grep -e getppid -e summary
         touch /tmp/over; wait $toggles; rm /tmp/over; kerninst reset >&2; cat /sys/devices/system/cpu/online
         cut -d' ' -f1 /proc/modules | grep kerninst; true"
    ))?;
    for kind in ["entry", "exit"] {
        let n = total_getppid(&output, kind);
        ensure(n == 2800, || {
            format!("{kind} counts {n} of 2800:\n{output}")
        })?;
    }
    ensure(output.lines().any(|l| l == "0-1"), || {
        format!("the second processor is not back: {output}")
    })?;
    ensure(!output.lines().any(|l| l.starts_with("kerninst")), || {
        format!("still loaded: {output}")
    })?;
    let complete = lines(&output, "kerninst.summary/1");
    ensure(
        complete.len() == 4 && complete.iter().all(|s| s["complete"] == true),
        || format!("{complete:?}"),
    )?;
    let after = session.sh("kerninst-torture text")?;
    ensure(before == after, || {
        format!("text differs:\n{before}{after}")
    })
}

fn total_getppid(output: &str, kind: &str) -> u64 {
    let rows = lines(output, "kerninst.count/1");
    let known = rows.iter().filter(|v| {
        v["kind"] == kind && v["probe"].as_str().is_some_and(|p| p.ends_with("getppid"))
    });
    known.filter_map(|v| v["count"].as_u64()).sum()
}
