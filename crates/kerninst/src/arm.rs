//! From planned splices to written sites.

use crate::error::{ArmError, SessionError};
use crate::hits::Hits;
use crate::owners::{Conflict, Owner, Owners};
use crate::plan::PlannedSession;
use kerninst_analysis::{Analysis, Sites};
use kerninst_driver::abi::{Check, MAX_CHECKS, MAX_SITES, Site, site, state};
use kerninst_driver::{
    BatchId, Device, NotClear, PatchText, load_patch_module, unload_patch_module,
};
use kerninst_kernel::Kernel;
use kerninst_patch::{ModuleInfo, PatchModule, SiteBytes, Splice, Spot, Tactic};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// What is armed.
#[derive(Debug, Default)]
pub(crate) struct Armed {
    /// Oldest first.
    pub(crate) batches: Vec<BatchId>,
    /// `run` sites that stayed an `int3`.
    pub(crate) slow: u32,
    /// Name of the patch module.
    pub(crate) module: String,
    /// Size of the patch module's text.
    pub(crate) code_bytes: u64,
    /// By spot: addresses of the point's copies.
    pub(crate) copies: FxHashMap<Spot, Vec<u64>>,
    /// Instructions that set a byte.
    pub(crate) hits: Hits,
    /// The patch module's text.
    text: Option<PatchText>,
    /// Address and bytes of each site, to look whether they are still there.
    expected: BTreeMap<u64, Vec<u8>>,
}

impl Armed {
    /// Takes out the instructions that have set their byte; how many.
    pub(crate) fn take_out_hit(&mut self, device: &Device) -> Result<usize, SessionError> {
        let Some(text) = &self.text else {
            return Ok(0);
        };
        let sites = self.hits.done()?;
        for part in parts(&sites, MAX_SITES as usize) {
            let batch = device.poke(part, &[], text);
            self.batches
                .push(batch.map_err(|e| SessionError::TakeOut(e.to_string()))?);
        }
        self.hits.forget(&sites);
        Ok(sites.len())
    }

    /// Sites that hold other bytes now, as far as they can be read.
    /// Those of a module that was unloaded are nobody's.
    pub(crate) fn foreign_sites(&self, kernel: &Kernel, device: &Device) -> u32 {
        let states = self
            .batches
            .iter()
            .filter_map(|b| device.sites(*b).ok())
            .flatten();
        let gone: HashSet<u64> = states
            .filter(|s| s.state == state::GONE)
            .map(|s| s.addr)
            .collect();
        let differs = |(addr, bytes): &(&u64, &Vec<u8>)| {
            kernel
                .read(**addr, bytes.len())
                .is_ok_and(|now| now != **bytes)
        };
        self.expected
            .iter()
            .filter(|(addr, _)| !gone.contains(addr))
            .filter(differs)
            .count() as u32
    }
}

/// Name of a patch module that no loaded one has.
fn module_name() -> String {
    let pid = std::process::id();
    (0..)
        .map(|n: u32| format!("kerninst_p{pid}_{n}"))
        .find(|n| !kerninst_driver::is_loaded(n))
        .unwrap_or_default()
}

/// How patch modules must look on this kernel.
pub(crate) fn module_info(kernel: &Kernel, name: &str) -> Result<ModuleInfo, ArmError> {
    let missing = |what: &str| ArmError::Build(format!("this kernel does not tell {what}"));
    let btf = kernel.btf().ok_or_else(|| missing("its types (BTF)"))?;
    Ok(ModuleInfo {
        name: name.to_string(),
        vermagic: kernel.vermagic().ok_or_else(|| missing("its vermagic"))?,
        struct_module_size: btf
            .struct_size("module")
            .ok_or_else(|| missing("the size of struct module"))?,
        name_offset: btf
            .offset("module", "name")
            .ok_or_else(|| missing("the place of a module's name"))?,
        name_len: 56,
        layout_crc: kernel.symbol_crc("module_layout"),
        has_orc: !kernel.tables().orc.entries().is_empty(),
    })
}

