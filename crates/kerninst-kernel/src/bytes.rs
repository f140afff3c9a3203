//! Checked reading of little-endian numbers.

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
pub(crate) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    u32_at(bytes, at).map(|v| v as i32)
}
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
/// The NUL-ended string at `at`; `None` when it does not end or is not UTF-8.
pub(crate) fn cstr_at(bytes: &[u8], at: usize) -> Option<&str> {
    let from = bytes.get(at..)?;
    std::str::from_utf8(from.get(..memchr::memchr(0, from)?)?).ok()
}
