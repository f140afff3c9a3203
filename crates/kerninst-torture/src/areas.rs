//! Areas of the driver: made, mapped, refused, and given back however their owner ended.

use crate::{Failure, live};
use kerninst_driver::abi::{self, AREA_SHIFT, MAX_MAPPED};
use kerninst_driver::{Device, DeviceError, Driver};
use kerninst_kernel::Kernel;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const NODE: &str = "/dev/kerninst";
const PAGE: usize = 4096;
/// Kilobytes that the kernel may use for something else meanwhile.
const SLACK: u64 = 2048;

fn text(e: impl std::fmt::Display) -> Failure {
    e.to_string()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Kilobytes of vmalloc memory in use.
fn used() -> Result<u64, Failure> {
    let info = std::fs::read_to_string("/proc/meminfo").map_err(text)?;
    let line = info.lines().find_map(|l| l.strip_prefix("VmallocUsed:"));
    let number = line.and_then(|l| l.trim().strip_suffix(" kB"));
    number
        .and_then(|n| n.trim().parse().ok())
        .ok_or("no VmallocUsed".into())
}

/// All is given back (some of it later, from a work queue).
fn given_back(before: u64, when: &str) -> Result<(), Failure> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let now = used()?;
        if now <= before + SLACK {
            return Ok(());
        }
        ensure(Instant::now() < until, || {
            format!("{when}: {before} kB before, {now} kB after")
        })?;
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub fn run() -> Result<(), Failure> {
    let kernel = live()?;
    Driver::load(&kernel).map_err(text)?;
    let before = used()?;
    client(&kernel)?;
    given_back(before, "after a client")?;
    requests()?;
    given_back(before, "after requests")?;
    killed(before)?;
    ensure(Driver::unload().map_err(text)?, || {
        "the driver does not go".into()
    })?;
    println!("{{\"job\":\"areas\"}}");
    Ok(())
}

/// The client's interface.
fn client(kernel: &Kernel) -> Result<(), Failure> {
    let device = Device::open().map_err(text)?;
    let one = device.area(10_000).map_err(text)?;
    let two = device.area(1 << 20).map_err(text)?;
    ensure((one.len(), two.len()) == (12_288, 1 << 20), || {
        "other sizes".into()
    })?;
    ensure(
        one.address() >> 63 == 1 && one.address() != two.address(),
        || "addresses".into(),
    )?;
    for area in [&one, &two] {
        ensure(
            area.words().iter().all(|w| w.load(Ordering::Relaxed) == 0),
            || "not zeroed".into(),
        )?;
        for (n, word) in area.words().iter().enumerate() {
            word.store(area.address() ^ n as u64, Ordering::Relaxed);
        }
    }
    // What is written here is there: all of it, and each in its own.
    for area in [&one, &two] {
        let there = kernel.read(area.address(), area.len()).map_err(text)?;
        let mut here = vec![0; area.len()];
        ensure(area.copy_out(0, &mut here) && here == there, || {
            "the kernel has other bytes".into()
        })?;
        ensure(!area.copy_out(1, &mut here), || {
            "copied from outside".into()
        })?;
    }
    ensure(matches!(Device::open(), Err(DeviceError::InUse(_))), || {
        "a second opener".into()
    })?;
    Device::observe().map_err(text)?;
    for bytes in [0, MAX_MAPPED as usize + 1, usize::MAX] {
        ensure(
            matches!(device.area(bytes), Err(DeviceError::AreaSize { .. })),
            || format!("{bytes} bytes"),
        )?;
    }
    // More than there is: an error, and nobody is killed (we are alive, and the test reads the kernel's log).
    let mut kept = Vec::new();
    loop {
        match device.area(MAX_MAPPED as usize / 2) {
            Ok(area) => kept.push(area),
            Err(DeviceError::NoMemory { .. }) => break,
            Err(e) => return Err(format!("not told as lack of memory: {e}")),
        }
        ensure(kept.len() < 16, || "memory without end".into())?;
    }
    // An area outlives the device's value, as the mapping keeps the file.
    drop(device);
    one.words()
        .iter()
        .for_each(|w| w.store(1, Ordering::Relaxed));
    ensure(matches!(Device::open(), Err(DeviceError::InUse(_))), || {
        "open while mapped".into()
    })
}

/// An `ioctl`; the error's number.
fn make(file: &File, bytes: u64) -> Result<abi::Area, i32> {
    let mut area = abi::Area {
        bytes,
        ..Default::default()
    };
    // SAFETY: the command reads and writes that structure.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), abi::cmd::AREA.into(), &raw mut area) };
    if result == 0 { Ok(area) } else { Err(errno()) }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A mapping; the error's number.
fn map(file: &File, offset: u64, len: usize, write: bool, flags: i32) -> Result<*mut u8, i32> {
    let access = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            access,
            flags,
            file.as_raw_fd(),
            offset as libc::off_t,
        )
    };
    if at == libc::MAP_FAILED {
        Err(errno())
    } else {
        Ok(at.cast())
    }
}

