//! BPF programs at points.

use super::{ensure, lines, lines_of};
use crate::suite::{Kernels, LabTest, Run, Session, TestResult};
use std::time::Duration;

/// The table.
pub const TESTS: &[LabTest] = &[LabTest {
    name: "attach: a BPF program runs at each visit, with the registers there; refused and nested ones do no harm",
    catches: "a visit that is lost or not counted, a register in another's place, a map that nobody else sees, a program that \
              runs within itself or hangs, a verifier's no that is not told, and a program that stays in the kernel",
    kernels: Kernels::All,
    timeout: Duration::from_secs(300),
    quick: true,
    run: Run::Shared(attach),
}];

/// Runs and skipped visits of all `kerninst attach` in this output.
fn runs(output: &str) -> (u64, u64) {
    let ends = lines(output, "kerninst.attach/1");
    let sum = |key: &str| ends.iter().filter_map(|l| l[key].as_u64()).sum();
    (sum("ran"), sum("skipped"))
}

/// The words of the map that `kerninst-torture bpf-map` printed last.
fn words(output: &str) -> Vec<u64> {
    let line = lines_of(output).filter(|v| v["job"] == "map").last();
    let words = line.and_then(|l| l["words"].as_array().cloned());
    let word = |w: &serde_json::Value| {
        let digits = w.as_str()?.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    };
    words.iter().flatten().filter_map(word).collect()
}

fn attach(session: &mut Session) -> TestResult {
    let before = session
        .sh("kerninst-torture text; mkdir -p /tmp/bpf; kerninst-torture bpf-objects /tmp/bpf")?;
    counts(session)?;
    registers(session)?;
    refused(session)?;
    nested(session)?;
    let after = session.sh("kerninst-torture text
         sleep 1
         lsmod | grep -q kerninst && exit 4
         dmesg | grep -iE 'WARNING|BUG:|scheduling while|imbalance' && exit 5
         kerninst-torture bpf-map >/tmp/bpf/last
         grep -q '\"id\":0,' /tmp/bpf/last || { cat /tmp/bpf/last; exit 6; }")?;
    ensure(before == after, || {
        format!("text differs:\n{before}{after}")
    })
}

/// On both CPUs at once, by a splice and in a version.
fn counts(session: &mut Session) -> TestResult {
    for means in ["splices", "versions"] {
        let output = session.sh(&format!(
            "kerninst attach --json --means {means} /tmp/bpf/programs.o:count entry:__do_sys_getppid -- sh -c \"
                kerninst-guest getppid-all-cpus 5001 >/dev/null
                kerninst-torture bpf-map\""
        ))?;
        let (ran, skipped) = runs(&output);
        // The shell may make one call of its own, and so may the program that reads the map.
        ensure((5001..=5003).contains(&ran) && skipped == 0, || {
            format!("{ran} runs of 5001 by {means}, {skipped} skipped:\n{output}")
        })?;
        let seen = words(&output);
        ensure(
            seen.first().is_some_and(|n| (5001..=ran).contains(n)),
            || format!("the program saw {seen:x?} of {ran}"),
        )?;
    }
    Ok(())
}

/// At the jump from `__x64_sys_read` to `ksys_read`, whose arguments have just been loaded.
fn registers(session: &mut Session) -> TestResult {
    let output = session.sh("grep -w __x64_sys_read /proc/kallsyms
         kerninst attach --json /tmp/bpf/programs.o:count exit:__x64_sys_read -- sh -c \"
            dd if=/proc/cpuinfo of=/dev/null bs=4919 count=1 2>/dev/null
            kerninst-torture bpf-map\"")?;
    let entry = output.split_whitespace().next();
    let entry = entry.and_then(|t| u64::from_str_radix(t, 16).ok());
    let seen = words(&output);
    let [
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        dx,
        si,
        di,
        orig_ax,
        ip,
        cs,
        flags,
        sp,
        ss,
    ] = seen.as_slice()
    else {
        return Err(format!("{} words: {output}", seen.len()));
    };
    let offset = ip.wrapping_sub(entry.unwrap_or(0));
    let right = *dx == 4919
        && *di < 64
        && *si > 4096
        && *si < 1 << 47
        && *orig_ax == u64::MAX
        && (8..32).contains(&offset)
        && *cs == 0x10
        && *flags == 2
        // With five levels of page tables the kernel begins lower than with four.
        && *sp >= 0xff00_0000_0000_0000
        && sp % 8 == 0
        && *ss == 0x18;
    ensure(right, || {
        format!("registers {seen:x?} at the end of {entry:x?}:\n{output}")
    })
}

/// The verifier's no, with its reason, and what is no program here.
fn refused(session: &mut Session) -> TestResult {
    for (program, said) in [
        ("programs.o:bad", "invalid bpf_context access off=4000"),
        ("programs.o:none", "it has bad, count, helper"),
        ("programs.o", "add one of :bad, :count, :helper"),
        ("missing.o:x", "cannot read"),
    ] {
        let done = session.run(&format!(
            "kerninst attach /tmp/bpf/{program} entry:__do_sys_getppid -- echo armed"
        ))?;
        let status = if program.ends_with("none") { 1 } else { 2 };
        ensure(
            done.status == status && done.stderr.contains(said) && !done.stdout.contains("armed"),
            || {
                format!(
                    "{program}: status {}, {}{}",
                    done.status, done.stdout, done.stderr
                )
            },
        )?;
    }
    Ok(())
}

/// A function that a helper calls: the visit within the program is skipped and counted.
fn nested(session: &mut Session) -> TestResult {
    let output = session.sh(
        "kerninst attach --json /tmp/bpf/programs.o:helper entry:__do_sys_getppid entry:copy_from_kernel_nofault -- \
            kerninst-guest getppid-all-cpus 501",
    )?;
    let (ran, skipped) = runs(&output);
    ensure(ran >= 501 && skipped >= 501, || {
        format!("{ran} runs, {skipped} skipped of 501 each:\n{output}")
    })
}
