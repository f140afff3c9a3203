//! `kerninst status` and `kerninst reset`.

use std::time::Duration;

use kerninst::{BatchStatus, Owner, Status};
use kerninst_driver::abi::{SiteState, site};
use kerninst_kernel::Kernel;
use serde::Serialize;

use crate::Fail;
use crate::args::{ResetArgs, StatusArgs};
use crate::json::{self, Hex};
use crate::paint::Style;
use crate::table::{Align, Table};
use crate::ui::Ui;

/// How long `reset` waits for tasks to leave patches.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state: schema `kerninst.status/1`.
#[derive(Serialize)]
struct StatusLine {
    driver_loaded: bool,
    /// Process that has the device.
    owner: Option<i32>,
    batches: Vec<BatchLine>,
    kprobes: Vec<KprobeLine>,
    /// False: debugfs cannot be read, so other users' kprobes are not known.
    kprobes_known: bool,
    livepatches: Vec<LivepatchLine>,
}

#[derive(Serialize)]
struct BatchLine {
    id: u64,
    owner: i32,
    comm: Option<String>,
    /// `armed`, or `waiting` to be freed.
    state: &'static str,
    module: String,
    sites: Vec<SiteLine>,
    stuck: u32,
    gone: u32,
}

#[derive(Serialize)]
struct SiteLine {
    addr: Hex,
    place: Option<String>,
    len: u8,
    /// `jump`, `tail` (of an overwritten instruction), `board` (a springboard) or `int3`.
    kind: &'static str,
}

#[derive(Serialize)]
struct KprobeLine {
    addr: Hex,
    place: Option<String>,
    optimized: bool,
    ftrace: bool,
}

#[derive(Serialize)]
struct LivepatchLine {
    function: String,
    patch: String,
}

/// `kerninst status`.
///
/// # Errors
/// [`Fail::Error`] if the driver does not answer.
pub fn status(args: &StatusArgs, ui: &mut Ui) -> Result<(), Fail> {
    let status = kerninst::status().map_err(|e| Fail::Error(e.to_string()))?;
    let needed = !status.batches.is_empty() || status.others.kprobes().next().is_some();
    // Without root there are no names, but there is a status.
    let kernel = if needed { Kernel::live().ok() } else { None };
    let line = line(&status, kernel.as_ref());
    if args.json {
        return json::line(ui.out, "kerninst.status/1", &line);
    }
    text(&line, args.long, ui)
}

fn place(kernel: Option<&Kernel>, addr: u64) -> Option<String> {
    let (s, offset) = kernel?.symbols().containing(addr)?;
    Some(match offset {
        0 => s.id(),
        n => format!("{}+{n:#x}", s.id()),
    })
}

fn line(status: &Status, kernel: Option<&Kernel>) -> StatusLine {
    let site_line = |s: &SiteState| SiteLine {
        addr: Hex(s.addr),
        place: place(kernel, s.addr),
        len: s.len,
        kind: match s.kind {
            site::LIVE => "jump",
            site::TAIL => "tail",
            site::BOARD => "board",
            site::TRAP => "int3",
            _ => "other",
        },
    };
    let batch = |b: &BatchStatus| BatchLine {
        id: b.id,
        owner: b.owner,
        comm: b.comm.clone(),
        state: if b.armed { "armed" } else { "waiting" },
        module: b.module.clone(),
        sites: b.sites.iter().map(site_line).collect(),
        stuck: b.stuck,
        gone: b.gone,
    };
    let kprobe = |(addr, owner): (u64, &Owner)| {
        let Owner::Kprobe { optimized, ftrace } = *owner else {
            return None;
        };
        Some(KprobeLine {
            addr: Hex(addr),
            place: place(kernel, addr),
            optimized,
            ftrace,
        })
    };
    StatusLine {
        driver_loaded: status.loaded,
        owner: Some(status.owner).filter(|p| *p > 0),
        batches: status.batches.iter().map(batch).collect(),
        kprobes: status.others.kprobes().filter_map(kprobe).collect(),
        kprobes_known: status.others.kprobes_known,
        livepatches: status
            .others
            .livepatches()
            .map(|(function, patch)| LivepatchLine {
                function: function.into(),
                patch: patch.into(),
            })
            .collect(),
    }
}

