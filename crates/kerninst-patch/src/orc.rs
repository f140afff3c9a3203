//! Unwind entries in the kernel's own encoding.

/// Nothing is known here: what the kernel takes for "do not unwind" in all layouts (all fields zero).
pub(crate) const UNDEFINED: [u8; 6] = [0; 6];

/// The register that the frame address is computed from is rsp (`ORC_REG_SP`).
const REG_SP: u16 = 5;
/// It is found in memory at rsp (`ORC_REG_SP_INDIRECT`).
const REG_SP_INDIRECT: u16 = 9;

/// The entry that holds after `pushed` more bytes were pushed; `None` if no entry can say that.
///
/// `struct orc_entry` (arch/x86/include/asm/orc_types.h): s16 sp_offset; s16 bp_offset; then 16 bits of which the low
/// four are sp_reg in every version. The rest (bp_reg; type and end in 6.1, type and signal from 6.4 on) is copied.
pub(crate) fn pushed(raw: [u8; 6], pushed: u32) -> Option<[u8; 6]> {
    let [s0, s1, b0, b1, f0, f1] = raw;
    if pushed == 0 {
        return Some(raw);
    }
    match u16::from_le_bytes([f0, f1]) & 0xf {
        REG_SP => {
            let offset = i16::from_le_bytes([s0, s1]).checked_add(i16::try_from(pushed).ok()?)?;
            let [s0, s1] = offset.to_le_bytes();
            Some([s0, s1, b0, b1, f0, f1])
        }
        // The offset is added after the load, from an address that moved.
        REG_SP_INDIRECT => None,
        // Computed from another register: a push changes nothing.
        _ => Some(raw),
    }
}
