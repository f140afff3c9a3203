//! The driver's callouts, called by a module that is made here: its `init_module` goes through a list of calls in an area.
//! So they run in task context, in this process, and every result can be checked.

use crate::module::{self, Layout};
use crate::{Failure, live, nested};
use kerninst_driver::abi::{Callouts, MAX_FRAMES, callout};
use kerninst_driver::{Area, Device, Driver, Stacks, module_section};
use kerninst_kernel::Kernel;
use kerninst_patch::elf::Object;
use std::sync::atomic::Ordering;

const NAME: &str = "torture_call";
/// What `init_module` returns, so that the module goes away by itself.
const RESULT: i32 = libc::ECANCELED;
const PAGE: usize = 4096;
/// `X86_EFLAGS_AC`.
const AC: u64 = 1 << 18;
/// What a destination holds before.
const OLD: u8 = 0xa5;
/// Words of one call in the list: function, four arguments, result, flags afterwards, zero.
const WORDS: usize = 8;
/// Where in the area the destinations and the table of stacks are.
const DESTINATIONS: usize = 64 << 10;
const STRIDE: usize = 2048;
const TABLE: usize = 512 << 10;
const STACKS: u32 = 64;
const DEPTH: u32 = 32;

pub fn text(e: impl std::fmt::Display) -> Failure {
    e.to_string()
}

pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(what()) }
}

/// What the module puts in place of an argument.
mod own {
    /// An address of its `init_module`.
    pub const IP: u64 = 0x1111_1111_1111_1111;
    /// Its stack pointer there.
    pub const SP: u64 = 0x2222_2222_2222_2222;
    /// Its frame pointer.
    pub const BP: u64 = 0x3333_3333_3333_3333;
}

/// The calls, and what came of them.
pub struct List<'a> {
    area: &'a Area,
    calls: Vec<[u64; 5]>,
}

