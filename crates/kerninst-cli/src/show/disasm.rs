//! Disassembly with names.

use std::cell::RefCell;
use std::rc::Rc;

use iced_x86::{
    Decoder, DecoderOptions, Formatter, GasFormatter, Instruction, Mnemonic, NasmFormatter, OpKind,
    Register, SymbolResolver, SymbolResult,
};
use kerninst_analysis::Function;
use kerninst_kernel::{Kernel, SymbolKind};

use crate::args::Syntax;

/// Names addresses within one function by offset, others by symbol.
#[derive(Clone)]
pub struct Namer<'a> {
    kernel: &'a Kernel,
    function: &'a Function,
}

impl<'a> Namer<'a> {
    /// For this function.
    pub fn new(kernel: &'a Kernel, function: &'a Function) -> Namer<'a> {
        Namer { kernel, function }
    }

    /// `+0x1c` for a place in the main part, `cold+0x4` in a cold one (`cold2` in the second).
    pub fn offset(&self, addr: u64) -> Option<String> {
        let part = self
            .function
            .ranges
            .iter()
            .position(|r| r.contains(&addr))?;
        let start = self.function.ranges.get(part)?.start;
        let offset = addr.wrapping_sub(start);
        Some(match part {
            0 => format!("+{offset:#x}"),
            1 => format!("cold+{offset:#x}"),
            n => format!("cold{n}+{offset:#x}"),
        })
    }

    /// How to name a point there: `function+0x1c`. A cold part lies anywhere, so its own symbol is used.
    pub fn point(&self, addr: u64) -> String {
        match self.function.ranges.first() {
            Some(main) if main.contains(&addr) => {
                format!("{}+{:#x}", self.function.id, addr.wrapping_sub(main.start))
            }
            _ => match self.kernel.symbols().containing(addr) {
                Some((s, offset)) if s.is_text() => format!("{}+{offset:#x}", s.id()),
                _ => format!("{addr:#x}"),
            },
        }
    }

    /// Symbol and offset, or a bare address.
    pub fn name(&self, addr: u64) -> String {
        self.symbol(addr).unwrap_or_else(|| format!("{addr:#x}"))
    }

    fn symbol(&self, addr: u64) -> Option<String> {
        let symbols = self.kernel.symbols();
        let (mut s, offset) = symbols.containing(addr)?;
        if s.name == "__x86_indirect_thunk_array" {
            // The array's first thunk has the same address and a name that says more.
            let all = symbols.at(s.addr);
            s = all.into_iter().find(|o| o.name != s.name).unwrap_or(s);
        }
        // Far beyond a symbol of data its name says nothing.
        let far = if s.is_text() { 1 << 20 } else { 1 << 14 };
        (offset < far).then(|| match offset {
            0 => s.name.to_string(),
            n => format!("{}+{n:#x}", s.name),
        })
    }

    /// Per-CPU variables have small addresses: offsets into each CPU's area.
    fn per_cpu(&self, offset: u64) -> Option<String> {
        let (s, into) = self.kernel.symbols().containing(offset)?;
        let data = !s.is_text() && s.kind != SymbolKind::Rodata;
        (data && into < 1 << 16).then(|| match into {
            0 => s.name.to_string(),
            n => format!("{}+{n:#x}", s.name),
        })
    }
}

/// The names of the addresses in one instruction: `(address, is a memory operand, name)`.
type Known = Rc<RefCell<Vec<(u64, bool, String)>>>;

/// What iced asks for names. It must not borrow anything, so the names of an instruction's operands are looked up
/// before it is written.
struct Resolver {
    known: Known,
}

impl SymbolResolver for Resolver {
    fn symbol(
        &mut self,
        insn: &Instruction,
        _operand: u32,
        operand: Option<u32>,
        addr: u64,
        _size: u32,
    ) -> Option<SymbolResult<'_>> {
        let memory = operand.is_some_and(|n| insn.op_kind(n) == OpKind::Memory);
        let known = self.known.borrow();
        let found = known.iter().find(|(a, m, _)| (*a, *m) == (addr, memory));
        found.map(|(_, _, name)| SymbolResult::with_string(addr, name.clone()))
    }
}

/// One instruction, written.
#[derive(Default)]
pub struct Written {
    /// Disassembly.
    pub text: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The text that its operand is the address of.
    pub string: Option<String>,
}

/// Writes instructions.
pub struct Disassembler<'a> {
    namer: Namer<'a>,
    known: Known,
    formatter: Box<dyn Formatter>,
}

