//! A kernel made by hand: small, but with one of everything that `list` and `show` speak of.

#![allow(dead_code)] // Each test program uses a part of it.

pub mod debug;
pub mod walk;

use kerninst_cli::Fail;
use kerninst_cli::paint::Paint;
use kerninst_cli::ui::Ui;
use kerninst_kernel::{
    BugEntry, ExEntry, JumpLabel, Kernel, Module, OffLimit, OffLimitRange, OffLimits, Site, Table,
    Tables, Text,
};

pub const BASE: u64 = 0xffff_ffff_8100_0000;
const DATA: u64 = 0xffff_ffff_8200_0000;
const MODULE: u64 = 0xffff_ffff_c000_0000;

/// `alpha`: a loop over memory that may fault, a static key, a WARN behind it.
#[rustfmt::skip]
const ALPHA: &[u8] = &[
    0x0f, 0x1f, 0x44, 0x00, 0x00, // +0x00 nopl (fentry)
    0x31, 0xc0,                   // +0x05 xor eax, eax
    0x48, 0x85, 0xff,             // +0x07 test rdi, rdi
    0x74, 0x11,                   // +0x0a je +0x1d
    0x48, 0x03, 0x07,             // +0x0c add rax, [rdi]; fixup +0x1d
    0x48, 0x83, 0xc7, 0x08,       // +0x0f add rdi, 8
    0x48, 0xff, 0xce,             // +0x13 dec rsi
    0x75, 0xf4,                   // +0x16 jne +0x0c
    0x0f, 0x1f, 0x44, 0x00, 0x00, // +0x18 nopl (static key, to +0x20)
    0xc3,                         // +0x1d ret
    0xcc, 0xcc,
    0x0f, 0x0b,                   // +0x20 ud2 (WARN)
    0xeb, 0xf9,                   // +0x22 jmp +0x1d
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
];
/// The first `helper`: loads a string, and calls `alpha` in a tail call.
#[rustfmt::skip]
const HELPER: &[u8] = &[
    0x0f, 0x1f, 0x44, 0x00, 0x00, // nopl (fentry)
    0x48, 0xc7, 0xc7, 0x00, 0x02, 0x00, 0x82, // mov rdi, string
    0xe9, 0xbf, 0xff, 0xff, 0xff, // jmp alpha
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
];
/// The second `helper`, and the module's.
const HELPER2: &[u8] = &[0x0f, 0x1f, 0x44, 0x00, 0x00, 0x31, 0xc0, 0xc3];
/// `early_entry`: no instrumentation there.
const ENTRY: &[u8] = &[0x90, 0xc3];

pub fn kernel() -> Kernel {
    let mut text = vec![0xcc; 16];
    for part in [ALPHA, HELPER, HELPER2, ENTRY] {
        text.extend(part);
        while !text.len().is_multiple_of(16) {
            text.push(0xcc);
        }
    }
    let (alpha, helper, helper2, entry) = (BASE + 0x10, BASE + 0x40, BASE + 0x60, BASE + 0x70);
    let mut data = vec![0; 0x300];
    data[0x100..0x10a].copy_from_slice(b"fs/demo.c\0");
    data[0x200..0x210].copy_from_slice(b"\x016hello & <bye>\0");
    let tables = Tables {
        fentry: Table::new(
            [alpha, helper, helper2, MODULE]
                .map(|addr| Site { addr })
                .to_vec(),
        ),
        extable: Table::new(vec![ExEntry {
            insn: alpha + 0xc,
            fixup: alpha + 0x1d,
            data: 0,
        }]),
        jump_labels: Table::new(vec![JumpLabel {
            code: alpha + 0x18,
            target: alpha + 0x20,
            key: DATA + 0x10,
        }]),
        bugs: Table::new(vec![BugEntry {
            addr: alpha + 0x20,
            file: DATA + 0x100,
            line: 42,
            flags: 1,
        }]),
        ..Tables::default()
    };
    let off_limits = OffLimits::new(vec![OffLimitRange {
        range: entry..entry + 16,
        why: OffLimit::Noinstr,
    }]);
    Kernel::builder()
        .live()
        .release("6.12.0-demo")
        .symbol("_stext", BASE, 'T')
        .symbol("alpha", alpha, 'T')
        .symbol("alpha_alias", alpha, 'W')
        .symbol("helper", helper, 't')
        .symbol("helper", helper2, 't')
        .symbol("early_entry", entry, 'T')
        .symbol("jiffies", DATA, 'D')
        .symbol("demo_key", DATA + 0x10, 'd')
        .module_symbol("mod", "helper", MODULE, 't')
        .text(BASE, &text)
        .data(DATA, &data)
        .add_text(Text {
            module: Some("mod".into()),
            start: MODULE,
            bytes: HELPER2.to_vec(),
            init: false,
        })
        .module(Module::new("mod", MODULE..MODULE + 8))
        .tables(tables)
        .off_limits(off_limits)
        .build()
}

/// Runs something with an [`Ui`] and gives stdout, and the error with its exit code.
pub fn capture(run: impl FnOnce(&mut Ui) -> Result<(), Fail>) -> String {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut ui = Ui {
        out: &mut out,
        err: &mut err,
        paint: Paint(false),
        err_paint: Paint(false),
    };
    let result = run(&mut ui);
    let mut text = String::from_utf8(out).expect("output is UTF-8");
    for line in String::from_utf8(err).expect("messages are UTF-8").lines() {
        text += &format!("stderr: {line}\n");
    }
    if let Err(e) = result {
        text += &format!("exit {}: {e}\n", e.code());
    }
    text
}
