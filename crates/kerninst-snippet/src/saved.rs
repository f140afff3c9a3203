//! What a program has put on the stack: registers and flags of the interrupted code, and room.

use crate::Reg;
use crate::asm::Asm;

/// What is on the stack, the first pushed first.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    stack: Vec<Item>,
    pushed: u32,
}

#[derive(Debug, Clone, Copy)]
enum Item {
    /// A register, and how much is pushed with it.
    Reg(Reg, u32),
    Flags,
    Room(u32),
}

impl Saved {
    /// Bytes.
    pub fn pushed(&self) -> u32 {
        self.pushed
    }

    /// Things.
    pub fn len(&self) -> usize {
        self.stack.len()
    }

    /// What was pushed up to and with the register; `None`: it is not there.
    pub fn of(&self, reg: Reg) -> Option<u32> {
        self.stack.iter().find_map(|item| match item {
            Item::Reg(r, depth) if *r == reg => Some(*depth),
            _ => None,
        })
    }

    pub fn reg(&mut self, asm: &mut Asm, reg: Reg) {
        asm.push(reg);
        self.pushed += 8;
        self.stack.push(Item::Reg(reg, self.pushed));
    }

    pub fn flags(&mut self, asm: &mut Asm) {
        asm.pushfq();
        self.pushed += 8;
        self.stack.push(Item::Flags);
    }

    pub fn room(&mut self, asm: &mut Asm, bytes: u32) {
        if bytes > 0 {
            asm.lea_rsp(-(bytes as i32));
            self.pushed += bytes;
            self.stack.push(Item::Room(bytes));
        }
    }

    /// Instructions that take everything from the stack. What is there stays noted.
    pub fn restore_all(&self, asm: &mut Asm) {
        self.restore_from(asm, 0);
    }

    fn restore_from(&self, asm: &mut Asm, first: usize) {
        for item in self.stack.iter().skip(first).rev() {
            match item {
                Item::Reg(r, _) => asm.pop(*r),
                Item::Flags => asm.popfq(),
                Item::Room(bytes) => asm.lea_rsp(*bytes as i32),
            }
        }
    }

    /// Takes all but the first things from the stack.
    pub fn restore(&mut self, asm: &mut Asm, keep: usize) {
        self.restore_from(asm, keep);
        self.stack.truncate(keep);
        self.pushed = asm.pushed();
    }
}
