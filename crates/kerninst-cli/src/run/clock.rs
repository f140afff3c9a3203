//! The time of day as a script wants it. The unsafe code of libc's calendar is here.

use std::ffi::CString;

/// The local time now by this `strftime` format; without what libc cannot do.
pub(super) fn local(format: &str) -> Vec<u8> {
    let Ok(format) = CString::new(format) else {
        return Vec::new();
    };
    let mut out = vec![0u8; 1024];
    // SAFETY: `time` takes a null pointer; `tm` is plain data that `localtime_r` fills (it reads TZ and /etc/localtime);
    // `strftime` writes at most `out.len()` bytes and reads a NUL-terminated format.
    let n = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&raw const now, &raw mut tm).is_null() {
            return Vec::new();
        }
        libc::strftime(
            out.as_mut_ptr().cast(),
            out.len(),
            format.as_ptr(),
            &raw const tm,
        )
    };
    out.truncate(n);
    out
}

#[cfg(test)]
mod tests {
    use super::local;

    /// Would catch a format that is not passed on, or a result with rubbish behind it.
    #[test]
    fn formats() {
        assert_eq!(local("at %%\n"), b"at %\n");
        assert_eq!(local("%H:%M:%S").len(), 8);
        assert_eq!(local("%Y").len(), 4);
        assert_eq!(local(""), b"");
        assert_eq!(local("a\0b"), b"");
    }
}