/// Builds and loads the patches of all splices, then writes the sites.
pub(crate) fn arm(
    device: &Device,
    analysis: &Analysis<'_>,
    planned: &PlannedSession,
    patience: Duration,
) -> Result<Armed, ArmError> {
    let kernel = analysis.kernel();
    let splices = planned.splices.as_slice();
    // Before anything is loaded: it may refuse.
    let checks = checks(analysis, planned)?;
    let name = module_name();
    let mut module = PatchModule::new(&module_info(kernel, &name)?);
    let offsets: Vec<u64> = splices
        .iter()
        .map(|s| module.add(&s.patch, &format!("{}.kerninst", s.name)))
        .collect();
    let code_bytes = module.len();
    let image = module.build().map_err(|e| ArmError::Build(e.to_string()))?;
    let text = load_patch_module(&name, &image, code_bytes)?;
    let result = write(device, splices, &offsets, &checks, &text, patience);
    match result {
        Ok(mut armed) => {
            armed.code_bytes = code_bytes;
            Ok(armed)
        }
        Err(e) => {
            // What was written is restored, and what is still in use is collected by the next run.
            let _ = crate::collect::collect(device, Duration::from_millis(500));
            let _ = unload_patch_module(&name);
            Err(e)
        }
    }
}

/// Instructions behind the overwritten bytes that a patch, or a version, runs in place of the original ones. A kprobe that was
/// set there since the picture was taken would be passed by, so the driver compares them, but for what the kernel itself
/// rewrites. Where versions are so many that this is more than the driver takes, the kernel's list of kprobes is asked.
fn checks(analysis: &Analysis<'_>, planned: &PlannedSession) -> Result<Vec<Check>, ArmError> {
    let mut checks = Vec::new();
    let versions: HashSet<u64> = planned.versions.iter().map(|v| v.site).collect();
    let lengths = planned
        .splices
        .iter()
        .map(|s| u64::from(s.displaced))
        .sum::<u64>();
    let too_many = lengths > u64::from(MAX_CHECKS);
    if too_many {
        no_kprobes_in(planned)?;
    }
    for splice in &planned.splices {
        let version = versions.contains(&splice.site);
        if version && too_many {
            continue;
        }
        let Some(function) = analysis.function_at(splice.site) else {
            continue;
        };
        let Some(first) = function.index_at(splice.site) else {
            continue;
        };
        let (from, count) = match version {
            true => (0, usize::MAX),
            false => (first, splice.displaced as usize),
        };
        for insn in function.insns.iter().skip(from).take(count) {
            let own = splice.range();
            if insn.sites.intersects(Sites::MANAGED) || own.contains(&insn.addr) {
                continue;
            }
            let len = usize::from(insn.len);
            let Some(bytes) = analysis.kernel().bytes(insn.addr, len) else {
                continue;
            };
            let mut check = Check {
                addr: insn.addr,
                len: insn.len,
                ..Check::default()
            };
            for (to, from) in check.bytes.iter_mut().zip(bytes) {
                *to = *from;
            }
            checks.push(check);
        }
    }
    // Splices may share what they displace.
    checks.sort_by_key(|c| c.addr);
    checks.dedup_by_key(|c| c.addr);
    Ok(checks)
}

/// Fails if somebody set a kprobe in the body of a function since it was planned to have a version.
fn no_kprobes_in(planned: &PlannedSession) -> Result<(), ArmError> {
    let owners = Owners::live();
    let inside = |addr: u64| {
        planned
            .versions
            .iter()
            .find(|v| v.ranges.iter().any(|r| r.contains(&addr)))
    };
    for (addr, owner) in owners.kprobes() {
        if let (Some(v), Owner::Kprobe { ftrace: false, .. }) = (inside(addr), owner) {
            return Err(ArmError::Conflict(Conflict {
                place: v.function.clone(),
                owner: owner.clone(),
            }));
        }
    }
    Ok(())
}

