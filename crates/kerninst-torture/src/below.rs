//! Threads asleep in calls that patches made themselves (tactic `after-call`), while these are taken out: their stacks
//! hold addresses of the patches, which must stay until they wake, and go then.

use crate::kill::nothing_left;
use crate::text::Snapshot;
use crate::{Failure, live};
use kerninst::{ArmOptions, Means, Owners, Point, Session};
use kerninst_analysis::Analysis;
use kerninst_patch::{Boards, Options, Planner, Tactic};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Functions that call what puts a reader of an empty pipe or socket to sleep.
const FUNCTIONS: [&str; 7] = [
    "pipe_read",
    "anon_pipe_read",
    "unix_stream_recvmsg",
    "unix_stream_read_generic",
    "sock_recvmsg",
    "vfs_read",
    "ksys_read",
];

pub fn run() -> Result<(), Failure> {
    let kernel = live()?;
    let analysis = Analysis::new(&kernel);
    let before = Snapshot::take(&kernel)?;
    let planner = Planner::new(&analysis, Options::default());
    let mut points = Vec::new();
    for symbol in FUNCTIONS.iter().flat_map(|f| kernel.symbols().named(f)) {
        let Some(function) = analysis.function_at(symbol.addr) else {
            continue;
        };
        let survey = planner.survey(&function, &Boards::new());
        for (insn, tactic) in function.insns.iter().zip(survey) {
            if tactic == Ok(Tactic::AfterCall) {
                points.push(Point::insn(0, &function, insn.addr));
            }
        }
    }
    let options = ArmOptions {
        means: Means::Splices,
        retire_patience: Duration::from_millis(200),
        ..ArmOptions::default()
    };
    let (mut kept, mut counted) = (0, 0);
    for round in 0..4u8 {
        let session = Session::arm(&analysis, &points, &Owners::live(), options)
            .map_err(|e| e.to_string())?;
        let (mut from_pipe, mut to_pipe) = std::io::pipe().map_err(|e| e.to_string())?;
        let (mut from_socket, mut to_socket) = UnixStream::pair().map_err(|e| e.to_string())?;
        let readers = [
            std::thread::spawn(move || two_bytes(&mut from_pipe)),
            std::thread::spawn(move || two_bytes(&mut from_socket)),
        ];
        std::thread::sleep(Duration::from_millis(300));
        // One byte before the patches go: the second is waited for inside them.
        to_pipe.write_all(&[round]).map_err(|e| e.to_string())?;
        to_socket.write_all(&[round]).map_err(|e| e.to_string())?;
        std::thread::sleep(Duration::from_millis(300));
        let counts = session.read().map_err(|e| e.to_string())?;
        counted += counts.counts.iter().map(|c| c.total()).sum::<u64>();
        let report = session.disarm().map_err(|e| e.to_string())?;
        before.check(&kernel)?;
        kept += u32::from(!report.freed);
        // Whoever comes back now must find code there.
        to_pipe.write_all(&[!round]).map_err(|e| e.to_string())?;
        to_socket.write_all(&[!round]).map_err(|e| e.to_string())?;
        for reader in readers {
            let read = reader.join().map_err(|_| "a reader died")?;
            if read? != [round, !round] {
                return Err(format!("round {round}: something else was read"));
            }
        }
        kerninst::reset(None, Duration::from_secs(5)).map_err(|e| e.to_string())?;
        nothing_left()?;
    }
    before.check(&kernel)?;
    if counted == 0 || kept == 0 {
        return Err(format!(
            "{} points, {counted} executions, {kept} patches were waited for: nothing is shown",
            points.len()
        ));
    }
    println!(
        "{}",
        serde_json::json!({"job": "below", "points": points.len(), "executions": counted, "kept": kept})
    );
    Ok(())
}

fn two_bytes(from: &mut impl Read) -> Result<[u8; 2], Failure> {
    let mut bytes = [0; 2];
    let (first, second) = bytes.split_at_mut(1);
    from.read_exact(first).map_err(|e| e.to_string())?;
    from.read_exact(second).map_err(|e| e.to_string())?;
    Ok(bytes)
}
