//! Says, before anything is touched, what works on this machine and what does not and why.

use kerninst_driver::{CompleteError, Device, Driver, complete};
use kerninst_kernel::{Error as KernelError, Kernel};

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Works.
    Ok,
    /// Works, with a restriction.
    Note,
    /// Prevents arming.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug)]
pub struct Check {
    /// Short name.
    pub name: &'static str,
    /// Outcome.
    pub verdict: Verdict,
    /// What was found, and what to do if it is bad: a sentence.
    pub text: String,
}

/// All checks.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order in which they matter.
    pub checks: Vec<Check>,
}

impl Report {
    /// Can points be armed here?
    pub fn can_arm(&self) -> bool {
        self.checks.iter().all(|c| c.verdict != Verdict::Bad)
    }

    fn add(&mut self, name: &'static str, verdict: Verdict, text: impl Into<String>) {
        self.checks.push(Check {
            name,
            verdict,
            text: text.into(),
        });
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path)
        .ok()
        .map(|s| s.trim().to_string())
}

/// Looks at everything; loads and changes nothing.
pub fn doctor() -> Report {
    let mut report = Report::default();
    machine(&mut report);
    root(&mut report);
    lockdown(&mut report);
    modules(&mut report);
    symbols(&mut report);
    others(&mut report);
    report
}

fn machine(report: &mut Report) {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into());
    report.add(
        "kernel",
        Verdict::Ok,
        format!("{release}, {}", std::env::consts::ARCH),
    );
    let cpu = read("/proc/cpuinfo").unwrap_or_default();
    if !cpu.contains("GenuineIntel") && !cpu.contains("AuthenticAMD") && !cpu.contains("vendor_id")
    {
        report.add(
            "processor",
            Verdict::Note,
            "vendor unknown: only Intel and AMD processors were tested",
        );
    }
}

