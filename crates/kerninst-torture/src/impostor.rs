//! A module that has the driver's name and nothing else of it.

use crate::{Failure, live};
use kerninst_driver::DRIVER_NAME;
use kerninst_patch::{ModuleInfo, PatchModule};

/// What to do.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum What {
    /// Load it.
    Load,
    /// Unload it.
    Unload,
}

pub fn run(what: What) -> Result<(), Failure> {
    match what {
        What::Unload => kerninst_driver::unload_patch_module(DRIVER_NAME)
            .map_err(|e| e.to_string())?
            .then_some(())
            .ok_or_else(|| "it is in use".into()),
        What::Load => {
            let kernel = live()?;
            let btf = kernel.btf().ok_or("no BTF")?;
            let info = ModuleInfo {
                name: DRIVER_NAME.into(),
                vermagic: kernel.vermagic().ok_or("no vermagic")?,
                struct_module_size: btf.struct_size("module").ok_or("no struct module")?,
                name_offset: btf.offset("module", "name").ok_or("no module name")?,
                name_len: 56,
                layout_crc: kernel.symbol_crc("module_layout"),
                has_orc: false,
            };
            let mut module = PatchModule::new(&info);
            let nothing = kerninst_patch::CodePatch {
                bytes: vec![0xc3],
                ..Default::default()
            };
            module.add(&nothing, "nothing");
            let image = module.build().map_err(|e| e.to_string())?;
            kerninst_driver::load_patch_module(DRIVER_NAME, &image, 1)
                .map(drop)
                .map_err(|e| e.to_string())
        }
    }
}
