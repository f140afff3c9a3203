//! A planned splice, and the bytes that arm it.

use std::ops::Range;

use crate::{CodePatch, Spot, Tactic};

/// Five bytes of padding that hold a long jump for a short one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Board {
    /// Its address.
    pub addr: u64,
    /// The padding bytes that are there.
    pub old: Vec<u8>,
}

/// A point that a splice serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedPoint {
    /// Where the snippets run, as it was asked for.
    pub at: Spot,
    /// How this point is reached: the splice's own tactic, or a hoist onto it.
    pub tactic: Tactic,
    /// Instructions of its snippets.
    pub snippet_cost: u32,
    /// Offset in the patch of what follows the snippets: the copy of an instruction, or a jump back. It is
    /// executed exactly as often as the snippets, which an observer from outside the guest can check.
    pub copy: u32,
}

/// One overwritten place in kernel text, and the code that it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// Name of the code patch: function and offset of the site, `vfs_read+0x1c`.
    pub name: String,
    /// Address of the first overwritten byte: always an instruction boundary.
    pub site: u64,
    /// How the site is overwritten (never a hoist: that is how a point is reached).
    pub tactic: Tactic,
    /// The bytes at the site now, all that are overwritten.
    pub old: Vec<u8>,
    /// Lengths of the instructions (and padding) that `old` holds, in order.
    pub boundaries: Vec<u8>,
    /// The code.
    pub patch: CodePatch,
    /// The springboard, if `tactic` is [`Tactic::Springboard`].
    pub board: Option<Board>,
    /// The points it serves, by address.
    pub points: Vec<PlannedPoint>,
    /// Original instructions that the patch runs before it goes back.
    pub displaced: u32,
    /// Instructions executed beyond the original ones and the snippets, on the straight way through: jumps in and back.
    pub overhead: u32,
}

/// What to write where, once the patch has an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteBytes {
    /// First byte of the site.
    pub site: u64,
    /// The jump, or the `int3`: 1, 2 or 5 bytes, to be written first and at once.
    pub jump: Vec<u8>,
    /// Nops for the rest of the overwritten bytes: not reached while the jump is there.
    pub tail: Vec<u8>,
    /// Springboard: address and its 5 bytes; to be written before the jump.
    pub board: Option<(u64, [u8; 5])>,
    /// Where a CPU that meets the `int3` of the poking protocol, or of [`Tactic::Int3`], goes on: the patch.
    pub target: u64,
}

impl SiteBytes {
    /// The `emulate` argument of the kernel's text poke when it writes `len` bytes at the site: a 5-byte `jmp rel32`
    /// to `target` whose displacement counts from `site + len` (`text_poke_loc_init` and `poke_int3_handler` in
    /// arch/x86/kernel/alternative.c, 6.1 and 6.12, take the displacement from the end of what is poked).
    pub fn emulate(&self, len: u8) -> Result<[u8; 5], OutOfReach> {
        jump_from_end(self.site.wrapping_add(u64::from(len)), self.target)
    }
}

/// The patch was loaded where a 32-bit jump does not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a jump from {from:#x} does not reach the code patch at {to:#x}")]
pub struct OutOfReach {
    /// Where the jump would stand.
    pub from: u64,
    /// Where it would go.
    pub to: u64,
}

impl Splice {
    /// The overwritten bytes' addresses.
    pub fn range(&self) -> Range<u64> {
        self.site..self.site.saturating_add(self.old.len() as u64)
    }

    /// All that it writes over: the site, and the padding of its board.
    pub fn overwrites(&self) -> impl Iterator<Item = Range<u64>> {
        let board = self.board.as_ref();
        let board = board.map(|b| b.addr..b.addr.saturating_add(b.old.len() as u64));
        std::iter::once(self.range()).chain(board)
    }

    /// The bytes that arm the splice when its patch starts at `patch` (module base + the offset that
    /// [`crate::PatchModule::add`] gave).
    pub fn site_bytes(&self, patch: u64) -> Result<SiteBytes, OutOfReach> {
        let target = patch.wrapping_add(u64::from(self.patch.entry));
        let long = jump(self.site, target)?;
        let mut board = None;
        let jump = match (self.tactic, &self.board) {
            (Tactic::Int3, _) => vec![0xcc],
            (Tactic::Springboard, Some(b)) => {
                board = Some((b.addr, jump(b.addr, target)?));
                let disp = b.addr.wrapping_sub(self.site.wrapping_add(2)) as i64;
                let disp = i8::try_from(disp).map_err(|_| OutOfReach {
                    from: self.site,
                    to: b.addr,
                })?;
                vec![0xeb, disp as u8]
            }
            _ => long.to_vec(),
        };
        let tail = nops(self.old.len().saturating_sub(jump.len()));
        Ok(SiteBytes {
            site: self.site,
            jump,
            tail,
            board,
            target,
        })
    }
}

/// `jmp rel32` at `from` to `to`.
fn jump(from: u64, to: u64) -> Result<[u8; 5], OutOfReach> {
    jump_from_end(from.wrapping_add(5), to)
}

/// `jmp rel32` that ends at `end`, to `to`.
fn jump_from_end(end: u64, to: u64) -> Result<[u8; 5], OutOfReach> {
    let disp = to.wrapping_sub(end) as i64;
    let disp = i32::try_from(disp).map_err(|_| OutOfReach {
        from: end.wrapping_sub(5),
        to,
    })?;
    let [a, b, c, d] = disp.to_le_bytes();
    Ok([0xe9, a, b, c, d])
}

/// `len` bytes of nops: the long forms that the kernel itself uses (arch/x86/include/asm/nops.h).
fn nops(len: usize) -> Vec<u8> {
    const NOPS: [&[u8]; 8] = [
        &[0x90],
        &[0x66, 0x90],
        &[0x0f, 0x1f, 0x00],
        &[0x0f, 0x1f, 0x40, 0x00],
        &[0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
        &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    ];
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        let nop = NOPS[(len - out.len()).min(NOPS.len()) - 1];
        out.extend_from_slice(nop);
    }
    out
}
