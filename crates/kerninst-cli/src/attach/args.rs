//! Arguments of `attach`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::args::{CountArgs, MeansArg, Source};
use crate::count::Seconds;

/// Arguments of `attach`.
#[derive(Debug, Clone, Args)]
#[command(
    long_about = "Run a BPF program before any instruction of the running kernel: at any point that `count` takes. The \
        program is of type kprobe (its section is called kprobe or kprobe/…) and passes the kernel's verifier; its context is a \
        struct pt_regs with the registers as they are at the point. Of the flags only the bit that is always set is there. \
        Its maps can be read by bpftool while it is attached.",
    after_help = "Exit codes: 0 all well, 1 nothing matched, 2 error (the verifier's no among them), 3 a visit was skipped (with \
        --strict).\n\nExamples:\n  kerninst attach count.o:count_reads insn:vfs_read+0x35 -d 10\n  \
        kerninst attach count.o 'block:vfs_read/*' -- cat /etc/passwd"
)]
pub struct AttachArgs {
    /// The object file, and which of its programs (needed if it has several).
    #[arg(value_name = "OBJECT[:PROGRAM]")]
    pub program: ProgramName,
    /// Where to run it.
    #[arg(value_name = "POINT", required = true)]
    pub points: Vec<String>,
    /// Which kernel (--image only with --plan).
    #[command(flatten)]
    pub source: Source,
    /// End after this time: seconds, or 200ms, 2m, 1h.
    #[arg(
        long,
        short,
        value_name = "TIME",
        conflicts_with = "command",
        allow_negative_numbers = true
    )]
    pub duration: Option<Seconds>,
    /// Show the points with their tactics and refusals, and stop before anything is loaded (works with --image, without root).
    #[arg(long)]
    pub plan: bool,
    /// How points are reached: one by one by splices, or inline in a new version of their function.
    #[arg(long, value_enum, default_value_t)]
    pub means: MeansArg,
    /// Arm nothing unless all points can be; exit code 3 if a visit was skipped.
    #[arg(long)]
    pub strict: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Stay attached while this command runs.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl AttachArgs {
    /// The same points, to be counted.
    pub(super) fn as_count(&self) -> CountArgs {
        CountArgs {
            points: self.points.clone(),
            source: self.source.clone(),
            plan: self.plan,
            means: self.means,
            strict: self.strict,
            json: self.json,
            ..CountArgs::default()
        }
    }
}

/// `OBJECT[:PROGRAM]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramName {
    /// The object file.
    pub object: PathBuf,
    /// The program's function; `None`: the only one.
    pub name: Option<String>,
}

impl FromStr for ProgramName {
    type Err = String;

    fn from_str(text: &str) -> Result<ProgramName, String> {
        // A path may have a colon, a function's name has no slash.
        let split = text.rsplit_once(':');
        let split = split.filter(|(_, name)| !name.contains('/'));
        let (object, name) = match split {
            Some((object, name)) => (object, Some(name)),
            None => (text, None),
        };
        if object.is_empty() || name == Some("") {
            return Err(format!(
                "{text:?}: write OBJECT.o:PROGRAM, such as count.o:count_reads"
            ));
        }
        Ok(ProgramName {
            object: object.into(),
            name: name.map(String::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch a directory with a colon that is taken for a program's name.
    #[test]
    fn object_and_program() {
        for (text, want) in [
            ("a.o:p", Some(("a.o", Some("p")))),
            ("a.o", Some(("a.o", None))),
            ("/x:y/a.o", Some(("/x:y/a.o", None))),
            ("/x:y/a.o:p", Some(("/x:y/a.o", Some("p")))),
            (":p", None),
            ("a.o:", None),
            ("", None),
        ] {
            let got = text.parse::<ProgramName>().ok();
            let want = want.map(|(object, name)| ProgramName {
                object: object.into(),
                name: name.map(String::from),
            });
            assert_eq!(got, want, "{text:?}");
        }
    }
}
