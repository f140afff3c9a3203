//! Faults in displaced instructions: every instruction of the kernel that may fault and has a fixup is made a point,
//! then user space passes bad pointers. A copy that faults must continue at its fixup, as the original would.

use crate::kill::nothing_left;
use crate::text::Snapshot;
use crate::{Failure, arm, live};
use kerninst::Point;
use kerninst_analysis::{Analysis, Sites};
use std::collections::BTreeSet;

pub fn run() -> Result<(), Failure> {
    let kernel = live()?;
    let analysis = Analysis::new(&kernel);
    let mut points = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in kernel.tables().extable.entries() {
        let Some(function) = analysis.function_at(entry.insn) else {
            continue;
        };
        let known = function
            .insn_at(entry.insn)
            .is_some_and(|i| i.sites.contains(Sites::EXTABLE));
        if known && seen.insert(entry.insn) {
            points.push(Point::insn(0, &function, entry.insn));
        }
    }
    calls("before")?;
    let before = Snapshot::take(&kernel)?;
    let session = arm(&analysis, &points)?;
    for _ in 0..200 {
        calls("armed")?;
    }
    let counts = session.read().map_err(|e| e.to_string())?;
    let armed = session.points().len();
    let hit = counts.counts.iter().filter(|c| c.total() > 0).count();
    session.disarm().map_err(|e| e.to_string())?;
    calls("after")?;
    before.check(&kernel)?;
    nothing_left()?;
    if hit < 5 {
        return Err(format!("only {hit} of {armed} points were executed"));
    }
    println!(
        "{}",
        serde_json::json!({"job": "faults", "armed": armed, "executed": hit})
    );
    Ok(())
}

/// System calls with bad pointers, which must fail with EFAULT, and the same with good ones, which must not.
fn calls(when: &str) -> Result<(), Failure> {
    /// In no process' address space; and one that is not canonical.
    const BAD: [usize; 2] = [0x10, 0x1234_5678_9abc_def0];
    let fd = || -> Result<[i32; 2], Failure> {
        let mut fds = [0; 2];
        // SAFETY: an array of two descriptors.
        match unsafe { libc::pipe(fds.as_mut_ptr()) } {
            0 => Ok(fds),
            _ => Err("pipe failed".into()),
        }
    };
    let [reader, writer] = fd()?;
    let mut buffer = [7u8; 600];
    let good = buffer.as_mut_ptr() as usize;
    let path = c"/proc/self/stat".as_ptr() as usize;
    let mut failure = None;
    let mut check = |what: &str, result: i64, bad: bool| {
        let error = std::io::Error::last_os_error().raw_os_error();
        let right = if bad {
            result == -1 && error == Some(libc::EFAULT)
        } else {
            result >= 0
        };
        if !right && failure.is_none() {
            failure = Some(format!("{when}: {what} gave {result}, errno {error:?}"));
        }
    };
    let mut all = |pointer: usize, path: usize, bad: bool| {
        // SAFETY: each call either gets a buffer of enough bytes of this frame or a pointer that the kernel must refuse.
        unsafe {
            check(
                "write",
                libc::syscall(libc::SYS_write, writer, pointer, 600usize),
                bad,
            );
            if !bad {
                check(
                    "read",
                    libc::syscall(libc::SYS_read, reader, pointer, 600usize),
                    bad,
                );
            }
            check(
                "newfstat",
                libc::syscall(libc::SYS_fstat, reader, pointer),
                bad,
            );
            check("uname", libc::syscall(libc::SYS_uname, pointer), bad);
            check(
                "getcwd",
                libc::syscall(libc::SYS_getcwd, pointer, 600usize),
                bad,
            );
            check("open", libc::syscall(libc::SYS_access, path, 0), bad);
            check("times", libc::syscall(libc::SYS_times, pointer), bad);
            check(
                "getrlimit",
                libc::syscall(libc::SYS_getrlimit, 0, pointer),
                bad,
            );
            check(
                "rt_sigpending",
                libc::syscall(libc::SYS_rt_sigpending, pointer, 8usize),
                bad,
            );
            check(
                "clock_gettime",
                libc::syscall(libc::SYS_clock_gettime, 1, pointer),
                bad,
            );
            check(
                "getcpu",
                libc::syscall(libc::SYS_getcpu, pointer, 0, 0),
                bad,
            );
            check(
                "getresuid",
                libc::syscall(libc::SYS_getresuid, pointer, pointer, pointer),
                bad,
            );
        }
    };
    for bad in BAD {
        all(bad, bad, true);
    }
    all(good, path, false);
    // SAFETY: descriptors of this function.
    unsafe {
        libc::close(reader);
        libc::close(writer);
    }
    failure.map_or(Ok(()), Err)
}