fn write(
    device: &Device,
    splices: &[Splice],
    offsets: &[u64],
    checks: &[Check],
    text: &PatchText,
    patience: Duration,
) -> Result<Armed, ArmError> {
    let mut armed = Armed {
        module: text.name.clone(),
        text: Some(text.clone()),
        hits: Hits::of(splices, offsets, text)?,
        ..Armed::default()
    };
    let mut first = Vec::new();
    let mut runs: Vec<(&Splice, SiteBytes)> = Vec::new();
    for (splice, offset) in splices.iter().zip(offsets) {
        let bytes = splice
            .site_bytes(text.base + offset)
            .map_err(|e| ArmError::Reach(e.to_string()))?;
        for p in &splice.points {
            armed
                .copies
                .entry(p.at)
                .or_default()
                .push(text.base + offset + u64::from(p.copy));
        }
        if splice.tactic == Tactic::Run {
            // First the int3, whose trap leads to the patch; the jump follows when nobody is inside the run.
            first.push(new_site(
                splice.site,
                site::TRAP,
                &splice.old[..1],
                &[0xcc],
                bytes.target,
            ));
            armed.expected.insert(splice.site, vec![0xcc]);
            runs.push((splice, bytes));
            continue;
        }
        if let Some((addr, jump)) = bytes.board {
            let old = splice.board.as_ref().map_or(&[][..], |b| &b.old);
            first.push(new_site(addr, site::BOARD, old, &jump, bytes.target));
            armed.expected.insert(addr, jump.to_vec());
        }
        let kind = if splice.tactic == Tactic::Int3 {
            site::TRAP
        } else {
            site::LIVE
        };
        push_head_and_tail(&mut first, &mut armed, splice, &bytes, kind, &splice.old);
    }
    for (n, part) in parts(&first, MAX_SITES as usize).enumerate() {
        // What is compared is compared before the first byte is written.
        let checks = if n == 0 { checks } else { &[] };
        armed.batches.push(device.poke(part, checks, text)?);
    }
    if !runs.is_empty() {
        finish_runs(device, &runs, text, patience, &mut armed)?;
    }
    Ok(armed)
}

/// Pieces of at most `most` sites that one `POKE` takes each. A board is in the same piece as, or an earlier one than, what
/// leads to it, and a tail is with its head: sites are made in that order.
fn parts(sites: &[Site], most: usize) -> impl Iterator<Item = &[Site]> {
    let mut rest = sites;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut at = rest.len().min(most.max(2));
        if at < rest.len() && rest.get(at).is_some_and(|s| s.kind == site::TAIL) {
            at -= 1;
        }
        let (part, later) = rest.split_at(at);
        rest = later;
        Some(part)
    })
}

/// The second step of `run` sites: those that nobody is inside of become jumps, the others stay an `int3`.
fn finish_runs(
    device: &Device,
    runs: &[(&Splice, SiteBytes)],
    text: &PatchText,
    patience: Duration,
    armed: &mut Armed,
) -> Result<(), ArmError> {
    let interior = |s: &Splice| (s.site + 1, s.site + s.old.len() as u64);
    let ranges: Vec<(u64, u64)> = runs.iter().map(|(s, _)| interior(s)).collect();
    match device.prove_clear(&ranges, patience) {
        Ok(()) => {}
        // The look stops at a task's first word: whoever is in one run may be in another too.
        Err(NotClear::Blocked(_) | NotClear::Cpu { .. }) => {
            armed.slow = runs.len() as u32;
            return Ok(());
        }
        Err(NotClear::Device(e)) => return Err(e.into()),
    }
    let mut second = Vec::new();
    for (splice, bytes) in runs {
        let mut old = splice.old.clone();
        if let Some(first) = old.first_mut() {
            *first = 0xcc;
        }
        push_head_and_tail(&mut second, armed, splice, bytes, site::LIVE, &old);
    }
    for part in parts(&second, MAX_SITES as usize) {
        armed.batches.push(device.poke(part, &[], text)?);
    }
    Ok(())
}

fn push_head_and_tail(
    sites: &mut Vec<Site>,
    armed: &mut Armed,
    splice: &Splice,
    bytes: &SiteBytes,
    kind: u8,
    old: &[u8],
) {
    let head = bytes.jump.len().min(old.len());
    sites.push(new_site(
        splice.site,
        kind,
        &old[..head],
        &bytes.jump,
        bytes.target,
    ));
    armed.expected.insert(splice.site, bytes.jump.clone());
    // An int3 is restored by one byte; what follows it stays as it is.
    if kind != site::TRAP && !bytes.tail.is_empty() {
        let addr = splice.site + head as u64;
        sites.push(new_site(
            addr,
            site::TAIL,
            &old[head..],
            &bytes.tail,
            bytes.target,
        ));
        armed.expected.insert(addr, bytes.tail.clone());
    }
}

pub(crate) fn new_site(addr: u64, kind: u8, old: &[u8], new: &[u8], patch: u64) -> Site {
    let mut site = Site {
        addr,
        patch,
        kind,
        len: new.len().min(16) as u8,
        ..Site::default()
    };
    for (to, from) in site.old.iter_mut().zip(old) {
        *to = *from;
    }
    for (to, from) in site.new.iter_mut().zip(new) {
        *to = *from;
    }
    site
}
