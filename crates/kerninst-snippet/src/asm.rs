//! A piece of code under way: instructions, places to jump to, calls, and what is on the stack. Jumps get their length last.

use crate::compile::{CallSite, Code, FaultSite, StackStep};

/// A place in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u32);

/// The bytes of one instruction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bytes {
    bytes: [u8; 15],
    len: u8,
}

impl Bytes {
    pub fn put(&mut self, byte: u8) {
        // No instruction is longer than fifteen bytes.
        if let Some(b) = self.bytes.get_mut(usize::from(self.len)) {
            *b = byte;
            self.len += 1;
        }
    }

    pub fn extend(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.put(*b));
    }

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

#[derive(Debug)]
enum Item {
    Insn(Bytes),
    /// An instruction that goes on at the mark if it faults.
    Faulting(Bytes, Mark),
    /// A jump, if the condition (of `jcc`) holds.
    Jump {
        cc: Option<u8>,
        to: Mark,
    },
    /// An opcode and a 32-bit displacement to a kernel address.
    Kernel {
        opcode: u8,
        target: u64,
    },
    Here(Mark),
    /// So much is pushed from here on.
    Pushed(u32),
}

/// The code.
#[derive(Debug, Default)]
pub(crate) struct Asm {
    items: Vec<Item>,
    marks: u32,
    pushed: u32,
}

const CALL: u8 = 0xe8;
const JUMP: u8 = 0xe9;

impl Asm {
    /// A place that is not yet there.
    pub fn mark(&mut self) -> Mark {
        self.marks += 1;
        Mark(self.marks - 1)
    }

    /// Now it is.
    pub fn here(&mut self, mark: Mark) {
        self.items.push(Item::Here(mark));
    }

    /// An instruction.
    pub fn insn(&mut self, bytes: Bytes) {
        self.items.push(Item::Insn(bytes));
    }

    /// An instruction with an exception table entry.
    pub fn faulting(&mut self, bytes: Bytes, to: Mark) {
        self.items.push(Item::Faulting(bytes, to));
    }

    /// Jumps.
    pub fn jump(&mut self, to: Mark) {
        self.items.push(Item::Jump { cc: None, to });
    }

    /// Jumps if a condition holds.
    pub fn jcc(&mut self, cc: u8, to: Mark) {
        self.items.push(Item::Jump { cc: Some(cc), to });
    }

    /// Calls a kernel address.
    pub fn call(&mut self, target: u64) {
        self.items.push(Item::Kernel {
            opcode: CALL,
            target,
        });
    }

    /// Jumps to a kernel address.
    pub fn leave(&mut self, target: u64) {
        self.items.push(Item::Kernel {
            opcode: JUMP,
            target,
        });
    }

    /// What is pushed from here on.
    pub fn set_pushed(&mut self, pushed: u32) {
        if self.pushed != pushed {
            self.pushed = pushed;
            self.items.push(Item::Pushed(pushed));
        }
    }

    /// What is pushed here.
    pub fn pushed(&self) -> u32 {
        self.pushed
    }

    /// Instructions of the way that takes the jumps that have no condition, and those to `taken`.
    pub fn straight(&self, taken: Option<Mark>) -> u32 {
        let mut n = 0;
        let mut at = 0;
        // Every jump but loops' leads forward.
        for _ in 0..self.items.len() {
            let Some(item) = self.items.get(at) else {
                break;
            };
            at += 1;
            match item {
                Item::Insn(_) | Item::Faulting(..) => n += 1,
                Item::Kernel { opcode, .. } => {
                    n += 1;
                    if *opcode == JUMP {
                        break;
                    }
                }
                Item::Jump { cc, to } => {
                    if cc.is_some() || !self.is_next(at, *to) {
                        n += 1;
                    }
                    if cc.is_none() || taken == Some(*to) {
                        let place = |i: &Item| matches!(i, Item::Here(m) if m == to);
                        at = self.items.iter().position(place).unwrap_or(at);
                    }
                }
                Item::Here(_) | Item::Pushed(_) => {}
            }
        }
        n
    }