fn root(report: &mut Report) {
    let status = read("/proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let bits = capabilities
        .and_then(|c| u64::from_str_radix(c.trim(), 16).ok())
        .unwrap_or(0);
    // include/uapi/linux/capability.h: CAP_SYS_MODULE 16, CAP_SYS_RAWIO 17 (kcore), CAP_SYS_ADMIN 21.
    let missing: Vec<&str> = [
        (16, "CAP_SYS_MODULE"),
        (17, "CAP_SYS_RAWIO"),
        (21, "CAP_SYS_ADMIN"),
    ]
    .into_iter()
    .filter_map(|(bit, name)| (bits >> bit & 1 == 0).then_some(name))
    .collect();
    if missing.is_empty() {
        report.add(
            "root",
            Verdict::Ok,
            "this process may load modules and read kernel memory",
        );
    } else {
        report.add(
            "root",
            Verdict::Bad,
            format!("this process lacks {}: run as root", missing.join(", ")),
        );
    }
}

fn lockdown(report: &mut Report) {
    match read("/sys/kernel/security/lockdown") {
        Some(state) if !state.contains("[none]") => report.add(
            "lockdown",
            Verdict::Bad,
            format!("the kernel is locked down ({state}), normally by secure boot: no unsigned modules{}; only switching secure boot off helps",
                if state.contains("[confidentiality]") { ", no /proc/kcore" } else { "" }),
        ),
        Some(_) => report.add("lockdown", Verdict::Ok, "none"),
        None => report.add("lockdown", Verdict::Ok, "not reported by this kernel (securityfs not mounted, or not built in)"),
    }
}

fn modules(report: &mut Report) {
    if read("/proc/modules").is_none() {
        report.add(
            "modules",
            Verdict::Bad,
            "this kernel has no loadable modules",
        );
        return;
    }
    if read("/proc/sys/kernel/modules_disabled").as_deref() == Some("1") {
        report.add(
            "modules",
            Verdict::Bad,
            "kernel.modules_disabled is 1: no module can be loaded until a reboot",
        );
        return;
    }
    match read("/sys/module/module/parameters/sig_enforce").as_deref() {
        Some("Y") => report.add(
            "modules",
            Verdict::Bad,
            "only signed modules are loaded (module.sig_enforce): boot without that",
        ),
        // Said already.
        _ if report
            .checks
            .iter()
            .any(|c| c.name == "lockdown" && c.verdict == Verdict::Bad) => {}
        _ => report.add(
            "modules",
            Verdict::Ok,
            "unsigned modules can be loaded (the kernel will be marked tainted: O, E)",
        ),
    }
}

fn symbols(report: &mut Report) {
    if let Some(level) = read("/proc/sys/kernel/kptr_restrict").filter(|l| l == "2") {
        report.add("kptr_restrict", Verdict::Bad, format!("kernel.kptr_restrict is {level}: addresses are hidden even from root; set it to 1: sysctl kernel.kptr_restrict=1"));
        return;
    }
    let kernel = match Kernel::live() {
        Ok(kernel) => kernel,
        Err(e @ KernelError::AddressesHidden) => {
            return report.add("symbols", Verdict::Bad, e.to_string());
        }
        Err(e) => return report.add("symbols", Verdict::Bad, e.to_string()),
    };
    report.add(
        "symbols",
        Verdict::Ok,
        format!("{} symbols, kernel text readable", kernel.symbols().len()),
    );
    match kernel.btf() {
        Some(_) => report.add("BTF", Verdict::Ok, "/sys/kernel/btf/vmlinux tells the layout of structures"),
        None => report.add("BTF", Verdict::Bad, "no usable /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF): the layout of structures is unknown"),
    }
    site_tables(report, &kernel);
    match complete(&kernel) {
        Ok(image) => report.add(
            "driver",
            Verdict::Ok,
            format!("fits this kernel ({} bytes)", image.len()),
        ),
        Err(e @ CompleteError::Missing(_)) => report.add("driver", Verdict::Bad, e.to_string()),
        Err(e @ CompleteError::Object(_)) => report.add("driver", Verdict::Bad, e.to_string()),
    }
}

/// One line for each reason. What every kernel frees after boot is no restriction: live text needs none of it.
fn site_tables(report: &mut Report, kernel: &Kernel) {
    let mut by_reason: std::collections::BTreeMap<&str, Vec<&str>> = Default::default();
    for missing in &kernel.tables().missing {
        by_reason
            .entry(&missing.reason)
            .or_default()
            .push(missing.table);
    }
    for (reason, tables) in by_reason {
        let (verdict, why) = if reason.starts_with("the kernel frees this table") {
            (
                Verdict::Ok,
                "freed by the kernel after boot, and not needed here",
            )
        } else {
            (Verdict::Note, reason)
        };
        report.add(
            "site tables",
            verdict,
            format!("{}: {why}", tables.join(", ")),
        );
    }
}

fn others(report: &mut Report) {
    if Driver::is_loaded() {
        match Device::observe().and_then(|d| d.info()) {
            Ok(info) if info.owner > 0 => report.add(
                "in use",
                Verdict::Bad,
                format!(
                    "another kerninst (process {}) is at work: one at a time",
                    info.owner
                ),
            ),
            Ok(info) if info.batches > 0 => report.add(
                "in use",
                Verdict::Note,
                format!(
                    "{} batches of an earlier run wait to be freed: see `kerninst status`",
                    info.batches
                ),
            ),
            Ok(_) => report.add("in use", Verdict::Ok, "the driver is loaded and free"),
            Err(e) => report.add("in use", Verdict::Bad, e.to_string()),
        }
    } else {
        report.add("in use", Verdict::Ok, "nobody uses kerninst");
    }
    let owners = crate::Owners::live();
    let kprobes = owners.kprobes().count();
    if !owners.kprobes_known {
        report.add(
            "kprobes",
            Verdict::Note,
            "debugfs is not mounted: kprobes of others are only seen when arming",
        );
    } else if kprobes > 0 {
        report.add(
            "kprobes",
            Verdict::Note,
            format!("{kprobes} kprobes of others are active: points near them are refused"),
        );
    }
    let patched: Vec<&str> = owners.livepatches().map(|(f, _)| f).collect();
    if !patched.is_empty() {
        report.add(
            "livepatch",
            Verdict::Note,
            format!(
                "functions replaced by livepatch are refused: {}",
                patched.join(", ")
            ),
        );
    }
    for name in ["lkrg", "p_lkrg"] {
        if kerninst_driver::is_loaded(name) {
            report.add("integrity checker", Verdict::Bad, format!("module {name} watches kernel text and may panic when it changes: unload it first"));
        }
    }
}
