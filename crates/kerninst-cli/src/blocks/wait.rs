//! The time while counters are armed.

use std::ffi::OsString;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::Fail;
use crate::count::pass_on;
use crate::count::watch::{Signal, Watch};
use crate::ui::Ui;

/// How long counting goes on.
pub struct Span<'a> {
    /// So long, where there is no command; none: until Ctrl-C.
    pub duration: Option<Duration>,
    /// While this command runs; empty: none.
    pub command: &'a [OsString],
}

/// Something that is done now and then while counters are armed.
pub struct Chore<'a> {
    /// How often.
    pub every: Duration,
    /// What.
    pub work: &'a mut dyn FnMut() -> Result<(), Fail>,
}

/// Waits for a signal, until `deadline`, or until the chore is due, which is then done.
fn wait_once(
    watch: &Watch,
    deadline: Option<Instant>,
    chore: &mut Option<Chore>,
) -> Result<Option<Signal>, Fail> {
    let Some(chore) = chore else {
        return Ok(watch.wait(deadline));
    };
    let due = Instant::now() + chore.every;
    let signal = watch.wait(Some(deadline.map_or(due, |d| d.min(due))));
    if signal.is_none() && Instant::now() >= due {
        (chore.work)()?;
    }
    Ok(signal)
}

/// Until the command has ended, the time is over, or the user has had enough. Gives the command's status, if it ended.
///
/// # Errors
/// [`Fail::Error`]: the command cannot be run; what the chore says.
pub fn wait(
    watch: &Watch,
    span: &Span,
    what: &str,
    mut chore: Option<Chore>,
    ui: &mut Ui,
) -> Result<Option<ExitStatus>, Fail> {
    let deadline = span.duration.and_then(|d| Instant::now().checked_add(d));
    let Some((program, rest)) = span.command.split_first() else {
        let end = match deadline {
            Some(_) => "",
            None => "; Ctrl-C ends it and shows the counts",
        };
        ui.note(&format!("counting {what}{end}"));
        loop {
            let signal = wait_once(watch, deadline, &mut chore)?;
            let over = deadline.is_some_and(|d| d <= Instant::now());
            if over || matches!(signal, Some(Signal::Stop(_))) {
                return Ok(None);
            }
        }
    };
    let spawned = Command::new(program).args(rest).spawn();
    let mut child = spawned
        .map_err(|e| Fail::Error(format!("cannot run {}: {e}", program.to_string_lossy())))?;
    loop {
        let signal = wait_once(watch, None, &mut chore)?;
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if let Some(Signal::Stop(number)) = signal {
            pass_on(&child, number);
            return Ok(None);
        }
    }
}
