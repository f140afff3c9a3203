//! Runs generated code in this process: on its own stack, with all registers and flags set before and looked at afterwards.
//! Kernel memory is imitated by the handler of the faults that reading it raises.

use std::arch::global_asm;
use std::ffi::c_void;
use std::ptr;

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
use kerninst_snippet::{Code, FaultSite};

use crate::make::{FILL, LEAVE, MIX, WORDS};
use crate::world::{filling, mixed};

/// What the assembly reads and writes; offsets are in it.
#[repr(C)]
struct State {
    regs: [u64; 16],
    flags: u64,
    host_rsp: u64,
    code: u64,
    left: u64,
}

global_asm!(
    // codegen_run(state): everything of the host that the code may change is saved on the host's stack.
    ".globl codegen_run",
    "codegen_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rdi + 136], rsp",
    "mov rsp, [rdi + 32]",
    "push qword ptr [rdi + 144]",
    "push qword ptr [rdi + 128]",
    "popfq",
    "mov rax, [rdi]",
    "mov rcx, [rdi + 8]",
    "mov rdx, [rdi + 16]",
    "mov rbx, [rdi + 24]",
    "mov rbp, [rdi + 40]",
    "mov rsi, [rdi + 48]",
    "mov r8, [rdi + 64]",
    "mov r9, [rdi + 72]",
    "mov r10, [rdi + 80]",
    "mov r11, [rdi + 88]",
    "mov r12, [rdi + 96]",
    "mov r13, [rdi + 104]",
    "mov r14, [rdi + 112]",
    "mov r15, [rdi + 120]",
    "mov rdi, [rdi + 56]",
    "ret",
    // The code leaves by LEAVE, or at its end. `mov` and `push` leave the flags as they are.
    ".globl codegen_left",
    "codegen_left:",
    "push rax",
    "mov rax, [rip + codegen_state]",
    "mov qword ptr [rax + 152], 1",
    "jmp 2f",
    ".globl codegen_exit",
    "codegen_exit:",
    "push rax",
    "mov rax, [rip + codegen_state]",
    "2:",
    "mov [rax + 8], rcx",
    "mov [rax + 16], rdx",
    "mov [rax + 24], rbx",
    "mov [rax + 40], rbp",
    "mov [rax + 48], rsi",
    "mov [rax + 56], rdi",
    "mov [rax + 64], r8",
    "mov [rax + 72], r9",
    "mov [rax + 80], r10",
    "mov [rax + 88], r11",
    "mov [rax + 96], r12",
    "mov [rax + 104], r13",
    "mov [rax + 112], r14",
    "mov [rax + 120], r15",
    "pushfq",
    "pop qword ptr [rax + 128]",
    "pop qword ptr [rax]",
    "mov [rax + 32], rsp",
    "mov rsp, [rax + 136]",
    "cld",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    // A callout: eax says which. The stack may be aligned in any way.
    ".globl codegen_callout",
    "codegen_callout:",
    "push rbp",
    "mov rbp, rsp",
    "and rsp, -16",
    "sub rsp, 64",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], rcx",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    "mov [rsp + 48], rax",
    "lea rax, [rbp + 8]",
    "mov [rsp + 56], rax",
    "mov rdi, rsp",
    "call {called}",
    // All that the calling convention lets it change.
    "movabs rcx, 0x1111111111111111",
    "movabs rdx, 0x2222222222222222",
    "movabs rsi, 0x6666666666666666",
    "movabs rdi, 0x7777777777777777",
    "mov r8, rdi",
    "mov r9, rdi",
    "mov r10, rdi",
    "mov r11, rdi",
    "mov rsp, rbp",
    "pop rbp",
    "ret",
    ".globl codegen_state",
    ".data",
    ".balign 8",
    "codegen_state: .quad 0",
    ".text",
    called = sym called,
);

unsafe extern "C" {
    fn codegen_run(state: *mut State);
    fn codegen_exit();
    fn codegen_left();
    fn codegen_callout();
    static mut codegen_state: *mut State;
}

/// What the handlers see of the run that is under way. One at a time.
struct Now {
    base: u64,
    len: u64,
    code: Code,
    rsp: u64,
    probed_at: u64,
    probed: *mut u8,
    calls: Vec<(u64, Vec<u64>)>,
    /// How many arguments each call passes: registers beyond hold anything.
    counts: Vec<usize>,
    wrong: Option<String>,
}

