//! `kerninst doctor`: what works on this machine, and what does not and why.

use kerninst::{DoctorReport, Verdict};
use serde::Serialize;

use crate::Fail;
use crate::args::DoctorArgs;
use crate::json;
use crate::paint::Style;
use crate::ui::Ui;

/// One check: schema `kerninst.check/1`.
#[derive(Serialize)]
struct CheckLine<'a> {
    name: &'a str,
    /// `ok`, `note` or `bad`.
    verdict: &'static str,
    text: &'a str,
}

/// The end: schema `kerninst.doctor/1`.
#[derive(Serialize)]
struct Summary {
    can_arm: bool,
}

/// `kerninst doctor`.
///
/// # Errors
/// [`Fail::Error`] if points cannot be armed here.
pub fn run(args: &DoctorArgs, ui: &mut Ui) -> Result<(), Fail> {
    let report = kerninst::doctor();
    show(&report, args, ui)
}

fn show(report: &DoctorReport, args: &DoctorArgs, ui: &mut Ui) -> Result<(), Fail> {
    let width = report
        .checks
        .iter()
        .map(|c| c.name.len())
        .max()
        .unwrap_or(0);
    for c in &report.checks {
        let (verdict, style) = match c.verdict {
            Verdict::Ok => ("ok", Style::Good),
            Verdict::Note => ("note", Style::Warn),
            Verdict::Bad => ("bad", Style::Bad),
        };
        if args.json {
            let line = CheckLine {
                name: c.name,
                verdict,
                text: &c.text,
            };
            json::line(ui.out, "kerninst.check/1", &line)?;
        } else {
            let verdict = ui.paint.paint(style, format!("{verdict:<4}"));
            writeln!(ui.out, "{verdict}  {:<width$}  {}", c.name, c.text)?;
        }
    }
    let can_arm = report.can_arm();
    if args.json {
        json::line(ui.out, "kerninst.doctor/1", &Summary { can_arm })?;
    } else if can_arm {
        writeln!(ui.out, "kerninst works here")?;
    }
    if can_arm {
        return Ok(());
    }
    let bad = report.checks.iter().filter(|c| c.verdict == Verdict::Bad);
    let names: Vec<&str> = bad.map(|c| c.name).collect();
    Err(Fail::Error(format!(
        "points cannot be armed on this machine now ({}); list, show and count --plan work on a kernel file (--image)",
        names.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paint::Paint;
    use kerninst::Check;

    fn check(checks: &[(&'static str, Verdict, &str)], json: bool) -> (String, Option<String>) {
        let report = DoctorReport {
            checks: checks
                .iter()
                .map(|(name, verdict, text)| Check {
                    name,
                    verdict: *verdict,
                    text: (*text).into(),
                })
                .collect(),
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut ui = Ui {
            out: &mut out,
            err: &mut err,
            paint: Paint(false),
            err_paint: Paint(false),
        };
        let result = show(&report, &DoctorArgs { json }, &mut ui);
        (
            String::from_utf8_lossy(&out).into_owned(),
            result.err().map(|e| e.to_string()),
        )
    }

    #[test]
    fn a_healthy_machine() {
        let (out, err) = check(
            &[("root", Verdict::Ok, "may"), ("BTF", Verdict::Note, "hm")],
            false,
        );
        expect_test::expect![[r#"
            ok    root  may
            note  BTF   hm
            kerninst works here
        "#]]
        .assert_eq(&out);
        assert_eq!(err, None);
    }

    #[test]
    fn a_bad_check_is_an_error_that_names_it() {
        let (out, err) = check(&[("root", Verdict::Bad, "run as root")], true);
        expect_test::expect![[r#"
            {"schema":"kerninst.check/1","name":"root","verdict":"bad","text":"run as root"}
            {"schema":"kerninst.doctor/1","can_arm":false}
        "#]]
        .assert_eq(&out);
        assert!(err.is_some_and(|e| e.contains("(root)")));
    }
}