impl<'a> List<'a> {
    /// An empty one in this area.
    pub fn new(area: &'a Area) -> List<'a> {
        List {
            area,
            calls: Vec::new(),
        }
    }

    /// Adds a call; its index.
    pub fn call(&mut self, function: u64, arguments: [u64; 4]) -> usize {
        let [a, b, c, d] = arguments;
        self.calls.push([function, a, b, c, d]);
        self.calls.len() - 1
    }

    /// Adds a call with a destination of its own as first argument.
    fn copy(&mut self, function: u64, from: u64, len: u64) -> usize {
        let to = self.area.address() + (DESTINATIONS + self.calls.len() * STRIDE) as u64;
        self.call(function, [to, from, len, 0])
    }

    fn word(&self, at: usize) -> u64 {
        self.area
            .words()
            .get(at)
            .map_or(0, |w| w.load(Ordering::Acquire))
    }

    /// What a call returned.
    pub fn result(&self, call: usize) -> i64 {
        self.word(call * WORDS + 5) as i64
    }

    /// The destination of a call.
    fn bytes(&self, call: usize) -> Vec<u8> {
        let mut bytes = vec![0; STRIDE];
        assert!(self.area.copy_out(DESTINATIONS + call * STRIDE, &mut bytes));
        bytes
    }

    /// Has them made.
    pub fn run(&self, kernel: &Kernel) -> Result<(), Failure> {
        ensure(self.calls.len() * STRIDE + DESTINATIONS <= TABLE, || {
            "too many calls".into()
        })?;
        for (n, call) in self.calls.iter().enumerate() {
            for (word, value) in self.area.words().iter().skip(n * WORDS).zip(call) {
                word.store(*value, Ordering::Relaxed);
            }
        }
        let old = u64::from_ne_bytes([OLD; 8]);
        let place = self.area.words().iter().skip(DESTINATIONS / 8);
        place
            .take(self.calls.len() * STRIDE / 8)
            .for_each(|w| w.store(old, Ordering::Relaxed));
        let image = module_image(kernel, self.area.address(), self.calls.len())?;
        match module::load(&image) {
            Err(e) if e.raw_os_error() == Some(RESULT) => {}
            Err(e) => return Err(format!("the kernel refused the module: {e}")),
            Ok(()) => return Err("the module was to go away by itself".into()),
        }
        for n in 0..self.calls.len() {
            // They were called with this flag set, as between the kernel's `stac` and `clac`.
            let flags = self.word(n * WORDS + 6);
            ensure(flags & AC != 0, || {
                format!("call {n}: flags {flags:#x} afterwards")
            })?;
        }
        Ok(())
    }
}

/// The module: its frame pointer is what the unwinder goes on by where it finds no ORC data.
fn module_image(kernel: &Kernel, list: u64, count: usize) -> Result<Vec<u8>, Failure> {
    let layout = Layout::of(kernel)?;
    let mut object = Object::new();
    let section = object.section(".text", false, true, 16);
    let symbol = object.section_symbol(section);
    let mut code = vec![0xf3, 0x0f, 0x1e, 0xfa]; // endbr64
    code.extend([0x55, 0x48, 0x89, 0xe5, 0x53, 0x41, 0x54]); // push rbp; mov rbp, rsp; push rbx; push r12
    code.extend([0x48, 0xbb]);
    code.extend(list.to_le_bytes()); // mov rbx, list
    code.extend([0x41, 0xbc]);
    code.extend((count as u32).to_le_bytes()); // mov r12d, count
    let head = code.len();
    code.extend([0x41, 0xb8]);
    code.extend(MAX_FRAMES.to_le_bytes()); // mov r8d, MAX_FRAMES
    code.extend([0x48, 0x8b, 0x7b, 0x08]); // mov rdi, [rbx+8]
    for (offset, load, own, replace) in [
        (0x10, 0x73, own::IP, vec![0x48, 0x8d, 0x35, 0, 0, 0, 0]), // rsi: lea rsi, [rip]
        (0x18, 0x53, own::SP, vec![0x48, 0x89, 0xe2]),             // rdx: mov rdx, rsp
        (0x20, 0x4b, own::BP, vec![0x48, 0x89, 0xe9]),             // rcx: mov rcx, rbp
    ] {
        code.extend([0x48, 0xb8]);
        code.extend(own.to_le_bytes()); // mov rax, own
        code.extend([0x48, 0x8b, load, offset]); // mov register, [rbx+offset]
        code.extend([0x48, 0x39, load & 0x38 | 0xc0]); // cmp rax, register
        code.extend([0x75, replace.len() as u8]); // jne past
        code.extend(replace);
    }
    code.extend([0x9c, 0x81, 0x0c, 0x24]);
    code.extend((AC as u32).to_le_bytes()); // pushfq; or dword [rsp], AC
    code.push(0x9d); // popfq
    code.extend([0xff, 0x13]); // call [rbx]
    code.extend([0x9c, 0x8f, 0x43, 0x30]); // pushfq; pop [rbx+48]
    code.extend([0x9c, 0x81, 0x24, 0x24]);
    code.extend((!AC as u32).to_le_bytes()); // pushfq; and dword [rsp], !AC
    code.push(0x9d); // popfq
    code.extend([0x48, 0x89, 0x43, 0x28]); // mov [rbx+40], rax
    code.extend([0x48, 0x83, 0xc3, 8 * WORDS as u8]); // add rbx, 64
    code.extend([0x41, 0xff, 0xcc, 0x0f, 0x85]); // dec r12d; jnz head
    let back = head as i64 - (code.len() as i64 + 4);
    code.extend((back as i32).to_le_bytes());
    code.push(0xb8);
    code.extend((-RESULT).to_le_bytes()); // mov eax, -RESULT
    code.extend([0x41, 0x5c, 0x5b, 0x5d, 0xc3]); // pop r12; pop rbx; pop rbp; ret
    object.append(section, &code);
    // It never gets so far that `cleanup_module` is called.
    module::this_module(&mut object, &layout, NAME, symbol, 0, 0)?;
    module::information(&mut object, kernel, NAME, "")?;
    object.write().map_err(text)
}

pub fn run() -> Result<(), Failure> {
    let kernel = live()?;
    Driver::load(&kernel).map_err(text)?;
    let device = Device::open().map_err(text)?;
    let all = device.callouts().map_err(text)?;
    let observed = Device::observe().and_then(|d| d.callouts()).map_err(text)?;
    ensure(all == observed, || {
        "an observer is told other addresses".into()
    })?;
    addresses(&all)?;
    let area = device.area(1 << 20).map_err(text)?;
    times(&kernel, &all, &area)?;
    copies(&kernel, &all, &area)?;
    stacks(&kernel, &all, &area)?;
    nested::run(&kernel, &device, &all, &area)?;
    drop((area, device));
    ensure(Driver::unload().map_err(text)?, || {
        "the driver does not go".into()
    })?;
    println!("{{\"job\":\"callouts\"}}");
    Ok(())
}

/// Each is where the driver's function of that name is.
fn addresses(all: &Callouts) -> Result<(), Failure> {
    for (name, told) in [
        ("ki_time", all.time),
        ("ki_boot_time", all.boot_time),
        ("ki_str", all.str),
        ("ki_mem", all.mem),
        ("ki_kstack", all.kstack),
        ("ki_ustack", all.ustack),
        ("ki_bpf", all.bpf),
    ] {
        let there = module_section("kerninst", &format!(".text.{name}")).map_err(text)?;
        ensure(told == there, || {
            format!("{name}: {told:#x} told, {there:#x} is right")
        })?;
    }
    Ok(())
}

/// Nanoseconds of a clock.
fn clock(id: libc::clockid_t) -> i64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid place.
    unsafe { libc::clock_gettime(id, &mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

fn times(kernel: &Kernel, all: &Callouts, area: &Area) -> Result<(), Failure> {
    // What the clock may be adjusted by meanwhile.
    const SLACK: i64 = 1_000_000;
    for (function, id) in [
        (all.time, libc::CLOCK_MONOTONIC),
        (all.boot_time, libc::CLOCK_BOOTTIME),
    ] {
        let mut list = List::new(area);
        let calls = [0; 3].map(|_| list.call(function, [0; 4]));
        let before = clock(id);
        list.run(kernel)?;
        let after = clock(id);
        let [a, b, c] = calls.map(|n| list.result(n));
        ensure(
            before - SLACK <= a && a <= b && b <= c && c <= after + SLACK,
            || format!("clock {id}: {before} before, {a}, {b}, {c}, {after} after"),
        )?;
    }
    Ok(())
}

/// Two pages of which only the first stays mapped.
fn lonely_page() -> Result<&'static mut [u8], Failure> {
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping; its first page stays for the life of this process.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 2 * PAGE, access, flags, -1, 0);
        if at == libc::MAP_FAILED || libc::munmap(at.byte_add(PAGE), PAGE) != 0 {
            return Err(text(std::io::Error::last_os_error()));
        }
        Ok(std::slice::from_raw_parts_mut(at.cast(), PAGE))
    }
}

