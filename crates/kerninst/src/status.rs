//! What is armed, by whom, and what waits to be freed.

use crate::collect::name_of;
use crate::owners::Owners;
use kerninst_driver::{BatchId, Device, DeviceError, Driver, abi};

/// One batch.
#[derive(Clone, Debug)]
pub struct BatchStatus {
    /// Number.
    pub id: u64,
    /// Process that armed it.
    pub owner: i32,
    /// Its command name, if it lives.
    pub comm: Option<String>,
    /// It is armed by a living session; otherwise it waits to be freed.
    pub armed: bool,
    /// Its patch module.
    pub module: String,
    /// Sites that hold our bytes, by address: address, length, board or not.
    pub sites: Vec<abi::SiteState>,
    /// Sites that somebody else has written over.
    pub stuck: u32,
    /// Sites whose module was unloaded.
    pub gone: u32,
}

/// State of kerninst on this machine.
#[derive(Clone, Debug)]
pub struct Status {
    /// The driver is loaded.
    pub loaded: bool,
    /// Process that has the device; 0: none.
    pub owner: i32,
    /// Newest first.
    pub batches: Vec<BatchStatus>,
    /// Other users of kernel text.
    pub others: Owners,
}

/// Fails if another kerninst is at work: cheaper to know before a kernel is looked at than after.
///
/// # Errors
/// [`DeviceError::InUse`], or what is wrong with the driver that is loaded.
pub fn in_use() -> Result<(), DeviceError> {
    if !Driver::is_loaded() {
        return Ok(());
    }
    match Device::observe()?.info()?.owner {
        0 => Ok(()),
        owner => Err(DeviceError::InUse(Some(owner))),
    }
}

/// Looks, beside a running session too.
///
/// # Errors
/// The device.
pub fn status() -> Result<Status, DeviceError> {
    let mut status = Status {
        loaded: Driver::is_loaded(),
        owner: 0,
        batches: Vec::new(),
        others: Owners::live(),
    };
    if !status.loaded {
        return Ok(status);
    }
    let device = Device::observe()?;
    status.owner = device.info()?.owner;
    for batch in device.batches()? {
        let sites = device.sites(BatchId(batch.id))?;
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", batch.owner)).ok();
        status.batches.push(BatchStatus {
            id: batch.id,
            owner: batch.owner,
            comm: comm
                .filter(|_| batch.owned != 0)
                .map(|c| c.trim().to_string()),
            armed: batch.owned != 0,
            module: name_of(&batch),
            sites,
            stuck: batch.stuck,
            gone: batch.gone,
        });
    }
    Ok(status)
}
