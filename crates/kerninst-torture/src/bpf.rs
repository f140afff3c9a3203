//! BPF programs beside us: the smallest that count, through bpf(2) itself, attached while a command runs.
//!
//! Layouts: `union bpf_attr` and `struct bpf_insn` of include/uapi/linux/bpf.h, `struct perf_event_attr` of
//! include/uapi/linux/perf_event.h.

use crate::Failure;
use kerninst_kernel::{Btf, BtfKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;

/// Where a program is attached.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Attach {
    /// To a function's entry, through a BPF trampoline (what bpftrace calls fentry).
    Fentry,
    /// To a kprobe at FUNCTION or FUNCTION+OFFSET.
    Kprobe,
}

const MAP_CREATE: i32 = 0;
pub const MAP_LOOKUP_ELEM: i32 = 1;
const PROG_LOAD: i32 = 5;
const RAW_TRACEPOINT_OPEN: i32 = 17;
const MAP_TYPE_PERCPU_ARRAY: u32 = 6;
const PROG_TYPE_KPROBE: u32 = 2;
const PROG_TYPE_TRACING: u32 = 26;
const TRACE_FENTRY: u32 = 24;
/// `PERF_EVENT_IOC_SET_BPF` and `PERF_EVENT_IOC_ENABLE`.
const SET_BPF: libc::c_ulong = 0x4004_2408;
const ENABLE: libc::c_ulong = 0x2400;
/// More CPUs than any guest has: values of a per-CPU map come for every possible CPU.
const MOST_CPUS: usize = 1024;

/// An attribute structure, filled field by field at the offsets of the header files.
#[repr(C, align(8))]
pub struct Attr([u8; 144]);

impl Attr {
    /// All zeros.
    pub fn new() -> Attr {
        Attr([0; 144])
    }
    /// A field of 32 bits.
    pub fn u32(mut self, at: usize, value: u32) -> Attr {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }
    /// A field of 64 bits.
    pub fn u64(mut self, at: usize, value: u64) -> Attr {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self
    }
    /// The field of 32 bits there, which the kernel may have written.
    pub fn read_u32(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[at..at + 4]);
        u32::from_le_bytes(bytes)
    }
}

/// The system call.
pub fn bpf(what: &str, command: i32, attr: &mut Attr) -> Result<i32, Failure> {
    // SAFETY: the attribute lives during the call, and so does, by the callers, whatever it points to.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, attr.0.as_mut_ptr(), attr.0.len()) };
    if result < 0 {
        return Err(format!("bpf: {what}: {}", std::io::Error::last_os_error()));
    }
    Ok(result as i32)
}

/// A descriptor that the kernel has just given us.
pub fn owned(fd: i32) -> OwnedFd {
    // SAFETY: a descriptor that the kernel has just given us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// One instruction: code, registers, offset, immediate.
pub fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; 8] {
    let (o, i) = (off.to_le_bytes(), imm.to_le_bytes());
    [code, src << 4 | dst, o[0], o[1], i[0], i[1], i[2], i[3]]
}

/// Adds one to element 0 of the map, as bpftrace's count() does: a look-up of this CPU's value, then the addition (here
/// one atomic instruction, so that nothing is lost if the program is preempted).
fn counting(map: &OwnedFd) -> Vec<[u8; 8]> {
    vec![
        insn(0x62, 10, 0, -4, 0),             // *(u32 *)(r10 - 4) = 0
        insn(0xbf, 2, 10, 0, 0),              // r2 = r10
        insn(0x07, 2, 0, 0, -4),              // r2 -= 4
        insn(0x18, 1, 1, 0, map.as_raw_fd()), // r1 = map (two slots)
        insn(0, 0, 0, 0, 0),
        insn(0x85, 0, 0, 0, 1), // r0 = bpf_map_lookup_elem(r1, r2)
        insn(0x15, 0, 0, 2, 0), // if r0 == 0 goto +2
        insn(0xb7, 1, 0, 0, 1), // r1 = 1
        insn(0xdb, 0, 1, 0, 0), // lock *(u64 *)r0 += r1
        insn(0xb7, 0, 0, 0, 0), // r0 = 0
        insn(0x95, 0, 0, 0, 0), // exit
    ]
}

/// What ends with the attachment.
struct Attached {
    _fds: Vec<OwnedFd>,
}