fn text(line: &StatusLine, long: bool, ui: &mut Ui) -> Result<(), Fail> {
    let paint = ui.paint;
    match (line.driver_loaded, line.owner) {
        (false, _) => writeln!(
            ui.out,
            "driver: not loaded; nothing of kerninst is in this kernel"
        )?,
        (true, None) => writeln!(ui.out, "driver: loaded; no process uses it")?,
        (true, Some(pid)) => writeln!(ui.out, "driver: loaded; used by process {pid}")?,
    }
    if !line.batches.is_empty() {
        let mut table = Table::new(&[
            ("BATCH", Align::Right),
            ("STATE", Align::Left),
            ("SITES", Align::Right),
            ("PROCESS", Align::Left),
            ("PATCH MODULE", Align::Left),
            ("REMARK", Align::Left),
        ]);
        for b in &line.batches {
            let style = if b.state == "armed" {
                Style::Good
            } else {
                Style::Warn
            };
            let process = b
                .comm
                .as_ref()
                .map_or(b.owner.to_string(), |c| format!("{} ({c})", b.owner));
            table.row(vec![
                (b.id.to_string(), Style::Plain),
                (b.state.to_string(), style),
                (b.sites.len().to_string(), Style::Plain),
                (process, Style::Plain),
                (b.module.clone(), Style::Plain),
                (remark(b), Style::Warn),
            ]);
        }
        table.write(ui.out, paint)?;
        if line.batches.iter().any(|b| b.state == "waiting") {
            writeln!(
                ui.out,
                "what waits is disarmed; `kerninst reset` frees it as soon as no task is inside"
            )?;
        }
    }
    if long {
        for b in &line.batches {
            for s in &b.sites {
                let place = s.place.clone().unwrap_or_default();
                writeln!(
                    ui.out,
                    "  {:#x}  {} bytes  {:<5}  {place}",
                    s.addr.0, s.len, s.kind
                )?;
            }
        }
    }
    for k in &line.kprobes {
        let place = k
            .place
            .clone()
            .unwrap_or_else(|| format!("{:#x}", k.addr.0));
        let how = match (k.ftrace, k.optimized) {
            (true, _) => "through ftrace: in nobody's way",
            (false, true) => "optimised: points within 16 bytes are refused",
            (false, false) => "points within 16 bytes are refused",
        };
        writeln!(ui.out, "kprobe of somebody else: {place} ({how})")?;
    }
    if !line.kprobes_known {
        writeln!(
            ui.out,
            "kprobes of others: not known (debugfs cannot be read); arming looks again"
        )?;
    }
    for l in &line.livepatches {
        writeln!(
            ui.out,
            "livepatch {}: has replaced {}, which is refused",
            l.patch, l.function
        )?;
    }
    Ok(())
}

fn remark(b: &BatchLine) -> String {
    let mut remarks = Vec::new();
    if b.stuck > 0 {
        remarks.push(format!("{} sites written over by somebody else", b.stuck));
    }
    if b.gone > 0 {
        remarks.push(format!("{} sites gone with their module", b.gone));
    }
    remarks.join(", ")
}

/// `kerninst reset`.
///
/// # Errors
/// [`Fail::Error`] if another kerninst is at work, or something cannot be freed yet.
pub fn reset(args: &ResetArgs, ui: &mut Ui) -> Result<(), Fail> {
    let patience = args.wait.map_or(PATIENCE, |w| w.0);
    let collected = kerninst::reset(None, patience).map_err(|e| Fail::Error(e.to_string()))?;
    let Some(collected) = collected else {
        writeln!(ui.out, "nothing of kerninst is in this kernel")?;
        return Ok(());
    };
    writeln!(
        ui.out,
        "{} batches freed, {} left",
        collected.freed, collected.left
    )?;
    match collected.waiting {
        Some(why) if collected.left > 0 => {
            Err(Fail::Error(format!("not everything could be freed: {why}")))
        }
        _ => Ok(()),
    }
}