/// Requests as no client of ours makes them.
fn requests() -> Result<(), Failure> {
    let file = File::options()
        .read(true)
        .write(true)
        .open(NODE)
        .map_err(text)?;
    for bytes in [
        0,
        1,
        4095,
        5000,
        MAX_MAPPED + 4096,
        1 << 63,
        u64::MAX,
        u64::MAX - 4095,
    ] {
        let answer = make(&file, bytes).map(|a| a.bytes);
        ensure(answer == Err(libc::EINVAL), || {
            format!("{bytes} bytes: {answer:?}")
        })?;
    }
    let area = make(&file, 2 * PAGE as u64).map_err(|e| format!("error {e}"))?;
    let (at, shared) = (area.number << AREA_SHIFT, libc::MAP_SHARED);
    let refused = [
        (at, 3 * PAGE, shared, libc::EINVAL, "more than the area"),
        (at, 1 << 40, shared, libc::EINVAL, "far more than the area"),
        (
            at + PAGE as u64,
            PAGE,
            shared,
            libc::EINVAL,
            "not from its start",
        ),
        (at, PAGE, libc::MAP_PRIVATE, libc::EINVAL, "private"),
        (0, PAGE, shared, libc::ENOENT, "no number"),
        (
            (area.number + 1) << AREA_SHIFT,
            PAGE,
            shared,
            libc::ENOENT,
            "next number",
        ),
        (
            0x7fff_ffff << AREA_SHIFT,
            PAGE,
            shared,
            libc::ENOENT,
            "last number",
        ),
        (
            u64::MAX << AREA_SHIFT,
            PAGE,
            shared,
            libc::ENOENT,
            "negative offset",
        ),
    ];
    for (offset, len, flags, expected, what) in refused {
        let answer = map(&file, offset, len, true, flags).map(|_| ());
        ensure(answer == Err(expected), || format!("{what}: {answer:?}"))?;
    }
    let reader = File::open(NODE).map_err(text)?;
    let answer = map(&reader, at, PAGE, false, shared).map(|_| ());
    ensure(answer == Err(libc::EPERM), || {
        format!("open for reading: {answer:?}")
    })?;
    let answer = make(&reader, PAGE as u64).map(|_| ());
    ensure(answer == Err(libc::EPERM), || {
        format!("made by a reader: {answer:?}")
    })?;

    let part = map(&file, at, PAGE, true, shared).map_err(|e| format!("a part: {e}"))?;
    let whole = map(&file, at, 2 * PAGE, true, shared).map_err(|e| format!("the whole: {e}"))?;
    // SAFETY: both are mapped for at least a page; the kernel moves or refuses, and does not grow.
    unsafe {
        part.write_volatile(77);
        ensure(whole.read_volatile() == 77, || {
            "two mappings of one area differ".into()
        })?;
        let grown = libc::mremap(whole.cast(), 2 * PAGE, 4 * PAGE, libc::MREMAP_MAYMOVE);
        ensure(grown == libc::MAP_FAILED, || "it grew".into())?;
    }
    forked()?;
    // The mappings are dropped with this call's end, by whole pages.
    // SAFETY: nobody uses them any more.
    unsafe {
        libc::munmap(part.cast(), PAGE);
        libc::munmap(whole.cast(), 2 * PAGE);
    }
    Ok(())
}

/// A forked child has no mapping (which would keep the device open after its parent).
fn forked() -> Result<(), Failure> {
    fn mapped() -> bool {
        std::fs::read_to_string("/proc/self/maps").is_ok_and(|m| m.contains(NODE))
    }
    ensure(mapped(), || "the parent has no mapping".into())?;
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child at once, without running the parent's destructors.
        unsafe { libc::_exit(i32::from(mapped())) };
    }
    ensure(child > 0, || "fork failed".into())?;
    let mut status = 0;
    // SAFETY: `status` is a valid place.
    unsafe { libc::waitpid(child, &mut status, 0) };
    ensure(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        || format!("the child has the mapping ({status:#x})"),
    )
}

/// Bytes of the area of a process that is killed.
const BIG: usize = 64 << 20;

/// An owner that is killed, with a child of its own that lives on: nothing is kept, and the next has the device at once.
fn killed(before: u64) -> Result<(), Failure> {
    for round in 0..8 {
        let (mut reader, mut writer) = std::io::pipe().map_err(text)?;
        // SAFETY: this process has one thread; the child only runs code that this process could run.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let told = owner(&mut writer);
            eprintln!("kerninst-torture: round {round}: {told:?}");
            // SAFETY: as in `forked`.
            unsafe { libc::_exit(1) };
        }
        ensure(child > 0, || "fork failed".into())?;
        drop(writer);
        let mut pid = [0; 4];
        let ready = reader
            .read_exact(&mut pid)
            .map_err(|_| format!("round {round}: the child failed"));
        let held = used()?;
        // SAFETY: a child of ours that is waited for here; then one of its own, that sleeps.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        ready?;
        let next = Device::open()
            .map(drop)
            .map_err(|e| format!("round {round}: {e}"));
        // SAFETY: as above.
        unsafe { libc::kill(i32::from_ne_bytes(pid), libc::SIGKILL) };
        next?;
        ensure(held >= before + (BIG as u64 >> 10), || {
            format!("only {held} kB were used")
        })?;
        given_back(before, "after a kill")?;
    }
    Ok(())
}

/// Has an area, a child, and waits for its end.
fn owner(writer: &mut impl Write) -> Result<(), Failure> {
    let device = Device::open().map_err(text)?;
    let area = device.area(BIG).map_err(text)?;
    area.words()
        .iter()
        .for_each(|w| w.store(1, Ordering::Relaxed));
    let child = std::process::Command::new("sleep")
        .arg("100")
        .spawn()
        .map_err(text)?;
    writer.write_all(&child.id().to_ne_bytes()).map_err(text)?;
    std::thread::sleep(Duration::from_secs(60));
    Err("not killed".into())
}
