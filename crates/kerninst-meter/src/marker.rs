//! The marker instruction, by which a guest steers the meter. (The guest program includes this file too.)
//!
//! One 8-byte long NOP, `nopl 0x4b4dPPPP(%rax,%rax,1)`:
//!
//! ```text
//! 0f 1f 84 00 pp PP 4d 4b      payload = PP << 8 | pp = operation << 8 | argument
//! ```

/// The bytes before the payload.
pub const HEAD: [u8; 4] = [0x0f, 0x1f, 0x84, 0x00];
/// The bytes after it ("MK").
pub const TAIL: [u8; 2] = [0x4d, 0x4b];

/// The machine code of a marker.
pub const fn encode(payload: u16) -> [u8; 8] {
    let [low, high] = payload.to_le_bytes();
    [
        HEAD[0], HEAD[1], HEAD[2], HEAD[3], low, high, TAIL[0], TAIL[1],
    ]
}

/// The payload, if this is a marker's machine code.
pub fn decode(code: &[u8]) -> Option<u16> {
    match code {
        [0x0f, 0x1f, 0x84, 0x00, low, high, 0x4d, 0x4b] => Some(u16::from_le_bytes([*low, *high])),
        _ => None,
    }
}

/// Operations: the payload's high byte.
pub mod op {
    /// Sends 4 bits (the argument), low ones first; 16 of them make a word.
    pub const NIBBLE: u8 = 0x00;
    /// Starts region number `argument`.
    pub const BEGIN: u8 = 0x01;
    /// Ends region number `argument` and reports it.
    pub const END: u8 = 0x02;
    /// Adds an address range: the last two words sent are its start and its end (exclusive). Before `ARM`.
    pub const RANGE: u8 = 0x03;
    /// Starts counting: argument 0 for regions and samples, 1 for the histogram too. Takes effect when all CPUs have left
    /// the code that they are in: make a few system calls before measuring.
    pub const ARM: u8 = 0x04;
    /// Stops counting.
    pub const DISARM: u8 = 0x05;
    /// Sets the histogram to zero.
    pub const ZERO: u8 = 0x06;
    /// Writes the histogram to the file of number `argument`.
    pub const DUMP: u8 = 0x07;
    /// Starts an event of sample series `argument`.
    pub const SAMPLE_BEGIN: u8 = 0x08;
    /// Ends it.
    pub const SAMPLE_END: u8 = 0x09;
    /// Reports the series and forgets it.
    pub const SAMPLE_REPORT: u8 = 0x0a;
}

/// Operation and argument in one payload.
pub const fn payload(op: u8, argument: u8) -> u16 {
    (op as u16) << 8 | argument as u16
}