fn load(attach: Attach, function: &str, program: &[[u8; 8]]) -> Result<OwnedFd, Failure> {
    let mut log = vec![0u8; 1 << 16];
    let license = c"GPL";
    let mut attr = Attr::new()
        .u32(4, program.len() as u32)
        .u64(8, program.as_ptr() as u64)
        .u64(16, license.as_ptr() as u64)
        .u32(24, 1)
        .u32(28, log.len() as u32)
        .u64(32, log.as_mut_ptr() as u64);
    attr = match attach {
        Attach::Kprobe => attr.u32(0, PROG_TYPE_KPROBE),
        Attach::Fentry => {
            let bytes = std::fs::read("/sys/kernel/btf/vmlinux").map_err(|e| e.to_string())?;
            let btf = Btf::parse(bytes).map_err(|e| e.to_string())?;
            let id = btf
                .find(BtfKind::Func, function)
                .ok_or_else(|| format!("bpf: no function {function} in BTF"))?;
            attr.u32(0, PROG_TYPE_TRACING)
                .u32(68, TRACE_FENTRY)
                .u32(108, id)
        }
    };
    match bpf("loading the program", PROG_LOAD, &mut attr) {
        Ok(fd) => Ok(owned(fd)),
        Err(e) => {
            let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
            Err(format!("{e}\n{}", String::from_utf8_lossy(&log[..end])))
        }
    }
}

fn attach_to(attach: Attach, place: &str, program: OwnedFd) -> Result<Attached, Failure> {
    if let Attach::Fentry = attach {
        let mut attr = Attr::new().u32(8, program.as_raw_fd() as u32);
        let link = owned(bpf("attaching", RAW_TRACEPOINT_OPEN, &mut attr)?);
        return Ok(Attached {
            _fds: vec![link, program],
        });
    }
    let (name, offset) = match place.split_once("+0x") {
        Some((name, digits)) => {
            let offset = u64::from_str_radix(digits, 16).map_err(|e| format!("{place}: {e}"))?;
            (name, offset)
        }
        None => (place, 0),
    };
    let name = std::ffi::CString::new(name).map_err(|e| e.to_string())?;
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/kprobe/type")
        .map_err(|e| format!("no kprobe events: {e}"))?;
    let kind: u32 = kind.trim().parse().map_err(|e| format!("{kind}: {e}"))?;
    // PERF_ATTR_SIZE_VER5; sample_period 1; config1: the name, config2: the offset.
    let attr = Attr::new()
        .u32(0, kind)
        .u32(4, 112)
        .u64(16, 1)
        .u64(56, name.as_ptr() as u64)
        .u64(64, offset);
    // SAFETY: the attribute and the name live during the call. Any process, CPU 0 (a kprobe's program runs on all).
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.0.as_ptr(), -1, 0, -1, 8) };
    if fd < 0 {
        return Err(format!(
            "perf_event_open at {place}: {}",
            std::io::Error::last_os_error()
        ));
    }
    let event = owned(fd as i32);
    for (request, argument) in [(SET_BPF, program.as_raw_fd()), (ENABLE, 0)] {
        // SAFETY: plain integers as arguments.
        if unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } != 0 {
            return Err(format!(
                "attaching to {place}: {}",
                std::io::Error::last_os_error()
            ));
        }
    }
    Ok(Attached {
        _fds: vec![event, program],
    })
}

fn read(map: &OwnedFd) -> Result<u64, Failure> {
    let key = 0u32;
    let mut values = vec![0u64; MOST_CPUS];
    let mut attr = Attr::new()
        .u32(0, map.as_raw_fd() as u32)
        .u64(8, &raw const key as u64)
        .u64(16, values.as_mut_ptr() as u64);
    bpf("reading the map", MAP_LOOKUP_ELEM, &mut attr)?;
    Ok(values.iter().sum())
}

/// Attaches, runs the command, detaches, and prints the program's own count.
pub fn run(attach: Attach, place: &str, empty: bool, command: &[String]) -> Result<(), Failure> {
    let mut attr = Attr::new()
        .u32(0, MAP_TYPE_PERCPU_ARRAY)
        .u32(4, 4)
        .u32(8, 8)
        .u32(12, 1);
    let map = owned(bpf("making a map", MAP_CREATE, &mut attr)?);
    let program = if empty {
        vec![insn(0xb7, 0, 0, 0, 0), insn(0x95, 0, 0, 0, 0)]
    } else {
        counting(&map)
    };
    let function = place.split('+').next().unwrap_or(place);
    let loaded = load(attach, function, &program)?;
    let attached = attach_to(attach, place, loaded)?;
    let status = Command::new(command.first().ok_or("no command")?)
        .args(&command[1..])
        .status()
        .map_err(|e| e.to_string())?;
    drop(attached);
    println!(
        "{}",
        serde_json::json!({"job": "bpf", "count": read(&map)?})
    );
    if !status.success() {
        return Err(format!("the command ended with {status}"));
    }
    Ok(())
}