fn copies(kernel: &Kernel, all: &Callouts, area: &Area) -> Result<(), Failure> {
    let banner = kernel
        .symbols()
        .addr_of("linux_banner")
        .ok_or("no linux_banner")?;
    let page = lonely_page()?;
    let end = page.as_ptr() as u64 + PAGE as u64;
    page.fill(b'x');
    page[PAGE - 6..].copy_from_slice(b"hello\0");
    let long = vec![b'l'; 3 * PAGE];
    let long = long.as_ptr() as u64;
    let mut list = List::new(area);
    // Function, source, length, result, and what the destination starts with.
    let mut rows: Vec<(u64, u64, u64, i64, Vec<u8>)> = vec![
        (all.str, banner, 14, 13, b"Linux version\0".to_vec()),
        (all.mem, banner, 14, 14, b"Linux version ".to_vec()),
        (all.str, banner, 1, 0, vec![0]),
        // It ends where memory ends.
        (all.str, end - 6, 64, 5, [&b"hello"[..], &[0; 59]].concat()),
        (all.str, end - 6, 6, 5, b"hello\0".to_vec()),
        (all.str, end - 6, 4, 3, b"hel\0".to_vec()),
        (all.mem, end - 6, 6, 6, b"hello\0".to_vec()),
        (all.mem, end - 6, 7, callout::FAULT, vec![0; 7]),
        (all.mem, end - 2, 2, 2, b"o\0".to_vec()),
        (all.str, end - 1, 1024, 0, vec![0; 1024]),
        // Over a page's end, and cut off.
        (
            all.str,
            long,
            1024,
            1023,
            [vec![b'l'; 1023], vec![0]].concat(),
        ),
        (
            all.str,
            (long | 4095) - 9,
            1024,
            1023,
            [vec![b'l'; 1023], vec![0]].concat(),
        ),
        (all.mem, (long | 4095) - 9, 1024, 1024, vec![b'l'; 1024]),
    ];
    // Nothing there: user, first non-canonical, kernel, last non-canonical, round to zero.
    for from in [
        0,
        8,
        end,
        1 << 47,
        i64::MAX as u64,
        1 << 63,
        0xffff_7fff_ffff_ffff,
        u64::MAX - 4,
    ] {
        rows.push((all.str, from, 32, callout::FAULT, vec![0; 32]));
        rows.push((all.mem, from, 32, callout::FAULT, vec![0; 32]));
    }
    for len in [0, 1025, u64::MAX] {
        rows.push((all.str, banner, len, callout::ARGUMENT, Vec::new()));
        rows.push((all.mem, banner, len, callout::ARGUMENT, Vec::new()));
    }
    let calls: Vec<_> = rows
        .iter()
        .map(|(f, from, len, ..)| list.copy(*f, *from, *len))
        .collect();
    list.run(kernel)?;
    for (n, (function, from, len, result, mut bytes)) in calls.into_iter().zip(rows) {
        let name = if function == all.str { "str" } else { "mem" };
        let got = list.result(n);
        ensure(got == result, || {
            format!("{name} {from:#x}, {len}: {got} and not {result}")
        })?;
        bytes.resize(STRIDE, OLD);
        ensure(list.bytes(n) == bytes, || {
            format!("{name} {from:#x}, {len}: other bytes")
        })?;
    }
    // Used up to here, though only its address was.
    page.fill(0);
    Ok(())
}

