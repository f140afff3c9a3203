//! Memory that generated code writes and this process sees. The unsafe code of mapping it is here.

use crate::abi;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// An area of memory, shared with the kernel; unmapped when dropped. It lives in the kernel as long as the
/// [`Device`](crate::Device) that made it is open, and until no patch can write it any more.
///
/// The mapping keeps the device's file open: what is armed by it is only disarmed by closing when its areas are dropped too
/// (a process that ends drops everything). A forked child has the file, but no area.
#[derive(Debug)]
pub struct Area {
    at: NonNull<AtomicU64>,
    /// Size in bytes, a multiple of the page size.
    len: usize,
    address: u64,
}

// SAFETY: the memory is accessed by atomic operations only, from whatever thread.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Maps what the driver has allocated.
    pub(crate) fn map(device: &OwnedFd, area: &abi::Area) -> io::Result<Area> {
        let len = usize::try_from(area.bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let offset = area
            .number
            .checked_mul(1 << abi::AREA_SHIFT)
            .and_then(|o| libc::off_t::try_from(o).ok())
            .ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                device.as_raw_fd(),
                offset,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Area {
            at,
            len,
            address: area.address,
        })
    }

    /// Its address in the kernel, for generated code.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size in bytes, a multiple of the page size.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // it never is
    pub fn len(&self) -> usize {
        self.len
    }

    /// All of it. The kernel may change any word at any time.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped, readable and writable for `len` bytes as long as `self` lives, aligned to a page, valid for any
        // bit pattern; others change it by aligned writes, which atomic types allow for.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len / 8) }
    }

    /// Copies bytes from `offset` on. False: they are not all within the area, and nothing was copied. What the kernel writes
    /// meanwhile is copied or not, word by word.
    #[must_use]
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) -> bool {
        copy_out(self.words(), offset, out)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`; every reference into it borrows `self`.
        unsafe {
            libc::munmap(self.at.as_ptr().cast(), self.len);
        }
    }
}

fn copy_out(words: &[AtomicU64], offset: usize, out: &mut [u8]) -> bool {
    let Some(end) = offset.checked_add(out.len()) else {
        return false;
    };
    let Some(words) = words.get(offset / 8..end.div_ceil(8)) else {
        return false;
    };
    let mut skip = offset % 8;
    let mut rest = out;
    for word in words {
        let bytes = word.load(Ordering::Relaxed).to_le_bytes();
        let bytes = bytes.get(skip..).unwrap_or_default();
        let n = bytes.len().min(rest.len());
        let (to, later) = rest.split_at_mut(n);
        to.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        rest = later;
        skip = 0;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Would catch a byte of the wrong word, a part left out at either end, or a panic outside.
        #[test]
        fn any_part_is_copied(bytes in proptest::collection::vec(any::<u8>(), 64), offset in 0usize..80, len in 0usize..80) {
            let words: Vec<_> = bytes
                .chunks(8)
                .filter_map(|c| c.first_chunk().map(|c| AtomicU64::new(u64::from_le_bytes(*c))))
                .collect();
            let mut out = vec![0xa5; len];
            let done = copy_out(&words, offset, &mut out);
            match bytes.get(offset..offset + len) {
                Some(expected) => {
                    prop_assert!(done);
                    prop_assert_eq!(&out, expected);
                }
                None => {
                    prop_assert!(!done);
                    prop_assert!(out.iter().all(|&b| b == 0xa5));
                }
            }
        }
    }

    #[test]
    fn the_end_of_the_address_space_is_outside() {
        assert!(!copy_out(&[], usize::MAX, &mut [0; 2]));
        assert!(copy_out(&[], 0, &mut []));
    }
}
