//! Register and flag masks in the layout of [`crate::Live`].

pub(crate) const RAX: u32 = 1;
pub(crate) const RCX: u32 = 1 << 1;
pub(crate) const RDX: u32 = 1 << 2;
pub(crate) const RBX: u32 = 1 << 3;
pub(crate) const RSP: u32 = 1 << 4;
pub(crate) const RBP: u32 = 1 << 5;
pub(crate) const RSI: u32 = 1 << 6;
pub(crate) const RDI: u32 = 1 << 7;
pub(crate) const R8: u32 = 1 << 8;
pub(crate) const R9: u32 = 1 << 9;
pub(crate) const R10: u32 = 1 << 10;
pub(crate) const R11: u32 = 1 << 11;
pub(crate) const FLAGS: u32 = 0x3f << 16;
pub(crate) const ALL: u32 = 0xffff | FLAGS;
/// Registers that a function must preserve (System V ABI), with the stack pointer.
pub(crate) const SAVED: u32 = RBX | RBP | RSP | 0xf000;
/// Argument registers.
pub(crate) const ARGS: u32 = RDI | RSI | RDX | RCX | R8 | R9;
/// What a function that follows the ABI may destroy.
pub(crate) const CLOBBERED: u32 = RAX | RCX | RDX | RSI | RDI | R8 | R9 | R10 | R11 | FLAGS;
/// Live at a return by the ABI. rdx: structures of 16 bytes and 128-bit values are returned in rax:rdx.
pub(crate) const AT_RETURN: u32 = RAX | RDX | SAVED;