fn stacks(kernel: &Kernel, all: &Callouts, area: &Area) -> Result<(), Failure> {
    let table = area.words().get(TABLE / 8..).ok_or("a small area")?;
    let table_at = area.address() + TABLE as u64;
    let stacks = Stacks::new(table, STACKS, DEPTH).map_err(text)?;
    let mut list = List::new(area);
    let own = [table_at, own::IP, own::SP, own::BP];
    let kernel_stacks = [0; 2].map(|_| list.call(all.kstack, own));
    let user_stacks =
        [0; 2].map(|_| list.call(all.ustack, [table_at, u64::from(MAX_FRAMES), 0, 0]));
    // The list itself is no table.
    let no_table = [
        list.call(all.kstack, [area.address(), own::IP, own::SP, own::BP]),
        list.call(all.ustack, [area.address(), 1, 0, 0]),
    ];
    // Nonsense is only the end of the stack.
    let lost = list.call(all.kstack, [table_at, 1, 2, 3]);
    list.run(kernel)?;
    for n in no_table {
        let got = list.result(n);
        ensure(got == callout::ARGUMENT, || format!("no table: {got}"))?;
    }
    let of = |n: usize| {
        let id = list.result(n);
        let frames = u64::try_from(id).ok().and_then(|id| stacks.get(id));
        frames.ok_or_else(|| format!("call {n}: {id}"))
    };
    let ids = kernel_stacks.map(|n| list.result(n));
    ensure(ids[0] == ids[1], || format!("one stack, ids {ids:?}"))?;
    let frames = of(kernel_stacks[0])?;
    let name = |at: &u64| {
        kernel
            .symbols()
            .containing(*at)
            .map(|(s, _)| s.id().to_string())
    };
    let names: Vec<_> = frames
        .iter()
        .skip(1)
        .map(|f| name(f).unwrap_or_default())
        .collect();
    // From the module's own place on to the entry, and nothing of the driver.
    let whole = names.first().is_some_and(|n| n == "do_one_initcall")
        && names.iter().any(|n| n == "do_init_module")
        && names
            .last()
            .is_some_and(|n| n.starts_with("entry_SYSCALL_64"));
    ensure(whole, || format!("kernel stack: {frames:x?} {names:?}"))?;
    let ids = user_stacks.map(|n| list.result(n));
    ensure(ids[0] == ids[1], || format!("one user stack, ids {ids:?}"))?;
    let frames = of(user_stacks[0])?;
    let here = frames.first().is_some_and(|at| in_own_code(*at));
    ensure(here, || format!("user stack: {frames:x?}"))?;
    ensure(of(lost)? == [1], || "a stack from nonsense".into())?;
    Ok(())
}

/// Is it an address of this process's code?
fn in_own_code(at: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter(|l| l.contains(" r-x")).any(|l| {
        let range = l.split_whitespace().next().and_then(|r| r.split_once('-'));
        let number = |t: &str| u64::from_str_radix(t, 16).unwrap_or(0);
        range.is_some_and(|(from, to)| (number(from)..number(to)).contains(&at))
    })
}