static mut NOW: Option<Now> = None;

fn now() -> &'static mut Now {
    // SAFETY: one thread runs generated code (the only test that does holds a lock), and its handlers run on that thread while
    // nobody else looks.
    unsafe { (*ptr::addr_of_mut!(NOW)).as_mut().expect("a run") }
}

impl Now {
    /// What is pushed before the instruction at this offset.
    fn depth(&self, offset: u64) -> u64 {
        let steps = self.code.stack.iter();
        let before = steps.take_while(|s| u64::from(s.offset) <= offset).last();
        u64::from(before.map_or(0, |s| s.pushed))
    }
}

/// The callouts, from assembly: six arguments, number, and the stack pointer that they were called with.
extern "C" fn called(frame: *const [u64; 8]) -> u64 {
    // SAFETY: the assembly passes eight quadwords.
    let frame = unsafe { *frame };
    let now = now();
    // SAFETY: the stack pointer at a call points to the return address.
    let back = unsafe { *(frame[7] as *const u64) };
    let depth = now.depth(back - now.base);
    if frame[7] + 8 != now.rsp - depth {
        now.wrong = Some(format!("at a call {depth} bytes are pushed, it says"));
    }
    let which = frame[6] as usize;
    let count = now.counts[which];
    let args = &frame[..count];
    let function = now.code.calls[which].target;
    if function == FILL {
        // SAFETY: the program passes an address in its frame.
        unsafe { *(args[0] as *mut u64) = filling(&args[1..]) };
    }
    let seen = if function == FILL { &args[1..] } else { args };
    now.calls.push((function, seen.to_vec()));
    mixed(seen)
}

/// Registers of a signal's context by hardware number.
const GREGS: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

