//! The few instructions that snippets need, as bytes, with the state of the stack after each.

use crate::Reg;

/// A growing piece of code.
#[derive(Debug, Default)]
pub(crate) struct Emit {
    pub bytes: Vec<u8>,
    pub steps: Vec<crate::StackStep>,
    pub instructions: u32,
    pushed: u32,
}

impl Emit {
    pub fn new() -> Emit {
        Emit {
            // One counter takes fewer.
            bytes: Vec::with_capacity(32),
            ..Emit::default()
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.instructions += 1;
    }

    fn stack(&mut self, pushed: u32) {
        self.pushed = pushed;
        self.steps.push(crate::StackStep {
            offset: self.bytes.len() as u32,
            pushed,
        });
    }

    pub fn push(&mut self, reg: Reg) {
        if reg.high() {
            self.put(&[0x41, 0x50 | reg.low()]);
        } else {
            self.put(&[0x50 | reg.low()]);
        }
        self.stack(self.pushed + 8);
    }

    pub fn pop(&mut self, reg: Reg) {
        if reg.high() {
            self.put(&[0x41, 0x58 | reg.low()]);
        } else {
            self.put(&[0x58 | reg.low()]);
        }
        self.stack(self.pushed.saturating_sub(8));
    }

    pub fn pushfq(&mut self) {
        self.put(&[0x9c]);
        self.stack(self.pushed + 8);
    }

    pub fn popfq(&mut self) {
        self.put(&[0x9d]);
        self.stack(self.pushed.saturating_sub(8));
    }

    /// `lahf`: ah = SF ZF AF PF CF.
    pub fn lahf(&mut self) {
        self.put(&[0x9f]);
    }

    /// `sahf`: SF ZF AF PF CF = ah.
    pub fn sahf(&mut self) {
        self.put(&[0x9e]);
    }

    /// `seto %al`: al = OF.
    pub fn seto_al(&mut self) {
        self.put(&[0x0f, 0x90, 0xc0]);
    }

    /// `add $0x7f, %al`: sets OF exactly when al was 1.
    pub fn restore_of_from_al(&mut self) {
        self.put(&[0x04, 0x7f]);
    }

    /// `movb $1, disp(%rip)`, with the displacement left zero.
    pub fn set_byte(&mut self) {
        self.put(&[0xc6, 0x05, 0, 0, 0, 0, 0x01]);
    }

    /// `movabs $value, %reg`.
    pub fn movabs(&mut self, reg: Reg, value: u64) {
        let mut b = vec![0x48 | u8::from(reg.high()), 0xb8 | reg.low()];
        b.extend_from_slice(&value.to_le_bytes());
        self.put(&b);
    }

    /// `incq %gs:disp32` (absolute: ModRM with a SIB that names no base and no index).
    pub fn inc_gs_disp32(&mut self, disp: i32) {
        let mut b = vec![0x65, 0x48, 0xff, 0x04, 0x25];
        b.extend_from_slice(&disp.to_le_bytes());
        self.put(&b);
    }

    /// `incq %gs:(%reg)`. rbp and r13 have no form without displacement, rsp and r12 need a SIB byte.
    pub fn inc_gs_reg(&mut self, reg: Reg) {
        let rex = 0x48 | u8::from(reg.high());
        match reg.low() {
            4 => self.put(&[0x65, rex, 0xff, 0x04, 0x24]),
            5 => self.put(&[0x65, rex, 0xff, 0x45, 0x00]),
            low => self.put(&[0x65, rex, 0xff, low]),
        }
    }
}