impl<'a> Disassembler<'a> {
    /// In this syntax.
    pub fn new(namer: &Namer<'a>, syntax: Syntax) -> Disassembler<'a> {
        let known = Known::default();
        let resolver = Resolver {
            known: Rc::clone(&known),
        };
        let mut formatter: Box<dyn Formatter> = match syntax {
            Syntax::Att => Box::new(GasFormatter::with_options(Some(Box::new(resolver)), None)),
            Syntax::Intel => Box::new(NasmFormatter::with_options(Some(Box::new(resolver)), None)),
        };
        let options = formatter.options_mut();
        options.set_uppercase_hex(false);
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_space_after_operand_separator(true);
        options.set_small_hex_numbers_in_decimal(true);
        options.set_branch_leading_zeros(false);
        options.set_show_branch_size(false);
        Disassembler {
            namer: namer.clone(),
            known,
            formatter,
        }
    }

    /// Looks up the names that the operands of `insn` need.
    fn learn(&self, insn: &Instruction) {
        let mut known = self.known.borrow_mut();
        known.clear();
        for n in 0..insn.op_count() {
            let (addr, memory) = match insn.op_kind(n) {
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                    (insn.near_branch_target(), false)
                }
                OpKind::Memory => (insn.memory_displacement64(), true),
                OpKind::Immediate32to64 | OpKind::Immediate64 => (insn.immediate(n), false),
                _ => continue,
            };
            let per_cpu = memory && insn.segment_prefix() == Register::GS;
            let name = if per_cpu {
                let plain = matches!(insn.memory_base(), Register::None | Register::RIP);
                self.namer.per_cpu(addr).filter(|_| plain)
            } else if addr < 1 << 31 {
                // Small numbers are numbers.
                None
            } else if memory {
                self.namer.symbol(addr)
            } else {
                self.namer.offset(addr).or_else(|| self.namer.symbol(addr))
            };
            known.extend(name.map(|name| (addr, memory, name)));
        }
    }

    /// The instruction of `len` bytes at `addr`.
    pub fn insn(&mut self, addr: u64, len: u8) -> Written {
        let Some(bytes) = self.namer.kernel.bytes(addr, usize::from(len)) else {
            return Written {
                text: "(no bytes)".into(),
                ..Written::default()
            };
        };
        let insn = Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE).decode();
        self.learn(&insn);
        let mut text = String::new();
        self.formatter.format(&insn, &mut text);
        let string = self
            .points_at(&insn)
            .and_then(|a| string(self.namer.kernel, a));
        Written {
            text,
            bytes: bytes.to_vec(),
            string,
        }
    }
    /// The address that an operand is, if it is one of data.
    fn points_at(&self, insn: &Instruction) -> Option<u64> {
        let lea = insn.mnemonic() == Mnemonic::Lea && insn.is_ip_rel_memory_operand();
        let addr = match (lea, insn.mnemonic()) {
            (true, _) => insn.memory_displacement64(),
            (false, Mnemonic::Mov) if insn.op1_kind() == OpKind::Immediate32to64 => {
                insn.immediate(1)
            }
            _ => return None,
        };
        self.namer
            .function
            .insn_containing(addr)
            .is_none()
            .then_some(addr)
    }
}

/// Longest text that is shown.
const LONGEST: usize = 60;

/// The C string at `addr`, quoted, if there is one that reads like text.
fn string(kernel: &Kernel, addr: u64) -> Option<String> {
    let text = read_string(kernel, addr)?;
    let text = text.trim_end();
    if text.len() < 3 {
        return None;
    }
    let short: String = text.chars().take(LONGEST).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    Some(format!("{short:?}{more}"))
}

/// The printable C string at `addr` (a log level, as `printk` has it, left out).
pub fn read_string(kernel: &Kernel, addr: u64) -> Option<String> {
    const MOST: usize = 256;
    // It may be the last thing in its section: take less and less.
    let sizes = std::iter::successors(Some(MOST), |n| Some(n / 2).filter(|n| *n > 0));
    let bytes = sizes.filter_map(|len| kernel.read(addr, len).ok()).next()?;
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let mut text = bytes.get(..end)?;
    if let [1, _level, rest @ ..] = text {
        text = rest;
    }
    let printable = |b: &u8| b.is_ascii_graphic() || matches!(b, b' ' | b'\n' | b'\t');
    (!text.is_empty() && text.iter().all(printable))
        .then(|| String::from_utf8_lossy(text).into_owned())
}