    /// Whether nothing is between item `at` and the mark.
    fn is_next(&self, at: usize, to: Mark) -> bool {
        let rest = self.items.get(at..).unwrap_or_default();
        let marks = rest
            .iter()
            .take_while(|i| matches!(i, Item::Here(_) | Item::Pushed(_)));
        marks
            .into_iter()
            .any(|i| matches!(i, Item::Here(m) if *m == to))
    }

    /// The code: jumps as short as they can be, found by making longer what does not reach until everything does.
    pub fn finish(self) -> Code {
        let mut lens: Vec<u32> = self.items.iter().map(shortest).collect();
        for (at, item) in self.items.iter().enumerate() {
            if let Item::Jump { cc: None, to } = item
                && self.is_next(at + 1, *to)
                && let Some(len) = lens.get_mut(at)
            {
                *len = 0;
            }
        }
        let mut places = vec![0u32; self.marks as usize];
        loop {
            let mut offset = 0u32;
            for (item, len) in self.items.iter().zip(&lens) {
                if let Item::Here(m) = item
                    && let Some(place) = places.get_mut(m.0 as usize)
                {
                    *place = offset;
                }
                offset += len;
            }
            let mut grown = false;
            let mut end = 0u32;
            for (item, len) in self.items.iter().zip(&mut lens) {
                end += *len;
                if let Item::Jump { cc, to } = item
                    && *len == 2
                    && i8::try_from(distance(&places, *to, end)).is_err()
                {
                    *len = if cc.is_some() { 6 } else { 5 };
                    grown = true;
                }
            }
            if !grown {
                break;
            }
        }
        self.write(&lens, &places)
    }

    fn write(&self, lens: &[u32], places: &[u32]) -> Code {
        let mut code = Code::default();
        for (item, len) in self.items.iter().zip(lens) {
            let offset = code.bytes.len() as u32;
            match item {
                Item::Insn(b) => code.bytes.extend_from_slice(b.as_slice()),
                Item::Faulting(b, to) => {
                    code.bytes.extend_from_slice(b.as_slice());
                    code.faults.push(FaultSite {
                        offset,
                        fixup: places.get(to.0 as usize).copied().unwrap_or(0),
                    });
                }
                Item::Jump { cc, to } => {
                    let d = distance(places, *to, offset + len);
                    match (len, cc) {
                        (0, _) => {}
                        (2, None) => code.bytes.extend([0xeb, d as u8]),
                        (2, Some(cc)) => code.bytes.extend([0x70 | cc, d as u8]),
                        (_, None) => {
                            code.bytes.push(JUMP);
                            code.bytes.extend(d.to_le_bytes());
                        }
                        (_, Some(cc)) => {
                            code.bytes.extend([0x0f, 0x80 | cc]);
                            code.bytes.extend(d.to_le_bytes());
                        }
                    }
                }
                Item::Kernel { opcode, target } => {
                    code.bytes.push(*opcode);
                    code.calls.push(CallSite {
                        offset: offset + 1,
                        target: *target,
                    });
                    code.bytes.extend([0; 4]);
                }
                Item::Here(_) => {}
                Item::Pushed(pushed) => {
                    let pushed = *pushed;
                    match code.stack.last_mut() {
                        Some(last) if last.offset == offset => last.pushed = pushed,
                        _ => code.stack.push(StackStep { offset, pushed }),
                    }
                }
            }
        }
        code
    }
}

fn shortest(item: &Item) -> u32 {
    match item {
        Item::Insn(b) | Item::Faulting(b, _) => u32::from(b.len),
        Item::Jump { .. } => 2,
        Item::Kernel { .. } => 5,
        Item::Here(_) | Item::Pushed(_) => 0,
    }
}

fn distance(places: &[u32], to: Mark, end: u32) -> i32 {
    let place = places.get(to.0 as usize).copied().unwrap_or(0);
    place.wrapping_sub(end) as i32
}
