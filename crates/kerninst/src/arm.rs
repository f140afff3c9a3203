//! From planned splices to written sites.

use crate::error::ArmError;
use kerninst_driver::abi::{Site, site, state};
use kerninst_driver::{
    BatchId, Device, NotClear, PatchText, load_patch_module, unload_patch_module,
};
use kerninst_kernel::Kernel;
use kerninst_patch::{ModuleInfo, PatchModule, SiteBytes, Splice, Tactic};
use std::collections::{BTreeMap, HashMap, HashSet};
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
    /// By site and point: address of the point's copy.
    pub(crate) copies: HashMap<(u64, u64), u64>,
    /// Address and bytes of each site, to look whether they are still there.
    expected: BTreeMap<u64, Vec<u8>>,
}

impl Armed {
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
    kernel: &Kernel,
    splices: &[Splice],
    patience: Duration,
) -> Result<Armed, ArmError> {
    let name = module_name();
    let mut module = PatchModule::new(&module_info(kernel, &name)?);
    let offsets: Vec<u64> = splices
        .iter()
        .map(|s| module.add(&s.patch, &format!("{}.kerninst", s.name)))
        .collect();
    let code_bytes = module.len();
    let image = module.build().map_err(|e| ArmError::Build(e.to_string()))?;
    let text = load_patch_module(&name, &image, code_bytes)?;
    let result = write(device, splices, &offsets, &text, patience);
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

fn write(
    device: &Device,
    splices: &[Splice],
    offsets: &[u64],
    text: &PatchText,
    patience: Duration,
) -> Result<Armed, ArmError> {
    let mut armed = Armed {
        module: text.name.clone(),
        ..Armed::default()
    };
    let mut first = Vec::new();
    let mut runs: Vec<(&Splice, SiteBytes)> = Vec::new();
    for (splice, offset) in splices.iter().zip(offsets) {
        let bytes = splice
            .site_bytes(text.base + offset)
            .map_err(|e| ArmError::Reach(e.to_string()))?;
        for p in &splice.points {
            armed.copies.insert(
                (splice.site, p.addr),
                text.base + offset + u64::from(p.copy),
            );
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
    armed.batches.push(device.poke(&first, text)?);
    if !runs.is_empty() {
        finish_runs(device, &runs, text, patience, &mut armed)?;
    }
    Ok(armed)
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
    if !second.is_empty() {
        armed.batches.push(device.poke(&second, text)?);
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

fn new_site(addr: u64, kind: u8, old: &[u8], new: &[u8], patch: u64) -> Site {
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
