//! Freeing what is disarmed: patches in which no task is any more.

use crate::error::SessionError;
use kerninst_driver::abi::{Batch, Pair};
use kerninst_driver::{
    BatchId, DRIVER_NAME, Device, DeviceError, Driver, NotClear, unload_patch_module,
};
use kerninst_kernel::Kernel;
use kerninst_patch::RETURNS;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Batches freed.
    pub freed: u32,
    /// Batches that stay: stuck, armed by somebody alive, or with a task inside.
    pub left: u32,
    /// Why, in a sentence.
    pub waiting: Option<String>,
}

pub(crate) fn name_of(batch: &Batch) -> String {
    let end = batch
        .module
        .iter()
        .position(|&b| b == 0)
        .unwrap_or(batch.module.len());
    String::from_utf8_lossy(&batch.module[..end]).into_owned()
}

/// Restores what can be restored of every batch, and frees those whose patch nobody is in.
pub(crate) fn collect(device: &Device, patience: Duration) -> Result<Collected, SessionError> {
    collect_with(device, patience, |_, _| Ok(()))
}

/// Visits of versions that were under way when they were disarmed: their tasks went on in the original.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// By return address of the call, in the original: how many visits were below it.
    pub calls: Vec<(u64, u64)>,
    /// Tasks whose visits could not be counted.
    pub unsure: u32,
}

fn left(pairs: &[Pair], unsure: u32) -> UnderWay {
    let seen = pairs.iter().filter(|p| p.visits > 0);
    UnderWay {
        calls: seen.map(|p| (p.to, u64::from(p.visits))).collect(),
        unsure,
    }
}

/// As [`collect`]; `still` is called with the name of each patch module that nobody is in any more, and with the visits that
/// left it for the original, before it is freed.
pub(crate) fn collect_with(
    device: &Device,
    patience: Duration,
    mut still: impl FnMut(&str, &UnderWay) -> Result<(), SessionError>,
) -> Result<Collected, SessionError> {
    let mut collected = Collected::default();
    // Newest first, as the driver lists them: a later batch may stand on an earlier one's site.
    let mut by_module: BTreeMap<String, Vec<Batch>> = BTreeMap::new();
    for batch in device.batches()? {
        let report = device.restore(BatchId(batch.id))?;
        if report.stuck > 0 {
            collected.left += 1;
            collected.waiting = Some(format!(
                "{} written over by somebody else (a kprobe?) and left as found, with the patches, \
                 until that is removed: then run `kerninst reset`",
                if report.stuck == 1 {
                    "1 site was".into()
                } else {
                    format!("{} sites were", report.stuck)
                }
            ));
            continue;
        }
        by_module.entry(name_of(&batch)).or_default().push(batch);
    }
    for (module, batches) in by_module {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        ranges.extend(batches.iter().map(|b| (b.text, b.text + b.text_len)));
        // They share the module's text.
        ranges.dedup();
        for batch in &batches {
            let sites = device.sites(BatchId(batch.id))?;
            let is_board =
                |s: &&kerninst_driver::abi::SiteState| s.kind == kerninst_driver::abi::site::BOARD;
            ranges.extend(
                sites
                    .iter()
                    .filter(is_board)
                    .map(|s| (s.addr, s.addr + u64::from(s.len))),
            );
        }
        // Tasks that sleep below a call of a version go on in the original.
        let mut pairs = match batches.first() {
            Some(b) => kerninst_driver::returns(&module, RETURNS, b.text),
            None => Vec::new(),
        };
        let mut unsure = 0;
        let first = batches.first().map(|b| BatchId(b.id));
        let proof = device.prove_clear_while(&ranges, patience, || {
            if let (Some(batch), false) = (first, pairs.is_empty()) {
                unsure += device.migrate(batch, &mut pairs)?.unsure;
            }
            Ok(())
        });
        match proof {
            Ok(()) => {}
            Err(e @ NotClear::Blocked(_)) => {
                collected.left += batches.len() as u32;
                collected.waiting = Some(e.to_string());
                continue;
            }
            Err(e) => return Err(e.into()),
        }
        still(&module, &left(&pairs, unsure))?;
        let mut all = true;
        for batch in &batches {
            if device.forget(BatchId(batch.id))? {
                collected.freed += 1;
            } else {
                collected.left += 1;
                all = false;
            }
        }
        if all && !module.is_empty() {
            // Somebody who holds a reference for a moment only delays it: the next run, or reset, finds it by name.
            let _ = unload_patch_module(&module);
        }
    }
    remove_orphans(device)?;
    Ok(collected)
}

/// Patch modules that no batch names: their owner died between loading and arming, so nothing ever led there.
fn remove_orphans(device: &Device) -> Result<(), DeviceError> {
    let named: Vec<String> = device.batches()?.iter().map(name_of).collect();
    let modules = std::fs::read_to_string("/proc/modules").unwrap_or_default();
    for name in modules.lines().filter_map(|l| l.split_whitespace().next()) {
        let ours = name
            .strip_prefix(DRIVER_NAME)
            .is_some_and(|rest| rest.starts_with("_p"));
        if ours && !named.iter().any(|n| n == name) {
            let _ = unload_patch_module(name);
        }
    }
    Ok(())
}

/// Takes back all that any dead kerninst left, and unloads the driver if nothing is left. `None`: nothing was there.
///
/// # Errors
/// Another kerninst is at work, or the device fails.
pub fn reset(
    _kernel: Option<&Kernel>,
    patience: Duration,
) -> Result<Option<Collected>, SessionError> {
    if !Driver::is_loaded() {
        return Ok(None);
    }
    let device = Device::open()?;
    let collected = collect(&device, patience)?;
    drop(device);
    if collected.left == 0 {
        // In use for a moment at most: it does no harm loaded.
        let _ = Driver::unload();
    }
    Ok(Some(collected))
}