extern "C" fn fault(signal: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a context to a handler with SA_SIGINFO.
    let gregs = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let rip = gregs[libc::REG_RIP as usize] as u64;
    // SAFETY: see `now`; a fault of the test itself finds no run.
    let now = unsafe { (*ptr::addr_of_mut!(NOW)).as_mut() };
    let site = now.and_then(|now| {
        let offset = rip.wrapping_sub(now.base);
        let found = |f: &&FaultSite| u64::from(f.offset) == offset;
        let site = now.code.faults.iter().find(found).copied()?;
        Some((now, site))
    });
    let Some((now, site)) = site else {
        // SAFETY: no other thread cares; the fault comes again, and ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    let offset = u64::from(site.offset);
    let depth = now.depth(offset);
    if gregs[libc::REG_RSP as usize] as u64 != now.rsp - depth {
        now.wrong = Some(format!("at a fault {depth} bytes are pushed, it says"));
    }
    if now.depth(u64::from(site.fixup)) != depth {
        now.wrong = Some("the stack differs at a fixup".into());
    }
    let bytes = now.code.bytes.get(offset as usize..).unwrap_or_default();
    let i = Decoder::with_ip(64, bytes, rip, DecoderOptions::NONE).decode();
    let memory = u32::from(i.op0_kind() != OpKind::Memory);
    let at = i.virtual_address(memory, 0, |r, _, _| match r.is_gpr() {
        true => Some(gregs[GREGS[r.number()] as usize] as u64),
        // The base of a segment.
        false => Some(0),
    });
    let size = i.memory_size().size();
    let within = at.unwrap_or(0).wrapping_sub(now.probed_at);
    let there = within < WORDS * 8 && within + size as u64 <= WORDS * 8;
    let writes = memory == 0;
    if !there || writes && within + size as u64 > WORDS * 4 {
        gregs[libc::REG_RIP as usize] = (now.base + u64::from(site.fixup)) as i64;
        return;
    }
    // SAFETY: `probed` has `WORDS` quadwords.
    let memory = unsafe { std::slice::from_raw_parts_mut(now.probed.add(within as usize), size) };
    if writes {
        let value = match i.op1_kind() {
            OpKind::Register => {
                gregs[GREGS[i.op1_register().full_register().number()] as usize] as u64
            }
            _ => i.immediate(1),
        };
        memory.copy_from_slice(&value.to_le_bytes()[..size]);
    } else {
        let raw = memory
            .iter()
            .rev()
            .fold(0u64, |n, b| n << 8 | u64::from(*b));
        let unused = 64 - 8 * size as u32;
        let value = match i.mnemonic() {
            Mnemonic::Movsx | Mnemonic::Movsxd => ((raw << unused) as i64 >> unused) as u64,
            _ => raw,
        };
        let to: Register = i.op0_register();
        gregs[GREGS[to.full_register().number()] as usize] = value as i64;
    }
    gregs[libc::REG_RIP as usize] = i.next_ip() as i64;
}

/// A page for code, a stack, and the handlers.
pub struct Runner {
    page: *mut u8,
    stack: Vec<u64>,
}

const PAGE: usize = 1 << 20;

/// What is left after a run.
pub struct After {
    pub regs: [u64; 16],
    pub flags: u64,
    pub left: bool,
    pub calls: Vec<(u64, Vec<u64>)>,
    pub wrong: Option<String>,
}

impl Runner {
    pub fn new() -> Runner {
        // SAFETY: a new mapping.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        // SAFETY: an action with a handler of the right kind, on the stack of whoever faults.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            for signal in [libc::SIGSEGV, libc::SIGBUS] {
                assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0);
            }
        }
        Runner {
            page: page.cast(),
            stack: vec![0; 1 << 16],
        }
    }

    /// The stack pointer that the code finds.
    pub fn rsp(&self, odd: bool) -> u64 {
        let top = &self.stack[(1 << 16) - 64] as *const u64 as u64;
        (top & !15) + 8 * u64::from(odd)
    }

    /// Runs code. `counts`: arguments of its calls, in order. `gs`: base of per-CPU memory.
    pub fn run(
        &mut self,
        code: &Code,
        counts: Vec<usize>,
        regs: [u64; 16],
        flags: u64,
        probed: (u64, &mut [u8]),
        gs: u64,
    ) -> After {
        let mut image = code.bytes.clone();
        let jump = |image: &mut Vec<u8>, to: unsafe extern "C" fn()| {
            image.extend([0xff, 0x25, 0, 0, 0, 0]);
            image.extend((to as usize as u64).to_le_bytes());
        };
        jump(&mut image, codegen_exit);
        for (n, site) in code.calls.iter().enumerate() {
            let stub = image.len() as u32;
            match site.target {
                LEAVE => jump(&mut image, codegen_left),
                MIX | FILL => {
                    image.push(0xb8);
                    image.extend((n as u32).to_le_bytes());
                    jump(&mut image, codegen_callout);
                }
                other => panic!("a call of {other:#x}"),
            }
            let field = site.offset as usize..site.offset as usize + 4;
            assert_eq!(&image[field.clone()], &[0; 4]);
            image[field].copy_from_slice(&(stub - site.offset - 4).to_le_bytes());
        }
        assert!(image.len() < PAGE);
        let mut state = State {
            regs,
            flags,
            host_rsp: 0,
            code: self.page as u64,
            left: 0,
        };
        // SAFETY: the page is ours, writable and executable; the code returns to `codegen_exit` or `codegen_left`, which restore
        // what the host needs; nothing of the host uses gs; the handlers look at `NOW` on this thread only.
        unsafe {
            ptr::copy_nonoverlapping(image.as_ptr(), self.page, image.len());
            NOW = Some(Now {
                base: self.page as u64,
                len: code.bytes.len() as u64,
                code: code.clone(),
                rsp: regs[4],
                probed_at: probed.0,
                probed: probed.1.as_mut_ptr(),
                calls: Vec::new(),
                counts,
                wrong: None,
            });
            const ARCH_SET_GS: u64 = 0x1001;
            assert_eq!(libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, gs), 0);
            codegen_state = &mut state;
            codegen_run(&mut state);
        }
        let now = now();
        let after = After {
            regs: state.regs,
            flags: state.flags,
            left: state.left != 0,
            calls: std::mem::take(&mut now.calls),
            wrong: now.wrong.take(),
        };
        let _ = now.len;
        // SAFETY: the run is over.
        unsafe { NOW = None };
        after
    }
}
