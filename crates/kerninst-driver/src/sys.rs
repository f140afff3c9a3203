//! The system calls that no library offers in safe form: `init_module`, `delete_module` and the device's ioctls.
//! All unsafe code of this crate's user side is here, but for mapped memory (`area.rs`).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Calls `init_module(2)`.
pub(crate) fn init_module(image: &[u8]) -> io::Result<()> {
    // SAFETY: the image is readable for its length and the parameter string is NUL-terminated.
    let result = unsafe {
        libc::syscall(
            libc::SYS_init_module,
            image.as_ptr(),
            image.len(),
            c"".as_ptr(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Calls `delete_module(2)`, which fails at once if the module is in use.
pub(crate) fn delete_module(name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: the name is NUL-terminated.
    let result = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Types of the driver's ABI that an ioctl may carry: `repr(C)`, any bit pattern valid.
///
/// # Safety
/// The driver reads and writes exactly the type that the command is documented with (`abi::cmd`), and every user
/// address in it must be valid for what the driver does with it.
pub(crate) unsafe fn ioctl<T: Copy>(
    device: &OwnedFd,
    command: u32,
    argument: &mut T,
) -> io::Result<()> {
    loop {
        // SAFETY: by the caller's promise.
        let result = unsafe {
            libc::ioctl(
                device.as_raw_fd(),
                command.into(),
                std::ptr::from_mut(argument),
            )
        };
        if result >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Runs this thread on one CPU.
pub(crate) fn run_on(cpu: usize) -> io::Result<()> {
    // SAFETY: an all-zero set is valid; CPU_SET checks its bound below.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu >= libc::CPU_SETSIZE as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        libc::CPU_SET(cpu, &mut set);
        if libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// The CPUs this thread may run on now; given back by [`restore_affinity`].
pub(crate) fn affinity() -> io::Result<libc::cpu_set_t> {
    // SAFETY: the set is a plain bit array of the stated size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) == 0 {
            Ok(set)
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// Puts back what [`affinity`] told.
pub(crate) fn restore_affinity(set: &libc::cpu_set_t) {
    // SAFETY: a valid set of the stated size. Failure leaves the thread where it is, which harms nothing.
    unsafe {
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set);
    }
}

/// Makes a character device node, root only; `number` as sysfs prints it: `10:123`.
pub(crate) fn make_node(path: &str, number: &str) -> io::Result<()> {
    let parsed = number
        .trim()
        .split_once(':')
        .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let (major, minor) = parsed.ok_or(io::ErrorKind::InvalidData)?;
    let path = CString::new(path)?;
    // SAFETY: the path is NUL-terminated.
    let result = unsafe {
        libc::mknod(
            path.as_ptr(),
            libc::S_IFCHR | 0o600,
            libc::makedev(major, minor),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
