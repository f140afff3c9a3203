//! Is there enough memory? A kernel that has none left kills somebody, and that may be another process than ours.

use crate::{Fail, short};
use kerninst_analysis::FunctionId;
use kerninst_kernel::Kernel;

/// What is to be done with functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Show what would be counted.
    Plan,
    /// Count blocks and edges.
    Count,
}

impl Work {
    /// Only a plan?
    pub fn of(plan: bool) -> Work {
        match plan {
            true => Work::Plan,
            false => Work::Count,
        }
    }

    /// Bytes that it takes at the worst moment, in this process and in the kernel, beyond what is taken already: for
    /// functions with so many bytes of text. Measured on all of 6.12 (15,621 KiB of text: 1,040 MiB to count, 740 MiB to
    /// plan), and an eighth more.
    fn needs(self, text: u64) -> u64 {
        let (fixed, each) = match self {
            Work::Plan => (16 * MIB, 55),
            Work::Count => (32 * MIB, 75),
        };
        text.saturating_mul(each).saturating_add(fixed)
    }
}

const MIB: u64 = 1 << 20;

/// Bytes that a point of `count` takes at the worst moment, beyond what is taken when points are known. Measured with all
/// blocks of 6.12.
const POINT: u64 = 2048;

/// Do so many single points of the running kernel fit, too?
///
/// # Errors
/// As [`enough`].
pub fn enough_for_points(kernel: &Kernel, points: usize) -> Result<(), Fail> {
    if !kernel.is_live() {
        return Ok(());
    }
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let needed = (points as u64).saturating_mul(POINT);
    judge(&short::number(points, "point"), needed, available(&info))
}

/// Do so many functions of the running kernel fit into the memory that is available?
///
/// # Errors
/// [`Fail::Error`], with the amount that it takes: nothing was done yet. Where it is not known how much is available, there
/// is no error.
pub fn enough(kernel: &Kernel, chosen: &[&FunctionId], work: Work) -> Result<(), Fail> {
    if !kernel.is_live() {
        return Ok(());
    }
    let text = chosen.iter().map(|f| f.end.saturating_sub(f.start));
    let text = text.fold(0, u64::saturating_add);
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    fits(chosen.len(), text, available(&info), work)
}

fn fits(functions: usize, text: u64, available: Option<u64>, work: Work) -> Result<(), Fail> {
    let functions = short::number(functions, "function");
    let what = format!("{functions} ({} KiB of code)", text.div_ceil(1024));
    judge(&what, work.needs(text), available)
}

fn judge(what: &str, needed: u64, available: Option<u64>) -> Result<(), Fail> {
    match available {
        Some(available) if needed > available => Err(Fail::Error(format!(
            "not enough memory: {what} may take {} MiB, and {} MiB are available; name fewer functions",
            needed.div_ceil(MIB),
            available / MIB,
        ))),
        _ => Ok(()),
    }
}

/// `MemAvailable` of /proc/meminfo, in bytes: what can be had without pushing others out (fs/proc/meminfo.c).
fn available(info: &str) -> Option<u64> {
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let number = line.trim().strip_suffix(" kB")?;
    number.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available() {
        let info = "MemTotal:       24684000 kB\nMemFree: 1 kB\nMemAvailable:   23542784 kB\nBuffers: 2 kB\n";
        assert_eq!(available(info), Some(23_542_784 * 1024));
        for damaged in [
            "",
            "MemAvailable:",
            "MemAvailable: kB",
            "MemAvailable: -5 kB",
            "MemAvailable: 5 MB",
            "MemAvailable: 99999999999999999999 kB",
            "MemAvailable: 18446744073709551615 kB",
        ] {
            assert_eq!(available(damaged), None, "{damaged}");
        }
    }

    /// Would catch a whole kernel that is let through, or a few functions that are not.
    #[test]
    fn what_fits() {
        let fits = |text: u64, mib: u64| fits(3, text, Some(mib * MIB), Work::Count);
        assert!(fits(200_000, 100).is_ok());
        let told = fits(16 << 20, 350).expect_err("too much").to_string();
        assert_eq!(
            told,
            "not enough memory: 3 functions (16384 KiB of code) may take 1232 MiB, and 350 MiB are available; name fewer \
             functions"
        );
        assert!(fits(u64::MAX, 350).is_err());
        assert!(super::fits(3, u64::MAX, None, Work::Count).is_ok());
    }
}
