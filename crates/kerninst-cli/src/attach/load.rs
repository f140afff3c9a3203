//! The BPF program: from an object file through the kernel's verifier.

use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::MapInfo;
use aya::programs::{KProbe, Program, ProgramError};
use aya::{Ebpf, EbpfLoader};
use serde::Serialize;

use super::args::ProgramName;
use crate::Fail;
use crate::ui::Ui;

/// A map that the program uses.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MapId {
    /// Its name, which the kernel cuts off after 15 bytes.
    pub name: String,
    /// What bpftool calls it by.
    pub id: u32,
}

/// A program in the kernel. Dropping it gives it and its maps back, as far as nobody else has them.
pub(super) struct Loaded {
    /// Its function.
    pub name: String,
    /// What bpftool calls it by.
    pub id: u32,
    /// Its maps.
    pub maps: Vec<MapId>,
    all: Ebpf,
}

impl Loaded {
    /// Loads it, with its maps. The verifier's log is shown if it says no.
    pub(super) fn new(wanted: &ProgramName, ui: &mut Ui) -> Result<Loaded, Fail> {
        let path = wanted.object.display();
        let bytes = std::fs::read(&wanted.object)
            .map_err(|e| Fail::Error(format!("cannot read {path}: {e}")))?;
        let mut all = EbpfLoader::new()
            .load(&bytes)
            .map_err(|e| Fail::Error(format!("{path}: {}", chain(&e))))?;
        let name = choose(&all, wanted)?;
        let program = kprobe(&mut all, &name)?;
        match program.load() {
            Ok(()) => {}
            Err(ProgramError::LoadError {
                io_error,
                verifier_log,
            }) => {
                ui.note(verifier_log.to_string().trim_end());
                return Err(Fail::Error(format!(
                    "the kernel does not accept {name} of {path} ({io_error}; its verifier's log is above): nothing was armed"
                )));
            }
            Err(e) => return Err(Fail::Error(format!("{name} of {path}: {}", chain(&e)))),
        }
        let info = program.info();
        let info = info.map_err(|e| Fail::Error(chain(&e)))?;
        // A kernel that does not tell which maps a program uses has no names for them either.
        let ids = info.map_ids().ok().flatten().unwrap_or_default();
        let maps = ids.into_iter().map(|id| MapId {
            name: MapInfo::from_id(id)
                .ok()
                .and_then(|m| m.name_as_str().map(String::from))
                .unwrap_or_default(),
            id,
        });
        Ok(Loaded {
            id: info.id(),
            maps: maps.collect(),
            name,
            all,
        })
    }

    /// Its file descriptor.
    pub(super) fn fd(&self) -> Result<BorrowedFd<'_>, Fail> {
        let program = self.all.program(&self.name);
        let fd = program.and_then(|p| p.fd().ok());
        fd.map(AsFd::as_fd)
            .ok_or_else(|| Fail::error("the program is not loaded any more"))
    }
}

/// The program that is asked for, or the only one.
fn choose(all: &Ebpf, wanted: &ProgramName) -> Result<String, Fail> {
    let path = wanted.object.display();
    let mut names: Vec<&str> = all.programs().map(|(name, _)| name).collect();
    names.sort_unstable();
    match (&wanted.name, names.as_slice()) {
        (_, []) => Err(Fail::Error(format!("{path} has no BPF program"))),
        (Some(name), names) if names.contains(&name.as_str()) => Ok(name.clone()),
        (Some(name), names) => Err(Fail::Nothing(format!(
            "{path} has no program {name}; it has {}",
            names.join(", ")
        ))),
        (None, [only]) => Ok((*only).to_string()),
        (None, names) => Err(Fail::Error(format!(
            "{path} has several programs: add one of :{}",
            names.join(", :")
        ))),
    }
}

fn kprobe<'a>(all: &'a mut Ebpf, name: &str) -> Result<&'a mut KProbe, Fail> {
    match all.program_mut(name) {
        Some(Program::KProbe(program)) => Ok(program),
        _ => Err(Fail::Error(format!(
            "{name} is no program of type kprobe: only those have registers as their context (its section should be called kprobe)"
        ))),
    }
}

/// An error with its causes, on one line.
fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut cause = e.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
