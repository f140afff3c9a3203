//! The driver, loaded and open, before anything is armed: memory is allocated here.

use crate::collect;
use crate::error::ArmError;
use kerninst_driver::{Area, Device, Driver, abi};
use kerninst_kernel::Kernel;
use std::time::Duration;

/// The driver with its device open for this process alone. Dropping it closes the device and unloads the driver, unless patches of
/// earlier runs still need it.
#[derive(Debug)]
pub struct Access {
    device: Option<Device>,
}

impl Access {
    /// Loads the driver unless it is there, opens its device, and frees what an earlier run left.
    ///
    /// # Errors
    /// [`ArmError`].
    pub fn new(kernel: &Kernel) -> Result<Access, ArmError> {
        Driver::load(kernel)?;
        let device = match Device::open() {
            Ok(device) => device,
            Err(e) => {
                // As found: a driver that nobody uses goes. In use, it stays.
                let _ = Driver::unload();
                return Err(e.into());
            }
        };
        let _ = collect::collect(&device, Duration::ZERO);
        Ok(Access {
            device: Some(device),
        })
    }

    /// The device.
    ///
    /// # Errors
    /// None while this value is whole: an engine's fault otherwise.
    pub(crate) fn device(&self) -> Result<&Device, ArmError> {
        self.device
            .as_ref()
            .ok_or(ArmError::Build("the device is closed already".into()))
    }

    /// Memory that generated code may write, zeroed, of this many bytes at least.
    ///
    /// # Errors
    /// [`ArmError`]: there is not enough.
    pub fn area(&self, bytes: usize) -> Result<Area, ArmError> {
        Ok(self.device()?.area(bytes)?)
    }

    /// Addresses of the functions that generated code may call.
    ///
    /// # Errors
    /// [`ArmError`].
    pub fn callouts(&self) -> Result<abi::Callouts, ArmError> {
        Ok(self.device()?.callouts()?)
    }

    /// For the session that goes on with it.
    pub(crate) fn into_device(mut self) -> Result<Device, ArmError> {
        self.device
            .take()
            .ok_or(ArmError::Build("the device is closed already".into()))
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        if let Some(device) = self.device.take() {
            drop(device);
            let _ = Driver::unload();
        }
    }
}
